"""A tree as closures: texts, actions, branches, loops, templates that call templates. The closures run in Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.plan.gotemplate.arguments import Value
from penstock.plan.gotemplate.errors import Failure
from penstock.plan.gotemplate.pipelines import Pipelines, Scope
from penstock.plan.gotemplate.printing import in_order, output
from penstock.plan.gotemplate.state import DEPTH, State
from penstock.plan.gotemplate.tree import Action, Branch, Call, Item, Items, Jump, Plain, Tree
from penstock.plan.gotemplate.values import MISSING, Int, items_of, map_of, type_of

BREAK, CONTINUE = "break", "continue"
Step = Callable[[State], str | None]  # gives BREAK or CONTINUE where a loop is left


@dataclass(frozen=True)
class Compiled:
    run: Step
    only: Value | None  # the value of a template that is one action and nothing else
    variables: int
    columns: frozenset[str]


def compiled(tree: Tree) -> Compiled:
    """Raises `TemplateError` for what is not offered."""
    columns: set[str] = set()
    defined: dict[str, tuple[Step, Scope]] = {}
    for name, items in tree.defined.items():
        scope = Scope(main=False, dot_is_record=False, columns=columns)
        defined[name] = _Compiler(scope, defined).items(items), scope
    scope = Scope(main=True, dot_is_record=True, columns=columns)
    compiler = _Compiler(scope, defined)
    only: Value | None = None
    match tree.root:
        case (Action(pipe),) if not pipe.variables:
            only = compiler.pipelines.pipe(pipe)
    run = compiler.items(tree.root)
    return Compiled(run, only, scope.slots, frozenset(columns))


class _Compiler:
    def __init__(self, scope: Scope, defined: dict[str, tuple[Step, Scope]]) -> None:
        self.scope = scope
        self.defined = defined
        self.pipelines = Pipelines(scope)

    def items(self, items: Items) -> Step:
        steps = [self.item(item) for item in items]
        if len(steps) == 1:
            return steps[0]

        def run(s: State) -> str | None:
            for step in steps:
                signal = step(s)
                if signal is not None:
                    return signal
            return None

        return run

    def item(self, item: Item) -> Step:
        match item:
            case Plain(text):
                return lambda s: s.write(text)
            case Action(pipe):
                value = self.pipelines.pipe(pipe)
                if pipe.variables:

                    def keep(s: State) -> None:
                        value(s)

                    return keep
                return lambda s: s.write(output(value(s)))
            case Jump(word):
                return lambda _: word
            case Call():
                return self.call(item)
            case Branch():
                return self.branch(item)

    def branch(self, item: Branch) -> Step:
        visible = len(self.scope.visible)
        made = self.loop(item) if item.word == "range" else self.choice(item)
        del self.scope.visible[visible:]
        return made

    def within(self, items: Items, *, new_dot: bool) -> Step:
        """A body. Its variables end with it."""
        visible, before = len(self.scope.visible), self.scope.dot_is_record
        self.scope.dot_is_record = before and not new_dot
        made = self.items(items)
        self.scope.dot_is_record = before
        del self.scope.visible[visible:]
        return made

    def choice(self, item: Branch) -> Step:
        value = self.pipelines.pipe(item.pipe)
        takes = item.word == "with"
        body = self.within(item.body, new_dot=takes)
        otherwise = self.within(item.otherwise, new_dot=False) if item.otherwise is not None else None

        def run(s: State) -> str | None:
            v = value(s)
            if not v:
                return otherwise(s) if otherwise is not None else None
            if not takes:
                return body(s)
            before, s.dot = s.dot, v
            signal = body(s)
            s.dot = before
            return signal

        return run

    def loop(self, item: Branch) -> Step:
        value = self.pipelines.pipe(item.pipe)
        names = item.pipe.variables
        found = [self.scope.slot(name) for name in names]
        slots = [slot for slot in found if slot is not None]
        if len(slots) == 2 and not item.pipe.assigns:
            slots = [slot for _, slot in self.scope.visible[-2:]]  # two of one name are two
        body = self.within(item.body, new_dot=True)
        otherwise = self.within(item.otherwise, new_dot=False) if item.otherwise is not None else None

        def run(s: State) -> str | None:
            v = value(s)
            before, ran = s.dot, False
            for key, element in _rounds(v, len(slots)):
                ran = True
                s.step()
                if slots:
                    s.variables[slots[-1]] = element
                    if len(slots) > 1:
                        s.variables[slots[0]] = key
                s.dot = element
                if body(s) == BREAK:
                    break
            s.dot = before
            return otherwise(s) if not ran and otherwise is not None else None

        return run

    def call(self, item: Call) -> Step:
        value = self.pipelines.pipe(item.pipe) if item.pipe is not None else None
        name, defined = item.name, self.defined

        def run(s: State) -> None:
            if name not in defined:
                raise Failure(f"the template {name!r} is not defined")
            if s.depth >= DEPTH:
                raise Failure(f"templates call each other deeper than {DEPTH}")
            step, scope = defined[name]
            dot = value(s) if value is not None else MISSING
            before = s.dot, s.dollar, s.variables
            s.dot = s.dollar = dot
            s.variables = [None] * scope.slots
            s.depth += 1
            step(s)
            s.depth -= 1
            s.dot, s.dollar, s.variables = before

        return run


def _rounds(v: Any, variables: int) -> Iterator[tuple[Any, Any]]:
    """Key and element of each round."""
    if v is MISSING or v is None:
        return iter(())
    if isinstance(v, Int):
        if variables > 1:
            raise Failure("range over a number has one variable")
        return ((None, type(v)(i)) for i in range(v))
    found = map_of(v)
    if found is not None:
        return iter(in_order(found))
    items = items_of(v)
    if items is None:
        raise Failure(f"range over {type_of(v)}")
    return ((Int(i), element) for i, element in enumerate(items))
