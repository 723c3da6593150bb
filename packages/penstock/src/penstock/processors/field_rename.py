"""`field.rename`: gives fields other names. A field stays where it is; only the last name of its path changes.

- `mapping` is a list of `reference:new name`, separated by commas; done in this order.
- A field that is not there is made under the new name, as null (a key of the metadata as an empty text).
- Where the new name is there already, the record is nacked, and likewise where a number, a text or a list is above the field.
- The new name is a name, not a path: `a.b` is one name with a point in it. Neither may hold a comma or a colon.
- Payload, key, metadata, operation and position themselves can't be renamed.

It runs in Python on open payloads, and as columns in Spark on typed ones, unless a field of the key or of `before` is named.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Columns, Example, Inline, Processor, Record, Rejected, Shape, Step, Unsuitable, Where
from penstock.plan.gotext import trim
from penstock.plan.reference import Reference

if TYPE_CHECKING:
    from pyspark.sql import Column

    from penstock.processors.columns.fields import Edit, Fields

# As they are written: Conduit finds others (`.payload.after`) only when the first record comes, and nacks it.
_WHOLE = (".Metadata", ".Payload", ".Payload.Before", ".Payload.After", ".Position", ".Key", ".Operation")


def _pairs(mapping: str) -> list[tuple[str, str]]:
    found = []
    for pair in mapping.split(","):
        parts = pair.split(":")
        if len(parts) != 2:
            raise ValueError("must be a list of pairs, e.g. .Payload.After.foo:bar,.Metadata.key:id")
        found.append((trim(parts[0]), trim(parts[1])))
    return found


class FieldRenameSettings(Settings):
    mapping: Annotated[str, BeforeValidator(trim)] = Field(
        description="The fields and their new names, e.g. `.Payload.After.foo:bar,.Metadata.key:id`."
    )

    @field_validator("mapping")
    @classmethod
    def _are_pairs(cls, value: str) -> str:
        if not value:
            raise ValueError("must not be empty")
        for text, name in _pairs(value):
            reference = Reference.parse(text, whole=True)
            if text in _WHOLE or (text and text[0] not in ".$" and not reference.path):
                raise ValueError(f"must not rename {text}: only fields inside of it have names")
            if not name:
                raise ValueError(f"must give {text} a name that is not empty")
        return value


class FieldRename(Processor[FieldRenameSettings]):
    reshapes = True
    example: ClassVar[Example | None] = Example(
        settings={"mapping": ".Payload.After.name:full_name,.Metadata.file:origin"},
        given={"after": {"id": 7, "name": "Ada"}, "metadata": {"file": "a.json"}},
        gives={"after": {"id": 7, "full_name": "Ada"}, "metadata": {"origin": "a.json"}},
    )

    def __init__(self, settings: FieldRenameSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.pairs = [(Reference.parse(text, whole=True), name) for text, name in _pairs(settings.mapping)]
        self.uses = frozenset(r.root for r, _ in self.pairs) & frozenset(record.COLUMNS)  # type: ignore[misc]

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and any(r.root == record.AFTER and r.path for r, _ in self.pairs):
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        columns = all(r.root in (record.AFTER, record.METADATA) and r.path for r, _ in self.pairs)
        return Where.SPARK if shape is Shape.TYPED and columns else Where.PYTHON

    def fields(self) -> frozenset[str]:
        found = {name for r, name in self.pairs if r.root == record.AFTER and len(r.path) == 1}
        return frozenset(found | {r.path[0] for r, _ in self.pairs if r.root == record.AFTER and r.path})

    def apply(self, r: Record) -> Record:
        for reference, name in self.pairs:
            if not reference.path:
                raise Rejected("payload, key, metadata, operation and position can't be renamed")
            _rename(reference.holder(r), reference.path[-1], name, "" if reference.root == record.METADATA else None)
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any] | None:  # noqa: ARG002
        if any(r.root != record.AFTER or not r.path for r, _ in self.pairs):
            return None
        ways = [(r.inside, r.path[-1], name) for r, name in self.pairs]

        def rename(p: Any) -> Any:
            if p is None:
                p = {}
            for inside, old, new in ways:
                _rename(inside(p), old, new, None)
            return p

        if any(len(r.path) > 1 or r.path[0] == name for r, name in self.pairs):
            return rename
        lines = ["if type(p) is not dict:", "    p = $rename(p)", "else:"]
        names: dict[str, Any] = {}
        for n, (r, new) in enumerate(self.pairs):
            lines += [f"    if $new{n} in p:", f"        raise $taken{n}()", f"    p[$new{n}] = p.pop($old{n}, None)"]
            names |= {f"new{n}": new, f"old{n}": r.path[0], f"taken{n}": partial(_taken, r.path[0], new)}
        return Inline(rename, "\n".join(lines), rename=rename, **names)

    def compile(self, columns: Columns) -> Step:
        from penstock.processors.columns.fields import on_metadata, on_payload, together

        steps = []
        if pairs := [(r.path, name) for r, name in self.pairs if r.root == record.METADATA]:
            names = {path[0] for path, _ in pairs} | {name for _, name in pairs}
            steps.append(on_metadata(columns, [(path, _edit(name, metadata=True)) for path, name in pairs], names))
        if pairs := [(r.path, name) for r, name in self.pairs if r.root == record.AFTER]:
            steps.append(on_payload(columns, [(path, _edit(name)) for path, name in pairs]))
        return together(steps)


def _rename(fields: dict[str, Any], old: str, new: str, missing: Any) -> None:
    if new in fields:
        raise Rejected(_there(old, new))
    fields[new] = fields.get(old, missing)
    fields.pop(old, None)


def _taken(old: str, new: str) -> Rejected:
    return Rejected(_there(old, new))


def _there(old: str, new: str) -> str:
    return f"the field {old!r} can't be renamed: there is a field {new!r} already"


def _edit(new: str, *, metadata: bool = False) -> Edit:
    def rename(fields: Fields, old: str, bad: list[Column]) -> None:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StringType

        from penstock.processors.columns.fields import Value, nothing

        bad.append(F.when(fields.has(new), F.lit(_there(old, new))))
        value = fields.get(old) or nothing(StringType())
        if metadata:
            value = Value(F.coalesce(value.column, F.lit("")), StringType())
        fields.put(new, value)
        fields.drop(old)

    return rename
