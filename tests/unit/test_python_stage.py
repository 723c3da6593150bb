"""The Python stage, called as Spark calls it: every row that goes in comes out in exactly one place, whatever user code does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock import DROP, Record, Reject
from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.connectors.files.writing import LINE_BREAK, NO_PAYLOAD
from penstock.engine import aside
from penstock.engine.python.arrow import DDL, TYPES, text_of
from penstock.engine.python.stage import SECOND_TRY, PythonStage
from penstock.native import Processor, Rejected, Retry, Stop
from penstock.plan.condition import Condition
from penstock.plan.nodes import Node
from penstock.processors.field_set import FieldSet, FieldSetSettings
from penstock.processors.filter import Filter, FilterSettings
from penstock.processors.json_decode import JsonDecode, JsonDecodeSettings
from penstock.processors.json_encode import JsonEncode, JsonEncodeSettings
from penstock.processors.python import FunctionProcessor
from penstock.record import COLUMNS, Shape

TIME = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
RETURNS = ("seq", "part", "after")


def node(function: Callable[[Any], Any], id: str = "f", *, condition: str = "", batch: bool = False) -> Node:
    return Node(FunctionProcessor(function, id, batch=batch), Condition(condition))


def decode(id: str = "decode", condition: str = "") -> Node:
    return Node(JsonDecode(JsonDecodeSettings(), id), Condition(condition))


class Text(JsonEncode):
    """What is raw passes."""

    def apply(self, r: Record) -> Record:
        return r if isinstance(r.after, bytes) else super().apply(r)

    def on_payload(self, *, last: bool = False) -> Any:
        encode = super().on_payload(last=last)
        assert encode is not None
        return lambda p: p if isinstance(p, bytes) else encode(p)


def encode(id: str = "encode", condition: str = "") -> Node:
    return Node(Text(JsonEncodeSettings(), id), Condition(condition))


def put(path: str, value: str, id: str = "set", condition: str = "") -> Node:
    return Node(FieldSet(FieldSetSettings(field=path, value=value), id), Condition(condition))


def drop(condition: str, id: str = "drop") -> Node:
    return Node(Filter(FilterSettings(), id), Condition(condition))


def stage(*nodes: Node, shape: Shape = Shape.RAW, returns: Sequence[str] = RETURNS, **options: Any) -> PythonStage:
    return PythonStage("in", nodes, shape, tuple(returns), TIME, **options)


def rows(*payloads: bytes | None, first: int = 0, **columns: pa.Array) -> pa.RecordBatch:
    """What Spark gives: payloads as its strings, whose bytes nobody has checked."""
    n = len(payloads)
    made = {"seq": pa.array(range(first, first + n), pa.int64()), "part": pa.array([0] * n, pa.int32())}
    made["after"] = pa.array(payloads, pa.binary()).view(pa.string())
    return pa.RecordBatch.from_pydict({**made, **columns})


def records(n: int) -> pa.RecordBatch:
    return rows(*(json.dumps({"n": i}).encode() for i in range(n)))


@dataclass
class Ran:
    """What came out of a stage, by kind."""

    delivered: list[dict[str, Any]] = field(default_factory=list)
    dead: list[aside.Dead] = field(default_factory=list)
    counts: list[aside.Count] = field(default_factory=list)
    passed: list[tuple[str, str]] = field(default_factory=list)

    @property
    def after(self) -> list[bytes | None]:
        return [r["after"] for r in self.delivered]

    @property
    def identities(self) -> list[tuple[int, int]]:
        return [(r["seq"], r["part"]) for r in self.delivered] + [(d.seq, d.part) for d in self.dead]


def run(made: PythonStage, *batches: pa.RecordBatch, balanced: bool = True) -> Ran:
    """Runs the stage after a journey through pickle, and checks what must hold whatever it did."""
    ran = Ran()
    for out in made(iter(batches)):
        assert out.schema.names == [c.split("`")[1] for c in made.ddl.split(", ")]
        binary = [c.view(pa.binary()) if pa.types.is_string(c.type) else c for c in out.columns]
        for row in pa.RecordBatch.from_arrays(binary, names=out.schema.names).to_pylist():
            outcome = row["_outcome"]
            if outcome is None:
                ran.delivered.append(row)
            elif outcome == b"dead":
                ran.dead.append(aside.decode_dead(row["_aside"]))
            elif outcome == b"count":
                ran.counts.append(aside.decode_count(row["_aside"]))
            else:
                ran.passed.append((outcome.decode(), row["_aside"].decode()))
    if balanced:
        for c in ran.counts:
            assert c.read + c.produced == c.delivered + c.filtered + c.dead
        assert sum(c.read for c in ran.counts) == sum(_live(b) for b in batches)
        assert sum(c.delivered for c in ran.counts) == len(ran.delivered)
        assert sum(c.dead for c in ran.counts) == len(ran.dead)
        assert len(set(ran.identities)) == len(ran.identities), "two outcomes under one identity"
    return ran


def _live(batch: pa.RecordBatch) -> int:
    if "_outcome" not in batch.schema.names:
        return int(batch.num_rows)
    return int(batch.column("_outcome").null_count)


def only(n: int, act: Callable[[Record], Any]) -> Callable[[Record], Any]:
    """User code that does something odd to the record with this seq, and nothing to the others."""

    def f(r: Record) -> Any:
        return act(r) if r.seq == n else r

    return f


def one_bad(act: Callable[[Record], Any], *, code: str, error: str | None = None, **options: Any) -> aside.Dead:
    """Three records, the middle one is treated: it alone is nacked, with this code, and what was given is kept."""
    ran = run(stage(node(only(1, act)), encode(), **options), rows(b"a", b"b", b"c"))
    assert [r["seq"] for r in ran.delivered] == [0, 2]
    assert ran.after == [b"a", b"c"]
    [dead] = ran.dead
    assert (dead.seq, dead.part, dead.code) == (1, 0, code)
    assert dead.given is not None
    assert dead.given["after"] == {"text": "b"}
    if error is not None:
        assert dead.error == error
    return dead


def raises(e: BaseException) -> Callable[[Any], Any]:
    def f(_: Any) -> Any:
        raise e

    return f


# -- every kind of result ----------------------------------------------------------------------------------------------


def test_each_record_has_the_outcome_that_its_function_gave_it() -> None:
    def f(r: Record) -> Any:
        return [
            r,
            DROP,
            Reject("no", "my.code"),
            [],
            [r.derive(after=b"x"), r.derive(after=b"y")],
            r.derive(after=b"new"),
            (r,),
        ][r.seq]

    ran = run(stage(node(f)), rows(*(b"%d" % i for i in range(7))))
    assert [(r["seq"], r["part"], r["after"]) for r in ran.delivered] == [
        (0, 0, b"0"),
        (4, 1, b"x"),
        (4, 2, b"y"),
        (5, 0, b"new"),
        (6, 0, b"6"),
    ]
    [dead] = ran.dead
    assert (dead.seq, dead.node, dead.code, dead.error) == (2, "f", "my.code", "no")
    assert ran.counts == [aside.Count(read=7, produced=1, filtered=2, delivered=5, dead=1)]


@pytest.mark.parametrize("result", [None, True, 5, 1.5, "text", b"bytes", {"a": 1}, object(), iter(()), Record])
def test_a_result_that_is_none_of_these_is_a_nack_and_never_a_filter(result: object) -> None:
    dead = one_bad(lambda _: result, code="processor.result")
    assert type(result).__name__ in dead.error


@pytest.mark.parametrize("odd", [None, 5, "text", DROP, Reject("x"), [], {}])
def test_a_list_with_something_else_in_it_is_one_nack_of_the_whole_record(odd: object) -> None:
    dead = one_bad(lambda r: [r.derive(), odd, r.derive()], code="processor.error")
    assert "a sequence of records was expected" in dead.error


@pytest.mark.parametrize("result", [bytearray(b"ab"), memoryview(b"ab"), range(3)])
def test_a_sequence_of_numbers_is_a_nack(result: object) -> None:
    one_bad(lambda _: result, code="processor.error")


def test_a_sequence_that_breaks_while_it_is_read_is_one_nack() -> None:
    class Breaks(Sequence[Any]):
        def __init__(self, r: Record) -> None:
            self.r = r

        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: Any) -> Any:
            if i:
                raise OSError("gone")
            return self.r

    one_bad(Breaks, code="processor.error", error="OSError: gone")


def test_a_subclass_of_a_record_is_a_record() -> None:
    class Mine(Record):
        pass

    ran = run(stage(node(lambda r: Mine(r.after, source=r.source, seq=r.seq)), encode()), rows(b"a"))
    assert ran.after == [b"a"]


def test_another_drop_than_ours_is_a_drop_too() -> None:
    """As it is after a journey through pickle in user code."""
    ran = run(stage(node(lambda _: pickle.loads(pickle.dumps(DROP)))), rows(b"a"))
    assert ran.counts == [aside.Count(1, 0, 1, 0, 0)]


# -- every kind of exception -------------------------------------------------------------------------------------------


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even that")


class SaysNumber(Exception):
    def __str__(self) -> Any:
        return 5


@pytest.mark.parametrize(
    "e, code, error",
    [
        (ValueError("bad"), "processor.error", "ValueError: bad"),
        (KeyError("x"), "processor.error", "KeyError: 'x'"),
        (StopIteration(), "processor.error", "StopIteration: "),
        (AssertionError(), "processor.error", "AssertionError: "),
        (RecursionError("deep"), "processor.error", "RecursionError: deep"),
        (MemoryError(), "processor.error", "MemoryError: "),
        (Unsayable(), "processor.error", "Unsayable"),
        (SaysNumber(), "processor.error", "SaysNumber"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), "processor.error", None),
        (ExceptionGroup("several", [ValueError("a")]), "processor.error", "ExceptionGroup: several (1 sub-exception)"),
        (Rejected("bad record"), "processor.rejected", "bad record"),
        (Rejected("bad record", code="x.y"), "x.y", "bad record"),
        (Retry("later"), "processor.error", "Retry: later"),
        (Stop("never"), "processor.error", "Stop: never"),
        (ValueError("long" * 1000), "processor.error", ("ValueError: " + "long" * 1000)[:1000]),
        (ValueError("ü\n\0\x1b"), "processor.error", "ValueError: ü\n\0\x1b"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else "",
)
def test_any_exception_is_a_nack_of_its_record_alone(e: Exception, code: str, error: str | None) -> None:
    dead = one_bad(raises(e), code=code, error=error)
    assert dead.node == "f"


@pytest.mark.parametrize("e", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_ends_a_process_is_not_swallowed(e: BaseException) -> None:
    for made in (stage(node(raises(e))), stage(node(raises(e), batch=True))):
        with pytest.raises(type(e)):
            list(made(iter([rows(b"a")])))


def test_the_node_of_a_nack_is_the_one_that_raised() -> None:
    chain = [node(lambda r: r, "first"), node(only(1, raises(ValueError("x"))), "second"), node(lambda r: r, "third")]
    [dead] = run(stage(*chain), rows(b"a", b"b")).dead
    assert dead.node == "second"


def test_an_error_that_has_no_words_of_its_own_is_a_nack_too() -> None:
    class Careless(Rejected):
        def __init__(self) -> None:
            pass  # and so it has no `what`

    one_bad(raises(Careless()), code="processor.rejected")


@pytest.mark.parametrize("surrogate", [ValueError("\ud800"), Rejected("\udcff"), Rejected("x", code="\ud800")])
def test_an_error_text_that_is_no_utf_8_is_a_nack_too(surrogate: Exception) -> None:
    ran = run(stage(node(only(1, raises(surrogate)))), rows(b"a", b"b", b"c"))
    assert [d.seq for d in ran.dead] == [1]


@pytest.mark.parametrize(
    "reason, code",
    [
        pytest.param("x", None),
        pytest.param("x", 5),
        pytest.param("\ud800", "c"),
        (None, "c"),
        (5, "c"),
    ],
)
def test_a_reject_with_odd_words_is_a_nack_that_can_be_read(reason: Any, code: Any) -> None:
    ran = run(stage(node(only(1, lambda _: Reject(reason, code)))), rows(b"a", b"b", b"c"))
    assert [d.seq for d in ran.dead] == [1]
    assert ran.after == [b"a", b"c"]


# -- records in odd states ---------------------------------------------------------------------------------------------


class Unrepresentable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def deep(levels: int = 5000) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def cyclic() -> Any:
    value: dict[str, Any] = {}
    value["self"] = value
    return value


ODD_PAYLOADS: list[Any] = [
    object,
    lambda: {"x": object()},
    lambda: {(1, 2): 3},
    lambda: {"\ud800": 1},
    lambda: "\ud800",
    cyclic,
    pytest.param(deep),
    pytest.param(Unrepresentable),
    pytest.param(lambda: {"x": Unrepresentable()}),
    lambda: lambda: 1,
]


@pytest.mark.parametrize("make", ODD_PAYLOADS, ids=range(len(ODD_PAYLOADS)))
def test_a_payload_that_is_no_data_is_a_nack_of_its_record(make: Callable[[], Any]) -> None:
    def f(r: Record) -> Record:
        r.after = make()
        return r

    ran = run(stage(node(only(1, f))), rows(b"a", b"b", b"c"))
    assert [d.seq for d in ran.dead] == [1]
    assert ran.after == [b"a", b"c"]


@pytest.mark.parametrize("make", ODD_PAYLOADS, ids=range(len(ODD_PAYLOADS)))
def test_a_record_that_is_rejected_with_an_odd_payload_is_still_one_nack(make: Callable[[], Any]) -> None:
    def f(r: Record) -> Any:
        r.after = make()
        return Reject("odd")

    ran = run(stage(node(only(1, f))), rows(b"a", b"b", b"c"))
    assert [(d.seq, d.error) for d in ran.dead] == [(1, "odd")]
    assert ran.dead[0].given == {"after": {"text": "b"}}


def _set(name: str, value: Any) -> Callable[[Record], Record]:
    def f(r: Record) -> Record:
        setattr(r, name, value)
        return r

    return f


def _delete(name: str) -> Callable[[Record], Record]:
    def f(r: Record) -> Record:
        delattr(r, name)
        return r

    return f


def _metadata(value: Any) -> Callable[[Record], Record]:
    def f(r: Record) -> Record:
        r.metadata["k"] = value
        return r

    return f


ODD_FIELDS = {
    "metadata with a number": _metadata(5),
    "metadata with nothing": _metadata(object()),
    "metadata with a surrogate": _metadata("\ud800"),
    "metadata that is none": _set("metadata", None),
    "metadata that is text": _set("metadata", "text"),
    "a key that is no data": _set("key", object()),
    "a before that is no data": _set("before", {"x": object()}),
    "an operation that is a number": _set("operation", 5),
    "a namespace that is a number": _set("namespace", 5),
    "a phase that is a list": _set("phase", []),
    "a timestamp that is text": _set("timestamp", "yesterday"),
    "no payload field": _delete("after"),
    "no operation field": _delete("operation"),
}


@pytest.mark.parametrize("name", ODD_FIELDS)
def test_a_field_that_can_not_be_written_is_a_nack_of_its_record(name: str) -> None:
    made = stage(node(only(1, ODD_FIELDS[name])), returns=COLUMNS)
    ran = run(made, rows(b"a", b"b", b"c"))
    assert ran.after == [b"a", b"c"]
    assert [d.seq for d in ran.dead] == [1]


def test_what_was_given_is_kept_however_the_record_was_changed_before_it_failed() -> None:
    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        r.after["list"].append("changed")
        r.after["x"] = "changed"
        r.key = b"changed"
        return Reject("no")

    batch = rows(b'{"x": 1, "list": []}', key=pa.array([b"k"], pa.binary()))
    for made in (stage(decode(), node(f), returns=COLUMNS), stage(node(f), shape=Shape.OPEN, returns=COLUMNS)):
        [dead] = run(made, batch).dead
        assert dead.given is not None
        assert dead.given["key"] == {"text": "k"}
        given = aside.unpack(dead.given["after"])
        assert (json.loads(given) if isinstance(given, bytes) else given) == {"x": 1, "list": []}
        assert dead.form is not None
        assert dead.form["after"] == {"value": {"x": "changed", "list": ["changed"]}}
        assert dead.form["key"] == {"text": "changed"}


def test_the_form_of_a_dead_part_is_not_changed_by_its_siblings() -> None:
    """Parts share what `derive` shares; the letter says how it was when it failed."""

    def split(r: Record) -> Any:
        return [r.derive(key=b"1"), r.derive(key=b"2")]

    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        r.after["seen"] = r.key.decode() if isinstance(r.key, bytes) else ""
        return Reject("first") if r.key == b"1" else r

    [dead] = run(stage(decode(), node(split, "s"), node(f)), rows(b"{}")).dead
    assert dead.form is not None
    assert dead.form["after"] == {"value": {"seen": "1"}}


# -- payloads ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [b"", b"\xff\xfe\x00", b"a\nb", "ü€😀".encode(), None, b"x" * 100_000])
def test_bytes_that_nobody_looks_at_come_out_as_they_went_in(payload: bytes | None) -> None:
    assert run(stage(node(lambda r: r)), rows(payload, b"x")).after == [payload, b"x"]


def test_a_payload_that_is_not_utf_8_is_kept_in_its_dead_letter() -> None:
    [dead] = run(stage(decode()), rows(b"\xff{")).dead
    assert dead.given == {"after": {"base64": "/3s="}}
    assert dead.form is not None
    assert dead.form["after"] == {"base64": "/3s="}


@pytest.mark.parametrize("n", [2**53 + 1, 2**63, -(2**70), 10**300])
def test_integers_stay_exact(n: int) -> None:
    payload = b'{"n":%d}' % n
    for chain in ([decode(), encode()], [decode(), node(lambda r: r), encode()]):
        assert run(stage(*chain), rows(payload)).after == [payload]


def test_numbers_that_can_not_be_kept_are_nacks_and_their_text_is() -> None:
    payloads = [b'{"n":1e999}', b'{"n":NaN}', b'{"n":' + b"9" * 5000 + b"}", b"[" * 3000]
    ran = run(stage(decode(), encode()), rows(*payloads))
    assert [d.given for d in ran.dead] == [{"after": {"text": p.decode()}} for p in payloads]


@pytest.mark.parametrize(
    "value, text",
    [
        (None, None),
        (b"raw", b"raw"),
        ("text", b"text"),
        ({"b": 1, "a": None}, b'{"a":null,"b":1}'),
        ([1, 2], b"[1,2]"),
        (5, b"5"),
        ({}, b"{}"),
    ],
)
def test_a_payload_travels_as_text(value: Any, text: bytes | None) -> None:
    assert text_of(value) == text


def test_bytes_of_another_class_are_bytes() -> None:
    """`numpy.bytes_` is one; as JSON it would be base64."""

    class Mine(bytes):
        pass

    for value in (Mine(b"x"), bytearray(b"x"), memoryview(b"x")):
        assert text_of(value) == b"x"


def test_a_number_that_sql_has_made_is_a_number_in_the_text() -> None:
    from decimal import Decimal

    assert text_of({"x": Decimal("1.50")}) == b'{"x":1.50}'


# -- parts and identity ------------------------------------------------------------------------------------------------


def test_parts_of_parts_have_numbers_that_are_unique_in_their_record() -> None:
    def double(r: Record) -> Any:
        return [r.derive(after=r.after + b"0"), r.derive(after=r.after + b"1")] if isinstance(r.after, bytes) else r

    ran = run(stage(node(double, "a"), node(double, "b"), node(double, "c")), rows(b"x", b"y"))
    assert len(ran.delivered) == 16
    assert [(r["seq"], r["part"]) for r in ran.delivered] == [(s, p) for s in (0, 1) for p in range(1, 9)]
    assert ran.after[:8] == [b"x000", b"x001", b"x010", b"x011", b"x100", b"x101", b"x110", b"x111"]
    assert ran.counts == [aside.Count(2, 14, 0, 16, 0)]


def test_parts_that_are_dropped_or_nacked_keep_their_numbers() -> None:
    def split(r: Record) -> Any:
        return [r.derive(after=b"%d" % i) for i in range(5)]

    def judge(r: Record) -> Any:
        return {b"1": DROP, b"3": Reject("three")}.get(bytes(r.after), r)  # type: ignore[arg-type]

    ran = run(stage(node(split, "s"), node(judge, "j")), rows(b"x"))
    assert [(r["part"], r["after"]) for r in ran.delivered] == [(1, b"0"), (3, b"2"), (5, b"4")]
    assert [(d.part, d.node) for d in ran.dead] == [(4, "j")]
    assert ran.counts == [aside.Count(1, 4, 1, 3, 1)]


def test_the_same_record_twice_is_two_parts() -> None:
    ran = run(stage(node(lambda r: [r, r])), rows(b"x"))
    assert sorted(ran.identities) == [(0, 1), (0, 2)]
    assert ran.after == [b"x", b"x"]


def test_a_new_record_takes_the_identity_of_the_one_it_stands_for() -> None:
    made = stage(node(lambda r: Record(b"new")), returns=("source", "seq", "part", "position", "after"), locate=place)
    ran = run(made, rows(b"a", b"b", first=5))
    assert [(r["source"], r["seq"], r["position"]) for r in ran.delivered] == [(b"in", 5, b"#5"), (b"in", 6, b"#6")]


def test_a_new_record_that_fails_later_is_the_nack_of_the_one_it_stands_for() -> None:
    made = stage(node(lambda r: Record(b"new"), "new"), node(raises(ValueError("x")), "bad"))
    assert [d.seq for d in run(made, rows(b"a", b"b", first=5)).dead] == [5, 6]


def test_parts_made_from_nothing_take_the_identity_of_their_record() -> None:
    made = stage(
        node(lambda r: [Record(b"x"), Record(b"y")]),
        returns=("source", "seq", "part", "position", "after"),
        locate=place,
    )
    ran = run(made, rows(b"a", first=5))
    assert [(r["source"], r["seq"], r["part"], r["position"]) for r in ran.delivered] == [
        (b"in", 5, 1, b"#5"),
        (b"in", 5, 2, b"#5"),
    ]


def test_identity_is_not_for_changing() -> None:
    def f(r: Record) -> Record:
        r.seq, r.part, r.source = 999, 7, "other"
        return r

    ran = run(stage(node(f), returns=("source", "seq", "part", "after")), rows(b"a", b"b"))
    assert [(r["source"], r["seq"], r["part"]) for r in ran.delivered] == [(b"in", 0, 0), (b"in", 1, 0)]


def test_one_record_returned_for_many_is_many_records() -> None:
    template = Record(b"constant")
    ran = run(stage(node(lambda r: template), returns=("seq", "part", "after")), rows(b"a", b"b", b"c"))
    assert [r["seq"] for r in ran.delivered] == [0, 1, 2]


def test_what_is_changed_after_it_was_returned_is_not_what_was_returned() -> None:
    last: list[Record] = []

    def f(r: Record) -> Record:
        if last:
            last[-1].metadata["late"] = "yes"
        last.append(r)
        return r

    ran = run(stage(node(f), returns=("seq", "part", "metadata", "after")), rows(b"a", b"b"))
    assert [r["metadata"] for r in ran.delivered] == [[], []]


def test_parts_split_again_by_a_later_stage_stay_apart() -> None:
    """A record that the pipeline split and a destination splits again: (source, seq, part) is its identity."""

    def split(r: Record) -> Any:
        return [r.derive(after=b"a"), r.derive(after=b"b")]

    batch = pa.RecordBatch.from_pydict(
        {
            "seq": pa.array([3, 3], pa.int64()),
            "part": pa.array([0, 1], pa.int32()),
            "after": pa.array(["x", "y"]),
            "_outcome": pa.nulls(2, pa.string()),
            "_aside": pa.nulls(2, pa.string()),
        }
    )
    ran = run(stage(node(split)), batch)
    assert len(ran.delivered) == 4


def test_a_part_that_nobody_splits_again_keeps_its_number() -> None:
    batch = rows(b"x", b"y").set_column(1, "part", pa.array([4, 7], pa.int32()))
    for made in (stage(node(lambda r: r)), stage(node(lambda r: [r])), stage(encode())):
        assert [r["part"] for r in run(made, batch).delivered] == [4, 7]
    [dead, _] = run(stage(node(raises(ValueError()))), batch).dead
    assert dead.part == 4


# -- columns -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """As the files source has it: position and metadata follow from the seq."""

    def __call__(self, seq: int) -> tuple[bytes, dict[str, str]]:
        return f"#{seq}".encode(), {"file": "f"}


place = Place()


def test_the_schema_that_is_promised_is_the_schema_that_comes() -> None:
    assert set(TYPES) == set(DDL) == set(COLUMNS)
    every: list[dict[str, Any]] = [{}, {"keep_given": True}, {"order": True}, {"keep_given": True, "order": True}]
    for options in every:
        made = stage(node(lambda r: r), returns=COLUMNS, **options)
        batch = rows(b"a", _order=pa.array([7], pa.int64()))
        for out in made(iter([batch])):
            assert [f"`{name}`" for name in out.schema.names] == [c.split(" ")[0] for c in made.ddl.split(", ")]


def test_a_column_that_nobody_touched_has_its_default() -> None:
    for chain in ([node(lambda r: r)], [encode()]):
        [row] = run(stage(*chain, returns=COLUMNS), rows(b"a")).delivered
        assert row["source"] == b"in"
        assert row["operation"] == b"create"
        assert row["phase"] == b"sync"
        assert row["timestamp"] == TIME
        assert row["namespace"] is row["key"] is row["before"] is None


def test_fields_that_user_code_set_come_out() -> None:
    def f(r: Record) -> Record:
        r.operation, r.namespace, r.phase, r.key, r.before = "update", "ns", "copy", {"k": 1}, b"old"
        r.metadata["m"] = "1"
        r.timestamp = datetime(2020, 1, 1, tzinfo=UTC)
        return r

    [row] = run(stage(node(f), returns=COLUMNS, locate=place), rows(b"a")).delivered
    assert (row["operation"], row["namespace"], row["phase"]) == (b"update", b"ns", b"copy")
    assert (row["key"], row["before"]) == (b'{"k":1}', b"old")
    assert row["metadata"] == [("file", "f"), ("m", "1")]
    assert row["position"] == b"#0"
    assert row["timestamp"] == datetime(2020, 1, 1, tzinfo=UTC)


def seen_by(batch: pa.RecordBatch, **options: Any) -> Record:
    """The record as user code sees it."""
    seen: list[Record] = []

    def f(r: Record) -> Record:
        seen.append(r.derive())
        return r

    run(stage(node(f), returns=RETURNS, **options), batch)
    [r] = seen
    return r


def test_a_record_has_what_its_columns_say_as_text() -> None:
    columns = {
        "source": pa.array(["other"]),
        "operation": pa.array(["update"]),
        "namespace": pa.array(["ns"]),
        "phase": pa.array(["copy"]),
        "position": pa.array([b"p"], pa.binary()),
        "metadata": pa.array([[("a", "b")]], TYPES["metadata"]),
        "timestamp": pa.array([datetime(2020, 1, 1, tzinfo=UTC)], TYPES["timestamp"]),
        "key": pa.array([b"k"], pa.binary()),
        "before": pa.array([b"b"], pa.binary()),
    }
    r = seen_by(rows(b"a", **columns))
    assert (r.source, r.operation, r.namespace, r.phase) == ("other", "update", "ns", "copy")
    assert (r.position, r.metadata, r.key, r.before, r.after) == (
        b"p", {"a": "b", "opencdc.collection": "ns"}, b"k", b"b", b"a",
    )  # fmt: skip
    assert r.timestamp == datetime(2020, 1, 1, tzinfo=UTC)
    assert len(r.id) == 32


def test_a_place_that_follows_from_the_seq_is_found_only_when_it_is_asked_for() -> None:
    asked: list[int] = []

    def locate(seq: int) -> tuple[bytes, dict[str, str]]:
        asked.append(seq)
        return place(seq)

    batch = rows(b"a", b"b")
    assert run(stage(node(lambda r: r), locate=locate), batch).after == [b"a", b"b"]
    assert asked == []
    run(stage(node(only(1, lambda r: r.derive(after=r.position))), locate=locate), batch)
    assert asked == [1]


def test_an_open_payload_is_an_object_in_whatever_stage_it_is_looked_at() -> None:
    """Between stages it travels as JSON."""
    batch = rows(b'{"a": 1}', None)
    for chain in ([put(".Payload.After.x", "y")], [put(".Payload.After.x", "y"), node(lambda r: r)]):
        assert run(stage(*chain, shape=Shape.OPEN), batch).after == [b'{"a":1,"x":"y"}', b'{"x":"y"}']
    ran = run(stage(drop("after.a = 1"), shape=Shape.OPEN), batch)
    assert ran.counts == [aside.Count(2, 0, 1, 1, 0)]


@pytest.mark.parametrize("payload", [b"not JSON", b"", b"\xff", b'"text"', b"12"])
def test_raw_bytes_behind_a_python_function_stay_what_they_are_in_the_next_stage(payload: bytes) -> None:
    """What comes out of user code is open or raw; the next stage must neither die of it nor change it."""
    assert run(stage(node(lambda r: r), shape=Shape.OPEN), rows(payload, b"{}")).after == [payload, b"{}"]


# -- conditions --------------------------------------------------------------------------------------------------------


def test_a_condition_says_which_records_a_processor_sees() -> None:
    made = stage(decode(), node(lambda r: DROP, condition="after.n > 1"), encode())
    ran = run(made, records(4))
    assert ran.after == [b'{"n":0}', b'{"n":1}']
    assert ran.counts == [aside.Count(4, 0, 2, 2, 0)]


def test_a_condition_that_raises_costs_its_record() -> None:
    made = stage(decode(), node(lambda r: DROP, "d", condition="after.n + 1 > 2"), encode())
    ran = run(made, rows(b'{"n":1}', b'{"n":"x"}', b'{"n":5}'))
    assert ran.after == [b'{"n":1}']
    assert [(d.seq, d.node) for d in ran.dead] == [(1, "d")]


def test_a_condition_sees_a_raw_payload_as_text_wherever_it_stands() -> None:
    same = node(lambda r: r, "same")
    for chain in (
        [node(lambda r: DROP, condition="after like '%x%'")],
        [same, node(lambda r: DROP, condition="after like '%x%'")],
        [drop("after like '%x%'")],
        [encode(), drop("after like '%x%'")],
    ):
        assert run(stage(*chain), rows(b"axb", b"ab")).after == [b"ab"], [n.id for n in chain]


def test_a_condition_sees_raw_bytes_as_text_as_spark_does() -> None:
    ran = run(stage(node(lambda r: DROP, condition="after like '%x%'")), rows(b"\xff", b"ab", b"\xffx"))
    assert (ran.after, ran.dead) == ([b"\xff", b"ab"], [])


# -- what the destination can't hold -----------------------------------------------------------------------------------

CHECK = ("out", FilesDestination(FilesDestinationSettings(path="/out"), "out").unfit_payload)


def _breaks(r: Record) -> Record:
    r.after = {0: b"ok", 1: b"two\nlines", 2: None}[r.seq]
    return r


def _breaks_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"after": pa.array([b"ok", b"two\nlines", None][: batch.num_rows], pa.binary())})


@pytest.mark.parametrize(
    "made", [stage(node(_breaks), check=CHECK), stage(node(_breaks_batch, batch=True), check=CHECK)]
)
def test_what_the_destination_can_not_hold_is_its_nack(made: PythonStage) -> None:
    ran = run(made, rows(b"a", b"b", b"c"))
    assert ran.after == [b"ok"]
    assert [(d.seq, d.node, d.code, d.error) for d in ran.dead] == [
        (1, "out", "destination.unfit", LINE_BREAK),
        (2, "out", "destination.unfit", NO_PAYLOAD),
    ]


def test_what_it_can_not_hold_is_its_nack_on_the_fast_way_too() -> None:
    ran = run(stage(decode(), encode(), check=CHECK), rows(b'{"a":1}', b"null", b'"two\\nlines"'))
    assert ran.after == [b'{"a":1}']
    assert [(d.seq, d.node, d.error) for d in ran.dead] == [(1, "out", NO_PAYLOAD), (2, "out", LINE_BREAK)]


# -- the fast way ------------------------------------------------------------------------------------------------------


def test_two_processors_of_one_kind_are_told_apart_in_a_nack() -> None:
    for chain in ([decode("one"), decode("two")], [decode("one"), node(lambda r: r, "f"), decode("two")]):
        [dead] = run(stage(*chain), rows(b"no JSON")).dead
        assert dead.node == "one"


def test_payloads_alone_and_whole_records_come_to_the_same() -> None:
    chain = [decode(), drop("after.n = 2"), put(".Payload.After.x", "y"), encode()]
    batch = rows(b'{"n":1}', b'{"n":2}', b"[]", b"null", b'"x"', b"", None, b"\xff", b'{"n":12345678901234567890}')
    fast = run(stage(*chain), batch)
    slow = run(stage(*chain, node(lambda r: r, "same")), batch)
    assert fast.delivered == slow.delivered
    assert [(d.seq, d.node, d.code, d.error, d.given, d.form) for d in fast.dead] == [
        (d.seq, d.node, d.code, d.error, d.given, d.form) for d in slow.dead
    ]
    assert fast.counts == slow.counts


@pytest.mark.parametrize(
    "returns",
    [
        pytest.param(("after",)),
        ("seq", "after"),
        COLUMNS,
    ],
)
def test_what_goes_on_besides_the_payload_belongs_to_its_row(returns: tuple[str, ...]) -> None:
    key = pa.array([b"k%d" % i for i in range(5)], pa.binary())
    chain = [decode(), drop("after.n in (0, 3)")]
    ran = run(
        stage(*chain, returns=returns, keep_given=True),
        _keyed(key),
        balanced=False,
    )
    assert ran.after == [b'{"n":1}', b'{"n":2}', b'{"n":4}']
    if "key" in returns:
        assert [(r["seq"], r["key"]) for r in ran.delivered] == [(1, b"k1"), (2, b"k2"), (4, b"k4")]
    assert [json.loads(r["_given"])["key"] for r in ran.delivered] == [{"text": f"k{i}"} for i in (1, 2, 4)]


def _keyed(key: pa.Array) -> pa.RecordBatch:
    return rows(*(b'{"n":%d}' % i for i in range(5)), key=key)


# -- lines that pass by, what was given, order ---------------------------------------------------------------------------


def marked(batch: pa.RecordBatch, lines: dict[int, tuple[str, str]]) -> pa.RecordBatch:
    """A batch as an earlier stage leaves it, with some of its rows being lines aside."""
    n = batch.num_rows
    outcome = pa.array([lines[i][0] if i in lines else None for i in range(n)], pa.string())
    text = pa.array([lines[i][1] if i in lines else None for i in range(n)], pa.string())
    return batch.append_column("_outcome", outcome).append_column("_aside", text)


@pytest.mark.parametrize(
    "made",
    [
        stage(node(lambda r: r.derive(after=b"new"))),
        stage(put(".Payload.After", "new")),
        stage(node(lambda b: pa.RecordBatch.from_pydict({"after": pa.array(["new"] * b.num_rows)}), batch=True)),
        stage(node(raises(ValueError("x")))),
        stage(node(lambda r: DROP)),
    ],
    ids=["records", "payloads", "batches", "raising", "dropping"],
)
def test_lines_of_an_earlier_stage_pass_by_untouched(made: PythonStage) -> None:
    lines = {1: ("other", '{"line": 1}'), 3: ("another", "not even JSON \0"), 4: ("other", "")}
    ran = run(made, marked(rows(b"a", b"b", b"c", b"d", b"e"), lines))
    assert sorted(ran.passed) == sorted(lines.values())
    assert sum(c.read for c in ran.counts) == 2


def test_a_batch_of_nothing_but_lines_has_no_counts() -> None:
    ran = run(stage(node(lambda r: r)), marked(rows(b"a"), {0: ("other", "x")}))
    assert (ran.passed, ran.counts) == ([("other", "x")], [])


def test_an_empty_batch_gives_nothing() -> None:
    assert list(stage(node(lambda r: r))(iter([rows()]))) == []
    assert list(stage(node(lambda r: r))(iter([]))) == []


def test_each_arrow_batch_has_counts_of_its_own() -> None:
    ran = run(stage(decode(), encode()), records(3), records(5).slice(3), rows(b"bad", first=9))
    assert [c.read for c in ran.counts] == [3, 2, 1]
    assert [c.dead for c in ran.counts] == [0, 0, 1]


def test_a_slice_of_a_batch_is_read_from_where_it_begins() -> None:
    for chain in ([decode(), encode()], [node(lambda r: r)]):
        ran = run(stage(*chain, returns=COLUMNS), records(10).slice(4, 3))
        assert [(r["seq"], r["after"].replace(b" ", b"")) for r in ran.delivered] == [
            (i, b'{"n":%d}' % i) for i in (4, 5, 6)
        ]


BATCHES = node(lambda b: pa.RecordBatch.from_pydict({"after": pa.array(["new"] * b.num_rows)}), batch=True)


@pytest.mark.parametrize("chain", [[node(lambda r: r)], [put(".Payload.After", "new")], [BATCHES]])
def test_what_the_source_gave_is_sent_along_where_a_later_stage_may_nack(chain: list[Node]) -> None:
    batch = rows(b"a", b"\xff", key=pa.array([b"k", None], pa.binary()))
    ran = run(stage(*chain, keep_given=True), batch)
    assert [json.loads(r["_given"]) for r in ran.delivered] == [
        {"after": {"text": "a"}, "key": {"text": "k"}},
        {"after": {"base64": "/w=="}, "key": None},
    ]


@pytest.mark.parametrize("chain", [[node(lambda r: r)], [put(".Payload.After", "new")], [BATCHES]])
def test_what_an_earlier_stage_sent_along_is_what_was_given(chain: list[Node]) -> None:
    first = '{"after":{"text":"of the source"}}'
    batch = rows(b"changed since", _given=pa.array([first]))
    [row] = run(stage(*chain, keep_given=True), batch).delivered
    assert json.loads(row["_given"]) == json.loads(first)


@pytest.mark.parametrize(
    "bad", [[node(raises(ValueError("x")))], [decode()], [node(raises(ValueError("x")), batch=True)]]
)
def test_a_nack_of_a_later_stage_holds_what_the_source_gave(bad: list[Node]) -> None:
    batch = rows(b"changed since", _given=pa.array(['{"after":{"text":"of the source"}}']))
    [dead] = run(stage(*bad), batch).dead
    assert dead.given == {"after": {"text": "of the source"}}
    assert dead.form is not None
    assert dead.form["after"] == {"text": "changed since"}


@pytest.mark.parametrize("chain", [[node(only(0, raises(ValueError("x"))))], [decode()], [BATCHES]])
def test_the_order_of_a_stretch_goes_with_every_row(chain: list[Node]) -> None:
    batch = rows(b"{}", b"x", b"{}", _order=pa.array([9] * 3, pa.int64()))
    made = stage(*chain, order=True)
    for out in made(iter([batch])):
        assert set(out.column("_order").to_pylist()) == {9}
    assert made.ddl.endswith("`_order` long")


# -- whole batches -----------------------------------------------------------------------------------------------------


def whole(f: Callable[[pa.RecordBatch], Any]) -> PythonStage:
    return stage(node(f, batch=True))


def test_a_function_of_batches_changes_columns_drops_and_rejects() -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch.num_rows
        return pa.RecordBatch.from_pydict(
            {
                "after": pc.binary_join_element_wise(batch.column("after"), "!", ""),
                "drop": pa.array([i == 1 for i in range(n)]),
                "reject": pa.array(["bad" if i in (1, 2) else None for i in range(n)]),
            }
        )

    ran = run(whole(f), rows(b"a", b"b", b"c", b"d"))
    assert [(r["seq"], r["after"]) for r in ran.delivered] == [(0, b"a!"), (3, b"d!")]
    assert [(d.seq, d.error, d.code) for d in ran.dead] == [(2, "bad", "processor.rejected")]
    assert ran.counts == [aside.Count(4, 0, 1, 2, 1)]


def test_a_null_in_drop_is_false_and_an_empty_text_in_reject_is_a_reason() -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.append_column("drop", pa.array([None, False], pa.bool_())).append_column(
            "reject", pa.array([None, ""])
        )

    ran = run(whole(f), rows(b"a", b"b"))
    assert (ran.after, [d.seq for d in ran.dead]) == ([b"a"], [1])


def test_what_raises_on_a_batch_is_tried_in_halves_until_the_bad_records_are_alone() -> None:
    calls: list[int] = []

    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        calls.append(batch.num_rows)
        bad = {"5", "11"} & set(batch.column("after").to_pylist())
        if bad:
            raise ValueError(f"bad: {sorted(bad)}")
        return batch

    ran = run(whole(f), rows(*(b"%d" % i for i in range(20))))
    assert [(d.seq, d.error) for d in ran.dead] == [(5, "ValueError: bad: ['5']"), (11, "ValueError: bad: ['11']")]
    assert [r["seq"] for r in ran.delivered] == [i for i in range(20) if i not in (5, 11)]
    assert len(calls) < 20


@pytest.mark.parametrize("result", [None, 5, [], {}, DROP])
def test_a_function_of_batches_that_gives_something_else_nacks_every_record(result: object) -> None:
    ran = run(whole(lambda _: result), rows(b"a", b"b", b"c"))
    assert [d.seq for d in ran.dead] == [0, 1, 2]
    assert all("instead of an Arrow batch" in d.error for d in ran.dead)


def test_a_table_is_as_good_as_a_batch() -> None:
    ran = run(
        whole(
            lambda b: pa.concat_tables([pa.Table.from_batches([b.slice(0, 1)]), pa.Table.from_batches([b.slice(1)])])
        ),
        rows(b"a", b"b", b"c"),
    )
    assert ran.after == [b"a", b"b", b"c"]


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())]
)
def test_text_of_any_arrow_type_is_taken(type_: pa.DataType) -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"after": pa.array(["x"] * batch.num_rows).cast(type_)})

    assert run(whole(f), rows(b"a", b"b")).after == [b"x", b"x"]


def test_structs_come_out_as_json() -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"after": pa.array([{"b": i, "a": None} for i in range(batch.num_rows)])})

    assert run(whole(f), rows(b"x", b"y")).after == [b'{"a":null,"b":0}', b'{"a":null,"b":1}']


@pytest.mark.parametrize("change", [-1, 1])
def test_a_function_that_loses_or_makes_a_row_never_adds_up(change: int) -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        n = batch.num_rows + change
        return pa.RecordBatch.from_pydict({"after": pa.array(["x"] * n)})

    try:
        ran = run(whole(f), rows(b"a", b"b", b"c"), balanced=False)
    except Exception:
        return  # it fails: as good
    assert any(c.read + c.produced != c.delivered + c.filtered + c.dead for c in ran.counts) or len(ran.dead) == 3


def test_a_row_lost_in_one_half_and_made_in_the_other_is_noticed() -> None:
    """It raises on the whole, so halves are tried; one row too few here and one too many there must not cancel out."""

    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        if batch.num_rows > 2:
            raise ValueError("too many")
        n = batch.num_rows + (1 if batch.column("seq")[0].as_py() == 0 else -1)
        return pa.RecordBatch.from_pydict({"after": pa.array(["x"] * n)})

    ran = run(whole(f), rows(b"a", b"b", b"c", b"d"), balanced=False)
    assert any(c.read + c.produced != c.delivered + c.filtered + c.dead for c in ran.counts) or len(ran.dead) == 4


@pytest.mark.parametrize("column", ["seq", "part", "source", "position"])
def test_a_function_of_batches_can_not_change_identity(column: str) -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        i = batch.schema.get_field_index(column)
        odd = {"seq": pa.array([9, 9], pa.int64()), "part": pa.array([5, 5], pa.int32())}
        text = pa.array([b"x", b"x"], pa.binary())
        return batch.set_column(i, column, odd.get(column, text))

    batch = rows(b"a", b"b", source=pa.array(["in", "in"]), position=pa.array([b"#0", b"#1"], pa.binary()))
    ran = run(stage(node(f, batch=True), returns=("source", "seq", "part", "position", "after")), batch, balanced=False)
    assert [(r["source"], r["seq"], r["part"], r["position"]) for r in ran.delivered] in (
        [(b"in", 0, 0, b"#0"), (b"in", 1, 0, b"#1")],
        [],  # refused: as good
    )


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param({"drop": pa.array([0, 1])}),
        pytest.param({"drop": pa.array(["yes", "no"])}),
        {"after": pa.array([1.5, 2.5])},
        {"reject": pa.array([None, 5])},
    ],
    ids=["drop is numbers", "drop is text", "after is numbers", "reject is numbers"],
)
def test_odd_columns_cost_records_and_not_the_job(odd: dict[str, pa.Array]) -> None:
    def f(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({name: a.slice(0, batch.num_rows) for name, a in odd.items()})

    ran = run(whole(f), rows(b"a", b"b"))
    assert sum(c.read for c in ran.counts) == 2


# -- processors and tasks ----------------------------------------------------------------------------------------------


def test_every_processor_is_opened_once_per_task_before_the_first_record() -> None:
    events: list[str] = []

    class P(Processor[None]):
        def open(self) -> None:
            events.append(f"open {self.processor_id}")

        def apply(self, r: Record) -> Record:
            events.append(f"{self.processor_id} {r.seq}")
            return r

    made = stage(Node(P(None, "a")), Node(P(None, "b")))
    run(made, rows(b"x"), rows(b"y", first=1))
    assert events == ["open a", "open b", "a 0", "b 0", "a 1", "b 1"]


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    """Spark pulls: a task that is ended in the middle has not run ahead."""
    taken: list[int] = []

    def batches() -> Any:
        for i in range(3):
            taken.append(i)
            yield rows(b"x", first=i)

    out = stage(node(lambda r: r))(batches())
    next(out)
    assert taken == [0]


class Context:
    def __init__(self, attempt: int) -> None:
        self.attempt = attempt

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt


@pytest.mark.parametrize("attempt", [0, 1, 3])
def test_at_most_once_refuses_a_second_try_of_a_task(monkeypatch: pytest.MonkeyPatch, attempt: int) -> None:
    from pyspark import TaskContext

    monkeypatch.setattr(TaskContext, "get", lambda: Context(attempt))
    seen: list[int] = []
    made = stage(node(lambda r: seen.append(r.seq) or r), once=True)  # type: ignore[func-returns-value]
    if attempt == 0:
        assert run(made, rows(b"a")).after == [b"a"]
    else:
        with pytest.raises(RuntimeError, match=SECOND_TRY):
            run(made, rows(b"a"))
        assert seen == []
    assert run(stage(node(lambda r: r)), rows(b"a")).after == [b"a"]


def test_a_stage_survives_pickle() -> None:
    made = stage(decode(), drop("after.n = 1"), put(".Payload.After.x", "y"), encode(), locate=place, check=CHECK)
    again = pickle.loads(pickle.dumps(made))
    assert run(again, records(3)).after == run(made, records(3)).after == [b'{"n":0,"x":"y"}', b'{"n":2,"x":"y"}']
