"""What `gotext.CONVERT` does to a value, as Spark columns: the same value, or the record is bad.

Called by `field.convert` in the engine; what it builds is evaluated in Spark's tasks. Nothing in it may raise for a record. Where
Spark has no exact form of Go's text (Java writes doubles with other digits, and in other spellings), it is a `Stop` when the plan
is made. The session's time zone is UTC.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.errors import Stop
from penstock.plan.gotext import EXACT, FALSE, FLOAT, HEX_FLOAT, INFINITE, INT, TIME, TRUE
from penstock.processors.columns.fields import Value, nothing

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_DAY = 86_400_000_000  # microseconds


def converted(value: Value, to: str, name: str, bad: list[Column]) -> Value:
    """Why a record can't have its field converted is put into the list."""
    from pyspark.sql import functions as F
    from pyspark.sql.types import BooleanType, DoubleType, LongType, StringType, TimestampType

    if to == "string":
        text = _text(value, name)
        if _is(value.type, "binary"):
            bad.append(F.when(~F.is_valid_utf8(text), F.lit(f"the bytes of the field {name!r} are not UTF-8")))
        return Value(F.coalesce(text, F.lit("<nil>")), StringType())
    types: dict[str, DataType] = {
        "int": LongType(),
        "float": DoubleType(),
        "bool": BooleanType(),
        "time": TimestampType(),
    }
    made = {"int": _int, "float": _float, "bool": _bool, "time": _time}[to](value)
    why = F.lit(f"the field {name!r} can't be converted to {to}")
    bad.append(F.when(made.isNull(), why) if made is not None else why)
    return Value(made, types[to]) if made is not None else nothing(types[to])


def _is(type_: DataType, *kinds: str) -> bool:
    """`string` is also CHAR and VARCHAR, `integer` any of the four, `double` also FLOAT."""
    from pyspark.sql import types as T

    classes = {
        "string": (T.StringType, T.CharType, T.VarcharType),
        "binary": (T.BinaryType,),
        "boolean": (T.BooleanType,),
        "integer": (T.ByteType, T.ShortType, T.IntegerType, T.LongType),
        "double": (T.FloatType, T.DoubleType),
        "null": (T.NullType,),
        "date": (T.DateType,),
        "timestamp": (T.TimestampType,),
        "local": (T.TimestampNTZType,),
        "decimal": (T.DecimalType,),
    }
    return any(isinstance(type_, classes[kind]) for kind in kinds)


def _whole(type_: DataType) -> bool:
    """A decimal without a point in its text."""
    from pyspark.sql.types import DecimalType

    return isinstance(type_, DecimalType) and type_.scale == 0


def _text(value: Value, name: str) -> Column:
    from pyspark.sql import functions as F

    if _is(value.type, "string", "binary", "boolean", "integer", "date", "decimal", "null"):
        return value.column.cast("string")
    if _is(value.type, "timestamp", "local"):
        micros = F.pmod(F.unix_micros(value.column.cast("timestamp")), F.lit(1_000_000))
        fraction = F.concat(F.lit("."), F.rtrim(F.lpad(micros.cast("string"), 6, "0"), F.lit("0")))
        zone = F.lit(" +0000 UTC" if _is(value.type, "timestamp") else "")
        second = F.date_format(value.column, "yyyy-MM-dd HH:mm:ss")
        return F.concat(second, F.when(micros > 0, fraction).otherwise(F.lit("")), zone)
    kind = value.type.simpleString()[:100]
    hint = (
        "format it with `sql`, e.g. CAST(after.x AS STRING) or to_json(after.x), or take json.decode without a schema"
    )
    why = f"it is {kind}, which Spark writes otherwise than Conduit"
    what = f"The field {name!r} can't be converted to string"
    raise Stop(what, code="processor.unsupported", why=why, hint=hint)


def _matches(text: Column, pattern: str) -> Column:
    return text.rlike(rf"\A(?:{pattern})\z")


def _int(value: Value) -> Column | None:
    column = value.column
    if _is(value.type, "string", "binary"):
        from pyspark.sql import functions as F

        text = column.cast("string")
        return F.when(_matches(text, INT), text.try_cast("bigint"))
    if _is(value.type, "integer"):
        return column.cast("bigint")
    if _is(value.type, "boolean"):
        return column.cast("int").cast("bigint")
    if _whole(value.type):
        return column.try_cast("bigint")
    return _int_of_double(column.cast("double")) if _is(value.type, "double") else None


def _int_of_double(x: Column) -> Column:
    """From 2^53 on its text is not its value: it has the fewest digits that say which double it is, and zeros behind them."""
    from pyspark.sql import functions as F

    size, value = F.abs(x), x.cast("bigint").cast("decimal(20,0)")
    shortened = []
    for zeros in range(18, -1, -1):
        rounded = F.round(value, -zeros) if zeros else value
        shortened.append(F.when(rounded.cast("double") == x, rounded))
    large = F.coalesce(*shortened).try_cast("bigint")
    small = F.when(F.floor(x) == x, x.cast("bigint"))
    return F.when(size < EXACT, small).when(size < 2.0**63, large)


def _float(value: Value) -> Column | None:
    from pyspark.sql import functions as F

    column = value.column
    if _is(value.type, "integer", "double"):
        return column.cast("double")
    if _is(value.type, "boolean"):
        return column.cast("int").cast("double")
    if _is(value.type, "decimal"):
        return column.cast("string").try_cast("double")
    if not _is(value.type, "string", "binary"):
        return None
    text = column.cast("string")
    number = F.replace(text, F.lit("_"), F.lit("")).try_cast("double")
    finite = F.when(F.abs(number) != float("inf"), number)
    infinite = F.when(text.startswith("-"), F.lit(float("-inf"))).otherwise(F.lit(float("inf")))
    return (
        F.when(_matches(text, f"{FLOAT}|{HEX_FLOAT}"), finite)
        .when(_matches(text, INFINITE), infinite)
        .when(F.lower(text) == "nan", F.lit(float("nan")))
    )


def _bool(value: Value) -> Column | None:
    from pyspark.sql import functions as F

    column = value.column
    if _is(value.type, "boolean"):
        return column
    if _is(value.type, "double"):  # -0 is not 0 as a text
        text = column.cast("double").cast("string")
        return F.when(text == "1.0", F.lit(True)).when(text == "0.0", F.lit(False))
    if not (_is(value.type, "string", "binary", "integer") or _whole(value.type)):
        return None
    text = column.cast("string")
    return F.when(text.isin(*sorted(TRUE)), F.lit(True)).when(text.isin(*sorted(FALSE)), F.lit(False))


def _time(value: Value) -> Column | None:
    from pyspark.sql import functions as F

    if _is(value.type, "boolean"):
        return None
    number = _int(value)
    if number is None:
        return None
    # A decimal: integers are divided as doubles, which have too few digits.
    exact = F.when(number % F.lit(1000) == 0, number)  # nothing is cut off
    micros = F.floor(exact.cast("decimal(20,0)") / F.lit(1000)).cast("bigint")
    if not _is(value.type, "string", "binary"):
        return F.timestamp_micros(micros)
    return F.coalesce(F.timestamp_micros(micros), F.timestamp_micros(_rfc3339(value.column.cast("string"))))


def _rfc3339(text: Column) -> Column:
    """Microseconds since 1970; NULL where it is no time."""
    from pyspark.sql import functions as F

    pattern = rf"\A{TIME}\z"

    def part(n: int) -> Column:
        return F.regexp_extract(text, pattern, n)

    def number(n: int) -> Column:
        return F.coalesce(part(n).try_cast("bigint"), F.lit(0))

    day = F.concat_ws("-", part(1), part(2), part(3)).try_cast("date")
    fraction = F.rpad(F.substring(part(7), 1, 6), 6, "0").cast("bigint")
    seconds = (number(4) * 60 + number(5)) * 60 + number(6)
    offset = (number(9) * 60 + number(10)) * 60_000_000
    east = F.when(part(8) == "-", -offset).otherwise(offset)
    fine = (part(1) != "0000") & (number(4) < 24) & (number(5) < 60) & (number(6) < 60)
    fine = fine & (number(9) <= 24) & (number(10) <= 60) & ~F.substring(part(7), 7, 100).rlike("[1-9]")
    made = F.unix_date(day).cast("bigint") * _DAY + seconds * 1_000_000 + fraction - east
    return F.when(text.rlike(pattern) & fine, made)
