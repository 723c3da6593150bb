"""sprig's functions for times that need no clock. The local zone is UTC here. Pure."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.functions.registry import function
from penstock.plan.gotemplate.printing import zone_text
from penstock.plan.gotemplate.values import Int, Int64, moment
from penstock.plan.moment import fraction

_LAYOUT = re.compile(
    "January|Jan|Monday|Mon|MST|2006|-07:00:00|-070000|-07:00|-0700|-07|Z07:00:00|Z070000|Z07:00|Z0700|Z07|"
    "_2006|__2|002|[.,]0+(?![0-9])|[.,]9+(?![0-9])|01|02|03|04|05|06|15|PM|pm|_2|1|2|3|4|5"
)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_DURATION = re.compile(r"([0-9]*\.?[0-9]*)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}


def formatted(layout: str, at: datetime) -> str:
    """time.Format"""
    return _LAYOUT.sub(lambda found: _part(found, at), layout)


def _part(found: re.Match[str], at: datetime) -> str:
    token = found[0]
    month, day = _MONTHS[at.month - 1], _DAYS[at.weekday()]
    hour = at.hour % 12 or 12
    simple: dict[str, str] = {
        "January": month, "Jan": month[:3], "Monday": day, "Mon": day[:3], "2006": f"{at.year:04d}",
        "_2006": f"_{at.year:04d}", "06": f"{at.year % 100:02d}", "01": f"{at.month:02d}", "1": str(at.month),
        "02": f"{at.day:02d}", "_2": f"{at.day:2d}", "2": str(at.day), "15": f"{at.hour:02d}", "03": f"{hour:02d}",
        "3": str(hour), "04": f"{at.minute:02d}", "4": str(at.minute), "05": f"{at.second:02d}", "5": str(at.second),
        "PM": "PM" if at.hour >= 12 else "AM", "pm": "pm" if at.hour >= 12 else "am",
        "002": f"{at.timetuple().tm_yday:03d}", "__2": f"{at.timetuple().tm_yday:3d}",
    }  # fmt: skip
    if token in simple:
        return simple[token]
    if token[0] in ".,":
        return _fraction(found, at)
    offset = at.utcoffset() or timedelta()
    if token == "MST":
        name = at.tzname() or ""
        return name if offset and name and not name.startswith("UTC") else _zone_name(offset)
    if token[0] == "Z" and not offset:
        return "Z"
    colon = ":" if ":" in token else ""
    shown = zone_text(offset, colon)
    if token in ("-07", "Z07"):
        return shown[:3]
    return shown + colon + "00" if len(token.replace(":", "")) == 7 else shown


def _zone_name(offset: timedelta) -> str:
    return "UTC" if not offset else zone_text(offset)


def _fraction(found: re.Match[str], at: datetime) -> str:
    """Only after seconds."""
    token = found[0]
    length = len(token) - 1
    digits = fraction(at)[:length]
    if token[1] == "0":
        return token[0] + digits
    digits = digits.rstrip("0")
    return token[0] + digits if digits else ""


def _time(v: Any) -> datetime:
    if isinstance(v, date):
        return moment(v)
    if isinstance(v, Int) and type(v) in (Int, Int64):
        return datetime.fromtimestamp(int(v), UTC)
    raise Failure("a time is expected here, or whole seconds (`int64`); anything else would be the present time")


@function("date", "string", "any")
def date_(layout: str, v: Any) -> str:
    return formatted(layout, _time(v).astimezone(UTC))


@function("dateInZone date_in_zone", "string", "any", "string")
def date_in_zone(layout: str, v: Any, zone: str) -> str:
    return formatted(layout, _time(v).astimezone(_zone(zone)))


@function("htmlDate", "any")
def html_date(v: Any) -> str:
    return formatted("2006-01-02", _time(v).astimezone(UTC))


@function("htmlDateInZone", "any", "string")
def html_date_in_zone(v: Any, zone: str) -> str:
    return formatted("2006-01-02", _time(v).astimezone(_zone(zone)))


def _zone(name: str) -> Any:
    if name in ("", "UTC", "Local"):
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return UTC  # as sprig does


def nanoseconds(s: str) -> int | None:
    """time.ParseDuration. None where it is none."""
    rest = s[1:] if s[:1] in ("+", "-") else s
    if rest == "0":
        return 0
    total, at = 0.0, 0
    while at < len(rest):
        found = _DURATION.match(rest, at)
        if found is None or found[1] in ("", "."):
            return None
        total += float(found[1]) * _UNITS[found[2]]
        at = found.end()
    return None if not rest else int(-total if s[0] == "-" else total)


@function("dateModify date_modify", "string", "time")
def date_modify(by: str, v: datetime) -> datetime:
    found = nanoseconds(by)
    return v if found is None else v + timedelta(microseconds=found / 1000)


@function("mustDateModify must_date_modify", "string", "time")
def must_date_modify(by: str, v: datetime) -> datetime:
    found = nanoseconds(by)
    if found is None:
        raise Failure("dateModify with what is no duration")
    return v + timedelta(microseconds=found / 1000)


@function("unixEpoch", "time")
def unix_epoch(v: datetime) -> str:
    return str((v - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(seconds=1))


@function("duration", "any")
def duration(v: Any) -> str:
    """Seconds, as Go writes durations."""
    seconds = 0
    if (isinstance(v, str) and re.fullmatch("[+-]?[0-9]{1,18}", v)) or type(v) is Int64:
        seconds = int(v)
    if abs(seconds) >= 2**63 // 10**9:
        raise Failure("a duration of more than 292 years")
    minutes, rest = divmod(abs(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    shown = f"{hours}h{minutes}m{rest}s" if hours else f"{minutes}m{rest}s" if minutes else f"{rest}s"
    return "-" + shown if seconds < 0 else shown
