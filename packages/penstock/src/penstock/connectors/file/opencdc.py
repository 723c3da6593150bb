"""A record as a line of OpenCDC JSON, byte for byte as Conduit writes it. Called by `file` and `stdout`. Pure.

Keys are sorted as they are written, `<`, `>`, `&` and the two line separators are escaped, raw data is base64, doubles are as Go has them.
The engine has an encoder of its own for payloads (`penstock.plan.opencdc`), which needs more than the standard library.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from penstock_sdk import Record

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ODD = re.compile("[<>&\u2028\u2029\ud800-\udfff]|\\\\[bf]|\\\\\\\\")
_FORMS = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"} | {"\\b": "\\u0008", "\\f": "\\u000c", "\\\\": "\\\\"}
_text = json.JSONEncoder(ensure_ascii=False).encode


def line(record: Record) -> bytes:
    """Without its end. ValueError says what has no form in JSON, and where."""
    metadata = dict(record.metadata)
    if record.timestamp is not None and "opencdc.createdAt" not in metadata:  # as it would be on the wire
        metadata["opencdc.createdAt"] = str((record.timestamp - _EPOCH) // timedelta(microseconds=1) * 1000)
    if record.phase != "sync":
        metadata["penstock.phase"] = record.phase
    parts = (
        f'{{"position":{value(record.position or None)}',
        f'"operation":{value(record.operation)}',
        f'"metadata":{value(metadata or None)}',
        f'"key":{value(record.key, "key")}',
        f'"payload":{{"before":{value(record.before, "before")}',
        f'"after":{value(record.after, "after")}}}}}',
    )
    return ",".join(parts).encode()


def value(found: Any, where: str = "") -> str:
    """Any value as JSON. RecursionError is a ValueError, too."""
    try:
        return _value(found, where)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply") from None


def _value(found: Any, where: str) -> str:
    if found is None:
        return "null"
    if isinstance(found, str):
        return _quoted(found)
    if isinstance(found, bool):
        return "true" if found else "false"
    if isinstance(found, int):
        return str(int(found))
    if isinstance(found, float):
        return _number(found, where)
    if isinstance(found, dict):
        members = sorted((_quoted(k if isinstance(k, str) else str(k)), k) for k in found)
        inside = [quoted + ":" + _value(found[k], f"{where}.{k}") for quoted, k in members]
        return "{" + ",".join(inside) + "}"
    if isinstance(found, list | tuple):
        return f"[{','.join([_value(each, where) for each in found])}]"
    if isinstance(found, bytes | bytearray | memoryview):
        return f'"{b64encode(found).decode()}"'
    if isinstance(found, datetime):
        return f'"{_time(found)}"'
    if isinstance(found, Decimal) and found.is_finite():
        return format(found, "f")
    raise ValueError(f"{where} is a {type(found).__name__}, which JSON has no form for")


def _quoted(text: str) -> str:
    """Half of a surrogate pair stands for a byte that is no UTF-8."""
    made = _text(text)
    return _ODD.sub(lambda found: _FORMS.get(found[0], "\\ufffd"), made) if _ODD.search(made) else made


def _number(found: float, where: str) -> str:
    if not math.isfinite(found):
        raise ValueError(f"{where} is {found}, which JSON has no form for")
    shown = repr(float(found))
    if "e" in shown and (found == 0 or 1e-6 <= abs(found) < 1e21):
        shown = format(Decimal(shown), "f")
    return shown.removesuffix(".0")


def _time(found: datetime) -> str:
    """RFC 3339, without zeros at the end of the fraction."""
    shown = found.isoformat()
    if "." in shown:
        shown = re.sub(r"(\.[0-9]*?)0+(?=[^0-9]|$)", r"\1", shown)
    return re.sub(r"\+00:00$", "Z", shown)
