"""pick, omit, rename, skip, opfilter, sample, expect and select lists give in Spark's columns what they give in Python.

One frame with every kind of type, hostile names and hostile values; each processor is run over it both ways.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from penstock import record
from penstock.engine import session
from penstock.engine.python.arrow import values
from penstock.engine.trap import trap
from penstock.errors import Rejected, Stop
from penstock.native import DROP, Columns, Processor, Record, Reject, Shape, Where
from penstock.plan.sql import refused
from penstock.plugins import builtin
from penstock.processors.omit import Omit
from penstock.processors.pick import Pick
from penstock.processors.rename import Rename
from penstock.processors.sql import Sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

FIELDS = {
    "i": ("INT", ["1", "-2147483648", "NULL", "5", "2147483647"]),
    "l": ("BIGINT", ["9223372036854775807", "-9223372036854775808", "NULL", "5", "0"]),
    "t": ("TINYINT", ["127", "-128", "NULL", "5", "0"]),
    "d": ("DOUBLE", ["double('NaN')", "-0.0", "NULL", "5", "double('inf')"]),
    "f": ("FLOAT", ["0.1", "float('NaN')", "NULL", "5", "-1e30"]),
    "n": ("DECIMAL(38,2)", ["5.00", "-0.01", "NULL", "999999999999999999999999999999999999.99", "4.99"]),
    "s": ("STRING", ["'abc'", "''", "NULL", "'5'", "'Ünï😀'"]),
    "b": ("BOOLEAN", ["true", "false", "NULL", "true", "false"]),
    "y": ("BINARY", ["X'616263'", "X'FF'", "NULL", "X''", "X'35'"]),
    "day": ("DATE", ["'2024-01-31'", "'0001-01-01'", "NULL", "'9999-12-31'", "'2024-02-01'"]),
    "ts": ("TIMESTAMP", ["'2024-01-31 12:00:00'", "'0001-01-01 00:00:00'", "NULL", "'2024-01-31 12:00:00.5'", "'1969-12-31'"]),
    "ntz": ("TIMESTAMP_NTZ", ["'2024-01-31 12:00:00'", "'0001-01-01 00:00:00'", "NULL", "'2024-01-31 12:00:00.5'", "'1969-12-31'"]),
    "iv": ("INTERVAL DAY TO SECOND", ["interval '1' day", "interval '0' day", "NULL", "interval '2' day", "interval '-1' day"]),
    "arr": ("ARRAY<INT>", ["array(1, NULL)", "array()", "NULL", "array(5)", "array(2)"]),
    "m": ("MAP<STRING, INT>", ["map('k', 5, 'a.b', NULL)", "map()", "NULL", "map('k', NULL)", "map('z`', 2)"]),
    "st": ("STRUCT<a: INT, `c.d`: STRUCT<x: STRING, `y``z`: INT>>", [
        "named_struct('a', 5, 'c.d', named_struct('x', 'abc', 'y`z', 1))",
        "named_struct('a', NULL, 'c.d', NULL)",
        "NULL",
        "named_struct('a', 6, 'c.d', named_struct('x', NULL, 'y`z', NULL))",
        "named_struct('a', 4, 'c.d', named_struct('x', '', 'y`z', 5))",
    ]),
    "odd.name": ("INT", ["1", "2", "NULL", "5", "4"]),
    "b`q": ("STRING", ["'abc'", "'x'", "NULL", "'5'", "''"]),
    "two words": ("INT", ["1", "2", "NULL", "5", "4"]),
    "ключ": ("INT", ["1", "2", "NULL", "5", "4"]),
    "I": ("STRING", ["'other case'", "''", "NULL", "'5'", "'b'"]),
}  # fmt: skip
OPERATIONS = ["create", "update", "delete", "snapshot", "create", "delete"]
ROWS = 6  # the last one has no payload


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    lane = session.for_lane(spark)
    made = []
    for i in range(ROWS):
        parts = [f"cast({vs[i]} AS {t}) AS {quoted(n)}" for n, (t, vs) in FIELDS.items()] if i < ROWS - 1 else []
        after = f"struct({', '.join(parts)})" if parts else "NULL"
        made.append(
            f"SELECT {after} AS after, 'in' AS source, {i * 1000003}L AS seq, {i % 2} AS part,"
            f" '{OPERATIONS[i]}' AS operation, 'shop' AS namespace, map('k', 'v') AS metadata"
        )
    return lane.sql(" UNION ALL ".join(made)).coalesce(1).cache()


def processor(plugin: str, settings: Mapping[str, str]) -> Processor[Any]:
    cls = builtin.settings_class("processor", plugin)
    p: Processor[Any] = builtin.implementation("processor", plugin)(cls.model_validate(settings, by_alias=True), "p")
    return p


SAME = "the payload as it was"


def in_spark(ps: Sequence[Processor[Any]], rows: DataFrame, shape: Shape = Shape.TYPED) -> list[list[Any]]:
    """What becomes of every row, for each of the processors: in one job, an expression of each in a trap of its own."""
    from pyspark.sql import functions as F

    traps, columns, changes = [], [], []
    for i, p in enumerate(ps):
        assert p.where(shape) is Where.SPARK
        step = p.compile(Columns({c: F.col(c) for c in rows.columns}, shape, rows.schema))
        assert step is not None
        parts = {
            "after": step.set.get(record.AFTER, F.lit(SAME)),
            "drop": F.lit(False) if step.drop is None else step.drop,
            "reject": F.lit(None).cast("string") if step.reject is None else step.reject,
            "warn": F.lit(False) if step.warn is None else step.warn,
        }
        changes.append(bool(step.set))
        traps.append(trap(F.struct(*(c.alias(name) for name, c in parts.items()))).alias(f"t{i}"))
        columns += [F.col(f"t{i}.value.{name}").alias(f"{name}{i}") for name in parts]
        columns.append(F.col(f"t{i}").isNull().alias(f"raised{i}"))
    frame: Any = rows.select(*traps).select(*columns)
    # not `toArrow`: it takes NULL for a struct with a field that is never NULL to be an error
    table = pa.Table.from_batches(frame._collect_as_arrow())
    found = {c: values(table[c].combine_chunks()) for c in table.column_names}
    made: list[list[Any]] = []
    for i in range(len(ps)):
        outcomes: list[Any] = []
        for k in range(table.num_rows):
            if found[f"raised{i}"][k]:
                outcomes.append("raised")
                continue
            why = found[f"reject{i}"][k]
            after = found[f"after{i}"][k] if changes[i] else SAME
            outcome = why.decode() if why is not None else DROP if found[f"drop{i}"][k] else after
            outcomes.append((outcome, bool(found[f"warn{i}"][k])))
        made.append(outcomes)
    return made


def in_python(p: Processor[Any], rows: DataFrame) -> list[Any]:
    table = rows.toArrow()
    columns = {c: values(table[c].combine_chunks()) for c in table.column_names}
    changes = isinstance(p, Pick | Omit | Rename | Sql)
    made: list[Any] = []
    for i in range(table.num_rows):
        r = Record(
            columns["after"][i],
            source=columns["source"][i].decode(),
            seq=columns["seq"][i],
            part=columns["part"][i],
            operation=columns["operation"][i].decode(),
            namespace=columns["namespace"][i].decode(),
            metadata=columns["metadata"][i],
        )
        p.warned = 0
        try:
            got = p.apply(r)
        except Rejected as e:
            made.append("raised" if e.code == "sql.value" else (e.what, False))
            continue
        after = SAME if isinstance(got, Record) and got.after is columns["after"][i] and not changes else r.after
        outcome = got.reason if isinstance(got, Reject) else after if isinstance(got, Record) else got
        made.append((outcome, bool(p.warned)))
    return made


def comparable(found: list[Any]) -> list[str]:
    """Texts: NaN is itself, 5 is not 5.0. The order of fields does not count."""

    def plain(v: Any) -> Any:
        if isinstance(v, dict):
            return {k: plain(v[k]) for k in sorted(v)}
        return [plain(x) for x in v] if isinstance(v, list | tuple) else v

    return [repr(plain(x)) for x in found]


ALL = ", ".join(map(quoted, FIELDS))
DEEP = "st.`c.d`.`y``z`"
CASES: list[tuple[str, dict[str, str]]] = [
    *(("pick", {"fields": f}) for f in (ALL, "s", "I, i", f"{DEEP}, st.a, m.k, `odd.name`", "m.`a.b`, m.`z```", "st.`c.d`")),
    *(("omit", {"fields": f}) for f in (ALL, "s, I", f"{DEEP}, m.k, ключ", "st.a, st.`c.d`", "st.`c.d`.x, st.`c.d`.`y``z`")),
    *(("rename", {"fields": f}) for f in ("i:I, I:i", f"{DEEP}:`n.n`, st:`a b`, `odd.name`:`x``y`", "gone:x, st.gone:y, arr.x:y")),
    *(
        ("skip", {"field": quoted(name), "operator": op, "match": match})
        for name in FIELDS
        for op, match in (("==", "5"), ("!=", "5"), (">=", "abc"))
    ),
    *(
        ("skip", {"field": name, "operator": op, "match": match})
        for name in ("i", "n", "d")
        for op in ("==", "!=", "<", "<=", ">", ">=")
        for match in ("4.995", "1e30")
    ),
    *(
        ("skip", {"field": name, "operator": "<=", "match": match})
        for name in ("l", "t", "n", "f")
        for match in ("-1e400", "-0.01", "9223372036854775807.5", "0.1")
    ),
    *(("skip", {"field": f, "operator": ">", "match": "4"}) for f in ("st.a", "m.k", DEEP, "m.gone")),
    *(("skip", {"field": f, "operator": "=~", "match": "^a.c"}) for f in ("s", "y", "i", "st.`c.d`.x", "b")),
    *(("skip", {"field": f, "operator": "<=", "match": "2024-01-31 12:00:00"}) for f in ("day", "ts", "ntz")),
    *(("skip", {"field": "b", "operator": op, "match": "true"}) for op in ("==", "!=", "<")),
    ("opfilter", {"whitelist": "insert,delete"}),
    ("opfilter", {"blacklist": "snapshot,update"}),
    *(("sample", {"rate": r, "seed": s}) for r, s in (("0.5", ""), ("0.5", "ü:1"), ("1", "x"), ("0.000001", ""))),
    *(
        ("expect", {"rule": rule, "on-fail": on_fail})
        for rule in ("after.i >= 0", "after.st.`c.d`.x = 'abc' OR operation = 'update'", "cast(after.s AS int) = 5", "after.b")
        for on_fail in ("reject", "warn", "stop")
    ),
    ("sql", {"select": "after.i AS i, upper(after.s) AS `u.p`, after.`odd.name`, after.st.a * 2 AS two, operation"}),
    ("sql", {"select": "after.*, concat(after.s, 'x') AS s, metadata['opencdc.collection'] AS ns, 1 AS `b``q`"}),
    ("sql", {"select": "after.st, after.m AS m2, after.arr"}),
    ("sql", {"select": "after.*, cast(after.s AS int) AS n5"}),
]  # fmt: skip


def test_columns_and_python_come_to_the_same(rows: DataFrame) -> None:
    ps = [processor(plugin, settings) for plugin, settings in CASES]
    found = [outcomes for i in range(0, len(ps), 20) for outcomes in in_spark(ps[i : i + 20], rows)]
    different = []
    for case, p, outcomes in zip(CASES, ps, found, strict=True):
        pairs = zip(comparable(outcomes), comparable(in_python(p, rows)), strict=True)
        different += [(*case, spark, python) for spark, python in pairs if spark != python]
    assert different == []


@pytest.mark.parametrize(
    "plugin, settings, code, says",
    [
        ("pick", {"fields": "i, twowords"}, "processor.unknown-field", "`two words`|two words"),
        ("pick", {"fields": "st.`c.f`"}, "processor.unknown-field", "did you mean st.`c.d`"),
        ("pick", {"fields": "arr.x"}, "processor.unknown-field", "array<int>"),
        ("omit", {"fields": "s.x"}, "processor.unknown-field", "string"),
        ("omit", {"fields": "m.k.x"}, "processor.unknown-field", "map"),
        ("skip", {"field": "odd.name", "operator": "=", "match": "1"}, "processor.unknown-field", "odd.name"),
        ("skip", {"field": "i.x", "operator": "=", "match": "1"}, "processor.unknown-field", "int"),
        ("rename", {"fields": "i:l"}, "processor.field-exists", "the name l"),
        ("rename", {"fields": "st.a:`c.d`"}, "processor.field-exists", "st.`c.d`"),
        ("rename", {"fields": "m.k:x"}, "processor.unknown-field", "map"),
    ],
)
def test_what_the_schema_refuses(rows: DataFrame, plugin: str, settings: dict[str, str], code: str, says: str) -> None:
    with pytest.raises(Stop) as caught:
        in_spark([processor(plugin, settings)], rows)
    assert caught.value.code == code
    assert re.search(says, str(caught.value))


def test_raw_payloads_become_typed_by_a_select_list(spark: SparkSession) -> None:
    lane = session.for_lane(spark)
    rows = lane.sql(
        "SELECT cast(c AS binary) AS after, 'create' AS operation FROM VALUES ('a,1'), (NULL), ('b') AS t(c)"
    )
    p = processor("sql", {"select": "split(after, ',')[0] AS a, operation"})
    [found] = in_spark([p], rows, Shape.RAW)
    assert found == [
        ({"a": "a", "operation": "create"}, False),
        ({"a": None, "operation": "create"}, False),
        ({"a": "b", "operation": "create"}, False),
    ]
    [found] = in_spark([processor("opfilter", {"blacklist": "create"})], rows, Shape.RAW)
    assert found == [(DROP, False)] * 3


def test_the_functions_that_need_other_records_are_known(spark: SparkSession) -> None:
    session_: Any = spark
    registry = session_._jsparkSession.sessionState().functionRegistry()
    found: dict[str, set[str]] = {}
    names = registry.listFunction().iterator()
    while names.hasNext():
        name = names.next()
        found.setdefault(registry.lookupFunction(name).get().getGroup(), set()).add(name.funcName())
    assert found["agg_funcs"] <= refused.AGGREGATES
    assert found["window_funcs"] <= refused.WINDOWS
    assert found["generator_funcs"] <= refused.GENERATORS
    every = set().union(*found.values())
    assert every >= refused.CLOCK | refused.CHANGING | refused.AGGREGATES
