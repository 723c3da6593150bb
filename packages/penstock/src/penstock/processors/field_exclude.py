"""`field.exclude`: removes fields from a record, with all that is below them.

- `fields` is a list of references, separated by commas; they are removed in this order.
- A field that is not there is no error. What is missing above it is made, as an empty object; above it a number, a text or a list is
  a nack.
- `.Payload.After`, `.Payload.Before`, `.Payload` and `.Key` become absent; `.Metadata` becomes empty. Operation and position
  can't be removed.

It runs in Python on open payloads, and as columns in Spark on typed ones, unless a field of the key or of `before` is named.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Inline, Processor, Record, Rejected, Shape, Step, Unsuitable, Where
from penstock.plan.gotext import trim
from penstock.plan.reference import PAYLOAD, RECORD, Reference


class FieldExcludeSettings(Settings):
    fields: Annotated[str, BeforeValidator(trim)] = Field(
        description="The fields to remove, separated by commas, e.g. `.Payload.After.name,.Metadata.file`."
    )

    @field_validator("fields")
    @classmethod
    def _are_references(cls, value: str) -> str:
        if not value:
            raise ValueError("must not be empty")
        for text in value.split(","):
            Reference.parse(text, whole=True)
            if text in (".Operation", ".Position") or text.lower() in ("operation", "position"):
                raise ValueError("must not be the operation or the position: a record has them always")
        return value


class FieldExclude(Processor[FieldExcludeSettings]):
    reshapes = True
    example: ClassVar[Example | None] = Example(
        settings={"fields": ".Payload.After.name,.Payload.After.address"},
        given={"after": {"id": 7, "name": "Ada", "address": {"city": "London"}}},
        gives={"after": {"id": 7}},
    )

    def __init__(self, settings: FieldExcludeSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.references = tuple(Reference.parse(text, whole=True) for text in settings.fields.split(","))
        roots = {r.root for r in self.references} - {RECORD}
        if PAYLOAD in roots:
            roots = roots - {PAYLOAD} | {record.AFTER, record.BEFORE}
        self.uses = frozenset(roots)  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        inside = [r for r in self.references if r.path]
        if shape is Shape.RAW and any(r.root == record.AFTER for r in inside):
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        never = any(r.root in (RECORD, record.OPERATION, record.POSITION) for r in self.references)
        both = bool(self._gone() & {record.AFTER}) and any(r.root == record.AFTER for r in inside)
        columns = not never and not both and all(r.root in (record.AFTER, record.METADATA) for r in inside)
        return Where.SPARK if shape is Shape.TYPED and columns else Where.PYTHON

    def _gone(self) -> set[str]:
        """The columns that are removed as a whole."""
        gone = {r.root for r in self.references if not r.path}
        return gone - {PAYLOAD} | {record.AFTER, record.BEFORE} if PAYLOAD in gone else gone

    def fields(self) -> frozenset[str]:
        return frozenset(r.path[0] for r in self.references if r.root == record.AFTER and len(r.path) > 1)

    def apply(self, r: Record) -> Record:
        for reference in self.references:
            if reference.path:
                reference.holder(r).pop(reference.path[-1], None)
            elif reference.root == PAYLOAD:
                r.before = r.after = None
            elif reference.root == record.METADATA:
                r.metadata = {}
            elif reference.root in (record.AFTER, record.BEFORE, record.KEY):
                setattr(r, reference.root, None)
            else:
                raise Rejected("a record can't be without its operation and position, nor be removed as a whole")
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if any(r.root != record.AFTER or not r.path for r in self.references):
            return None
        ways = [(r.inside, r.path[-1]) for r in self.references]
        names = [r.path[0] for r in self.references if len(r.path) == 1]
        flat = len(names) == len(ways)

        def exclude(p: Any) -> Any:
            if flat and type(p) is dict:
                for name in names:
                    p.pop(name, None)
                return p
            if p is None:
                p = {}
            for inside, name in ways:
                inside(p).pop(name, None)
            return p

        if not flat:
            return exclude
        pops = "\n".join(f"    p.pop($name{n}, None)" for n in range(len(names)))
        source = f"if type(p) is dict:\n{pops}\nelse:\n    p = $exclude(p)"
        return Inline(exclude, source, exclude=exclude, **{f"name{n}": name for n, name in enumerate(names)})

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        from penstock.processors.columns.fields import Fields, on_metadata, on_payload, together

        def drop(fields: Fields, name: str, _: list[Any]) -> None:
            fields.drop(name)

        gone = self._gone()
        steps = [Step(set={c: F.lit(None).cast(columns.schema[c].dataType) for c in gone})]
        if record.METADATA in gone:
            steps.append(Step(set={record.NAMESPACE: F.lit(None).cast("string")}))
        elif paths := [r.path for r in self.references if r.root == record.METADATA]:
            steps.append(on_metadata(columns, [(p, drop) for p in paths], {p[0] for p in paths}))
        if record.AFTER not in gone and (paths := [r.path for r in self.references if r.root == record.AFTER]):
            steps.append(on_payload(columns, [(p, drop) for p in paths]))
        return together(steps)
