"""The hostile cases of Parquet. The files are made here, by pyarrow; what is damaged was whole once."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from penstock.testing.hostile import Case, Delivered, Nacked, Outcome, Unreadable
from penstock.testing.hostile_json import DIGITS
from penstock.testing.hostile_text import BOM, NAMES

WIDTH = 5_000


def cases() -> Iterator[Case]:
    import pyarrow as pa

    rows: list[dict[str, Any]] = [{"id": "pplain:0", "v": 1}, {"id": "pplain:1", "v": None}]
    whole = _file(pa.Table.from_pylist(rows))
    yield _case("parquet-plain", whole, [Delivered(r) for r in rows])
    yield _files(
        "parquet-damaged",
        {
            "cut.parquet": whole[:-20],
            "head.parquet": whole[:30],
            "text.parquet": b"id,v\n1,a\n",
            "empty.parquet": b"",
            "bom.parquet": BOM,
            "garbage.parquet": whole + b"garbage",
            "footer.parquet": whole[:-8] + b"\xff\xff\xff\x7fPAR1",
            "pages.parquet": whole[:4] + bytes(len(whole) // 8) + whole[4 + len(whole) // 8 :],
        },
        {
            name: (Unreadable(),)
            for name in ("cut", "head", "text", "empty", "bom", "garbage", "footer", "pages")
            for name in (f"{name}.parquet",)
        },
    )
    yield _case("parquet-no-rows", _file(pa.Table.from_pylist(rows).slice(0, 0)), [])
    yield _numbers()
    yield _texts()
    yield _times()
    wide = {"id": "pwide:0", **{f"c{i}": i for i in range(1, WIDTH)}}
    yield _case("parquet-5000-columns", _file(pa.Table.from_pylist([wide])), [Delivered(wide)])
    odd = {
        "id": "podd:0",
        "a.b": 1,
        "a`b": 2,
        "a b": 3,
        "ü": 4,
        "a,b": 5,
        "seq": 6,
        "_metadata": 7,
        "after": 8,
        "ID": 9,
    }
    yield _case("parquet-odd-columns", _file(pa.Table.from_pylist([odd])), [Delivered(odd)])
    twice = pa.Table.from_arrays([pa.array(["ptwice:0"]), pa.array([1]), pa.array([2])], names=["id", "v", "v"])
    yield _case("parquet-column-twice", _file(twice), [Unreadable()])
    yield _types()
    nothing = {"id": None, "v": None}
    schema = pa.schema([("id", pa.string()), ("v", pa.int64())])
    yield _case("parquet-all-null", _file(pa.Table.from_pylist([nothing], schema)), [Delivered(nothing)])
    yield _case(
        "parquet-void",
        _file(pa.table({"id": ["pvoid:0"], "v": pa.nulls(1)})),
        [Delivered({"id": "pvoid:0", "v": None})],
    )
    deep: Any = 1
    for _ in range(50):
        deep = {"a": deep}
    nested = {"id": "pdeep:0", "v": deep, "list": [[1, None], [], None]}
    yield _case("parquet-deep", _file(pa.Table.from_pylist([nested])), [Delivered(nested)])
    files = {name: _file(pa.table({"id": [f"pname:{i}"]})) for i, name in enumerate(NAMES[:10])}
    yield _files("parquet-names", files, {name: (Delivered({"id": f"pname:{i}"}),) for i, name in enumerate(files)})
    yield _files(
        "parquet-partitions",
        {
            "day=1/rows.parquet": _file(pa.table({"id": ["ppart:0"]})),
            "id=x/rows.parquet": _file(pa.table({"id": ["ppart:1"]})),
        },
        {
            "day=1/rows.parquet": (Delivered({"id": "ppart:0", "day": "1"}),),
            "id=x/rows.parquet": (Delivered({"id": "ppart:1"}),),
        },
    )
    yield _files(
        "parquet-schemas-differ",
        {
            "a.parquet": _file(pa.table({"id": ["pdiff:0"], "v": [1]})),
            "b.parquet": _file(pa.table({"id": ["pdiff:1"], "v": ["x"]})),
            "c.parquet": _file(pa.table({"id": ["pdiff:2"], "w": [1.5]})),
        },
        {
            "a.parquet": (Delivered({"id": "pdiff:0", "v": 1}),),
            "b.parquet": (Delivered({"id": "pdiff:1", "v": "x"}),),
            "c.parquet": (Delivered({"id": "pdiff:2", "w": 1.5}),),
        },
    )


def _numbers() -> Case:
    import pyarrow as pa

    digits = Decimal(DIGITS.decode())
    table = pa.table(
        {
            "id": ["pnum:0", "pnum:1", "pnum:2"],
            "unsigned": pa.array([2**63, 2**64 - 1, None], pa.uint64()),
            "decimal": pa.array([digits, -digits, None], pa.decimal128(38, 0)),
            "double": [0.1, math.inf, math.nan],
        }
    )
    unfit = Nacked("destination.unfit", "'double'")
    rows = table.to_pylist()
    return _case(
        "parquet-numbers", _file(table), [Delivered(rows[0]), Delivered(rows[1], unfit), Delivered(rows[2], unfit)]
    )


def _types() -> Case:
    """What other writers write and few readers know."""
    import pyarrow as pa

    at = datetime(2024, 1, 1, tzinfo=UTC)
    columns: dict[str, Any] = {
        "nanoseconds": pa.array([at], pa.timestamp("ns", tz="UTC")),
        "time": pa.array([1], pa.time64("us")),
        "half": pa.array([1.5], pa.float16()),
        "unsigned": pa.array([2**32 - 1], pa.uint32()),
        "digits": pa.array([Decimal("9" * 70)], pa.decimal256(76, 0)),
        "dictionary": pa.array(["a"]).dictionary_encode(),
        "large": pa.array(["a"], pa.large_string()),
        "fixed": pa.array([b"abcd"], pa.binary(4)),
        "duration": pa.array([1], pa.duration("us")),
    }
    files = {f"{n}.parquet": _file(pa.table({"id": [f"ptype:{n}"], "v": c})) for n, c in columns.items()}
    outcomes: dict[str, tuple[Outcome, ...]] = {
        "unsigned.parquet": (Delivered({"id": "ptype:unsigned", "v": 2**32 - 1}),),
        "dictionary.parquet": (Delivered({"id": "ptype:dictionary", "v": "a"}),),
        "large.parquet": (Delivered({"id": "ptype:large", "v": "a"}),),
        "fixed.parquet": (Delivered({"id": "ptype:fixed", "v": b"abcd"}, {"id": "ptype:fixed", "v": "YWJjZA=="}),),
        "duration.parquet": (Delivered({"id": "ptype:duration", "v": 1}),),  # Parquet has no such type: a number
    }
    return _files("parquet-types", files, {n: outcomes.get(n, (Unreadable(),)) for n in files})


def _texts() -> Case:
    import pyarrow as pa

    values = [b"a\0b", "🎈\u2028".encode(), b"\xff\xfe", b"line\nbreak", b"", BOM]
    table = pa.table({"id": [f"ptext:{i}" for i in range(6)], "v": pa.array(values, pa.binary()).view(pa.string())})
    unfit = Nacked("destination.unfit", "'v'")
    found = [
        Delivered({"id": f"ptext:{i}", "v": v}, unfit)
        if v == b"\xff\xfe"
        else Delivered({"id": f"ptext:{i}", "v": v.decode()})
        for i, v in enumerate(values)
    ]
    return _case("parquet-texts", _file(table), found)


def _times() -> Case:
    import pyarrow as pa

    at = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
    table = pa.table(
        {
            "id": ["ptime:0", "ptime:1"],
            "at": pa.array(at, pa.timestamp("us", tz="UTC")),
            "day": [date(1, 1, 1), date(9999, 12, 31)],
        }
    )
    json = [
        {"id": "ptime:0", "at": "0001-01-01T00:00:00.000000Z", "day": "0001-01-01"},
        {"id": "ptime:1", "at": "9999-12-31T23:59:59.999999Z", "day": "9999-12-31"},
    ]
    return _case("parquet-times", _file(table), [Delivered(r, j) for r, j in zip(table.to_pylist(), json, strict=True)])


def _file(table: Any) -> bytes:
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(table, out)
    return out.getvalue()


def _case(name: str, content: bytes, outcomes: list[Any]) -> Case:
    return _files(name, {"rows.parquet": content}, {"rows.parquet": tuple(outcomes)})


def _files(name: str, files: Mapping[str, bytes], outcomes: Mapping[str, tuple[Outcome, ...]]) -> Case:
    return Case(name, "parquet", files, outcomes)
