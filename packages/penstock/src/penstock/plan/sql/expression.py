"""An expression over open payloads as Python functions: compiled once per text, specialised once per types of its values.

Spark's meaning depends on column types; a JSON field has only the type of its value. So the first record whose fields
have a new combination of types makes the code for that combination (`emit`), and the next ones find it by the types.
`after.amount < 50` costs 117 ns over an int, where a bare `p.get("amount") < 50` in a lambda costs 52;
`after.name = 'x' and after.amount < 50` 200 ns (Python 3.11, timeit, minimum). A new combination of types costs about 0.1 ms once.

Runs in the engine (to validate) and in Spark's Python workers. An Expression is pickled as its text.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.plan.sql import values
from penstock.plan.sql.emit import Emitter
from penstock.plan.sql.errors import EvaluationError, ExpressionError
from penstock.plan.sql.text import parse_plain
from penstock.plan.sql.tree import Node, Op, Ref, lower
from penstock.plan.sql.types import BOOLEAN, INT, LONG_MAX, LONG_MIN, MAP, VOID, Hole, Type, type_of
from penstock_sdk.record import COLLECTION

if TYPE_CHECKING:
    from penstock_sdk import Record

KEPT = 1000  # combinations of types; beyond, all are forgotten and made again as they come
SMALL = 2**30 - 1
_GUARDED = (type(None), bool, int, float, str)  # types that say all, but for the size of an int


@dataclass(frozen=True)
class Expression:
    """What a text computes. Both functions raise on a record that Spark would raise on."""

    text: str
    columns: frozenset[str]
    on_record: Callable[[Record], Any]
    on_after: Callable[[Any], Any] | None  # over the `after` payload alone, when nothing else is read
    condition: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        return (compile_condition if self.condition else compile_expression), (self.text,)


def compile_expression(text: str) -> Expression:
    """The value of an expression. Raises ExpressionError."""
    return _compile(text, condition=False)


def compile_condition(text: str) -> Expression:
    """A condition: NULL is False, anything that is no boolean raises. Raises ExpressionError."""
    return _compile(text, condition=True)


def _compile(text: str, *, condition: bool) -> Expression:
    tree = lower(parse_plain(text))
    _refuse_bad_constants(tree)
    refs = list(dict.fromkeys(_references(tree)))
    columns = frozenset(str(ref.path[0]) for ref in refs)
    special = _Specialised(tree, refs, condition=condition)
    only_after = columns <= {"after"}
    return Expression(
        text,
        columns,
        on_record=_entry(refs, special, record=True),
        on_after=_entry(refs, special, record=False) if only_after else None,
        condition=condition,
    )


def _references(node: Node) -> list[Ref]:
    if isinstance(node, Ref):
        return [node]
    return [ref for arg in node.args for ref in _references(arg)] if isinstance(node, Op) else []


def _refuse_bad_constants(node: Node) -> bool:
    """True if it reads nothing. Spark computes constants first: one that raises does so even where it is not reached."""
    if not isinstance(node, Op):
        return not isinstance(node, Ref)
    constant = [_refuse_bad_constants(arg) for arg in node.args]  # all of them: a list, not a generator
    if not all(constant):
        return False
    try:
        _Specialised(node, [], condition=False).make()()
    except EvaluationError as e:
        raise ExpressionError(f"a part of the expression that reads no field always fails: {e.what}") from None
    return True


def _entry(refs: list[Ref], special: _Specialised, *, record: bool) -> Callable[[Any], Any]:
    """The function that fetches the fields, and calls the code for their types."""
    lines = ["def entry(p):"]
    known: dict[tuple[str | int, ...], str] = {}

    def fetch(path: tuple[str | int, ...]) -> str:
        if path in known:
            return known[path]
        if len(path) == 1:
            if not record:
                return "p"
            source = "own(p.metadata)" if path[0] == "metadata" else f"p.{path[0]}"
        else:
            base, step = "p.metadata" if path[:-1] == ("metadata",) else fetch(path[:-1]), path[-1]
            where = repr(Ref(path[:-1]).name)
            if isinstance(step, int):
                source = f"item({base}, {step}, {where})"
            else:
                source = f"{base}.get({step!r}) if type({base}) is dict else field({base}, {step!r}, {where})"
        known[path] = f"v{len(known)}"
        lines.append(f"    {known[path]} = {source}")
        return known[path]

    names = [fetch(ref.path) for ref in refs]
    key = ", ".join(f"type({name})" for name in names)
    lines += [
        "    try:",  # a plain dict and `try`: 25 ns less than a dict with __missing__
        f"        special = found[{key or '()'}]",
        "    except KeyError:",
        f"        special = make({key})",
        f"    return special({', '.join(names)})",
    ]
    scope: dict[str, Any] = {"field": values.field, "item": values.item, "own": _own, **_BUILTINS}
    scope |= {"found": special.found, "make": special.make}
    exec("\n".join(lines), scope)
    made: Callable[[Any], Any] = scope["entry"]
    return made


def _own(metadata: dict[str, str]) -> dict[str, str]:
    """As the column has it: the namespace is a column of its own."""
    return {k: v for k, v in metadata.items() if k != COLLECTION} if COLLECTION in metadata else metadata


_BUILTINS = {"type": type, "dict": dict, "float": float, "len": len, "abs": abs}


class _Specialised:
    """Code by the Python types of the references' values (`found`); made when it is missing."""

    def __init__(self, tree: Node, refs: list[Ref], *, condition: bool) -> None:
        self.found: dict[Any, Callable[..., Any]] = {}
        self._tree = tree
        self._refs = refs
        self._condition = condition
        self._exact: dict[Any, Callable[..., Any]] = {}

    def make(self, *kinds: type) -> Callable[..., Any]:
        if all(kind in _GUARDED for kind in kinds):
            types = [type_of(kind()) for kind in kinds]
            made = self._make([(t, False) for t in types], guarded=True)
        else:
            made = self._by_value
        if len(self.found) >= KEPT:
            self.found.clear()
        self.found[kinds[0] if len(kinds) == 1 else kinds] = made
        return made

    def _by_value(self, *found: Any) -> Any:
        """Where Python's types do not say enough: large integers, lists, elements that are not there."""
        exact = tuple((self._type(ref, v), type(v) is Hole) for ref, v in zip(self._refs, found, strict=True))
        made = self._exact.get(exact)
        if made is None:
            if len(self._exact) >= KEPT:
                self._exact.clear()
            made = self._exact[exact] = self._make(list(exact), guarded=False)
        return made(*found)

    def _type(self, ref: Ref, value: Any) -> Type:
        return MAP if ref.path == ("metadata",) else type_of(value, ref.name)

    def _make(self, types: list[tuple[Type, bool]], *, guarded: bool) -> Callable[..., Any]:
        variables = {}
        whole = []
        for i, (ref, (kind, hole)) in enumerate(zip(self._refs, types, strict=True)):
            if guarded and kind.name == "bigint":
                whole.append(f"v{i}")
            variables[ref] = (f"v{i}", INT if ref.path == ("part",) and kind.name == "bigint" else kind, hole)
        parameters = ", ".join(f"v{i}" for i in range(len(self._refs)))
        emitter = Emitter(variables)
        lines = [f"def special({parameters}):"]
        if whole:
            # Python compares integers below 2^30 quickly, so those are asked for first
            within = " and ".join(f"({-SMALL} < {v} < {SMALL} or {LONG_MIN} <= {v} <= {LONG_MAX})" for v in whole)
            lines += [f"    if not ({within}):", f"        return by_value({parameters})"]
        lines.append(f"    return {self._result(emitter)}")
        scope: dict[str, Any] = {**emitter.names, "by_value": self._by_value, **_BUILTINS}
        exec("\n".join(lines), scope)
        made: Callable[..., Any] = scope["special"]
        return made

    def _result(self, emitter: Emitter) -> str:
        try:
            code = emitter.emit(self._tree)
        except EvaluationError as e:
            return f"{emitter.bind(_raiser(e), 'f')}()"
        if not self._condition:
            return code.src
        if code.type in (BOOLEAN, VOID):
            return f"{code.src} is True" if code.null else code.src
        return emitter.call(values.want_boolean, repr(str(code.type)))


def _raiser(error: EvaluationError) -> Callable[[], Any]:
    """Raises a new one each time: an exception that is raised twice keeps growing its traceback."""
    kind, what, where = type(error), error.what, error.where

    def fail() -> Any:
        raise kind(what, where)

    return fail
