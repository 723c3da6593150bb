"""A declared schema: the fields of a typed payload, as Spark writes them. Pure, and needs neither Spark nor Arrow to be read.

`Schema.parse` is called when a pipeline is checked, so its errors are words for a user. `typed.py` fills a schema with values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlglot import exp

DIGITS = 38  # of Spark's widest decimal
DEPTH = 64  # levels of STRUCT, ARRAY and MAP; a bound that keeps every walk over a value far from Python's own

_LIST = (
    "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL(p,s), DATE, TIMESTAMP, TIMESTAMP_NTZ, BINARY, "
    "STRUCT<…>, ARRAY<…> and MAP<STRING, …>"
)
_NAMES = {  # as sqlglot calls them
    "TEXT": "STRING",
    "BOOLEAN": "BOOLEAN",
    "TINYINT": "TINYINT",
    "SMALLINT": "SMALLINT",
    "INT": "INT",
    "BIGINT": "BIGINT",
    "FLOAT": "FLOAT",
    "DOUBLE": "DOUBLE",
    "DATE": "DATE",
    "TIMESTAMPTZ": "TIMESTAMP",
    "TIMESTAMPLTZ": "TIMESTAMP",
    "TIMESTAMPNTZ": "TIMESTAMP_NTZ",
    "BINARY": "BINARY",
}
_WORDS = {
    *_NAMES.values(), "BYTE", "SHORT", "INTEGER", "LONG", "REAL", "DECIMAL", "DEC", "NUMERIC", "TIMESTAMP_LTZ", "STRUCT", "ARRAY",
    "MAP",
}  # fmt: skip
_PAIRS = re.compile(r"(?:^|[,<])\s*(`(?:[^`]|``)+`|\w+)(?:\s*:\s*|\s+)(\w+)")
_ASIDE = re.compile(r"`(?:[^`]|``)*`|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL)
_COMMA = re.compile(r"(?:^|[,<])\s*,|,\s*(?:>|$)")
_INSTEAD = {
    "VARCHAR": "STRING",
    "CHAR": "STRING",
    "INTERVAL": "BIGINT, with the unit in the field's name",
    "VARIANT": "STRING, or a STRUCT with the fields it has",
    "UBIGINT": "DECIMAL(20,0)",
}


class SchemaError(ValueError):
    """Begins with "must", as the errors of settings do; `hint` says what to write."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


@dataclass(frozen=True)
class Type:
    name: str  # as in `_LIST`, without what follows it
    precision: int = 0  # DECIMAL
    scale: int = 0
    of: Type | None = None  # ARRAY: an element; MAP: a value
    fields: tuple[Field, ...] = ()  # STRUCT

    def __str__(self) -> str:
        """As Spark parses it."""
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.name == "ARRAY":
            return f"ARRAY<{self.of}>"
        if self.name == "MAP":
            return f"MAP<STRING, {self.of}>"
        return f"STRUCT<{_ddl(self.fields, ': ')}>" if self.name == "STRUCT" else self.name

    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        if self.name == "DECIMAL":
            return pa.decimal128(self.precision, self.scale)
        if self.name == "STRUCT":
            return pa.struct([pa.field(f.name, f.type.arrow(), f.nullable) for f in self.fields])
        if self.of is not None:
            of = self.of.arrow()
            return pa.list_(pa.field("element", of)) if self.name == "ARRAY" else pa.map_(pa.string(), of)
        return {
            "STRING": pa.string(),
            "BOOLEAN": pa.bool_(),
            "TINYINT": pa.int8(),
            "SMALLINT": pa.int16(),
            "INT": pa.int32(),
            "BIGINT": pa.int64(),
            "FLOAT": pa.float32(),
            "DOUBLE": pa.float64(),
            "DATE": pa.date32(),
            "TIMESTAMP": pa.timestamp("us", tz="UTC"),
            "TIMESTAMP_NTZ": pa.timestamp("us"),
            "BINARY": pa.binary(),
        }[self.name]


@dataclass(frozen=True)
class Field:
    name: str
    type: Type
    nullable: bool = True


@dataclass(frozen=True)
class Schema:
    fields: tuple[Field, ...]

    @classmethod
    def parse(cls, ddl: str) -> Schema:
        """Raises `SchemaError`. Comments are read and not kept."""
        return cls(_struct(_tree(ddl), 0).fields)

    @property
    def ddl(self) -> str:
        """In one spelling, which Spark parses: as a list of columns, or in `after STRUCT<…>`."""
        return _ddl(self.fields, " ")

    @property
    def type(self) -> Type:
        return Type("STRUCT", fields=self.fields)

    def arrow(self) -> pa.StructType:
        return self.type.arrow()


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _ddl(fields: tuple[Field, ...], between: str) -> str:
    return ", ".join(f"{quoted(f.name)}{between}{f.type}{'' if f.nullable else ' NOT NULL'}" for f in fields)


def _tree(ddl: str) -> exp.DataType:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    if not ddl.strip():
        raise SchemaError("must have at least one field", "write it as `id STRING, n BIGINT`")
    try:
        if _COMMA.search(_ASIDE.sub(lambda m: "x" if m[0][0] == "`" else "", ddl)):  # sqlglot would not mind
            raise SchemaError("must have a field on both sides of a comma", "write it as `id STRING, n BIGINT`")
        # on lines of its own, for a comment at the end
        return parse_one(f"STRUCT<\n{ddl}\n>", into=exp.DataType, dialect="spark")
    except RecursionError:
        raise _too_deep() from None
    except SqlglotError as e:
        raise _unread(ddl, e) from None


def _unread(ddl: str, error: Any) -> SchemaError:
    for name, type_ in _PAIRS.findall(ddl):
        if type_.upper() not in _WORDS:
            return SchemaError(f"must use types that can be filled from JSON; {name} is {type_}", f"use {_LIST}")
    near = [str(d.get("highlight") or "").strip() for d in getattr(error, "errors", ())]
    place = f" near {near[-1]!r}" if near and near[-1] not in ("", ">") else ""
    hint = (
        f"write `name TYPE`, with commas between; other names than letters, digits and _ in backticks. Types: {_LIST}"
    )
    short = ddl if len(ddl) <= 100 else ddl[:97] + "..."
    return SchemaError(f"must be fields as Spark writes them; {short!r} can't be read{place}", hint)


def _too_deep() -> SchemaError:
    return SchemaError(f"must not nest deeper than {DEPTH} levels", "keep the inner part as STRING, as JSON text")


def _struct(tree: exp.DataType, depth: int, where: str = "") -> Type:
    fields = tuple(_fields(tree, depth, where))
    seen: set[str] = set()
    for f in fields:
        if f.name in seen:
            inside = f" in {where}" if where else ""
            raise SchemaError(
                f"must name each field once: {quoted(f.name)} is there twice{inside}", "take one of them out"
            )
        seen.add(f.name)
    return Type("STRUCT", fields=fields)


def _fields(tree: exp.DataType, depth: int, where: str) -> Iterator[Field]:
    from sqlglot import exp

    for column in tree.expressions:
        if not isinstance(column, exp.ColumnDef) or not isinstance(column.this, exp.Identifier) or not column.kind:
            what = column.sql(dialect="spark")
            raise SchemaError(f"must give each field a name and a type; {what!r} has not", "write `name TYPE`")
        name = column.name
        place = f"{where}.{quoted(name)}" if where else quoted(name)
        if not name:
            raise SchemaError("must give each field a name that is not empty", "write `name TYPE`")
        if not name.isprintable() and any("\ud800" <= c <= "\udfff" for c in name):
            raise SchemaError(f"must have names that UTF-8 can hold; {name!r} is none", "write the character itself")
        nullable = True
        for constraint in column.args.get("constraints") or ():
            kind = constraint.kind
            if isinstance(kind, exp.NotNullColumnConstraint):
                nullable = bool(kind.args.get("allow_null"))
            elif not isinstance(kind, exp.CommentColumnConstraint):
                what = constraint.sql(dialect="spark")
                raise SchemaError(f"must say no more than name, type and NOT NULL; {place} has {what!r}", "take it out")
        yield Field(name, _type(column.kind, place, depth + 1), nullable)


def _type(tree: exp.DataType, where: str, depth: int) -> Type:
    if depth > DEPTH:
        raise _too_deep()
    from sqlglot import exp

    name = tree.this.name if isinstance(tree.this, exp.DataType.Type) else ""
    params = list(tree.expressions)
    if name == "STRUCT" and params:
        return _struct(tree, depth, where)
    if name == "ARRAY" and len(params) == 1:
        return Type("ARRAY", of=_type(params[0], f"{where}.element", depth + 1))
    if name == "MAP" and len(params) == 2:
        if (key := _type(params[0], f"{where}.key", depth + 1)).name != "STRING":
            raise SchemaError(
                f"must have maps with keys of STRING; those of {where} are {key}",
                "write MAP<STRING, …>: JSON has no other",
            )
        return Type("MAP", of=_type(params[1], f"{where}.value", depth + 1))
    if name == "DECIMAL":
        return _decimal(params, where)
    if name in _NAMES and not params:
        return Type(_NAMES[name])
    shown = tree.sql(dialect="spark")
    instead = _INSTEAD.get(name or shown.split(" ")[0].upper())
    raise SchemaError(
        f"must use types that can be filled from JSON; {where} is {shown}",
        f"write {instead}" if instead else f"use {_LIST}",
    )


def _decimal(params: list[Any], where: str) -> Type:
    numbers = [str(p.name) for p in params]
    if len(numbers) > 2 or not all(n.isdecimal() and len(n) < 4 for n in numbers):
        raise SchemaError(f"must give a DECIMAL two whole numbers at {where}", "write DECIMAL(precision, scale)")
    precision, scale = (int(n) for n in [*numbers, *("10", "0")[len(numbers) :]])
    if not (1 <= precision <= DIGITS and scale <= precision):
        raise SchemaError(
            f"must have 1 to {DIGITS} digits in a DECIMAL, no more of them behind the point; {where} is "
            f"DECIMAL({precision},{scale})",
            f"write DECIMAL({min(max(precision, scale, 1), DIGITS)},{min(scale, DIGITS)})",
        )
    return Type("DECIMAL", precision, scale)
