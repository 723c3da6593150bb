"""`expect`: says what has to hold for every record, and what becomes of one for which it does not.

`rule` is a SQL condition over the record, e.g. `after.amount >= 0 AND after.id IS NOT NULL`. A record fails where the rule is
false or NULL. `on-fail` says what happens then:

- `reject` (the default): the record is nacked, `expect.failed`;
- `warn`: it goes on, and is counted as one that something is wrong with;
- `stop`: it is nacked, `expect.stop`, and the pipeline stops there, however many nacks the dead letter queue would take.

The dead letter names the processor and says `message`, if there is one. A rule that can't be evaluated for a record, say
because a text is no number, is a nack of its own whatever `on-fail` is, with the reason.

On open payloads it runs in Python with its neighbours and takes the SQL that they take; on raw and typed ones it runs in
Spark, with all of its SQL but what is different on every attempt, such as `now()`. A rule about fields of a raw payload
is refused: put `json.decode` before it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.errors import Rejected
from penstock.native import Columns, Example, Processor, Record, Reject, Shape, Step, Unsuitable, Where
from penstock.plan.sql import Expression, ExpressionError, columns_of, compile_condition, fields_of
from penstock.plan.sql.spark import looks_inside, spark_text


class ExpectSettings(Settings):
    rule: str = Field(min_length=1, description="What has to hold, as SQL, e.g. `after.amount >= 0`.")
    on_fail: Literal["reject", "warn", "stop"] = Field(
        "reject", description="What becomes of a record for which it does not: `reject`, `warn` or `stop`."
    )
    message: str = Field("", description="What the dead letter says.")

    @field_validator("rule")
    @classmethod
    def _parses(cls, value: str) -> str:
        try:
            columns_of(value)
        except ExpressionError as e:
            raise ValueError(f"must be a SQL condition: {e.what}" + (f"; {e.hint}" if e.hint else "")) from e
        return value


class Expect(Processor[ExpectSettings]):
    raises = "the rule raised an error"
    example: ClassVar[Example | None] = Example(
        settings={"rule": "after.amount >= 0", "message": "a negative amount"},
        given={"after": {"id": 7, "amount": -1}},
        rejects="a negative amount",
    )

    def __init__(self, settings: ExpectSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.uses = columns_of(settings.rule)  # type: ignore[misc]
        self.raised = "processor.expression"  # type: ignore[misc]
        self.code = {"reject": "expect.failed", "stop": "expect.stop", "warn": ""}[settings.on_fail]  # type: ignore[misc]
        self.text = settings.message or "the rule does not hold"  # not the rule: it may hold what came from a secret

    def where(self, shape: Shape) -> Where:
        if shape is not Shape.OPEN:
            if shape is Shape.RAW and looks_inside(self.settings.rule, record.AFTER):
                what = "the rule names a field of the payload, which is raw here"
                raise Unsuitable(what, "put json.decode before it")
            return Where.SPARK
        try:
            compile_condition(self.settings.rule)
        except ExpressionError as e:
            raise Unsuitable(f"the rule can't be used: {e.what}", e.hint) from e
        return Where.PYTHON

    def fields(self) -> frozenset[str] | None:
        return fields_of(self.settings.rule, record.AFTER)

    @cached_property
    def _holds(self) -> Expression:
        return compile_condition(self.settings.rule)

    def apply(self, r: Record) -> Record | Reject:
        if not self._holds.on_record(r):
            if self.code:
                return Reject(self.text, code=self.code)
            self.warn()
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        holds = self._holds.on_after
        return None if holds is None else partial(self._on_payload, holds)

    def _on_payload(self, holds: Callable[[Any], bool], payload: Any) -> Any:
        if not holds(payload):
            if self.code:
                raise Rejected(self.text, code=self.code)
            self.warn()
        return payload

    def compile(self, columns: Columns) -> Step:  # noqa: ARG002
        from pyspark.sql import functions as F

        fails = ~F.coalesce(F.expr(spark_text(self.settings.rule)), F.lit(False))
        return Step(reject=F.when(fails, F.lit(self.text))) if self.code else Step(warn=fails)
