"""A Go template with sprig's functions, as Conduit uses them for conditions and values. Pure.

Parsed when a pipeline is checked, compiled to closures, run in Spark's tasks: travels there as its text.
"""

from __future__ import annotations

from penstock.plan.gotemplate.compiler import compiled
from penstock.plan.gotemplate.errors import Failure, TemplateError, unsupported
from penstock.plan.gotemplate.functions import check
from penstock.plan.gotemplate.parser import parse
from penstock.plan.gotemplate.printing import output
from penstock.plan.gotemplate.state import State
from penstock_sdk.errors import Rejected
from penstock_sdk.record import Record

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_LONGEST = 64 * 1024


class Template:
    """Immutable. Equal where its text is."""

    __slots__ = ("_only", "_run", "_variables", "columns", "source")

    columns: frozenset[str]  # of the record, that it may look at
    source: str

    def __init__(self, text: str) -> None:
        """Raises `TemplateError`."""
        if len(text) > _LONGEST:
            raise unsupported(f"the template is longer than {_LONGEST} characters", "shorten it")
        try:
            made = compiled(parse(text, check))
        except RecursionError as e:
            raise unsupported("the template is nested too deep", "use fewer levels") from e
        self.source = text
        self.columns = made.columns
        self._run = made.run
        self._only = made.only
        self._variables = made.variables

    @classmethod
    def parse(cls, text: str) -> Template:
        """Raises `TemplateError`."""
        return cls(text)

    def matches(self, r: Record) -> bool:
        """What it writes, as a boolean. Raises `Rejected` where that is none, or it can't be evaluated."""
        try:
            if self._only is None:
                written = self._written(r)
            else:
                value = self._only(State(r, self._variables))
                if value is True or value is False:
                    return value
                written = output(value)
        except Exception as e:
            raise _rejected(e) from e
        if written in _TRUE:
            return True
        if written in _FALSE:
            return False
        what = "the condition writes no boolean"
        if written.strip() in _TRUE | _FALSE:
            what += ": there is white space round it, which {{- … -}} removes"
        raise Rejected(what, code="condition.error")

    def text(self, r: Record) -> str:
        """What it writes. Raises `Rejected` where it can't be evaluated."""
        try:
            return self._written(r)
        except Exception as e:
            raise _rejected(e) from e

    def _written(self, r: Record) -> str:
        state = State(r, self._variables)
        self._run(state)
        return "".join(state.out)

    def __reduce__(self) -> tuple[type[Template], tuple[str]]:
        return Template, (self.source,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def __repr__(self) -> str:
        return f"Template({self.source!r})"


def _rejected(e: Exception) -> Rejected:
    """Only a `Failure` says what it is about; other exceptions may hold values."""
    why = str(e) if isinstance(e, Failure) else f"evaluating it raised {type(e).__name__}"
    return Rejected(f"the template can't be evaluated: {why}", code="condition.error")


__all__ = ["Template", "TemplateError"]
