"""What the processors that take records apart have in common, with Conduit's meaning. They run in Spark's tasks. Pure.

A reference is followed as Conduit does it: what is missing on the way is made, also where nothing is set in the end. JSON is
read exactly where it is strict, else as Conduit reads it.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from penstock.errors import Rejected
from penstock.plan.gotext import printed, trim
from penstock.plan.opencdc import read
from penstock.plan.payload import loads
from penstock.plan.reference import Reference
from penstock_sdk.record import Record

PAYLOADS = ("after", "before", "key")
_BASE64 = re.compile(rb"(?:[A-Za-z0-9+/]{4})*+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def reference(text: str, *, metadata: bool = False) -> Reference:
    """A payload, the key, a field of one, or with `metadata` one key of it. Raises `ValueError`, for a setting."""
    found = Reference.parse(trim(text), whole=True)
    if found.root == "metadata" and metadata and found.path:
        return found
    if found.root not in PAYLOADS or not text:
        also = ", or one key of the metadata" if metadata else ""
        raise ValueError(f"must be a payload, e.g. `.Payload.After`, the key, or a field of one{also}")
    return found


def lenient(text: bytes | str) -> Any:
    """JSON, exactly where it is strict, else as Conduit reads it. Raises `ValueError`."""
    try:
        return loads(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return read(text)


def wrapped(ref: Reference, r: Record, *, nested: bool = True) -> dict[str, Any]:
    """The object that holds the record to be unwrapped: as it is, with `nested` in a field too, or as JSON, raw or in a
    text."""
    value = getattr(r, ref.root) if not ref.path else ref.holder(r).get(ref.path[-1])
    if isinstance(value, dict) and (nested or not ref.path):
        return value
    if isinstance(value, str) or (isinstance(value, bytes) and not ref.path):
        try:
            found = lenient(value)
        except ValueError as e:
            raise Rejected(f"{ref} is not JSON: {e}", code="json.invalid") from e
        if found is None or isinstance(found, dict):
            return found or {}
        raise Rejected(f"{ref} is a JSON {type(found).__name__}, not an object", code="json.not-an-object")
    raise Rejected(f"{ref} is {_kind(value)}: it holds no record to unwrap", code="unwrap.invalid")


def unwrapped_key(key: Any) -> Any:
    """What a key has in its field `payload`; a key that has none stays. What is no object is written as text."""
    held = key
    if isinstance(key, bytes):
        try:
            held = lenient(key)
        except ValueError:
            return key
    if not isinstance(held, dict) or "payload" not in held:
        return key
    payload = held["payload"]
    return payload if isinstance(payload, dict) else printed(payload).encode(errors="surrogateescape")


def from_base64(text: bytes) -> bytes:
    """Standard alphabet with padding; line ends are skipped, nothing else is."""
    if b"\n" in text or b"\r" in text:
        text = text.replace(b"\n", b"").replace(b"\r", b"")
    if _BASE64.fullmatch(text) is None:
        raise Rejected("it is not base64 of the standard alphabet with padding", code="base64.invalid")
    return binascii.a2b_base64(text)


def copied(value: Any) -> Any:
    """A payload of its own, so that a later processor changes only this one."""
    if type(value) is dict:
        return {k: copied(v) if type(v) in (dict, list) else v for k, v in value.items()}
    if type(value) is list:
        return [copied(v) if type(v) in (dict, list) else v for v in value]
    return value


def structured(given: Mapping[str, Any], name: str) -> Any:
    """A payload of an OpenCDC record: an object, base64 of what is raw, or nothing."""
    value = given.get(name)
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, str):
        return from_base64(value.encode(errors="surrogateescape"))
    raise Rejected(f"its {name} is {_kind(value)}: it has to be an object, or base64", code="unwrap.invalid")


def _kind(value: Any) -> str:
    return "not there" if value is None else f"of type {type(value).__name__}"
