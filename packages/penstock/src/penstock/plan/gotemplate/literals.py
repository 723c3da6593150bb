"""Numbers and quoted texts as Go writes them (strconv). Pure; used for literals, and by functions that read numbers from text."""

from __future__ import annotations

import re

_INT = re.compile(
    r"([+-]?)(0[xX]_?[0-9a-fA-F](?:_?[0-9a-fA-F])*|0[bB]_?[01](?:_?[01])*|0[oO]_?[0-7](?:_?[0-7])*|0(?:_?[0-7])*|[1-9](?:_?[0-9])*)"
)
_DECIMAL = re.compile(
    r"[+-]?(?:[0-9](?:_?[0-9])*\.?(?:[0-9](?:_?[0-9])*)?|\.[0-9](?:_?[0-9])*)(?:[eE][+-]?[0-9](?:_?[0-9])*)?"
)
_HEX = re.compile(r"[+-]?0[xX](?:_?[0-9a-fA-F])*\.?(?:[0-9a-fA-F](?:_?[0-9a-fA-F])*)?[pP][+-]?[0-9](?:_?[0-9])*")
_NAMED = re.compile(r"([+-]?(?:inf|infinity)|nan)", re.IGNORECASE)
_SIMPLE = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11, "\\": 92}
_LENGTHS = {"x": 2, "u": 4, "U": 8}


def whole(text: str) -> int | None:
    """With a prefix for its base, underscores between digits. None where it is no whole number. Any size."""
    found = _INT.fullmatch(text)
    if found is None:
        return None
    digits = found[2].replace("_", "")
    if len(digits) > 1 and digits[0] == "0" and digits[1] in "01234567":
        digits = "0o" + digits[1:]
    value = int(digits, 0)
    return -value if found[1] == "-" else value


def real(text: str) -> float | None:
    """None where it is no number, or one that no double comes near."""
    plain = text.replace("_", "")
    if _DECIMAL.fullmatch(text):
        value = float(plain)
        return None if value in (float("inf"), float("-inf")) else value
    if _HEX.fullmatch(text):
        try:
            return float.fromhex(plain)
        except (OverflowError, ValueError):
            return None
    return float(text) if _NAMED.fullmatch(text) else None


def unquoted(text: str) -> str | None:
    """What a text in double quotes or backquotes stands for. Bytes that are no UTF-8 become lone surrogates."""
    if text[0] == "`":
        return text[1:-1].replace("\r", "")
    inner = text[1:-1]
    return inner if "\\" not in inner else _unescaped(inner, '"')


def character(text: str) -> int | None:
    """The number of the character between single quotes. None where it is not exactly one."""
    inner = text[1:-1]
    if len(inner) == 1:
        return ord(inner)
    if not inner.startswith("\\"):
        return None
    found = _escape(inner, 0, "'")
    return found[0] if found is not None and found[2] == len(inner) else None


def _unescaped(inner: str, quote: str) -> str | None:
    out = bytearray()
    at = 0
    while at < len(inner):
        if inner[at] != "\\":
            out += inner[at].encode("utf-8", "surrogateescape")
            at += 1
            continue
        found = _escape(inner, at, quote)
        if found is None:
            return None
        value, is_byte, at = found
        out += bytes([value]) if is_byte else chr(value).encode()
    return out.decode("utf-8", "surrogateescape")


def _escape(text: str, at: int, quote: str) -> tuple[int, bool, int] | None:
    """Value, whether it is a byte, and where it ends."""
    c = text[at + 1 : at + 2]
    if c in _SIMPLE:
        return _SIMPLE[c], False, at + 2
    if c == quote:
        return ord(c), False, at + 2
    if c in _LENGTHS:
        digits = text[at + 2 : at + 2 + _LENGTHS[c]]
        if not re.fullmatch(rf"[0-9a-fA-F]{{{_LENGTHS[c]}}}", digits):
            return None
        value = int(digits, 16)
        valid = c == "x" or (value <= 0x10FFFF and not 0xD800 <= value < 0xE000)
        return (value, c == "x", at + 2 + len(digits)) if valid else None
    digits = text[at + 1 : at + 4]
    if re.fullmatch("[0-7]{3}", digits) and int(digits, 8) < 256:
        return int(digits, 8), True, at + 4
    return None
