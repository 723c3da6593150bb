"""What a status means for the records of a request, and how long a server asks us to wait. Pure."""

from __future__ import annotations

import email.utils
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import Enum

from penstock.connectors.http.settings import HttpDestinationSettings

EXCERPT = 200  # characters of an answer that go into an error


class Outcome(Enum):
    DELIVERED = "delivered"
    RETRY = "retry"
    REJECT = "reject"
    STOP = "stop"


class Statuses:
    """The lists of the settings, looked up: a status itself first, then its hundred. What no list names stops."""

    def __init__(self, settings: HttpDestinationSettings) -> None:
        self._known: dict[str, Outcome] = {}
        lists = (
            (Outcome.RETRY, settings.retry_on),
            (Outcome.REJECT, settings.reject_on),
            (Outcome.STOP, settings.stop_on),
        )
        for outcome, statuses in lists:
            for status in statuses:
                self._known.setdefault(status, outcome)

    def outcome(self, status: int) -> Outcome:
        named = self._known.get(str(status))
        if named is None and 200 <= status < 300:
            return Outcome.DELIVERED
        return named or self._known.get(f"{status // 100}xx", Outcome.STOP)


def retry_after(headers: Mapping[str, str], longest: float, now: datetime | None = None) -> float:
    """Seconds. 0 where the server says nothing that can be understood."""
    text = headers.get("retry-after", "").strip()
    if re.fullmatch("[0-9]{1,20}", text):
        seconds = float(text)
    else:
        try:
            moment = email.utils.parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return 0.0
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return max(0.0, min(seconds, longest))


def excerpt(body: bytes, secrets: tuple[str, ...]) -> str:
    """The beginning of an answer as it can go into an error: one line, no control characters, none of our secrets."""
    text = body.decode("utf-8", "replace")
    for secret in secrets:
        text = text.replace(secret, "***")
    clean = "".join(c if c.isprintable() else " " for c in text)
    return " ".join(clean.split())[:EXCERPT]
