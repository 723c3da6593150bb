"""Fields of a typed payload, and keys of the metadata, as Spark columns: what `Reference` does to dicts, in `compile`.

Called by the field processors in the engine; what it builds is evaluated in Spark's tasks. A struct can't leave a field out, so
a field that is missing in a dict is NULL here, and an object that has to be made has NULL in the fields nobody set.

Maps are changed with `map_zip_with` and `map_filter` only: the functions that build maps are not safe where an expression raises.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from penstock import record
from penstock.errors import Stop
from penstock.native import Columns, Step
from penstock_sdk.record import COLLECTION

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, MapType, StructType


@dataclass(frozen=True)
class Value:
    column: Column
    type: DataType


class Fields(Protocol):
    """An object while it is changed. It is written as a column once, at the end: a column of a column of a column doubles
    with every change."""

    def get(self, name: str) -> Value | None:
        """None where there is no such field in any record."""

    def has(self, name: str) -> Column:
        """Whether the key is there; NULL may be its value."""

    def put(self, name: str, value: Value) -> None: ...

    def drop(self, name: str) -> None: ...

    def below(self, name: str, bad: list[Column]) -> Fields:
        """The object in this field, made where there is none; what is changed in it is changed here."""

    def value(self) -> Value: ...


Edit = Callable[
    [Fields, str, list["Column"]], None
]  # the object, the name in it; why a record is bad is put into the list


def on_payload(columns: Columns, edits: Sequence[tuple[tuple[str, ...], Edit]]) -> Step:
    """One edit after the other. A record is bad if any of them says so; the first word counts."""
    bad: list[Column] = []
    root = _fields(Value(columns.after, columns.schema[record.AFTER].dataType), record.AFTER, bad)
    for path, edit in edits:
        at = root
        for name in path[:-1]:
            at = at.below(name, bad)
        edit(at, path[-1], bad)
    return Step(set={record.AFTER: root.value().column}, reject=_first(bad))


def on_metadata(columns: Columns, edits: Sequence[tuple[tuple[str, ...], Edit]], names: set[str]) -> Step:
    """The namespace is one of its keys, and a column of its own; it is looked at where the `names` ask for it."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, StringType

    bad: list[Column] = []
    type_ = MapType(StringType(), StringType())
    fields = _MapFields(columns[record.METADATA], type_)
    if COLLECTION in names:
        fields.put(COLLECTION, Value(columns[record.NAMESPACE], StringType()))
        there = F.map_filter(fields.value().column, lambda k, v: (k != COLLECTION) | v.isNotNull())
        fields = _MapFields(there, type_)
    for path, edit in edits:
        edit(fields, path[-1], bad)
    made = fields.value().column
    if COLLECTION not in names:
        return Step(set={record.METADATA: made}, reject=_first(bad))
    changed = {
        record.METADATA: F.map_filter(made, lambda k, _: k != COLLECTION),
        record.NAMESPACE: F.try_element_at(made, F.lit(COLLECTION)),
    }
    return Step(set=changed, reject=_first(bad))


def together(steps: Sequence[Step]) -> Step:
    changed = {name: value for s in steps for name, value in s.set.items()}
    return Step(set=changed, reject=_first([s.reject for s in steps if s.reject is not None]))


def nothing(type_: DataType) -> Value:
    from pyspark.sql import functions as F

    return Value(F.lit(None).cast(type_), type_)


def _first(bad: Sequence[Column]) -> Column | None:
    from pyspark.sql import functions as F

    return F.coalesce(*bad) if bad else None


def _fields(value: Value | None, name: str, bad: list[Column]) -> Fields:
    from pyspark.sql import functions as F
    from pyspark.sql.types import MapType, NullType, StringType, StructType

    if value is None:
        value = nothing(NullType())
    if isinstance(value.type, StructType):
        return _StructFields(value.column, value.type)
    if isinstance(value.type, MapType):
        if not isinstance(value.type.keyType, StringType):
            raise _unsupported(name, value.type)
        return _MapFields(value.column, value.type)
    if not isinstance(value.type, NullType):  # only where it is NULL an object may take its place
        why = f"nothing can be below the field {name!r}: it is {value.type.simpleString()[:100]}, not an object"
        bad.append(F.when(value.column.isNotNull(), F.lit(why)))
    return _StructFields(value.column, StructType([]))


class _StructFields:
    def __init__(self, column: Column, type_: StructType) -> None:
        self.column = column
        self.given = {f.name for f in type_.fields}  # and not changed
        self.fields: dict[str, Value | Fields] = {
            f.name: Value(column.getField(f.name), f.dataType) for f in type_.fields
        }

    def get(self, name: str) -> Value | None:
        found = self.fields.get(name)
        return found if found is None or isinstance(found, Value) else found.value()

    def has(self, name: str) -> Column:
        from pyspark.sql import functions as F

        return self.column.isNotNull() if name in self.given else F.lit(name in self.fields)

    def put(self, name: str, value: Value) -> None:
        self.given.discard(name)
        self.fields[name] = value

    def drop(self, name: str) -> None:
        self.given.discard(name)
        self.fields.pop(name, None)

    def below(self, name: str, bad: list[Column]) -> Fields:
        found = self.fields.get(name)
        if found is None or isinstance(found, Value):
            found = _fields(found, name, bad)
            self.given.discard(name)
            self.fields[name] = found
        return found

    def value(self) -> Value:
        from pyspark.sql import functions as F
        from pyspark.sql.types import StructField, StructType

        made = {name: f if isinstance(f, Value) else f.value() for name, f in self.fields.items()}
        struct = F.struct(*(v.column.alias(name) for name, v in made.items()))
        return Value(struct, StructType([StructField(name, v.type) for name, v in made.items()]))


class _MapFields:
    """The keys of a MAP differ from record to record; its values have one type, which stays."""

    def __init__(self, column: Column, type_: MapType) -> None:
        from pyspark.sql import functions as F

        self.type = type_
        self.column = F.coalesce(column, F.create_map().cast(type_))
        self.changed: dict[str, Value | Fields | None] = {}  # None is dropped

    def get(self, name: str) -> Value | None:
        from pyspark.sql import functions as F

        if name in self.changed:
            found = self.changed[name]
            return found if found is None or isinstance(found, Value) else found.value()
        return Value(F.try_element_at(self.column, F.lit(name)), self.type.valueType)

    def has(self, name: str) -> Column:
        from pyspark.sql import functions as F

        if name in self.changed:
            return F.lit(self.changed[name] is not None)
        return F.map_contains_key(self.column, name)

    def put(self, name: str, value: Value) -> None:
        self.changed[name] = value

    def drop(self, name: str) -> None:
        self.changed[name] = None

    def below(self, name: str, bad: list[Column]) -> Fields:
        found = self.changed.get(name)
        if found is None or isinstance(found, Value):
            found = _fields(self.get(name), name, bad)
            self.changed[name] = found
        return found

    def value(self) -> Value:
        from pyspark.sql import functions as F

        made = self.column
        dropped = [name for name, change in self.changed.items() if change is None]
        if dropped:
            made = F.map_filter(made, lambda k, _: ~k.isin(*dropped))
        kept = {name: self._fitting(name) for name, change in self.changed.items() if change is not None}
        if kept:
            there = F.create_map(*(F.lit(text) for name in kept for text in (name, "")))
            made = F.map_zip_with(made, there, lambda k, v, _: _picked(kept, k, v))
        return Value(made, self.type)

    def _fitting(self, name: str) -> Column:
        from pyspark.sql.types import NullType

        value = self.get(name)
        assert value is not None
        if isinstance(value.type, NullType):
            return nothing(self.type.valueType).column
        if value.type.simpleString() != self.type.valueType.simpleString():  # NULL or NOT NULL, inside, is the same
            raise _unsupported(name, self.type)
        return value.column


def _picked(values: Mapping[str, Column], key: Column, otherwise: Column) -> Column:
    from pyspark.sql import functions as F

    picked = otherwise
    for name, value in values.items():
        picked = F.when(key == name, value).otherwise(picked)
    return picked


def _unsupported(name: str, type_: DataType) -> Stop:
    return Stop(
        f"The field {name!r} can't be set",
        code="processor.unsupported",
        why=f"it is in {type_.simpleString()[:100]}, whose keys and values have one type each",
        hint="do this step with `sql` or `python`",
    )
