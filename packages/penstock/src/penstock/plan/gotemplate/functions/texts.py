"""sprig's functions for text. Lengths and places count bytes, as in Go. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
import zlib
from typing import Any

from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.functions.registry import function
from penstock.plan.gotemplate.printing import LONGEST, bounded, quoted, stringer, text
from penstock.plan.gotemplate.values import Strings, Texts, as_bytes, as_text, items_of

SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"

_INVALID = re.compile("[\ud800-\udfff]")


def strval(v: Any) -> str:
    """toString"""
    if isinstance(v, str):
        return v
    if type(v) in (bytes, bytearray):
        return as_text(bytes(v))
    own = stringer(v)
    return text(v) if own is None else own


def strings(v: Any) -> Strings:
    """toStrings, without what is nil"""
    items = items_of(v)
    if items is not None:
        return Strings(strval(x) for x in items if x is not None)
    return Strings() if v is None else Strings([strval(v)])


def valid(s: str) -> str:
    """Bytes that are no UTF-8 become U+FFFD where Go goes through the characters of a text."""
    return s if s.isascii() else _INVALID.sub("\ufffd", s)


def byte_by_byte(s: str) -> str:
    """Some of sprig's functions take every byte for a character."""
    return s if s.isascii() else as_bytes(s).decode("latin-1")


def _per_char(s: str, change: Any) -> str:
    """Go changes letters one for one; ß has no capital of one letter."""
    s = valid(s)
    changed: str = change(s)
    if len(changed) == len(s):
        return changed
    return "".join(c if len(change(c)) != 1 else change(c) for c in s)


@function("upper", "string")
def upper(s: str) -> str:
    return s.upper() if s.isascii() else _per_char(s, str.upper)


@function("lower", "string")
def lower(s: str) -> str:
    if s.isascii():
        return s.lower()
    return "".join("i" if c == "\u0130" else c.lower() for c in valid(s))


def _is_separator(c: str) -> bool:
    if c.isascii():
        return not (c.isalnum() or c == "_")
    return not (c.isalpha() or c.isdecimal()) and c in SPACE


@function("title", "string")
def title(s: str) -> str:
    out, previous = [], " "
    for c in valid(s):
        out.append((c.title() if len(c.title()) == 1 else c) if _is_separator(previous) else c)
        previous = c
    return "".join(out)


@function("untitle", "string")
def untitle(s: str) -> str:
    out, begins = [], True
    for c in valid(s):
        out.append(lower(c) if begins else c)
        begins = c in SPACE
    return "".join(out)


@function("swapcase", "string")
def swapcase(s: str) -> str:
    out, begins = [], True
    for c in valid(s):
        if c.isupper() or unicodedata.category(c) == "Lt":
            out.append(lower(c))
            begins = False
        elif c.islower():
            out.append((c.title() if len(c.title()) == 1 else c) if begins else upper(c))
            begins = False
        else:
            begins = c in SPACE
            out.append(c)
    return "".join(out)


@function("trim", "string")
def trim(s: str) -> str:
    return s.strip(SPACE)


@function("trimAll trimall", "string", "string")
def trim_all(cut: str, s: str) -> str:
    return s.strip(cut) if cut else s


@function("trimSuffix", "string", "string")
def trim_suffix(end: str, s: str) -> str:
    return s.removesuffix(end)


@function("trimPrefix", "string", "string")
def trim_prefix(begin: str, s: str) -> str:
    return s.removeprefix(begin)


@function("nospace", "string")
def nospace(s: str) -> str:
    given = byte_by_byte(s)
    kept = "".join(c for c in given if c not in SPACE)
    return s if len(kept) == len(given) else kept


@function("initials", "string")
def initials(s: str) -> str:
    out, begins = [], True
    for c in byte_by_byte(s):
        if c in SPACE:
            begins = True
        elif begins:
            out.append(c)
            begins = False
    return "".join(out)


@function("contains", "string", "string")
def contains(part: str, s: str) -> bool:
    return part in s


@function("hasPrefix", "string", "string")
def has_prefix(begin: str, s: str) -> bool:
    return s.startswith(begin)


@function("hasSuffix", "string", "string")
def has_suffix(end: str, s: str) -> bool:
    return s.endswith(end)


@function("repeat", "int", "string")
def repeat(count: int, s: str) -> str:
    if count < 0:
        raise Failure("repeat with a negative count")
    if count * len(s) > LONGEST:
        raise Failure("repeat makes a text that is too long")
    return s * int(count)


@function("substr", "int", "int", "string")
def substr(start: int, end: int, s: str) -> str:
    data = as_bytes(s)
    if start < 0:
        start = 0
    elif end < 0 or end > len(data):
        end = len(data)
    if not 0 <= start <= end <= len(data):
        raise Failure("substr out of range")
    return as_text(data[start:end])


@function("trunc", "int", "string")
def trunc(count: int, s: str) -> str:
    data = as_bytes(s)
    if count < 0 and len(data) + count > 0:
        return as_text(data[len(data) + count :])
    return as_text(data[:count]) if 0 <= count < len(data) else s


@function("abbrev", "int", "string")
def abbrev(width: int, s: str) -> str:
    if width < 4:
        return s
    data = as_bytes(s)
    return s if len(data) <= width else as_text(data[: width - 3] + b"...")


@function("quote", more="any")
def quote(*values: Any) -> str:
    return bounded(" ".join(quoted(strval(v)) for v in values if v is not None))


@function("squote", more="any")
def squote(*values: Any) -> str:
    return bounded(" ".join(f"'{text(v)}'" for v in values if v is not None))


@function("cat", more="any")
def cat(*values: Any) -> str:
    return bounded(" ".join(text(v) for v in values if v is not None))


@function("indent", "int", "string")
def indent(spaces: int, s: str) -> str:
    if spaces < 0 or spaces * (s.count("\n") + 1) > LONGEST:
        raise Failure("indent by a negative or very large number")
    pad = " " * int(spaces)
    return pad + s.replace("\n", "\n" + pad)


@function("nindent", "int", "string")
def nindent(spaces: int, s: str) -> str:
    return "\n" + str(indent(spaces, s))


@function("replace", "string", "string", "string")
def replace(old: str, new: str, s: str) -> str:
    if len(new) > len(old) and s.count(old) * len(new) > LONGEST:
        raise Failure("replace makes a text that is too long")
    return s.replace(old, new)


@function("plural", "string", "string", "int")
def plural(one: str, many: str, count: int) -> str:
    return one if count == 1 else many


def parts(sep: str, s: str, limit: int = -1) -> Strings:
    if limit == 0:
        return Strings()
    if sep:
        return Strings(s.split(sep, limit - 1 if limit > 0 else -1))
    if limit < 0 or limit >= len(s):
        return Strings(s)
    return Strings([*s[: limit - 1], s[limit - 1 :]])


@function("splitList", "string", "string")
def split_list(sep: str, s: str) -> Strings:
    return parts(sep, s)


@function("split", "string", "string")
def split(sep: str, s: str) -> Texts:
    return Texts((f"_{i}", part) for i, part in enumerate(parts(sep, s)))


@function("splitn", "string", "int", "string")
def splitn(sep: str, limit: int, s: str) -> Texts:
    return Texts((f"_{i}", part) for i, part in enumerate(parts(sep, s, int(limit))))


@function("join", "string", "any")
def join(sep: str, v: Any) -> str:
    return bounded(sep.join(strings(v)))


@function("sortAlpha", "any")
def sort_alpha(v: Any) -> Strings:
    return Strings([strval(v)]) if items_of(v) is None else Strings(sorted(strings(v), key=as_bytes))


@function("b64enc", "string")
def b64enc(s: str) -> str:
    return base64.b64encode(as_bytes(s)).decode()


@function("b64dec", "string")
def b64dec(s: str) -> str:
    data = as_bytes(s)
    wrong = _base64_error(data)
    if wrong is not None:
        return f"illegal base64 data at input byte {wrong}"  # sprig gives the error as the value
    return as_text(base64.b64decode(data.translate(None, b"\r\n")))


_BASE64 = re.compile(rb"[A-Za-z0-9+/]*={0,2}")


def _base64_error(data: bytes) -> int | None:
    """Where Go stops reading. It reads four characters at a time, and skips line ends."""
    if len(data) % 4 == 0 and _BASE64.fullmatch(data):
        return None
    places = [i for i, c in enumerate(data) if c not in b"\r\n"]
    for begin in range(0, len(places), 4):
        four = places[begin : begin + 4]
        for j, at in enumerate(four):
            if data[at : at + 1] != b"=" and _BASE64.fullmatch(data[at : at + 1]):
                continue
            if data[at : at + 1] != b"=" or j < 2:
                return at
            if j == 2 and len(four) < 4:
                return len(data)
            if j == 2 and data[four[3] : four[3] + 1] != b"=":
                return four[3] - 1
            return places[begin + 4] if begin + 4 < len(places) else None
        if len(four) < 4:
            return len(data) - len(four)
    return None


@function("b32enc", "string")
def b32enc(s: str) -> str:
    return base64.b32encode(as_bytes(s)).decode()


for _name in ("sha1", "sha256", "sha512"):

    def _digest(s: str, _name: str = _name) -> str:
        return hashlib.new(_name, as_bytes(s)).hexdigest()

    function(f"{_name}sum", "string")(_digest)


@function("adler32sum", "string")
def adler32sum(s: str) -> str:
    return str(zlib.adler32(as_bytes(s)))


function("toString", "any")(strval)
function("toStrings", "any")(strings)


@function("fail", "string")
def fail(_: str) -> str:
    raise Failure("the template calls fail")
