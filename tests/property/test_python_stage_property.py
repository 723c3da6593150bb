"""The Python stage over random payloads, processors and user code: one outcome per row, and one meaning on both ways."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import DROP, Record, Reject
from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.engine import aside
from penstock.engine.python.payloads import on_payloads
from penstock.engine.python.stage import PythonStage
from penstock.native import Processor, Rejected
from penstock.plan.condition import Condition
from penstock.plan.nodes import Node
from penstock.plugins import builtin
from penstock.processors.python import FunctionProcessor
from penstock.record import Shape

TIME = datetime(2026, 1, 1, tzinfo=UTC)
CHECK = ("out", FilesDestination(FilesDestinationSettings(path="/out"), "out").unfit_payload)


def node(plugin: str, id: str, condition: str = "", **options: Any) -> Node:
    cls = builtin.settings_class("processor", plugin)
    made: Processor[Any] = builtin.implementation("processor", plugin)(cls(**options), id)
    return Node(made, Condition(condition))


def batch(payloads: list[bytes | None], first: int = 0) -> pa.RecordBatch:
    n = len(payloads)
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(first, first + n), pa.int64()),
            "part": pa.array([0] * n, pa.int32()),
            "after": pa.array(payloads, pa.binary()).view(pa.string()),
        }
    )


Outcome = tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], list[aside.Count]]


def outcome(made: PythonStage, *batches: pa.RecordBatch) -> Outcome:
    """Delivered, dead (without the time) and counts."""
    delivered: list[tuple[Any, ...]] = []
    dead: list[tuple[Any, ...]] = []
    counts: list[aside.Count] = []
    for out in made(iter(batches)):
        columns = [c.view(pa.binary()) if pa.types.is_string(c.type) else c for c in out.columns]
        for row in pa.RecordBatch.from_arrays(columns, names=out.schema.names).to_pylist():
            if row["_outcome"] is None:
                delivered.append((row["seq"], row["part"], row["after"], row.get("_given")))
            elif row["_outcome"] == b"dead":
                d = aside.decode_dead(row["_aside"])
                dead.append((d.seq, d.part, d.node, d.code, d.error, aside.encode(d.given), aside.encode(d.form)))
            else:
                counts.append(aside.decode_count(row["_aside"]))
    return delivered, dead, counts


def check_account(read: int, found: Outcome) -> None:
    delivered, dead, counts = found
    for c in counts:
        assert c.read + c.produced == c.delivered + c.filtered + c.dead
    assert sum(c.read for c in counts) == read
    assert sum(c.delivered for c in counts) == len(delivered)
    assert sum(c.dead for c in counts) == len(dead)
    identities = Counter([row[:2] for row in delivered] + [row[:2] for row in dead])
    assert not identities or max(identities.values()) == 1


# -- two ways, one meaning -------------------------------------------------------------------------------------------------

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("nxyz"), inner, max_size=3),
    max_leaves=6,
)
objects = st.dictionaries(st.sampled_from("nxyz"), values, max_size=4)
payloads = st.one_of(
    st.none(),
    st.binary(max_size=12),
    values.map(lambda v: json.dumps(v).encode()),
    objects.map(lambda v: json.dumps(v, ensure_ascii=False).encode()),
    st.sampled_from(
        [b"", b"null", b"[]", b'"x"', b"{", b'{"n":1}', b'{"n":99999999999999999999}', b"\xff", b'{"x":"a\\nb"}']
    ),
)

CONDITIONS = ("", "after.n > 1", "after.n = 'x' or after.x is null", "after.x.y = 1", "after.y + 1 > after.n", "true")
middle = st.one_of(
    st.tuples(st.just("filter"), st.just({}), st.sampled_from(CONDITIONS[1:])),
    st.tuples(
        st.just("field.set"),
        st.sampled_from([".Payload.After.x", ".Payload.After.x.y", ".Payload.After.z"]).map(
            lambda f: {"field": f, "value": "v"}
        ),
        st.sampled_from(CONDITIONS),
    ),
    st.tuples(
        st.just("sql"),
        st.sampled_from(["after.n + 1", "upper(after.x)", "after.x.y", "coalesce(after.y, 'none')"]).map(
            lambda e: {"field": ".Payload.After.s", "expression": e}
        ),
        st.sampled_from(CONDITIONS),
    ),
)


def chain(steps: list[tuple[str, dict[str, Any], str]], *, encode: bool) -> list[Node]:
    nodes = [node("json.decode", "decode")]
    nodes += [node(plugin, f"n{i}", condition, **options) for i, (plugin, options, condition) in enumerate(steps)]
    return [*nodes, node("json.encode", "encode")] if encode else nodes


@settings(max_examples=150, deadline=None)
@given(st.lists(payloads, max_size=12), st.lists(middle, max_size=4), st.booleans(), st.booleans(), st.booleans())
def test_payloads_alone_and_whole_records_come_to_the_same(
    given_: list[bytes | None],
    steps: list[tuple[str, dict[str, Any], str]],
    encode: bool,
    check: bool,
    keep: bool,
) -> None:
    options: dict[str, Any] = {"keep_given": keep}
    if check:
        options["check"] = CHECK
    nodes = chain(steps, encode=encode)
    same = Node(FunctionProcessor(lambda r: r, nodes[-1].id))  # not on payloads alone, so the whole stage is not
    returns = ("seq", "part", "after")
    fast = PythonStage("in", tuple(nodes), Shape.RAW, returns, TIME, **options)
    slow = PythonStage("in", (*nodes, same), Shape.RAW, returns, TIME, **options)
    assert on_payloads(fast) is not None
    assert on_payloads(slow) is None
    one, other = outcome(fast, batch(given_)), outcome(slow, batch(given_))
    check_account(len(given_), one)
    check_account(len(given_), other)
    assert one == other


# -- whatever user code does -----------------------------------------------------------------------------------------------


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _raise(e: Exception) -> Any:
    raise e


ACTS: dict[str, Callable[[Record], Any]] = {
    "same": lambda r: r,
    "drop": lambda r: DROP,
    "reject": lambda r: Reject("no"),
    "raise": lambda r: _raise(ValueError("x")),
    "unsayable": lambda r: _raise(Unsayable()),
    "rejected": lambda r: _raise(Rejected("bad", code="a.b")),
    "stop": lambda r: _raise(StopIteration()),
    "none": lambda r: None,
    "number": lambda r: 7,
    "empty": lambda r: [],
    "one": lambda r: [r],
    "two": lambda r: [r.derive(), r.derive(after=b"second")],
    "three": lambda r: (r, r.derive(), r.derive()),
    "not a record": lambda r: [r.derive(), 5],
    "other bytes": lambda r: r.derive(after=b"\xff\n"),
    "object": lambda r: r.derive(after={"n": 2**70}),
    "nothing": lambda r: r.derive(after=None),
    "no data": lambda r: r.derive(after=object()),
}


def user_code(acts: list[str]) -> Callable[[Record], Any]:
    calls = iter(range(10**9))
    return lambda r: ACTS[acts[next(calls) % len(acts)]](r)


programs = st.lists(st.lists(st.sampled_from(sorted(ACTS)), min_size=1, max_size=6), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 6), max_size=3), programs, st.booleans(), st.booleans())
def test_every_row_has_one_outcome_whatever_user_code_does(
    sizes: list[int], program: list[list[str]], check: bool, keep: bool
) -> None:
    nodes = tuple(Node(FunctionProcessor(user_code(acts), f"n{i}")) for i, acts in enumerate(program))
    options: dict[str, Any] = {"check": CHECK} if check else {}
    made = PythonStage("in", nodes, Shape.RAW, ("seq", "part", "after"), TIME, keep_given=keep, **options)
    batches = [batch([b"%d" % i for i in range(n)], first=100 * k) for k, n in enumerate(sizes)]
    found = outcome(made, *batches)
    check_account(sum(sizes), found)
    delivered, dead, counts = found
    read = {100 * k + i for k, n in enumerate(sizes) for i in range(n)}
    assert {row[0] for row in delivered} | {row[0] for row in dead} <= read
    assert [row[:2] for row in delivered] == sorted(row[:2] for row in delivered)  # in order
    assert all(json.loads(row[5])["after"] == {"text": str(row[0] % 100)} for row in dead)
    assert len(counts) == sum(1 for n in sizes if n)


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 40),
    st.sets(st.integers(0, 39)),
    st.sets(st.integers(0, 39)),
    st.sets(st.integers(0, 39)),
)
def test_every_row_of_a_function_of_batches_has_one_outcome(
    n: int, raising: set[int], dropped: set[int], rejected: set[int]
) -> None:
    def f(rows: pa.RecordBatch) -> pa.RecordBatch:
        seqs = rows.column("seq").to_pylist()
        if raising & set(seqs):
            raise ValueError("x")
        return pa.RecordBatch.from_pydict(
            {
                "after": rows.column("after"),
                "drop": pa.array([s in dropped for s in seqs]),
                "reject": pa.array(["no" if s in rejected else None for s in seqs], pa.string()),
            }
        )

    made = PythonStage("in", (Node(FunctionProcessor(f, "f", batch=True)),), Shape.RAW, ("seq", "part", "after"), TIME)
    delivered, dead, counts = outcome(made, batch([b"%d" % i for i in range(n)]))
    check_account(n, (delivered, dead, counts))
    rows = set(range(n))
    assert {d[0] for d in dead} == rows & (raising | (rejected - dropped))
    assert {r[0] for r in delivered} == rows - raising - dropped - rejected
    assert all(r[2] == b"%d" % r[0] for r in delivered)
