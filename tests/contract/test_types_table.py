"""Which values each format keeps, as a table: the tests of the hops (`test_types.py`) hold the product to it, and
docs/reference/types.md shows it. Readers here are pyarrow, json and a few lines for CSV; nothing of Penstock. No Spark.
"""

from __future__ import annotations

import base64
import json
import math
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "types.md"
MEGABYTE = "ab😀\n" * (1024 * 1024 // 8)

INSTANT, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
STRUCT = pa.struct([("a", pa.int32()), ("b c", pa.string()), ("d", pa.decimal128(38, 18))])
TIMES = pa.list_(pa.struct([("at", INSTANT), ("bytes", pa.binary())]))
_INNER = pa.map_(pa.string(), pa.struct([("b", pa.list_(pa.struct([("c", INSTANT), ("d", pa.float64())])))]))
DEEP = pa.struct([("a", pa.list_(_INNER))])


@dataclass(frozen=True)
class Kind:
    """A type, the values that are sent through every hop, and how one of them is written."""

    name: str  # of its column
    ddl: str
    arrow: pa.DataType
    values: tuple[Any, ...]
    json: str = ""  # the first value, as `json` has it; nothing = a nack
    csv: str = ""
    note: str = ""  # for the page
    declared: bool = True  # a `schema` may name it


def at(*args: int, hours: float = 0) -> datetime:
    return datetime(*args, tzinfo=timezone(timedelta(hours=hours)))  # type: ignore[misc,arg-type]


def _integers(name: str, bits: int, *more: int) -> Kind:
    least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return Kind(name.lower(), name, getattr(pa, f"int{bits}")(), (most, least, 0, -1, *more), str(most), str(most))


KINDS = (
    _integers("TINYINT", 8),
    _integers("SMALLINT", 16),
    _integers("INT", 32),
    _integers("BIGINT", 64, 2**53 + 1),
    Kind(
        "wide",
        "DECIMAL(38,0)",
        pa.decimal128(38, 0),
        (Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0), Decimal(2**53 + 1)),
        "9" * 38,
        "9" * 38,
        "up to 38 digits",
    ),
    Kind(
        "fine",
        "DECIMAL(38,18)",
        pa.decimal128(38, 18),
        tuple(
            map(
                Decimal,
                (
                    "12345678901234567890.123456789012345678",
                    *("0.000000000000000001", "-0.000000000000000001", "0", "0.1", "1", "-99999999999999999999"),
                    *("0.1234567890123456", "0.12345678901234567", "1234567890.1234567", "9007199254740993"),
                ),
            )
        ),
        "12345678901234567890.123456789012345678",
        "12345678901234567890.123456789012345678",
        "a number below 0.000001 has an exponent: `1E-18`",
    ),
    Kind(
        "money",
        "DECIMAL(9,2)",
        pa.decimal128(9, 2),
        (Decimal("1234567.80"), Decimal("-0.01")),
        "1234567.80",
        "1234567.80",
    ),
    Kind(
        "float",
        "FLOAT",
        pa.float32(),
        (
            *(0.5, 3.4028234663852886e38, -1.401298464324817e-45, 0.10000000149011612),
            *(0.0, -0.0, 16777216.0, math.nan, math.inf, -math.inf),
        ),
        "0.5",
        "0.5",
        "json: NaN and infinities are a nack",
    ),
    Kind(
        "double",
        "DOUBLE",
        pa.float64(),
        (
            *(0.1, 1.7976931348623157e308, 5e-324, 0.0, -0.0, 2.0**53 + 2, 1e15, 1e22, 1.2345678901234567),
            *(math.nan, math.inf, -math.inf),
        ),
        "0.1",
        "0.1",
        "json: NaN and infinities are a nack",
    ),
    Kind("boolean", "BOOLEAN", pa.bool_(), (True, False), "true", "true"),
    Kind(
        "string",
        "STRING",
        pa.string(),
        (
            'a "b", c',
            *("", " around ", "\t", "  ", "line\nbreak", "\n", "cr\rhere", "crlf\r\nhere", "end\r", "\r", "\r\nfront"),
            *("\0", "nul\0inside", "\0front", "end\0", "😀é\u2028\u0085", "\ufefffront", "\x1f\x7f", "\U000e0001"),
            *("null", "NULL", "\\N", '""', '"', "'", "\\", "\\n", '\\"', 'x"', '"x', "#x", "-", "1e5", "NaN", ","),
            *("\ue000\ue0ff", MEGABYTE),
        ),
        '"a \\"b\\", c"',
        '"a ""b"", c"',
        'csv: quoted where it must be; `""` is an empty text, nothing at all is NULL',
    ),
    Kind(
        "date",
        "DATE",
        pa.date32(),
        (date(2024, 2, 29), date(1, 1, 1), date(1582, 10, 10), date(1969, 12, 31), date(9999, 12, 31)),
        '"2024-02-29"',
        "2024-02-29",
        "other years than 0001 to 9999 have a sign: `-0768-02-04`; no `schema` takes them",
    ),
    Kind(
        "timestamp",
        "TIMESTAMP",
        INSTANT,
        (
            at(2024, 7, 1, 3, 4, 5, 120000, hours=2),
            at(1, 1, 1),
            at(1582, 10, 10, 12, 0, 0, 1),
            at(1883, 11, 18, 12, 3, 57, 999999, hours=-5),
            at(1969, 12, 31, 23, 59, 59, 999999),
            at(1970, 1, 1),
            at(2024, 3, 31, 2, 30, 0, 123456, hours=5.75),
            at(2262, 4, 11, 23, 47, 16, 854776),
            at(9999, 12, 31, 23, 59, 59, 999999),
        ),
        '"2024-07-01T01:04:05.120000Z"',
        "2024-07-01T01:04:05.120000Z",
        "an instant, in UTC; the offset it came with is not kept. Years as DATE",
    ),
    Kind(
        "local",
        "TIMESTAMP_NTZ",
        LOCAL,
        (
            datetime(2024, 3, 31, 2, 30, 0, 1),
            datetime(1, 1, 1),
            datetime(1582, 10, 10, 12),
            datetime(1969, 12, 31, 23, 59, 59, 999999),
            datetime(2262, 4, 11, 23, 47, 16, 854776),
            datetime(9999, 12, 31, 23, 59, 59, 999999),
        ),
        '"2024-03-31T02:30:00.000001"',
        "2024-03-31T02:30:00.000001",
        "a time of day without a zone. Years as DATE",
    ),
    Kind("binary", "BINARY", pa.binary(), (b"\xff\x00", b"", bytes(range(256)), b"text"), '"/wA="', "", "json: base64"),
    Kind(
        "struct",
        "STRUCT<a: INT, `b c`: STRING, d: DECIMAL(38,18)>",
        STRUCT,
        (
            {"a": 1, "b c": "x", "d": Decimal("0.100000000000000001")},
            {"a": None, "b c": None, "d": None},
            {"a": None, "b c": "", "d": Decimal("-1.5")},
        ),
        '{"a":1,"b c":"x","d":0.100000000000000001}',
        note="json: a field that is NULL is there, as `null`",
    ),
    Kind("array", "ARRAY<INT>", pa.list_(pa.int32()), ([1, None, -3], [], [None]), "[1,null,-3]"),
    Kind("numbers", "ARRAY<DOUBLE>", pa.list_(pa.float64()), ([0.5, None], [1.0, math.nan], [-math.inf]), "[0.5,null]"),
    Kind(
        "times",
        "ARRAY<STRUCT<at: TIMESTAMP, bytes: BINARY>>",
        TIMES,
        (
            [{"at": at(1900, 1, 1, 0, 0, 0, 1), "bytes": b"\0"}, None],
            [],
            [None, {"at": None, "bytes": b""}, {"at": at(2300, 1, 1), "bytes": None}],
        ),
        '[{"at":"1900-01-01T00:00:00.000001Z","bytes":"AA=="},null]',
    ),
    Kind(
        "map",
        "MAP<STRING, DECIMAL(38,0)>",
        pa.map_(pa.string(), pa.decimal128(38, 0)),
        ([("k", Decimal(10**37 + 1)), ("", None)], [], [(' "é" ', Decimal(-1))]),
        '{"k":10000000000000000000000000000000000001,"":null}',
    ),
    Kind(
        "rates",
        "MAP<STRING, DOUBLE>",
        pa.map_(pa.string(), pa.float64()),
        ([("a", 0.1)], [("a", math.inf)]),
        '{"a":0.1}',
    ),
    Kind(
        "numbered",
        "MAP<INT, STRING>",
        pa.map_(pa.int32(), pa.string()),
        ([(1, "a"), (-2, None)], []),
        note="a `schema` has maps with keys of STRING only",
        declared=False,
    ),
    Kind(
        "deep",
        "STRUCT<a: ARRAY<MAP<STRING, STRUCT<b: ARRAY<STRUCT<c: TIMESTAMP, d: DOUBLE>>>>>>",
        DEEP,
        (
            {"a": [[("k", {"b": [{"c": at(1800, 1, 1, 0, 0, 0, 7), "d": -0.5}, None]}), ("l", None)], None]},
            {"a": None},
            {"a": []},
            {"a": [[("k", {"b": [{"c": None, "d": math.nan}]})]]},
        ),
        '{"a":[{"k":{"b":[{"c":"1800-01-01T00:00:00.000007Z","d":-0.5},null]},"l":null},null]}',
    ),
)
BY_NAME = {k.name: k for k in KINDS}
SCHEMA = ", ".join(
    f"`{name}` {ddl}" for name, ddl in [("id", "STRING"), *((k.name, k.ddl) for k in KINDS if k.declared)]
)
SCALARS = tuple(k for k in KINDS if k.csv)
CSV_SCHEMA = ", ".join(["id STRING", *(f"{k.name} {k.ddl}" for k in SCALARS)])

Held = Callable[[Kind, Any], bool]


def cases(kinds: Iterable[Kind] = KINDS) -> dict[str, tuple[Kind, Any]]:
    """A record for every value: all other fields of it are NULL, so that a nack can be meant for one field only."""
    return {f"{k.name}/{i}": (k, v) for k in kinds for i, v in enumerate(k.values)}


def table(kinds: Iterable[Kind] = KINDS, only: Iterable[str] | None = None) -> pa.Table:
    kinds = tuple(kinds)
    rows = [{"id": i, k.name: v} for i, (k, v) in cases(kinds).items() if only is None or i in set(only)]
    return pa.Table.from_pylist(rows, pa.schema([("id", pa.string()), *((k.name, k.arrow) for k in kinds)]))


def write(folder: Path, made: pa.Table, name: str = "a.parquet", **options: Any) -> Path:
    """A file that is older than the settle time."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(made, folder / f".{name}", **options)
    os.utime(folder / f".{name}", (1_700_000_000,) * 2)
    (folder / f".{name}").rename(folder / name)
    return folder / name


def everything(_kind: Kind, _value: Any) -> bool:
    return True


def json_holds(kind: Kind, value: Any) -> bool:
    return kind.name != "numbered" and _finite(value)


def csv_holds(kind: Kind, _value: Any) -> bool:
    return kind in SCALARS


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        return all(map(_finite, value.values()))
    return all(map(_finite, value)) if isinstance(value, list | tuple) else True


# -- what is there ----------------------------------------------------------------------------------------------------------


def outputs(folder: Path, suffix: str) -> list[Path]:
    return sorted(p for p in folder.rglob(f"*{suffix}") if "_penstock" not in p.parts)


def parquet_rows(folder: Path) -> list[dict[str, Any]]:
    return [row for path in outputs(folder, ".parquet") for row in pq.ParquetFile(path).read().to_pylist()]


def json_rows(folder: Path) -> list[dict[str, Any]]:
    lines = [line for path in outputs(folder, ".jsonl") for line in path.read_bytes().split(b"\n") if line]
    return [loads(line) for line in lines]


def loads(text: bytes | str) -> Any:
    """Strict, and with all digits."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs), f"a key is there twice: {pairs}"
        return dict(pairs)

    def no(name: str) -> Any:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_float=Decimal, parse_constant=no, object_pairs_hook=once)


def csv_rows(folder: Path, delimiter: str = ",") -> list[dict[str, str | None]]:
    found = []
    for path in outputs(folder, ".csv"):
        head, *rows = split(path.read_bytes().decode(), delimiter)
        found += [dict(zip(head, row, strict=True)) for row in rows]
    return found  # type: ignore[return-value]


def split(text: str, delimiter: str = ",") -> list[list[str | None]]:
    """RFC 4180, and nothing at all is None. Python's own reader tells that from `""` only since 3.12."""
    rows: list[list[str | None]] = []
    row: list[str | None] = []
    i = 0
    while i < len(text):
        if text[i] == '"':
            value, i = "", i + 1
            while True:
                end = text.index('"', i)
                value += text[i:end]
                i = end + 1
                if text[i : i + 1] != '"':
                    break
                value, i = value + '"', i + 1
            row.append(value)
        else:
            ends = [e for e in (text.find(delimiter, i), text.find("\n", i)) if e >= 0]
            end = min(ends, default=len(text))
            assert '"' not in text[i:end], f"a quote inside {text[i:end]!r}"
            row.append(text[i:end] or None)
            i = end
        assert text[i : i + 1] in (delimiter, "\n", ""), f"{text[i : i + 20]!r} behind a value"
        if text[i : i + 1] == delimiter and text[i + 1 : i + 2] in ("\n", ""):
            row.append(None)
            i += 1
        if text[i : i + 1] != delimiter:
            rows.append(row)
            row = []
        i += 1
    return rows


def letters(state: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted((state / "dead-letters").glob("*/*.parquet")):
        for row in pq.read_table(path).to_pylist():
            row["given"] = loads(row["given"]) if row["given"] else None  # a whole file has none
            found.append(row)
    return found


# -- back to values -----------------------------------------------------------------------------------------------------------

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def from_json(type_: pa.DataType, value: Any, *, letter: bool = False) -> Any:
    """Raises where it is not spelled as the page says. A dead letter has words for what is no JSON."""
    if value is None:
        return None
    t = pa.types
    if t.is_boolean(type_):
        assert isinstance(value, bool)
        return value
    if t.is_integer(type_):
        assert type(value) is int
        return value
    if t.is_decimal(type_):
        assert type(value) in (int, Decimal), f"{value!r} is no number"
        return Decimal(value)
    if t.is_floating(type_):
        if letter and value in NOT_FINITE:
            return NOT_FINITE[value]
        assert type(value) in (int, Decimal), f"{value!r} is no number"
        return float(value) if type_ == pa.float64() else struct.unpack("<f", struct.pack("<f", float(value)))[0]
    if t.is_struct(type_):
        assert set(value) == {f.name for f in type_}, f"the fields are {sorted(value)}"
        return {f.name: from_json(f.type, value[f.name], letter=letter) for f in type_}
    if t.is_map(type_):
        assert isinstance(value, dict), f"a map is {value!r}"
        key = int if t.is_integer(type_.key_type) else str
        return [(key(k), from_json(type_.item_type, v, letter=letter)) for k, v in value.items()]
    if t.is_list(type_):
        return [from_json(type_.value_type, v, letter=letter) for v in value]
    assert isinstance(value, str)
    return _from_text(type_, value)


def _from_text(type_: pa.DataType, text: str) -> Any:
    if pa.types.is_date(type_):
        return date.fromisoformat(text)
    if pa.types.is_timestamp(type_):
        made = datetime.fromisoformat(text)
        assert text.endswith("Z") == (type_.tz is not None)
        assert (made.tzinfo is not None) == (type_.tz is not None)
        return made
    return base64.b64decode(text, validate=True) if pa.types.is_binary(type_) else text


def from_csv(type_: pa.DataType, text: str | None) -> Any:
    if text is None:
        return None
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}[text]
    if pa.types.is_integer(type_):
        return int(text)
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_floating(type_):
        made = NOT_FINITE[text] if text in NOT_FINITE else float(text)
        return made if type_ == pa.float64() else struct.unpack("<f", struct.pack("<f", made))[0]
    return _from_text(type_, text)


def same(a: Any, b: Any) -> bool:
    """Equal, sign of zero and NaN included; instants by what they are, times of day by what they say."""
    if isinstance(a, float) and isinstance(b, float):
        return struct.pack("<d", a) == struct.pack("<d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, datetime) and isinstance(b, datetime):
        if (a.tzinfo is None) != (b.tzinfo is None):
            return False
        return a == b if a.tzinfo is None else a.astimezone(UTC) == b.astimezone(UTC)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and bool(a == b)


def _ordered(type_: pa.DataType, value: Any) -> Any:
    """Maps by their keys: they have no order."""
    if value is None:
        return None
    if pa.types.is_map(type_):
        return sorted(((k, _ordered(type_.item_type, v)) for k, v in value), key=lambda pair: str(pair[0]))
    if pa.types.is_struct(type_):
        return {k: _ordered(type_.field(k).type, v) for k, v in value.items()}
    return [_ordered(type_.value_type, v) for v in value] if pa.types.is_list(type_) else value


# -- the judge ----------------------------------------------------------------------------------------------------------------

Read = Callable[[pa.DataType, Any], Any]


def as_is(_type: pa.DataType, value: Any) -> Any:
    return value


def judge(
    rows: Iterable[Mapping[str, Any]],
    nacked: Iterable[Mapping[str, Any]],
    read: Read = as_is,
    holds: Held = everything,
    expected: Mapping[str, tuple[Kind, Any]] | None = None,
) -> list[str]:
    """What is wrong: each record is there once, equal; or it is a nack that names the field; and the table says which."""
    expected = cases() if expected is None else expected
    wrong: list[str] = []
    there: dict[str, Mapping[str, Any]] = {}
    for row in rows:
        wrong += [f"{row['id']} is there twice"] if row["id"] in there else []
        there[row["id"]] = row
    dead = {_id(x["given"]["after"]): x for x in nacked}
    for id_, (kind, value) in expected.items():
        if (id_ in there) == (id_ in dead):
            wrong.append(f"{id_} is {'delivered and nacked' if id_ in there else 'lost'}")
        elif id_ in dead and f"{kind.name}" not in dead[id_]["error"]:
            wrong.append(f"{id_}: the nack does not name the field: {dead[id_]['error']}")
        elif (id_ in there) != holds(kind, value):
            wrong.append(f"{id_} is {'delivered' if id_ in there else 'nacked: ' + dead[id_]['error']}")
        elif id_ in there:
            wrong += [f"{id_}: {text}" for text in _differences(there[id_], kind, value, read)]
    wrong += [f"{i} was never sent" for i in (there.keys() | dead.keys()) - expected.keys()]
    return wrong


def clean(wrong: list[str]) -> None:
    assert not wrong, "\n".join(["", *(w.partition("\n")[0][:250] for w in wrong)])


def _id(after: Mapping[str, Any]) -> str:
    """Of a record that was nacked: with its fields, or as the line of CSV or JSON that it came as."""
    if "value" in after:
        return str(after["value"]["id"])
    text = str(after["text"])
    return str(loads(text)["id"]) if text.startswith("{") else text.replace(";", ",").partition(",")[0]


def judge_given(nacked: Iterable[Mapping[str, Any]], expected: Mapping[str, tuple[Kind, Any]]) -> list[str]:
    """A dead letter has the values of its record."""

    def read(type_: pa.DataType, value: Any) -> Any:
        return from_json(type_, value, letter=True)

    rows = [x["given"]["after"]["value"] for x in nacked]
    return judge(rows, (), read, expected=expected)


def _differences(row: Mapping[str, Any], kind: Kind, value: Any, read: Read) -> Iterable[str]:
    for name, found in row.items():
        if name == "id" or name not in BY_NAME:
            continue
        want = value if name == kind.name else None
        try:
            got = read(BY_NAME[name].arrow, found)
        except (AssertionError, ValueError, KeyError, TypeError, AttributeError) as e:
            yield f"{name} is written {str(found)[:100]!r}: {e}"[:300]
            continue
        if not same(_ordered(BY_NAME[name].arrow, got), _ordered(BY_NAME[name].arrow, want)):
            yield f"{name} is {str(got)[:100]!r} and was {str(want)[:100]!r}"
    if kind.name not in row and value is not None:
        yield f"{kind.name} is missing"


# -- the page -----------------------------------------------------------------------------------------------------------------

BEGIN, END = "<!-- from tests/contract/test_types_table.py -->\n", "<!-- end -->\n"


def markdown() -> str:
    lines = ["| type | parquet | json | csv | |", "|---|---|---|---|---|"]
    for k in KINDS:
        written = [f"`{text}`" if text else "a nack" for text in (k.json, k.csv)]
        cells = ["kept", *written, k.note]
        lines.append("| " + " | ".join([f"`{k.ddl.replace('`', '')}`", *(c.replace("|", "\\|") for c in cells)]) + " |")
    return "\n".join(lines) + "\n"


def test_the_page_shows_this_table() -> None:
    text = PAGE.read_text()
    assert text.partition(BEGIN)[2].partition(END)[0] == markdown()


def test_the_judge_sees_a_change_a_loss_and_a_nack_without_a_name() -> None:
    rows = table().to_pylist()
    assert judge(rows, []) == []
    assert judge(rows[1:], []) == ["tinyint/0 is lost"]
    assert judge([*rows, rows[0]], []) == ["tinyint/0 is there twice"]
    changed = [{**rows[0], "tinyint": 126}, *rows[1:]]
    assert judge(changed, []) == ["tinyint/0: tinyint is '126' and was '127'"]
    nack = {"error": "no", "given": {"after": {"value": {"id": "tinyint/0"}}}}
    assert judge(rows[1:], [nack]) == ["tinyint/0: the nack does not name the field: no"]
    assert judge(rows, [nack])[0] == "tinyint/0 is delivered and nacked"
    assert not same(0.0, -0.0)
    assert not same(1, True)
    assert same(math.nan, math.nan)
    assert split('a,b\n"",\n"x""\n,",\n') == [["a", "b"], ["", None], ['x"\n,', None]]


def rewrite(begin: str, text: str) -> None:
    before, _, rest = PAGE.read_text().partition(begin)
    PAGE.write_text(before + begin + text + END + rest.partition(END)[2])


if __name__ == "__main__":
    rewrite(BEGIN, markdown())
