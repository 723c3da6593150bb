"""Whether a record of a dead letter file has a key."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any


def has_key(given: Any, key: bytes) -> bool:
    """`given` is the record as its source gave it, as docs/formats/dead-letters.md has it."""
    packed = given.get("key") if isinstance(given, dict) else None
    if packed is None:
        return False
    if isinstance(packed, dict) and isinstance(packed.get("text"), str):
        return bool(packed["text"].encode() == key)
    if isinstance(packed, dict) and isinstance(packed.get("base64"), str):
        try:
            return base64.b64decode(packed["base64"]) == key
        except binascii.Error:
            return False
    value = packed["value"] if isinstance(packed, dict) and set(packed) == {"value"} else packed
    try:
        return bool(value == json.loads(key))
    except ValueError:
        return False
