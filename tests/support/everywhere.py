"""Every built-in processor, with settings and conditions, and the records that it is run over: raw, open and typed.

Used by the two files `test_processors_everywhere.py`: without Spark over Arrow batches, and in Spark's columns. A processor that
is not in `SETTINGS` fails a test, and so does a combination that is refused and not in the lists at the end.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa

from penstock.native import DROP, Processor, Record, Reject, Shape, Where
from penstock.plan.condition import Condition
from penstock.plan.nodes import Node
from penstock.plugins import builtin

# -- processors ------------------------------------------------------------------------------------------------------------

HERE = "tests.support.everywhere"
SETTINGS: Mapping[str, list[dict[str, str]]] = {
    "base64.decode": [
        {"field": ".Payload.After"},
        {"field": ".Payload.After.s"},
        {"field": ".Key"},
        {"field": ".Metadata.k"},
        {"field": ".Payload.After.st.x"},
    ],
    "base64.encode": [
        {"field": ".Payload.After"},
        {"field": ".Payload.After.i"},
        {"field": ".Payload.Before"},
        {"field": ".Metadata.new"},
        {"field": '.Payload.After.st["c.d"]'},
    ],
    "clone": [{"count": "1"}, {"count": "3"}],
    "error": [{}, {"message": "no 'good'"}, {"message": "{{ .Payload.After.i }} of {{ .Metadata.k }}"}],
    "expect": [
        {"rule": "after.i > 0"},
        {"rule": "after.s = 'x' OR operation = 'update'", "on-fail": "warn"},
        {"rule": "namespace = 'shop'", "on-fail": "stop", "message": "elsewhere"},
        {"rule": "cast(after.s AS int) > 0", "on-fail": "warn"},
        {"rule": "after LIKE '{%'"},
        {"rule": "soundex(after) = 'A100'"},
        {"rule": "soundex(after.s) = 'A100'"},
    ],
    "field.convert": [
        {"field": ".Payload.After.s", "type": "int"},
        {"field": ".Payload.After.i", "type": "string"},
        {"field": ".Payload.After.d", "type": "int"},
        {"field": ".Payload.After.d", "type": "string"},
        {"field": ".Payload.After.n", "type": "string"},
        {"field": ".Payload.After.b", "type": "bool"},
        {"field": ".Payload.After.ts", "type": "string"},
        {"field": ".Payload.After.l", "type": "time"},
        {"field": ".Payload.After.gone", "type": "string"},
        {"field": ".Payload.After.s", "type": "float"},
        {"field": ".Payload.After.st.a", "type": "float"},
        {"field": ".Payload.After", "type": "string"},
        {"field": ".Key", "type": "string"},
    ],
    "field.exclude": [
        {"fields": ".Payload.After.i"},
        {"fields": ".Payload.After.st.a,.Metadata.k"},
        {"fields": '.Payload.After["odd.name"],.Payload.After.gone'},
        {"fields": ".Payload.After.m.k"},
        {"fields": ".Payload.After.arr.x"},
        {"fields": ".Payload.After"},
        {"fields": ".Payload.Before,.Key"},
        {"fields": ".Metadata"},
    ],
    "field.rename": [
        {"mapping": ".Payload.After.i:new"},
        {"mapping": ".Payload.After.i:s"},
        {"mapping": ".Payload.After.gone:new,.Metadata.k:k2"},
        {"mapping": ".Payload.After.st.a:a.b"},
        {"mapping": ".Payload.After.m.k:k2"},
        {"mapping": ".Key.id:key"},
    ],
    "field.set": [
        {"field": ".Payload.After.new", "value": "it's `new`"},
        {"field": ".Payload.After.i", "value": "text"},
        {"field": ".Payload.After.s", "value": "text"},
        {"field": ".Payload.After.st.deep.er", "value": "x"},
        {"field": ".Payload.After.m.k", "value": "x"},
        {"field": ".Payload.After.arr.x", "value": "x"},
        {"field": ".Payload.After", "value": "raw"},
        {"field": ".Operation", "value": "delete"},
        {"field": ".Operation", "value": "none"},
        {"field": ".Metadata.k", "value": "m"},
        {"field": '.Metadata["opencdc.collection"]', "value": "there"},
        {"field": ".Payload.After.new", "value": "{{ .Payload.After.s }}"},
        {"field": ".Key", "value": "k"},
    ],
    "filter": [{}],
    "json.decode": [
        {},
        {"field": ".Key"},
        {"field": ".Payload.After.s"},
        {"field": ".Payload.Before"},
        {"schema": "i INT, s STRING, d DOUBLE, n DECIMAL(38,18), st STRUCT<a: INT>, arr ARRAY<STRING>"},
    ],
    "json.encode": [{}, {"field": ".Payload.After.st"}, {"field": ".Key"}],
    "omit": [{"fields": "i"}, {"fields": "st.a, m.k, `odd.name`"}, {"fields": "`b``q`, `two words`"}],
    "opfilter": [{"whitelist": "insert, delete"}, {"blacklist": "update"}],
    "pick": [{"fields": "i"}, {"fields": "st.`c.d`, m.k, `odd.name`, s"}, {"fields": "d, n, y, ts, ntz, day, arr"}],
    "python": [
        {"function": f"{HERE}:change"},
        {"function": f"{HERE}:odd"},
        {"function": f"{HERE}:whole", "batch": "true"},
    ],
    "rename": [{"fields": "i:new"}, {"fields": "i:s, s:i"}, {"fields": "st.a:`a.b`, `odd.name`:plain"}],
    "sample": [{"rate": "0.5"}, {"rate": "1", "seed": "ü"}],
    "skip": [
        {"field": "i", "operator": ">", "match": "0"},
        {"field": "s", "operator": "!=", "match": "x"},
        {"field": "d", "operator": "<=", "match": "1e300"},
        {"field": "n", "operator": ">=", "match": "0.1"},
        {"field": "st.a", "operator": "=", "match": "5"},
        {"field": "m.k", "operator": "ne", "match": "5"},
        {"field": "s", "operator": "=~", "match": "^[0-9]+$"},
        {"field": "arr", "operator": "==", "match": "x"},
        {"field": "ts", "operator": ">", "match": "2000"},
    ],
    "split": [{"field": ".Payload.After.arr"}, {"field": ".Key.items"}, {"field": ".Payload.After.y"}],
    "sql": [
        {"expression": "after.st.a + 1", "field": ".Payload.After.st.a"},
        {"expression": "concat(after.s, '!')", "field": ".Payload.After.new"},
        {"expression": "cast(after.s AS int)", "field": ".Payload.After.number"},
        {"expression": "after.s", "field": ".Metadata.k"},
        {"expression": "operation", "field": ".Payload.After.st.a"},
        {"expression": "upper(after)", "field": ".Payload.After"},
        {"expression": "operation", "field": ".Metadata.op"},
        {"select": "after.i AS i, after.s, operation, metadata['k'] AS k"},
        {"select": "after.*, upper(after.s) AS s, namespace AS `name space`"},
        {"select": "after AS text, operation"},
        {"select": "soundex(after) AS text"},
    ],
    "unwrap.debezium": [{}, {"field": ".Payload.Before"}, {"field": ".Payload.After.s"}],
    "unwrap.kafkaconnect": [{}, {"field": ".Payload.Before"}, {"field": ".Payload.After.s"}],
    "unwrap.opencdc": [{}, {"field": ".Key"}, {"field": ".Payload.After.s"}, {"field": ".Metadata.k"}],
}
CONDITIONS: Mapping[str, Condition] = {
    "every": Condition(),
    "field": Condition("after.i > 0"),
    "whole": Condition("after LIKE '%1%'"),
    "record": Condition("operation = 'update' OR metadata['k'] = 'v'"),
    "namespaces": Condition(namespaces="^sh"),
    "spark-only": Condition("soundex(after.s) = 'A100'"),
    "template": Condition('{{ eq .Metadata.k "v" }}'),
    "template-field": Condition("{{ if .Payload.After.i }}true{{ else }}false{{ end }}"),
}


@dataclass(frozen=True)
class Case:
    """One processor with one of its settings."""

    plugin: str
    number: int

    @property
    def settings(self) -> dict[str, str]:
        return SETTINGS[self.plugin][self.number]

    def __str__(self) -> str:
        return f"{self.plugin} {self.number}"

    def node(self, condition: str = "every") -> Node:
        cls = builtin.settings_class("processor", self.plugin)
        settings = cls.model_validate(self.settings, by_alias=True)
        made: Processor[Any] = builtin.implementation("processor", self.plugin)(settings, "p")
        return Node(made, CONDITIONS[condition], self.settings)


CASES = [Case(plugin, i) for plugin, settings in SETTINGS.items() for i in range(len(settings))]


def change(r: Record) -> Record:
    """User code that is plain."""
    if isinstance(r.after, dict):
        r.after["changed"] = True
    r.metadata["changed"] = "yes"
    return r


def odd(r: Record) -> Any:
    """User code that does a different thing to each record."""
    kinds: list[Callable[[], Any]] = [
        lambda: None,
        lambda: DROP,
        lambda: Reject("no", "own.code"),
        lambda: [r, r.derive()],
        lambda: [],
        lambda: 1 // 0,
        lambda: r.derive(after={"when": datetime(2024, 1, 1, tzinfo=UTC), "n": float("nan")}),
        lambda: r.derive(metadata={"k": 5}),
        lambda: r,
    ]
    return kinds[r.seq % len(kinds)]()


def whole(batch: pa.RecordBatch) -> pa.RecordBatch:
    """User code over whole batches: drops every fifth, rejects every seventh."""
    seqs = batch.column("seq").to_pylist()
    batch = batch.append_column("drop", pa.array([n % 5 == 0 for n in seqs]))
    return batch.append_column("reject", pa.array(["bad" if n % 7 == 0 else None for n in seqs], pa.string()))


# -- records ---------------------------------------------------------------------------------------------------------------


def nested(depth: int) -> bytes:
    return b'{"i":1,"st":' * depth + b"{}" + b"}" * depth


DEBEZIUM = {"payload": {"op": "u", "before": None, "after": {"i": 1}, "source": {"db": "x"}, "ts_ms": 1700000000000}}
CONNECT = {"schema": None, "payload": {"i": 1}}
OPENCDC = {"operation": "update", "metadata": {"k": 5}, "key": "aw==", "payload": {"before": None, "after": {"i": 1}}}
RAW: list[bytes | None] = [
    None, b"", b" ", b"\n", b"\xff\xfe", b"\x00", b'{"s":"\x00"}', b"1", b'"text"', b"[]", b"null", b"true", b"{", b"{}",
    b'{"i":', b'{"i":1', b'\xef\xbb\xbf{"i":1}', b'{"i":1}\r\n', b'{"i":1}{"i":2}', b'{"i":1,"i":2}', b'{"i":NaN}',
    b'{"i":9223372036854775808}', b'{"i":1e400}', b'{"i":-0.0}', b'{"n":0.1234567890123456789}', b'{"i":01}',
    b'{"i":123456789012345678901234567890}', b'{"s":"\\ud800"}', b'{"s":"\\ud83d\\ude00"}', b'{"s":"\xff"}', b"{'i':1}",
    b'{"s":"aGVsbG8=","i":1}', b"aGVsbG8=", b"aGVs\nbG8=", b"aGVsbG8", b"ABC", b"1,2", "Ünï😀".encode(), b'{"":{"":1}}',
    b'{"i":1,"s":"5"}', b'{"i":-5,"s":"x","st":{"a":5},"arr":[1,"a",null,{}],"m":{"k":"5"}}', b'{"i":"1","st":5,"m":[]}',
    b'{"i":null,"s":null,"st":null,"arr":null}', b'{"i":[],"s":{},"st":"x","arr":{},"d":"x"}', b'{"arr":[]}',
    b'{"i":1.0,"d":1e21,"l":9223372036854775807,"b":"T"}', b'{"i":true,"b":1,"s":" 5 ","d":5e-324}', nested(100),
    nested(5000), b'{"s":"' + b"x" * 1_000_000 + b'"}', b"x" * 100_000, b'{"' + b"k" * 10_000 + b'":1}',
    b'{"odd.name":1,"b`q":"x","two words":{"q\\"":1},"\xd0\xba":2}', b'{"s":"{\\"a\\":[1]}","st":{"c.d":{"x":1}}}',
    *(json.dumps(x).encode() for x in (DEBEZIUM, CONNECT, OPENCDC)),
    *(json.dumps({"s": json.dumps(x)}).encode() for x in (DEBEZIUM, CONNECT, OPENCDC)),
]  # fmt: skip
DEPTHS: list[bytes | None] = [
    nested(n) for n in (*range(400, 960, 100), *range(960, 1005, 4))
]  # where JSON of a depth can be read but not written
FED: list[Any] = [
    {}, {"i": None}, {"i": 2**63, "l": -(2**200)}, {"i": float("nan"), "d": float("inf")}, {"d": -0.0, "n": Decimal("NaN")},
    {"i": Decimal("1.50"), "n": Decimal("1E+400"), "s": Decimal("-0")}, {"s": b"\xff", "y": b"aGVsbG8=", "i": b""},
    {"ts": datetime(2024, 1, 1, tzinfo=UTC), "day": date(1, 1, 1), "ntz": datetime(9999, 12, 31), "s": date(2024, 1, 1)},
    {"i": 1, "arr": [1, "a", None, {}, [], 1.5, b"x"], "st": [], "m": 5, "s": True}, {"arr": [{"a": 1}, 5], "st": {"a": {}}},
    {"": 1, "a.b": {"": {"": 2}}, "b`q": None, 'q"': "'", "odd.name": [1], "two words": {}, "к": "", "x" * 5000: 1},
    {"s": "\ud800", "i": 1}, {"s": "x" * 100_000}, {"m": {"k": None, "k2": 1}, "i": 1, "b": "no"}, {"m": {5: "odd key"}},
    {"i": 10**5000, "s": "5"}, {"i": 1e308, "l": 1.5, "b": False, "ts": "2024-01-01T00:00:00Z"}, {"i": timedelta(days=1)},
    {"st": {"a": 5, "c.d": {"x": "aGVsbG8="}, "deep": "x", "x": "aGVsbG8="}, "s": "aGVsbG8=", "new": 1}, {"st": {"deep": {}}},
    DEBEZIUM, CONNECT, OPENCDC, None, b"", b"{}", b"\xff", "text", 5, [1, {}], bytearray(b"{}"), True, {"i": {1}},
    {"payload": {"op": "c", "after": b"x", "source": 5}}, {"operation": "5", "metadata": {}, "payload": {"after": 1}},
]  # fmt: skip

OPERATIONS = ("create", "update", "delete", "snapshot", "create")
NAMESPACES = (None, "shop", "", "ship\n'", "Ünï")
METADATA: tuple[dict[str, str] | None, ...] = (
    {"k": "v"}, None, {}, {"k": "", "": "x"}, {"k": "aGVsbG8=", "clone.index": "7"}, {"k": json.dumps(OPENCDC)}, {"k2": "v"},
)  # fmt: skip
KEYS: tuple[bytes | None, ...] = (
    None, b"k", b'{"id":1}', b"\xff", b'{"payload":{"id":1},"items":[1,2]}', b'{"items":[]}', b"", b'{"id":', b"5",
    json.dumps(OPENCDC).encode(),
)  # fmt: skip
BEFORES: tuple[bytes | None, ...] = (None, b'{"i":0}', b"\xff", json.dumps(DEBEZIUM).encode(), b"aGk=", b"")


def around(i: int) -> dict[str, Any]:
    """What a record has besides its payload: all of it is also absent in some."""
    return {
        "operation": OPERATIONS[i % 5],
        "namespace": NAMESPACES[i % 5 if i % 2 else i // 5 % 5],
        "metadata": METADATA[i % 7],
        "key": KEYS[i % 11] if i % 11 < 10 else None,
        "before": BEFORES[i % 6],
    }


def columns(n: int, after: pa.Array) -> pa.RecordBatch:
    each = [around(i) for i in range(n)]
    made: dict[str, pa.Array] = {
        "seq": pa.array(range(n), pa.int64()),
        "part": pa.array([0] * n, pa.int32()),
        "operation": pa.array([e["operation"] for e in each], pa.string()),
        "namespace": pa.array([e["namespace"] for e in each], pa.string()),
        "metadata": pa.array(
            [None if e["metadata"] is None else list(e["metadata"].items()) for e in each],
            pa.map_(pa.string(), pa.string()),
        ),
        "key": pa.array([e["key"] for e in each], pa.binary()),
        "before": pa.array([e["before"] for e in each], pa.binary()),
        "after": after,
    }
    return pa.RecordBatch.from_pydict(made)


def texts(payloads: list[bytes | None]) -> pa.RecordBatch:
    """Raw payloads, or open ones on their way between two stages: text that nobody has checked."""
    return columns(len(payloads), pa.array(payloads, pa.binary()).view(pa.string()))


class Feed(Processor[None]):
    """The first of a stage: makes of the number of a record what Python code can leave in a payload, and no text can."""

    uses: ClassVar[frozenset[str]] = frozenset({"after"})

    def apply(self, r: Record) -> Record:
        r.after = self.fed(r.after)
        return r

    def on_payload(self, *, last: bool = False) -> Callable[[Any], Any]:
        return self.fed

    def fed(self, payload: Any) -> Any:
        return copy.deepcopy(FED[int(payload)])


class Same(Processor[None]):
    """Does nothing: what a stage gives for a record that no processor has touched."""

    def apply(self, r: Record) -> Record:
        return r


def fed() -> pa.RecordBatch:
    return texts([b"%d" % i for i in range(len(FED))])


_ST = pa.struct({"a": pa.int32(), "c.d": pa.struct({"x": pa.string(), "y`z": pa.int32()})})
TYPES: Mapping[str, pa.DataType] = {
    "i": pa.int32(), "l": pa.int64(), "t": pa.int8(), "h": pa.int16(), "d": pa.float64(), "f": pa.float32(),
    "n": pa.decimal128(38, 18), "s": pa.string(), "b": pa.bool_(), "y": pa.binary(), "day": pa.date32(),
    "ts": pa.timestamp("us", "UTC"), "ntz": pa.timestamp("us"), "arr": pa.list_(pa.string()), "m": pa.map_(pa.string(), pa.int32()),
    "st": _ST, "sts": pa.list_(_ST), "odd.name": pa.int32(), "b`q": pa.string(), "two words": pa.int32(), "к": pa.string(),
    "I": pa.string(), 'q"': pa.int32(),
}  # fmt: skip
_INNER = {"a": 5, "c.d": {"x": "x", "y`z": 1}}
_FIRST: dict[str, Any] = {
    "i": 1, "l": 2**63 - 1, "t": 127, "h": -32768, "d": float("nan"), "f": 0.1, "n": Decimal("1.500000000000000000"), "s": "5",
    "b": True, "y": b"abc", "day": date(2024, 1, 31), "ts": datetime(2024, 1, 31, 12, tzinfo=UTC), "ntz": datetime(2024, 1, 31),
    "arr": ["a", None, ""], "m": [("k", 5), ("a.b", None)], "st": _INNER, "sts": [_INNER, None], "odd.name": 1, "b`q": "x",
    "two words": 2, "к": "к", "I": "other case", 'q"': 3,
}  # fmt: skip
TYPED: list[dict[str, Any] | None] = [
    _FIRST,
    {},
    None,
    {**_FIRST, "i": -(2**31), "l": -(2**63), "d": float("-inf"), "f": float("nan"), "s": "", "b": False, "y": b"\xff",
     "n": Decimal("-99999999999999999999.999999999999999999"), "day": date(1, 1, 1), "ts": datetime(1, 1, 1, tzinfo=UTC),
     "ntz": datetime(1, 1, 1), "arr": [], "m": [], "st": {"a": None, "c.d": None}, "sts": []},
    {**_FIRST, "i": 2**31 - 1, "l": 0, "d": -0.0, "f": -1e30, "n": Decimal("99999999999999999999.999999999999999999"), "s": "x",
     "y": b"", "day": date(9999, 12, 31), "ts": datetime(9999, 12, 31, 23, 59, 59, 999999, UTC),
     "ntz": datetime(9999, 12, 31, 23, 59, 59, 999999), "m": [("k", None)], "st": {"a": 4, "c.d": {"x": None, "y`z": None}}},
    {"i": 0, "s": " 5", "d": 1.5, "n": Decimal(0), "l": 1700000000000000000, "st": None,
     "ts": datetime(1969, 12, 31, 23, 59, 59, 500000, UTC)},
    {"i": None, "s": "Ünï😀\x00", "d": 5e-324, "l": 1, "st": {"a": -1, "c.d": None}, "ntz": datetime(1969, 12, 31, 23, 59, 59, 5)},
    {"i": 7, "s": "2147483648", "d": 1e21, "f": 16777216.0, "b": None, "m": [("", 1), ("k", 2)]},
    {"i": 5, "s": "aGVsbG8=", "d": 9007199254740993.0, "y": b"YQ=="},
    {"s": "NaN", "d": 5.0, "st": _INNER},
]  # fmt: skip


def typed() -> pa.RecordBatch:
    rows = [None if row is None else {name: row.get(name) for name in TYPES} for row in TYPED]
    return columns(len(rows), pa.array(rows, pa.struct(list(TYPES.items()))))


# -- what became of them ---------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """For comparisons: NULL and missing are the same in an object, everything else is not: 5 and 5.0, NaN is itself."""
    if isinstance(value, dict):
        return {k: plain(v) for k, v in sorted(value.items(), key=repr) if v is not None}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, datetime) and value.tzinfo is not None:
        return repr(value.astimezone(UTC).replace(tzinfo=None)) + " UTC"
    text = repr(value)
    return text if len(text) < 500 else f"{text[:50]}… {hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()}"


def combinations(shape: Shape, where: Where) -> Iterator[tuple[Case, str]]:
    """What is to be run there, in the order of the table: all that is not refused."""
    from penstock.native import Unsuitable
    from penstock.plan.nodes import place

    for case in CASES:
        for condition in CONDITIONS:
            try:
                found = place(case.node(condition), shape)
            except Unsuitable:
                continue
            if found is where:
                yield case, condition


# -- what is refused -------------------------------------------------------------------------------------------------------

EVERY = range(100)
# By plugin, the settings that name fields of a payload: with a raw one they are refused, whatever the condition.
FIELDS_OF_RAW: Mapping[str, Iterable[int]] = {
    "base64.decode": (1, 4), "base64.encode": (1, 4), "expect": (0, 1, 3, 6), "field.convert": range(11),
    "field.exclude": range(5), "field.rename": range(5), "field.set": (*range(6), 11), "json.decode": (2,), "json.encode": (1,),
    "omit": EVERY, "pick": EVERY, "rename": EVERY, "skip": EVERY, "split": (0, 2), "sql": (*range(5), 7, 8),
    "unwrap.debezium": (2,), "unwrap.kafkaconnect": (2,), "unwrap.opencdc": (2,),
}  # fmt: skip
WHOLE_TYPED = {"base64.decode": (0,), "base64.encode": (0,), "json.decode": (0, 4)}  # only what is raw is decoded
NO_CONDITION = {"json.decode": (4,), "python": (2,)}  # a schema, and a function of whole batches, are for every record
NOT_IN_PYTHON = {"expect": (5, 6), "sql": (5, 10)}  # SQL that only Spark has, and a whole payload set to one value
SQL_ON_RAW = {"expect": (4, 5), "sql": (5, 9, 10)}  # SQL in Python has no raw payloads
IN_PYTHON = ("template", "template-field")  # conditions that take a processor there
IN_SPARK = {
    Shape.TYPED: ("every", "field"),
    Shape.RAW: ("every", "whole", "record"),
}  # enough conditions: plans take time
_ONE_TYPE = ("field.set 1", "field.set 5", "json.encode 0", "sql 4", "sql 7", "sql 9")
# In Spark, when the plan is made. "takes no condition": the records that it is not for would need another type.
STOPPED: Mapping[Shape, Mapping[str, str]] = {
    Shape.TYPED: {
        **{f"{case} every": "processor.expression" for case in ("expect 4", "expect 5", "sql 5", "sql 10")},
        **{f"{case} field": "processor.expression" for case in ("sql 5", "sql 10")},
        **{f"{case} field": "processor.condition-type" for case in _ONE_TYPE},
        **{f"field.set 4 {k}": "processor.unsupported" for k in ("every", "field")},
        "field.convert 3 every": "processor.unsupported",
    },
    Shape.RAW: {
        **{f"{case} {k}": "processor.expression" for case in ("expect 5", "sql 10") for k in IN_SPARK[Shape.RAW]},
        **{f"{case} {k}": "processor.condition-type" for case in ("sql 5", "sql 9") for k in ("whole", "record")},
    },
}  # fmt: skip


def refused(case: Case, condition: str, shape: Shape) -> bool:
    """Whether `validate` says no."""

    def among(table: Mapping[str, Iterable[int]]) -> bool:
        return case.number in table.get(case.plugin, ())

    if condition != "every" and among(NO_CONDITION):
        return True
    if shape is Shape.RAW:
        inside = condition in ("field", "spark-only")
        return among(FIELDS_OF_RAW) or inside or (condition in IN_PYTHON and among(SQL_ON_RAW))
    if shape is Shape.TYPED and among(WHOLE_TYPED):
        return True
    python = shape is Shape.OPEN or case.node().processor.where(shape) is Where.PYTHON
    if condition != "every" and not python:
        python = condition in IN_PYTHON or case.node().processor.reshapes
    return python and (condition == "spark-only" or among(NOT_IN_PYTHON))
