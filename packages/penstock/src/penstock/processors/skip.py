"""`skip`: lets a record go on where a field compares as asked, and skips all others.

True means that the record GOES ON: `field: amount`, `operator: ">"`, `match: 100` keeps what is above 100, and the rest is
filtered. Name and meaning are those of Transporter's `skip`. `filter` with a condition is the other way round: it drops
what its condition matches.

`operator` is one of `==` `!=` `<` `<=` `>` `>=` (or `eq` `ne` `lt` `le` `gt` `ge`, and a few other spellings), or `=~`: a Java
regular expression that is found anywhere in a text. `match` is compared with the field by what the field is:

- a number: as a number, exactly with integers and decimals, as a double with doubles. NaN is above every number, as in SQL;
- a boolean: `true` or `false`, for equal or not equal only;
- a text: as text, by the order of its characters; binary as the UTF-8 text it holds, a date as `2024-01-31`, a timestamp
  as `2024-01-31 12:00:00.5` in UTC.

A field that is not there or NULL compares as true with `!=`, and with nothing else. A comparison that makes no sense is a
nack, `skip.compare`: a number with a `match` that is none, `=~` on a number, anything with a list or an object.

On open payloads it runs in Python with its neighbours, on typed ones in Spark, where a field that the schema has not stops
the pipeline (`processor.unknown-field`). In Python only regular expressions that mean the same in Java are taken.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.errors import Rejected
from penstock.native import DROP, Columns, Drop, Example, Processor, Record, Shape, Step, Unsuitable, Where
from penstock.plan.fields import (
    Path,
    is_text_map,
    no_fields,
    object_of,
    parse_path,
    shown,
    struct_fields,
    unknown_field,
)
from penstock.plan.sql.casts import timestamp_to_str, to_utc
from penstock.plan.sql.patterns import PatternRefused, java_regex

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_SPELLINGS = {
    **{op: op for op in (*_COMPARE, "=~")},
    "=": "==", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "lte": "<=", "gt": ">", "ge": ">=", "gte": ">=",
    "$eq": "==", "$ne": "!=", "$lt": "<", "$lte": "<=", "$gt": ">", "$gte": ">=",
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?", re.ASCII)
_ABOVE, _BELOW = frozenset({">", ">=", "!="}), frozenset({"<", "<=", "!="})  # true of what is surely above, or below
_WHOLE = {"byte": 8, "short": 16, "integer": 32, "long": 64}  # bits
CODE = "skip.compare"


class SkipSettings(Settings):
    field: str = Field(description="The field of the payload that is looked at, e.g. `amount` or `customer.name`.")
    operator: str = Field(description="How it is compared: `==`, `!=`, `<`, `<=`, `>`, `>=` or `=~`.")
    match: str = Field(description="What it is compared with: a number, `true`, a text, or with `=~` a pattern.")

    @field_validator("field")
    @classmethod
    def _is_path(cls, value: str) -> str:
        parse_path(value)
        return value

    @field_validator("operator")
    @classmethod
    def _is_known(cls, value: str) -> str:
        if value.strip().lower() not in _SPELLINGS:
            raise ValueError("must be one of ==, eq, =, !=, ne, <, lt, <=, le, >, gt, >=, ge, =~")
        return value


class Skip(Processor[SkipSettings]):
    code = CODE
    example: ClassVar[Example | None] = Example(
        settings={"field": "amount", "operator": ">", "match": "100"},
        given={"after": {"id": 7, "amount": 30}},
        gives=None,
    )

    def __init__(self, settings: SkipSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.path = parse_path(settings.field)
        self.match = Match(_SPELLINGS[settings.operator.strip().lower()], settings.match, shown(self.path))

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        if shape is Shape.TYPED:
            return Where.SPARK
        try:
            if self.match.op == "=~":
                java_regex(self.match.text)
        except PatternRefused as e:
            what = f"the regular expression may mean something else in Java: {e}"
            raise Unsuitable(what, "write it in a plainer way, or give the payload a schema") from e
        return Where.PYTHON

    def fields(self) -> frozenset[str]:
        return frozenset(self.path[:1])

    def apply(self, r: Record) -> Record | Drop:
        return r if _on_payload(self.path, self.match, r.after) is not DROP else DROP

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:  # noqa: ARG002
        return partial(_on_payload, self.path, self.match)

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        value, type_ = self._find(columns)
        reject, goes_on = self.match.columns(value, type_)
        if goes_on is None:
            return Step(drop=value.isNull() & F.lit(not self.match.missing), reject=reject)
        return Step(drop=~F.coalesce(goes_on, F.lit(self.match.missing)), reject=reject)

    def _find(self, columns: Columns) -> tuple[Column, DataType]:
        from pyspark.sql import functions as F

        value, type_ = columns.after, columns.schema[record.AFTER].dataType
        for i, name in enumerate(self.path):
            fields = struct_fields(type_)
            if fields is not None:
                if name not in fields:
                    raise unknown_field(self.processor_id, self.path[: i + 1], fields)
                value, type_ = value.getField(name), fields[name]
            elif is_text_map(type_):
                value, type_ = F.try_element_at(value, F.lit(name)), type_.valueType  # type: ignore[attr-defined]
            else:
                raise no_fields(self.processor_id, self.path[:i], type_.simpleString()[:100])
        return value, type_


def _on_payload(path: Path, match: Match, payload: Any) -> Any:
    value = payload if type(payload) is dict else object_of(payload)
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return payload if match(value) else DROP


class Outcome(NamedTuple):
    """What Spark says about every record: why a value can't be compared, and whether the record goes on."""

    reject: Column | None
    goes_on: Column | None  # NULL where the field is


class Match:
    """The comparison, for one value in Python, and for a column of one type. Pickles as its texts."""

    def __init__(self, op: str, text: str, field: str) -> None:
        self.op, self.text, self.field = op, text, field
        self.missing = op == "!="
        plain = text.strip()
        self.number = Decimal(plain) if _NUMBER.fullmatch(plain) and op != "=~" else None
        self.double = float(plain) if self.number is not None else math.nan
        self.boolean = {"true": True, "false": False}.get(plain.lower()) if op in ("==", "!=") else None
        self._exact: Any = self.number
        if self.number is not None and self.number == (whole := int(self.number)):
            self._exact = whole  # compared faster
        self._compare: Callable[[Any, Any], Any] = _COMPARE.get(op, operator.eq)

    def __reduce__(self) -> tuple[Any, ...]:
        return Match, (self.op, self.text, self.field)

    # -- in Python, in Spark's tasks ----------------------------------------------------------------------------------------

    def __call__(self, value: Any) -> bool:
        kind = type(value)
        if kind is str:
            return self._on_text(value)
        if value is None:
            return self.missing
        if kind is bool:
            if self.boolean is None:
                raise self._refused("boolean")
            return bool(self._compare(value, self.boolean))
        if kind is int or kind is float or isinstance(value, Decimal):
            if self.number is None:
                raise self._refused("number")
            if kind is float:
                return bool(self._compare(value, self.double)) if value == value else self.op in _ABOVE
            return bool(self._compare(value, self._exact))
        if isinstance(value, datetime):
            return self._on_text(timestamp_to_str(to_utc(value, self.field), self.field))
        if isinstance(value, date):
            return self._on_text(value.isoformat())
        if isinstance(value, bytes):
            try:
                return self._on_text(value.decode())
            except UnicodeDecodeError:
                raise self._refused("binary") from None
        raise self._refused("other")

    def _on_text(self, value: str) -> bool:
        if self.op == "=~":
            return java_regex(self.text).search(value) is not None
        return bool(self._compare(value, self.text))

    def _refused(self, kind: str) -> Rejected:
        return Rejected(self._why(kind), code=CODE)

    def _why(self, kind: str) -> str:
        """`match` itself is not shown: it may have come from a secret."""
        if kind == "binary":
            return f"the field {self.field} is binary, and not UTF-8: it can't be compared with a text"
        if kind == "other":
            return f"the field {self.field} is of a kind that can't be compared"
        if self.op == "=~":
            return f"the field {self.field} is a {kind}: a pattern can be found only in a text"
        if kind == "boolean" and self.op not in ("==", "!="):
            return f"the field {self.field} is a boolean: it can only be equal to another or not"
        return f"the field {self.field} is a {kind}, and `match` is none"

    # -- in Spark -----------------------------------------------------------------------------------------------------------

    def columns(self, value: Column, type_: DataType) -> Outcome:
        from pyspark.sql import functions as F

        def refused(kind: str) -> Outcome:
            return Outcome(F.when(value.isNotNull(), F.lit(self._why(kind))), None)

        name = type_.typeName()
        if name in ("string", "char", "varchar", "date", "timestamp", "timestamp_ntz"):
            return Outcome(None, self._text_column(value.cast("string")))
        if name == "boolean":
            if self.boolean is None:
                return refused("boolean")
            return Outcome(None, self._compare(value, F.lit(self.boolean)))
        if name in _WHOLE or name in ("decimal", "float", "double"):
            if self.number is None:
                return refused("number")
            if name in ("float", "double"):
                return Outcome(None, self._compare(value.cast("double"), F.lit(self.double)))
            return Outcome(None, self._exact_column(self.number, value, type_))
        if name == "binary":
            text = value.cast("string")
            fine = F.is_valid_utf8(text)
            return Outcome(F.when(~fine, F.lit(self._why("binary"))), F.when(fine, self._text_column(text)))
        return refused("other")

    def _text_column(self, value: Column) -> Column:
        from pyspark.sql import functions as F

        return F.rlike(value, F.lit(self.text)) if self.op == "=~" else self._compare(value, F.lit(self.text))

    def _exact_column(self, number: Decimal, value: Column, type_: DataType) -> Column:
        """With a number that the type may be unable to hold: what lies between two of its values, or outside of all."""
        from pyspark.sql import functions as F

        scale = int(getattr(type_, "scale", 0))
        shifted = Fraction(number) * 10**scale
        low = math.floor(shifted)
        op = self.op
        if low != shifted:  # v < 1.5 is v <= 1, and v > 1.5 is v > 1, where v is whole
            if op in ("==", "!="):
                return F.when(value.isNotNull(), F.lit(op == "!="))
            op = "<=" if op in _BELOW else ">"
        bits = _WHOLE.get(type_.typeName())
        most = 2 ** (bits - 1) - 1 if bits else 10 ** int(getattr(type_, "precision", 0)) - 1
        least = -most - 1 if bits else -most
        if not least <= low <= most:
            return F.when(value.isNotNull(), F.lit(op in (_BELOW if low > most else _ABOVE)))
        digits = Decimal((int(low < 0), tuple(map(int, str(abs(low)))), -scale))
        made: Column = _COMPARE[op](value, F.lit(format(digits, "f")).cast(type_))
        return made
