"""Which records a processor is for: its `condition` (SQL, or a Go template where it holds `{{`) and its `namespaces`. Pure.

Used by the plan (`nodes`), and by the stages that run it: closures in Python, SQL text in Spark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.native import Unsuitable, Where
from penstock.plan.sql import ExpressionError, columns_of, compile_condition, fields_of
from penstock.plan.sql.spark import looks_inside, spark_text
from penstock.record import Shape

if TYPE_CHECKING:
    from penstock.plan.gotemplate import Template
    from penstock_sdk.record import Record


@dataclass(frozen=True)
class Condition:
    """Every record passes an empty one. Pickles as its texts."""

    text: str = ""
    namespaces: str = (
        ""  # a Java regular expression, found anywhere in the namespace; a record without one never matches
    )
    written: str = ""  # the text as the file has it: references instead of values. What errors show

    def __bool__(self) -> bool:
        return bool(self.text.strip() or self.namespaces)

    def __reduce__(self) -> tuple[type[Condition], tuple[str, ...]]:
        return Condition, (self.text, self.namespaces, self.written)

    def __str__(self) -> str:
        shown = self.written or self.text
        return f"{shown} (namespaces: {self.namespaces})" if self.namespaces else shown

    @cached_property
    def template(self) -> Template | None:
        """Where the text is a Go template. Raises `TemplateError`."""
        if "{{" not in self.text:
            return None
        from penstock.plan.gotemplate import Template

        return Template.parse(self.text)

    @cached_property
    def sql(self) -> str:
        """The whole as one SQL condition, where it is no template."""
        parts = [f"({self.text})"] if self.text.strip() else []
        if self.namespaces:
            parts.insert(0, _rlike(self.namespaces))
        return " AND ".join(parts) if len(parts) > 1 else self.text or parts[0]

    @cached_property
    def columns(self) -> frozenset[str]:
        """The record columns it looks at."""
        if not self:
            return frozenset()
        if self.template is None:
            return columns_of(self.sql)
        own = frozenset({record.NAMESPACE}) if self.namespaces else frozenset()
        return self.template.columns | own

    @property
    def fields(self) -> frozenset[str] | None:
        """Which fields of a typed `after` it looks at; None = it may be any."""
        if not self:
            return frozenset()
        return None if self.template is not None else fields_of(self.sql, record.AFTER)

    @property
    def spark(self) -> str:
        """For Spark: the same text, in its spelling."""
        return spark_text(self.sql)

    def on_record(self) -> Callable[[Record], bool]:
        """In Spark's tasks. Raises for a record that it can't judge."""
        template = self.template
        if template is None:
            return compile_condition(self.sql).on_record
        if not self.namespaces:
            return template.matches
        named = compile_condition(_rlike(self.namespaces)).on_record
        return lambda r: named(r) and template.matches(r)

    def on_after(self) -> Callable[[Any], bool] | None:
        """The same over `after` alone, where it looks at nothing else."""
        return None if self.template is not None else compile_condition(self.sql).on_after

    def check(self, where: Where, shape: Shape) -> None:
        """Raises `Unsuitable` where it can't be used in front of a processor that runs there."""
        if self.namespaces:
            self._check_sql(Where.PYTHON, _rlike(self.namespaces), "`namespaces`", "it is a Java regular expression")
        if "{{" in self.text:
            self._check_template()
        if "{{" in self.text or not self.text.strip():
            return
        if self.text.strip() in ("1", "0", "t", "T", "f", "F"):
            what = "the condition is a boolean of Go, not of SQL"
            raise Unsuitable(what, "write true or false", code="config.bad-condition")
        self._check_sql(where, self.text, "the condition", "")
        if shape is Shape.RAW and looks_inside(self.text, record.AFTER):
            what = "the condition names a field of the payload, which is raw here"
            raise Unsuitable(what, "put json.decode before it")

    def _check_template(self) -> None:
        from penstock.plan.gotemplate import TemplateError

        try:
            _ = self.template
        except TemplateError as e:
            raise Unsuitable(f"the condition can't be used: {e.what}", e.hint, code=e.code) from e

    def _check_sql(self, where: Where, text: str, name: str, hint: str) -> None:
        try:
            if where is Where.PYTHON:
                compile_condition(text)
            else:
                columns_of(text)
        except ExpressionError as e:
            what = f"{name} can't be used: {e.what}"
            raise Unsuitable(what, e.hint or hint or "correct it", code="config.bad-condition") from e


EVERY = Condition()


def _rlike(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace("'", "\\'")
    return f"namespace RLIKE '{escaped}'"
