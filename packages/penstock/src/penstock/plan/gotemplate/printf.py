"""Go's Printf: the common verbs with their flags, and what it prints for verbs that don't fit. Pure; runs in Spark's tasks.

Unusual ones are refused, at parsing where the format is a literal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any

from penstock.plan.gotemplate.errors import Failure, TemplateError, unsupported
from penstock.plan.gotemplate.printing import bounded, float_text, in_order, quoted, stringer, text
from penstock.plan.gotemplate.values import Int, Struct, as_bytes, as_text, items_of, kind_of, map_of, type_of

_VERB = re.compile(r"%([-+# 0]*)(\d*)(\.\d*)?(.?)", re.DOTALL)
_KNOWN = "vsdqtxXfFeEgGcobTU%"


@dataclass(frozen=True, slots=True)
class Verb:
    verb: str
    flags: str
    width: int
    precision: int | None

    def has(self, flag: str) -> bool:
        return flag in self.flags


@lru_cache(maxsize=256)
def parsed(fmt: str) -> tuple[str | Verb, ...]:
    """Raises `TemplateError` for what is not offered."""
    parts: list[str | Verb] = []
    at = 0
    while (begin := fmt.find("%", at)) >= 0:
        if begin > at:
            parts.append(fmt[at:begin])
        found = _VERB.match(fmt, begin)
        assert found is not None
        flags, width, precision, verb = found[1], found[2], found[3], found[4]
        at = found.end()
        if not verb:
            parts.append("%!(NOVERB)")
        elif verb == "%":
            parts.append("%")
        elif verb not in _KNOWN or ("#" in flags and verb in "vUqgG") or ("+" in flags and verb in "vq"):
            raise unsupported(f"printf with %{flags}{verb}", "use the verbs v s d q t x f e g c o b T with plain flags")
        else:
            if int(width or 0) > 10_000 or int((precision or ".0")[1:] or 0) > 1000:
                raise unsupported("printf with a very large width or precision", "use a smaller one")
            parts.append(Verb(verb, flags, int(width or 0), None if precision is None else int(precision[1:] or 0)))
    if at < len(fmt):
        parts.append(fmt[at:])
    return tuple(parts)


def sprintf(fmt: str, args: Sequence[Any]) -> str:
    try:
        parts = parsed(fmt)
    except TemplateError as e:
        raise Failure(e.what) from e
    out: list[str] = []
    used = 0
    for part in parts:
        if isinstance(part, str):
            out.append(part)
        elif used >= len(args):
            out.append(f"%!{part.verb}(MISSING)")
        else:
            out.append(_argument(args[used], part))
            used += 1
    if used < len(args):
        rest = ", ".join("<nil>" if v is None else f"{type_of(v)}={text(v)}" for v in args[used:])
        out.append(f"%!(EXTRA {rest})")
    return bounded("".join(out))


def _argument(v: Any, how: Verb) -> str:
    if how.verb == "T":
        return _pad(type_of(v), how, zero=False)
    if v is None:
        return _pad("<nil>", how, zero=False) if how.verb == "v" else "%!" + how.verb + "(<nil>)"
    return _value(v, how)


def _value(v: Any, how: Verb) -> str:
    own = stringer(v) if how.verb in "vsxXq" else None
    if own is not None:
        return _text(own, how)
    if isinstance(v, date):
        raise Failure(f"printf with %{how.verb} of a time is not offered")
    if isinstance(v, bool):
        return _pad(text(v), how) if how.verb in "vt" else _wrong(v, how)
    if isinstance(v, str):
        return _text(v, how)
    if isinstance(v, Int):
        return _int(v, how)
    if isinstance(v, int | float | Decimal):
        return _float(v, how)
    if isinstance(v, bytes | bytearray) and how.verb in "sqxX":
        return _text(as_text(bytes(v)), how)
    found = map_of(v)
    if found is not None:
        inner = (f"{_element(k, how)}:{_element(x, how)}" for k, x in in_order(found))
        return "map[" + " ".join(inner) + "]"
    if isinstance(v, Struct):
        return "{" + " ".join(_element(x, how) for x in v.fields.values()) + "}"
    items = items_of(v)
    if items is not None:
        return "[" + " ".join(_element(x, how) for x in items) + "]"
    return _wrong(v, how)


def _element(v: Any, how: Verb) -> str:
    return _pad("<nil>", how) if kind_of(v) == "invalid" else _value(v, how)


def _wrong(v: Any, how: Verb) -> str:
    """Go shows type and value, the value with the same flags."""
    shown = text(v) if not how.flags and not how.width else _value(v, Verb("v", how.flags, how.width, how.precision))
    return f"%!{how.verb}({type_of(v)}={shown})"


def _pad(s: str, how: Verb, *, zero: bool = True) -> str:
    missing = how.width - len(s)
    if missing <= 0:
        return s
    if how.has("-"):
        return s + " " * missing
    if how.has("0") and zero:
        sign = s[:1] if s[:1] in ("+", "-", " ") else ""
        return sign + "0" * missing + s[len(sign) :]
    return " " * missing + s


def _text(s: str, how: Verb) -> str:
    if how.verb in "vs":
        cut = s if how.precision is None else s[: how.precision]
        return _pad(cut, how)
    if how.verb in "xX":
        data = as_bytes(s) if how.precision is None else as_bytes(s)[: how.precision]
        shown = data.hex(" ") if how.has(" ") else data.hex()
        if how.has("#") and data:
            shown = "0x" + shown.replace(" ", " 0x")
        return _pad(shown.upper() if how.verb == "X" else shown, how)
    if how.verb == "q":
        return _pad(quoted(s if how.precision is None else s[: how.precision]), how)
    return _wrong(s, how)


_BASES = {"d": "d", "v": "d", "b": "b", "o": "o", "x": "x", "X": "X"}
_PREFIXES = {"x": "0x", "X": "0X", "o": "0", "b": "0b"}


def _int(v: Int, how: Verb) -> str:
    if how.verb in "cqU":
        return _character(int(v), how)
    if how.verb not in _BASES:
        return _wrong(v, how)
    n = int(v)
    digits = format(abs(n), _BASES[how.verb])
    sign = "-" if n < 0 else "+" if how.has("+") else " " if how.has(" ") else ""
    prefix = _PREFIXES.get(how.verb, "") if how.has("#") else ""
    if how.precision is not None:
        digits = "" if how.precision == 0 and n == 0 else digits.rjust(how.precision, "0")
        return _pad(sign + prefix + digits, how, zero=False)
    if how.has("0") and not how.has("-"):
        digits = digits.rjust(how.width - len(sign), "0")
    return _pad(sign + prefix + digits, how, zero=False)


def _character(n: int, how: Verb) -> str:
    valid = 0 <= n <= 0x10FFFF and not 0xD800 <= n < 0xE000
    if how.verb == "U":
        return _pad(f"U+{n:04X}", how, zero=False)
    c = chr(n) if valid else "\ufffd"
    return _pad(quoted(c, "'") if how.verb == "q" else c, how)


def _float(v: Any, how: Verb) -> str:
    if how.verb in "xXb":
        raise Failure(f"printf with %{how.verb} of a float64 is not offered")
    if how.verb not in "vfFeEgG":
        return _wrong(v, how)
    if how.verb == "v" and isinstance(v, int) and not how.flags and how.precision is None:
        return _pad(text(v), how)  # all its digits
    x = float(v)
    verb = {"v": "g", "F": "f"}.get(how.verb, how.verb)
    if x != x or x in (float("inf"), float("-inf")):
        return _pad(float_text(x), how, zero=False)
    if how.precision is None and verb in "gG":
        shown = float_text(x)
        shown = shown.upper() if verb == "G" else shown
    else:
        precision = 6 if how.precision is None else how.precision
        shown = format(x, f".{precision}{verb}")
    if not shown.startswith("-"):
        shown = ("+" if how.has("+") else " " if how.has(" ") else "") + shown
    return _pad(shown, how)
