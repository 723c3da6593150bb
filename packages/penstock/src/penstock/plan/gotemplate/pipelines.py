"""Pipelines as closures: operands, function calls, fields. Used by `compiler`; the closures run in Spark's tasks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from penstock.plan.gotemplate import access
from penstock.plan.gotemplate.arguments import Constant, Value, converted, fails, ideal, literal
from penstock.plan.gotemplate.errors import unsupported
from penstock.plan.gotemplate.functions import FUNCTIONS, Function
from penstock.plan.gotemplate.functions.patterns import WITH_PATTERN
from penstock.plan.gotemplate.printf import parsed
from penstock.plan.gotemplate.regex import PatternError, Untranslatable, translated
from penstock.plan.gotemplate.state import State
from penstock.plan.gotemplate.tree import (
    Bool,
    Chain,
    Command,
    Dot,
    Field,
    Name,
    Nil,
    Node,
    Number,
    Pipe,
    Text,
    Variable,
)
from penstock.plan.gotemplate.values import MISSING, equal

_NEVER_NIL = frozenset(
    {"eq", "ne", "lt", "le", "gt", "ge", "not", "len", "hasPrefix", "hasSuffix", "contains", "empty"}
)


@dataclass
class Scope:
    """One template while it is compiled: which variables are seen, and what . and $ are."""

    main: bool  # $ is the record
    dot_is_record: bool
    columns: set[str]
    visible: list[tuple[str, int]] = field(default_factory=list)
    slots: int = 0

    def declare(self, name: str) -> int:
        self.visible.append((name, self.slots))
        self.slots += 1
        return self.slots - 1

    def slot(self, name: str) -> int | None:
        return next((slot for seen, slot in reversed(self.visible) if seen == name), None)


class Pipelines:
    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    def pipe(self, pipe: Pipe) -> Value:
        """Its value; a nil at the end is a missing value. Variables are set on the way."""
        value: Value | None = None
        for command in pipe.commands:
            value = self._command(command, value)
        assert value is not None
        return self._stored(pipe, value) if pipe.variables else value

    def _stored(self, pipe: Pipe, value: Value) -> Value:
        slots = [self.slot_for(name, pipe.assigns) for name in pipe.variables]
        if None in slots:
            return fails(f"{pipe.variables[0]} is assigned before it is declared")

        def store(s: State) -> Any:
            v = value(s)
            for slot in slots:
                assert slot is not None
                s.variables[slot] = v
            return v

        return store

    def slot_for(self, name: str, assigns: bool) -> int | None:
        return self.scope.slot(name) if assigns else self.scope.declare(name)

    def _command(self, command: Command, final: Value | None) -> Value:
        first, rest = command.args[0], command.args[1:]
        if isinstance(first, Name):
            made = self._call(first.name, rest, final)
            return made if first.name in _NEVER_NIL else _ended(made)
        if isinstance(first, Field):
            return _ended(self._field(first.names, rest, final))
        if isinstance(first, Chain):
            return _ended(self._members(self._base(first.base), first.names, rest, final))
        if isinstance(first, Variable) and first.names:
            return _ended(self._variable(first, rest, final))
        if rest or final is not None:
            return fails("an argument is given to what is no function")
        if isinstance(first, Nil):
            return fails("nil is no command")
        return _ended(self.value(first))

    def value(self, node: Node) -> Value:
        """Where no type is wanted."""
        match node:
            case Pipe():
                return self.pipe(node)
            case Name():
                return self._call(node.name, (), None)
            case Field():
                return self._field(node.names, (), None)
            case Chain():
                return self._members(self._base(node.base), node.names, (), None)
            case Variable():
                return self._variable(node, (), None)
            case Dot():
                return self._dot()
            case Number():
                return ideal(node)
            case Text() | Bool():
                return Constant(node.value)
            case Nil():
                return Constant(None)

    def _argument(self, node: Node, wanted: str) -> Value:
        if isinstance(node, Number | Text | Bool | Nil):
            return literal(node, wanted)
        return converted(self.value(node), wanted)

    # --- fields

    def _dot(self) -> Value:
        if self.scope.dot_is_record:
            self.scope.columns |= access.ALL
            return lambda s: access.whole(s.record)
        return lambda s: s.dot

    def _base(self, node: Node) -> Value:
        return fails("a field of nil") if isinstance(node, Nil) else self.value(node)

    def _field(self, names: tuple[str, ...], rest: tuple[Node, ...], final: Value | None) -> Value:
        if not self.scope.dot_is_record:
            return self._members(lambda s: s.dot, names, rest, final)
        return self._of_record(names, rest, final)

    def _of_record(self, names: tuple[str, ...], rest: tuple[Node, ...], final: Value | None) -> Value:
        if not rest and final is None:
            get, columns = access.root_field(names)
            self.scope.columns |= columns
            return lambda s: get(s.record)
        if len(names) == 1:
            return fails(f"{names[0]} is no method, and has arguments")
        get, columns = access.root_field(names[:-1])
        self.scope.columns |= columns
        return self._members(lambda s: get(s.record), names[-1:], rest, final)

    def _variable(self, node: Variable, rest: tuple[Node, ...], final: Value | None) -> Value:
        if node.name == "$":
            if self.scope.main and node.names:
                return self._of_record(node.names, rest, final)
            if self.scope.main:
                self.scope.columns |= access.ALL
                return lambda s: access.whole(s.record)
            base: Value = lambda s: s.dollar  # noqa: E731
        else:
            slot = self.scope.slot(node.name)
            if slot is None:
                return fails(f"{node.name} is used before it is declared")
            base = lambda s: s.variables[slot]  # noqa: E731
        return self._members(base, node.names, rest, final) if node.names else base

    def _members(self, base: Value, names: tuple[str, ...], rest: tuple[Node, ...], final: Value | None) -> Value:
        if not rest and final is None:
            if len(names) == 1:
                name, member = names[0], access.field
                return lambda s: member(base(s), name)
            chain = access.chain
            return lambda s: chain(base(s), names)
        given = [self._argument(node, "any") for node in rest]
        if final is not None:
            given.append(final)
        path, last = names[:-1], names[-1]
        return lambda s: access.field(access.chain(base(s), path), last, tuple(get(s) for get in given))

    # --- functions

    def _call(self, name: str, nodes: tuple[Node, ...], final: Value | None) -> Value:
        if name in ("and", "or"):
            return self._logic(name == "or", nodes, final)
        function = FUNCTIONS[name]
        count = len(nodes) + (final is not None)
        if not function.accepts(count):
            return fails(f"{name} does not take {count} arguments")
        _check_literals(name, nodes)
        if name in ("eq", "ne") and count == 2:
            last = final if final is not None else self._raw(nodes[1])
            return _compared(self._raw(nodes[0]), last, name == "eq")
        given = [self._argument(node, function.type_at(i)) for i, node in enumerate(nodes)]
        if final is not None:
            given.append(converted(final, function.type_at(count - 1)))
        return _called(function, given)

    def _raw(self, node: Node) -> Value:
        return literal(node, "any") if isinstance(node, Number | Text | Bool | Nil) else self.value(node)

    def _logic(self, stops_at: bool, nodes: tuple[Node, ...], final: Value | None) -> Value:
        """and, or: the first value that decides, else the last."""
        if not nodes and final is None:
            return fails(f"{'or' if stops_at else 'and'} needs an argument")
        given = [self._raw(node) for node in nodes]

        def decide(s: State) -> Any:
            last = final(s) if final is not None else None
            v: Any = None
            for get in given:
                v = get(s)
                if bool(v) is stops_at:
                    return v
            return v if final is None else last

        return decide


def _ended(get: Value) -> Value:
    """A nil at the end of a command is a missing value."""
    if isinstance(get, Constant):
        return get

    def ended(s: State) -> Any:
        v = get(s)
        return MISSING if v is None else v

    return ended


def _compared(first: Value, second: Value, wanted: bool) -> Value:
    """eq and ne of two: the usual ones, so texts are looked at first (0.2 µs less)."""
    if isinstance(second, Constant) and type(second.value) is str:
        text = second.value

        def with_text(s: State) -> Any:
            a = first(s)
            return ((a == text) if type(a) is str else equal(a, text)) is wanted

        return with_text

    def compared(s: State) -> Any:
        return equal(first(s), second(s)) is wanted

    return compared


def _called(function: Function, given: list[Value]) -> Value:
    call = function.call
    if len(given) == 1:
        [one] = given
        return lambda s: call(one(s))
    if len(given) == 2:
        first, second = given
        return lambda s: call(first(s), second(s))
    return lambda s: call(*[get(s) for get in given])


def _check_literals(name: str, nodes: tuple[Node, ...]) -> None:
    """What is known to be unsupported before any record comes."""
    if not nodes or not isinstance(nodes[0], Text):
        return
    if name == "printf":
        parsed(nodes[0].value)
    if name in WITH_PATTERN:
        try:
            translated(nodes[0].value)
        except PatternError:
            pass  # Go finds it when it gets there
        except Untranslatable as e:
            raise unsupported(f"`{name}`: {e}", "write the regular expression in another way") from e
