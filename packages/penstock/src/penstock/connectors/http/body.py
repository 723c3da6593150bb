"""Records as the body of a request. Pure. A record that has no such form is refused, with the field's name; it is never sent half."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

from penstock.connectors.http.settings import HttpDestinationSettings
from penstock_sdk import Record
from penstock_sdk.record import Payload

JSON = "application/json"
LINES = "application/x-ndjson"
BYTES = "application/octet-stream"


class Unfit(Exception):
    """This record can't be sent in this form: why."""


class Bodies:
    def __init__(self, settings: HttpDestinationSettings) -> None:
        self._body, self._lines = settings.body, settings.batch == "lines"
        self._batched = settings.requests == "batch"
        if settings.content_type:
            self.content_type = settings.content_type
        elif self._batched and self._lines:
            self.content_type = LINES
        else:
            self.content_type = BYTES if settings.body == "payload" else JSON

    def one(self, record: Record) -> bytes:
        """`Unfit` where it has no such form. Joined with others by `joined`, if there is one request per batch."""
        if self._body == "record":
            return _text(_whole(record))
        payload = record.after
        if payload is None:
            raise Unfit("it has no payload (a delete has none): with body: record it could be sent")
        if isinstance(payload, dict):
            return _text(payload)
        if self._body == "json":
            return self._json(payload)
        if self._batched and (b"\n" in payload or b"\r" in payload):
            raise Unfit("its payload has more than one line, which a body of lines would tear apart")
        return payload

    def _json(self, payload: bytes) -> bytes:
        """Checked, since one bad item would spoil a whole array. Sent as it is, but in one line."""
        try:
            json.loads(payload, parse_constant=_no_constant)
        except (ValueError, RecursionError):
            raise Unfit("its payload is no JSON") from None
        text = payload.removeprefix(b"\xef\xbb\xbf").strip()
        if self._batched and (b"\n" in text or b"\r" in text):
            text = text.replace(b"\r", b" ").replace(b"\n", b" ")  # in JSON they can only stand between tokens
        return text

    def joined(self, items: list[bytes]) -> bytes:
        if self._lines:
            return b"\n".join(items) + b"\n"
        return b"[" + b",".join(items) + b"]"


def _whole(record: Record) -> dict[str, Any]:
    """Names and order as connectors write a record; bytes as base64."""
    return {
        "position": base64.b64encode(record.position).decode(),
        "operation": record.operation,
        "metadata": record.metadata,
        "key": _data(record.key),
        "payload": {"before": _data(record.before), "after": _data(record.after)},
    }


def _data(payload: Payload) -> Any:
    return base64.b64encode(payload).decode() if isinstance(payload, bytes) else payload


def _text(value: Any) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError):
        raise Unfit(_why(value)) from None


def _no_constant(name: str) -> None:
    raise ValueError(name)


def _why(value: Any, path: str = "") -> str:
    """The field that JSON has no form for, by its name and type: never its value."""
    try:
        return _unfit_field(value, path) or "it has no form in JSON"
    except RecursionError:
        return "it is nested too deep for JSON"


def _unfit_field(value: Any, path: str) -> str:
    if isinstance(value, dict):
        steps: Any = ((f"{path}.{key}" if path else str(key), each) for key, each in value.items())
    elif isinstance(value, list | tuple):
        steps = ((f"{path}[{i}]", each) for i, each in enumerate(value))
    elif isinstance(value, float) and not math.isfinite(value):
        return f"{path} is {value}, which JSON has no form for"
    elif isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
        return f"{path} is no UTF-8"
    elif value is None or isinstance(value, str | int | float):
        return ""
    else:
        return f"{path} is of type {type(value).__name__}, which JSON has no form for"
    return next((why for step, each in steps if (why := _unfit_field(each, step))), "")
