"""sprig's functions for lists, maps, defaults, JSON and types. Pure. Nothing here changes what belongs to the record."""

from __future__ import annotations

from typing import Any

from penstock.plan.gotemplate.convert import to_int
from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.functions.core import elements
from penstock.plan.gotemplate.functions.numbers import MOST
from penstock.plan.gotemplate.functions.registry import function
from penstock.plan.gotemplate.functions.texts import strval
from penstock.plan.gotemplate.jsontext import dumps, loads
from penstock.plan.gotemplate.printing import in_order
from penstock.plan.gotemplate.values import Lists, NoList, Own, Strings, deep_equal, kind_of, type_of


def _made(found: list[Any]) -> list[Any]:
    if len(found) > MOST:
        raise Failure(f"a list of more than {MOST} elements")
    return found


@function("default", "any", more="any")
def default(otherwise: Any, *given: Any) -> Any:
    return given[0] if given and given[0] else otherwise


@function("empty", "any")
def empty(v: Any) -> bool:
    return not v


@function("coalesce", more="any")
def coalesce(*values: Any) -> Any:
    return next((v for v in values if v), None)


@function("all", more="any")
def all_(*values: Any) -> bool:
    return all(values)


@function("any", more="any")
def any_(*values: Any) -> bool:
    return any(values)


@function("ternary", "any", "any", "bool")
def ternary(yes: Any, no: Any, which: bool) -> Any:
    return yes if which else no


@function("list tuple", more="any")
def list_(*values: Any) -> list[Any]:
    return list(values)


@function("first mustFirst", "any")
def first(v: Any) -> Any:
    found = elements(v, "first")
    return found[0] if found else None


@function("last mustLast", "any")
def last(v: Any) -> Any:
    found = elements(v, "last")
    return found[-1] if found else None


@function("rest mustRest", "any")
def rest(v: Any) -> list[Any]:
    found = elements(v, "rest")
    return list(found[1:]) if found else NoList()


@function("initial mustInitial", "any")
def initial(v: Any) -> list[Any]:
    found = elements(v, "initial")
    return list(found[:-1]) if found else NoList()


@function("append push mustAppend mustPush", "any", "any")
def append(v: Any, item: Any) -> list[Any]:
    return _made([*elements(v, "append"), item])


@function("prepend mustPrepend", "any", "any")
def prepend(v: Any, item: Any) -> list[Any]:
    return _made([item, *elements(v, "prepend")])


@function("concat", more="any")
def concat(*lists: Any) -> list[Any]:
    return _made([item for v in lists for item in elements(v, "concat")]) or NoList()


@function("reverse mustReverse", "any")
def reverse(v: Any) -> list[Any]:
    return list(reversed(elements(v, "reverse")))


@function("compact mustCompact", "any")
def compact(v: Any) -> list[Any]:
    return [item for item in elements(v, "compact") if item]


def _among(item: Any, found: Any) -> bool:
    return any(deep_equal(item, other) for other in found)


@function("uniq mustUniq", "any")
def uniq(v: Any) -> list[Any]:
    found: list[Any] = []
    for item in elements(v, "uniq"):
        if not _among(item, found):
            found.append(item)
    return found


@function("without mustWithout", "any", more="any")
def without(v: Any, *omitted: Any) -> list[Any]:
    return [item for item in elements(v, "without") if not _among(item, omitted)]


@function("has mustHas", "any", "any")
def has(item: Any, v: Any) -> bool:
    return v is not None and _among(item, elements(v, "has"))


@function("slice mustSlice", "any", more="any")
def slice_(v: Any, *places: Any) -> Any:
    found = elements(v, "slice")
    if not found:
        return None
    start = to_int(places[0]) if places else 0
    end = to_int(places[1]) if len(places) > 1 else len(found)
    if not 0 <= start <= end <= len(found):
        raise Failure("slice out of range")
    part = v[start:end]
    return part if isinstance(v, tuple) else type(v)(part)


@function("chunk mustChunk", "int", "any")
def chunk(size: int, v: Any) -> Lists:
    found = elements(v, "chunk")
    if size < 0 and (len(found) - 1) // size == -1:
        return Lists()  # odd, and so it is in sprig
    if size <= 0:
        raise Failure("chunk of no size")
    return Lists(list(found[i : i + size]) for i in range(0, len(found), size))


@function("dict", more="any")
def dict_(*values: Any) -> Own:
    keys = values[::2]
    return Own((strval(k), values[i * 2 + 1] if i * 2 + 1 < len(values) else "") for i, k in enumerate(keys))


@function("get", "map", "string")
def get(d: dict[str, Any], key: str) -> Any:
    return d.get(key, "")


def _changeable(d: dict[str, Any]) -> Own:
    if not isinstance(d, Own):
        raise Failure("set and unset work on maps that the template made, not on the record")
    return d


@function("set", "map", "string", "any")
def set_(d: dict[str, Any], key: str, value: Any) -> Own:
    made = _changeable(d)
    if value is made:
        raise Failure("a map can't hold itself")
    made[key] = value
    return made


@function("unset", "map", "string")
def unset(d: dict[str, Any], key: str) -> Own:
    made = _changeable(d)
    made.pop(key, None)
    return made


@function("hasKey", "map", "string")
def has_key(d: dict[str, Any], key: str) -> bool:
    return key in d


@function("pluck", "string", more="map")
def pluck(key: str, *maps: dict[str, Any]) -> list[Any]:
    return [d[key] for d in maps if key in d]


@function("keys", more="map")
def keys(*maps: dict[str, Any]) -> Strings:
    """In order: Go has none here, and an answer has to be the same every time."""
    return Strings(k for d in maps for k, _ in in_order(d))


@function("values", "map")
def values_(d: dict[str, Any]) -> list[Any]:
    return [v for _, v in in_order(d)]


@function("pick", "map", more="string")
def pick(d: dict[str, Any], *names: str) -> Own:
    return Own((k, d[k]) for k in names if k in d)


@function("omit", "map", more="string")
def omit(d: dict[str, Any], *names: str) -> Own:
    return Own((k, v) for k, v in d.items() if k not in names)


@function("dig", more="any")
def dig(*values: Any) -> Any:
    if len(values) < 3:
        raise Failure("dig needs at least three arguments")
    *path, otherwise, found = values
    for key in path:
        if type_of(found) != "map[string]interface {}" or not isinstance(key, str):
            raise Failure(f"dig in {type_of(found)}")
        if key not in found:
            return otherwise
        found = found[key]
    return found


@function("fromJson", "string")
def from_json(s: str) -> Any:
    try:
        return loads(s)
    except ValueError:
        return None


@function("mustFromJson", "string")
def must_from_json(s: str) -> Any:
    try:
        return loads(s)
    except ValueError as e:
        raise Failure("fromJson of what is no JSON") from e


@function("mustToJson", "any")
def must_to_json(v: Any) -> str:
    return dumps(v)


@function("mustToPrettyJson", "any")
def must_to_pretty_json(v: Any) -> str:
    return dumps(v, indent="  ")


@function("toRawJson mustToRawJson", "any")
def to_raw_json(v: Any) -> str:
    return dumps(v, html=False)


@function("toJson", "any")
def to_json(v: Any) -> str:
    try:
        return dumps(v)
    except Failure:
        return ""


@function("toPrettyJson", "any")
def to_pretty_json(v: Any) -> str:
    try:
        return dumps(v, indent="  ")
    except Failure:
        return ""


@function("typeOf", "any")
def type_of_(v: Any) -> str:
    return type_of(v)


@function("typeIs typeIsLike", "string", "any")
def type_is(name: str, v: Any) -> bool:
    return type_of(v) == name


@function("kindOf", "any")
def kind_of_(v: Any) -> str:
    return kind_of(v)


@function("kindIs", "string", "any")
def kind_is(name: str, v: Any) -> bool:
    return kind_of(v) == name


function("deepEqual", "any", "any")(deep_equal)
