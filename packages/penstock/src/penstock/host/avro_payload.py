"""Payloads that a plugin program sent as Avro, typed on Spark. The engine makes an `AvroDecode` for a batch, from the schemas that its
records name; it runs in Spark's Python tasks.

Nothing is rounded, cut or made NULL. The codec refuses what does not fit its type, a record at a time, so whatever it gives fits the
column. What Spark has no type for stays open, as a dict.

| Avro | Spark |
|---|---|
| boolean; int; long; float; double | BOOLEAN; INT; BIGINT; FLOAT; DOUBLE |
| string, enum, uuid; bytes, fixed | STRING; BINARY |
| decimal; date | DECIMAL(p,s); DATE |
| timestamp-millis, -micros; local-timestamp-millis, -micros | TIMESTAMP; TIMESTAMP_NTZ |
| time-millis, time-micros | STRING, in ISO 8601 (`23:59:59.999999`): Penstock's schemas have no TIME |
| record; array; map | STRUCT; ARRAY; MAP<STRING, …> |
| a union of null and one other type | that type; all others are NOT NULL |
| a union of more, null alone, recursive records, records without fields, duration, decimals of more than 38 digits | none |
| timestamp-nanos, and logical types that nobody knows | what they are made of |
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NoReturn

from penstock import record
from penstock.host.avro_reading import Tree, reader, tree_of
from penstock.native import Processor, Record, Rejected, Shape, Where
from penstock.plan.schema import Schema
from penstock_sdk.avro import AvroError, compiled

if TYPE_CHECKING:
    import pyarrow as pa

Decode = Callable[[Any], Any]


class AvroPayload:
    """An Avro schema that Spark has a type for. Sent to Spark's tasks as its text; equal texts are equal."""

    def __init__(self, schema: str) -> None:
        """Of a schema that `payload_of` takes."""
        self.schema = schema

    @cached_property
    def tree(self) -> Tree:
        found = tree_of(self.schema)
        if found is None:
            raise ValueError("Spark has no type for this schema")
        return found

    @property
    def ddl(self) -> str:
        return f"STRUCT<{Schema(self.tree.type().fields).ddl}>"

    @cached_property
    def _build(self) -> Callable[[Sequence[Any]], Any]:
        return _builder(self.tree)

    def column(self, values: Sequence[Any]) -> pa.StructArray:
        """Of what the codec gives, or a quick `reader`: each value has been looked at, so it fits."""
        return self._build(values)

    def __reduce__(self) -> tuple[type[AvroPayload], tuple[str]]:
        return AvroPayload, (self.schema,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AvroPayload) and other.schema == self.schema

    def __hash__(self) -> int:
        return hash(self.schema)


def payload_of(schema: str) -> AvroPayload | None:
    """None where Spark has no such type: the payload is open then."""
    return AvroPayload(schema) if tree_of(schema) is not None else None


class AvroDecode(Processor[None]):
    """The first processor of a batch whose records have the same schemas. `payload` and `key` are schemas; a part that has none stays as
    it is. `parts` are the record columns that are Avro, given raw. With `missing` a schema is not known, and every record is rejected
    with this text.
    """

    typed: AvroPayload | None

    def __init__(
        self, source_id: str, payload: str | None, key: str | None, missing: str = "", *, parts: frozenset[str]
    ) -> None:
        super().__init__(None, source_id)
        schemas = {record.AFTER: payload, record.BEFORE: payload, record.KEY: key}
        self.schemas = {name: text for name, text in schemas.items() if name in parts and text is not None}
        self.missing = missing
        self._opens = record.AFTER in self.schemas or (bool(missing) and record.AFTER in parts)
        self.uses = parts | {record.AFTER}  # type: ignore[misc]
        self.typed = payload_of(self.schemas[record.AFTER]) if record.AFTER in self.schemas else None

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:
        """Open as well where the schema is not known: no record goes on then, and what follows is planned all the same."""
        if self.typed is not None:
            return Shape.TYPED
        return Shape.OPEN if self._opens else shape

    def apply(self, r: Record) -> Record:
        if self.missing:
            self._reject(None)
        for name, schema in self.schemas.items():
            setattr(r, name, _decoder(name, schema)(getattr(r, name)))
        return r

    def on_payload(self, *, last: bool = False) -> Decode | None:  # noqa: ARG002
        if self.missing:
            return self._reject
        return _decoder(record.AFTER, self.schemas[record.AFTER]) if list(self.schemas) == [record.AFTER] else None

    def _reject(self, _: Any) -> NoReturn:
        raise Rejected(self.missing, code="wire.schema")


@lru_cache(maxsize=64)  # in Spark's tasks: one process has many, with the same schemas
def _decoder(name: str, schema: str) -> Decode:
    """From the bytes of a part to its values."""
    tree = tree_of(schema)
    quick = None if tree is None else reader(tree, numbers=name == record.AFTER)  # that is typed, the others are not

    def decode(value: Any) -> Any:
        if quick is not None:
            try:
                return quick(value)
            except Exception:
                pass
        return None if value is None else _decoded(name, schema, value)

    return decode


def _decoded(name: str, schema: str, value: Any) -> dict[str, Any]:
    """The meaning. In the words of `penstock_sdk.schemas`, which knows the schema by its subject."""
    if type(value) is not bytes:
        _refuse(name, f"it is {type(value).__name__}, not bytes")
    try:
        found = _codec(schema).decode(value)
    except AvroError as error:
        step = ".".join(map(str, reversed(error.steps)))
        _refuse(f"{name}.{step}" if step else name, f"the bytes do not fit their schema: {error.why}")
    except ValueError as error:
        _refuse(name, f"its schema: {error}")
    if not isinstance(found, dict):
        _refuse(name, "its schema is of no record")
    return found


@lru_cache(maxsize=64)
def _codec(schema: str) -> Any:
    return compiled(schema.encode())


def _refuse(where: str, why: str) -> NoReturn:
    raise Rejected(f"{where} can't be read: {why}", code="wire.schema", where=where) from None


# --- columns


def _builder(tree: Tree) -> Callable[[Sequence[Any]], Any]:
    """Arrow's array of a list of what the codec gives."""
    import pyarrow as pa

    arrow = tree.type().arrow()
    if tree.kind == "record":
        return _structs(tree, arrow)
    if tree.logical in ("uuid", "time-millis", "time-micros"):
        text = str if tree.logical == "uuid" else _iso
        return lambda values: pa.array([None if v is None else text(v) for v in values], arrow)
    if tree.of is None:
        return lambda values: pa.array(values, arrow)
    inner = _builder(tree.of)

    def nested(values: Sequence[Any]) -> Any:
        at, offsets = 0, []
        for v in values:
            offsets.append(None if v is None else at)
            at += 0 if v is None else len(v)
        starts = pa.array([*offsets, at], pa.int32())
        there = [v for v in values if v is not None]
        if tree.kind == "array":
            return pa.ListArray.from_arrays(starts, inner(list(chain.from_iterable(there))), type=arrow)
        keys = pa.array(list(chain.from_iterable(there)), pa.string())
        return pa.MapArray.from_arrays(starts, keys, inner([x for v in there for x in v.values()]))

    return nested


def _structs(tree: Tree, arrow: pa.StructType) -> Callable[[Sequence[Any]], Any]:
    import pyarrow as pa

    fields = [arrow.field(i) for i in range(arrow.num_fields)]
    parts = [(itemgetter(name), _builder(t)) for name, t in tree.fields]

    def structs(values: Sequence[Any]) -> Any:
        mask = None
        if None in values:
            mask = pa.array([v is None for v in values], pa.bool_())
            arrays = [build([None if v is None else get(v) for v in values]) for get, build in parts]
        else:
            arrays = [build(list(map(get, values))) for get, build in parts]
        return pa.StructArray.from_arrays(arrays, fields=fields, mask=mask)

    return structs


def _iso(value: Any) -> str:
    return str(value.isoformat())
