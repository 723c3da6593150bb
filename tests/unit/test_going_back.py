"""`rewind` and `reset` without Spark: what `--to` means, what each source makes of it, what the ledger writes down, what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from penstock.assembly import rebuild
from penstock.connectors.kafka import planning
from penstock.engine.anew import Place, parse
from penstock.engine.frontier import frontier
from penstock.errors import Stop, UsageError
from penstock.ledger import Ledger, Nack, NackState, Prepared, State, TargetRef
from penstock.ledger.look import look
from penstock.log import Writer, compact
from penstock.log import offsets as offset_files
from penstock.native import Known, Range, Ranges, To
from penstock.pipeline import Pipeline
from penstock_sdk import Record

WHY = {"by": "me", "reason": "because"}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    (tmp_path / "state").mkdir()
    made = Ledger(tmp_path / "state" / "ledger.db")
    yield made
    made.close()


def took(ledger: Ledger, *given: Range, source: str = "in", next_seq: int = 100) -> Any:
    s, _ = ledger.take(ledger.lane("p", source), Ranges(given, next_seq), [TargetRef("out", "files", {"path": "/out"})])
    return s


def done(ledger: Ledger, s: Any) -> None:
    ledger.prepare(s, 1, [Prepared("out", "hash", "files", {}, {"rows": 1, "manifest": []}, 0)])
    ledger.done(s, "out", {"written": 1}, 1, frontier)


def place(ledger: Ledger, pipeline: Pipeline | None = None) -> Place:
    plan = None if pipeline is None else pipeline.plan()
    return Place(ledger.path.parent, ledger, "p", rebuild, plan)


def audit(ledger: Ledger) -> list[tuple[str, Any]]:
    return [(d.what, d.detail) for d in look(ledger.path, lambda view: view.decisions("p"))]


# -- what is written -------------------------------------------------------------------------------------------------------------------


def test_what_people_write_is_a_beginning_an_offset_a_time_or_partitions() -> None:
    assert To.parse("beginning").beginning
    assert To.parse(" 17 ").offset == 17
    noon = int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 10**9
    assert To.parse("2026-01-31T12:00:00Z").time == noon
    assert To.parse("2026-01-31T13:00:00.000001+01:00").time == noon + 1000
    assert To.parse("a/0=17, b.c/1=4").places == {"a/0": 17, "b.c/1": 4}


@pytest.mark.parametrize(
    "text", ["", "-1", "yesterday", "2026-01-31T12:00:00", "2026-01-31", "a/0=", "=4", "a/0=1,a/0=2", "²"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert caught.value.code == "rewind.to"


# -- the ledger ------------------------------------------------------------------------------------------------------------------------


def test_a_rewind_to_somewhere_keeps_what_is_before_it_as_acked(ledger: Ledger) -> None:
    before = ledger.lane("p", "in")
    done(ledger, took(ledger, Range("a", {"to": 1}), Range("b", {"to": 1})))
    kept = Range("a", {"to": 1}, 5, 6)
    ledger.rewind("p", "in", Known({"a": kept}, 1000, {"a"}), {"to": "then", **WHY})
    lane = ledger.lane("p", "in")
    assert (lane.known.strands, lane.known.acked) == ({"a": kept}, {"a"})
    assert (lane.epoch, lane.known.next_seq) == (before.epoch + 1, 1000)
    assert audit(ledger) == [("rewind", {"to": "then", **WHY})]


def test_a_reset_forgets_all_but_the_totals(ledger: Ledger) -> None:
    done(ledger, took(ledger, Range("a", {"to": 1})))
    half = took(ledger, Range("b", {"to": 1}))
    open_, held = (
        Nack(n, 0, "", f"id{n}", b"x", "node", "code", "error", 0, state)
        for n, state in ((1, NackState.OPEN), (2, NackState.HELD))
    )
    with ledger._write("test") as db:
        ledger._insert_nacks(db, half, [open_])
        ledger._save_rings(db, half.lane, {"out": "11"})
    ledger.hold(half, held)
    before, totals = ledger.lane("p", "in"), ledger.totals(half.lane)
    forgotten = ledger.reset("p", "in", {"source": "in", **WHY})
    lane = ledger.lane("p", "in")
    assert (forgotten.batches, forgotten.dead_letters) == (1, 1)
    assert (lane.known.strands, lane.epoch) == ({}, before.epoch + 1)
    assert ledger.snapshot(half.lane, half.batch).state is State.DROPPED
    assert [n.state for n in ledger.nacks(half.lane)] == [NackState.DROPPED]
    assert (ledger.rings(half.lane), ledger.totals(half.lane)) == ({}, totals)
    assert audit(ledger) == [("reset", {"source": "in", **WHY, "batches": 1, "dead_letters": 1})]
    s = took(ledger, Range("a", {"to": 1}))
    assert (s.batch, s.epoch) == (3, lane.epoch)


def test_a_prepared_batch_keeps_a_lane_from_being_reset(ledger: Ledger) -> None:
    s = took(ledger, Range("a", {"to": 1}))
    ledger.prepare(s, 1, [Prepared("out", "hash", "files", {}, {"rows": 1, "manifest": []}, 0)])
    before = ledger.lane("p", "in")
    with pytest.raises(UsageError) as caught:
        place(ledger).reset(None, WHY)
    assert caught.value.code == "state.unfinished"
    assert "batch 1 is prepared" in caught.value.why
    assert ledger.lane("p", "in") == before
    assert audit(ledger) == []


@pytest.mark.parametrize("what", ["rewind", "reset"])
def test_a_batch_that_is_not_acked_yet_is_acked_first(ledger: Ledger, what: str) -> None:
    """Else its source would be told, afterwards, that what it has to give again is settled."""
    s = took(ledger, Range("a", {"to": 1}))
    ledger.prepare(s, 1, [Prepared("out", "hash", "files", {}, {"rows": 1, "manifest": []}, 0)])
    ledger.done(s, "out", {"written": 1}, 1, frontier, settle=False)
    with pytest.raises(UsageError) as caught:
        place(ledger).reset(None, WHY) if what == "reset" else place(ledger).rewind(None, To(), WHY)
    assert caught.value.code == "state.unfinished"


def test_staged_files_of_a_batch_that_is_given_up_are_removed(tmp_path: Path, ledger: Ledger) -> None:
    from penstock.plan.hashing import delivery_hash

    s, _ = ledger.take(
        ledger.lane("p", "in"),
        Ranges((Range("a", {"to": 1}),), 9),
        [TargetRef("out", "files", {"path": str(tmp_path / "out")}), TargetRef("gone", "no-such-plugin", {})],
    )
    name = delivery_hash("p", "in", s.epoch, "out", s.ranges)
    staged = tmp_path / "out" / "_penstock" / "p.in" / name / "attempt"
    staged.mkdir(parents=True)
    [back] = place(ledger).reset("in", WHY)
    assert (back.batches, back.left) == (1, [])
    assert not staged.exists()


# -- who can go where ------------------------------------------------------------------------------------------------------------------


def test_the_beginning_needs_no_file_and_reaches_every_source(ledger: Ledger) -> None:
    for name in ("in", "in2"):
        done(ledger, took(ledger, Range("a", {"to": 1}), source=name))
    found = place(ledger).rewind(None, To(), WHY)
    assert [(b.source, b.again) for b in found] == [("in", 1), ("in2", 1)]
    assert ledger.lane("p", "in").known.strands == ledger.lane("p", "in2").known.strands == {}


def test_only_the_source_that_is_named_goes_back(ledger: Ledger) -> None:
    for name in ("in", "in2"):
        done(ledger, took(ledger, Range("a", {"to": 1}), source=name))
    place(ledger).rewind("in2", To(), WHY)
    assert set(ledger.lane("p", "in").known.strands) == {"a"}
    with pytest.raises(UsageError) as caught:
        place(ledger).rewind("in3", To(), WHY)
    assert caught.value.code == "state.unknown-source"


def test_a_source_that_can_not_go_there_says_where_it_can(tmp_path: Path, ledger: Ledger) -> None:
    p = Pipeline("p").source("in", "files", path=tmp_path).destination("out", "blackhole")
    before = ledger.lane("p", "in")
    with pytest.raises(UsageError) as caught:
        place(ledger, p).rewind(None, To.parse("17"), WHY)
    assert caught.value.code == "rewind.unsupported"
    assert "beginning; a time" in caught.value.hint
    with pytest.raises(UsageError) as caught:
        place(ledger).rewind(None, To.parse("17"), WHY)
    assert caught.value.code == "rewind.no-file"
    p.source("in2", "files", path=tmp_path)
    with pytest.raises(UsageError) as caught:
        place(ledger, p).rewind(None, To.parse("17"), WHY)
    assert caught.value.code == "rewind.source"
    assert ledger.lane("p", "in") == before


def test_files_that_were_changed_since_a_time_are_taken_again(tmp_path: Path, ledger: Ledger) -> None:
    noon = To.parse("2026-01-31T12:00:00Z")
    assert noon.time is not None
    given = {"old": noon.time - 1, "then": noon.time, "new": noon.time + 1}
    ranges = [Range(n, {"size": 1, "mtime": t, "from": 0, "to": 1}) for n, t in given.items()]
    done(ledger, took(ledger, *ranges))
    p = Pipeline("p").source("in", "files", path=tmp_path).destination("out", "blackhole")
    [back] = place(ledger, p).rewind(None, noon, WHY)
    assert back.again == 2
    assert set(ledger.lane("p", "in").known.strands) == {"old"}


# -- logs ------------------------------------------------------------------------------------------------------------------------------


def queue(tmp_path: Path) -> Pipeline:
    return Pipeline("p").source("in", "queue", path=tmp_path / "q").destination("out", "blackhole")


def appended(tmp_path: Path, n: int, **options: Any) -> str:
    """One entry for every record. Returns the id of the log."""
    with Writer(tmp_path / "q", **options) as writer:
        for _ in range(n):
            writer.append([Record(position=b"x", after=b"y" * 100)])
            writer.commit()
        return writer.log_id.hex() if isinstance(writer.log_id, bytes) else writer.log_id


def read_to(ledger: Ledger, log: str, to: int) -> None:
    done(ledger, took(ledger, Range(log, {"from": 0, "to": to})))


def test_a_log_is_read_again_from_an_offset_and_compaction_waits_for_it(tmp_path: Path, ledger: Ledger) -> None:
    log = appended(tmp_path, 10)
    read_to(ledger, log, 8)
    with offset_files.Offsets(tmp_path / "q") as offsets:
        offsets.ack_through("p:in", 7)
    place(ledger, queue(tmp_path)).rewind(None, To.parse("3"), WHY)
    known = ledger.lane("p", "in").known
    assert known.strands[log].position["to"] == 3
    assert known.acked == {log}
    assert offset_files.load(tmp_path / "q")["p:in"].frontier == 3


@pytest.mark.parametrize("text", ["9", "10", "1000"])
def test_a_log_does_not_go_forward(tmp_path: Path, ledger: Ledger, text: str) -> None:
    read_to(ledger, appended(tmp_path, 10), 8)
    with pytest.raises(UsageError) as caught:
        place(ledger, queue(tmp_path)).rewind(None, To.parse(text), WHY)
    assert caught.value.code == "rewind.ahead"
    assert audit(ledger) == []


def test_a_log_goes_back_to_a_time(tmp_path: Path, ledger: Ledger) -> None:
    appended(tmp_path, 4)
    time.sleep(0.01)
    moment = datetime.now(UTC)
    time.sleep(0.01)
    log = appended(tmp_path, 4)
    read_to(ledger, log, 6)
    place(ledger, queue(tmp_path)).rewind(None, To.parse(moment.isoformat()), WHY)
    assert ledger.lane("p", "in").known.strands[log].position["to"] == 4
    later = datetime(2999, 1, 1, tzinfo=UTC)  # nothing is that young: what was not read yet is not passed over
    place(ledger, queue(tmp_path)).rewind(None, To.parse(later.isoformat()), WHY)
    assert ledger.lane("p", "in").known.strands[log].position["to"] == 4


@pytest.mark.parametrize("text", ["0", "2026-01-01T00:00:00Z"])
def test_what_was_compacted_away_is_not_gone_back_to_in_silence(tmp_path: Path, ledger: Ledger, text: str) -> None:
    log = appended(tmp_path, 40, segment_bytes=1024)
    read_to(ledger, log, 40)
    with offset_files.Offsets(tmp_path / "q") as offsets:
        offsets.register("p:in")
        offsets.ack_through("p:in", 39)
    compact(tmp_path / "q")
    with pytest.raises(UsageError) as caught:
        place(ledger, queue(tmp_path)).rewind(None, To.parse(text), WHY)
    assert caught.value.code == "rewind.gone"
    oldest = int(caught.value.hint.split()[1])
    assert 0 < oldest < 40
    assert audit(ledger) == []
    place(ledger, queue(tmp_path)).rewind(None, To.parse(str(oldest)), WHY)
    assert ledger.lane("p", "in").known.strands[log].position["to"] == oldest


# -- Kafka -----------------------------------------------------------------------------------------------------------------------------


def test_partitions_that_go_back_get_new_numbers_and_others_stay() -> None:
    made = {n: planning.range_of("c", "id", ("t", n), n, 0, 50, 1) for n in range(3)}
    known = Known({r.strand: r for r in made.values()}, 3 << planning.SHIFT, set())
    found = planning.rewound(known, {"t/2": 10, "t/0": 20})
    assert found.strands["t/1"] == made[1]
    for name, at, number in (("t/0", 20, 3), ("t/2", 10, 4)):
        r = found.strands[name]
        assert (r.position["to"], planning.number_of(r)) == (at, number)
        assert r.position["id"] == "id"
    assert planning.next_number(found.next_seq) == 5
    assert found.acked == {"t/0", "t/1", "t/2"}


def test_offsets_that_kafka_does_not_have_or_were_not_read_are_refused() -> None:
    planning.refuse_rewind(("t", 0), 5, 5, 9)
    planning.refuse_rewind(("t", 0), 9, 5, 9)
    for at, code in ((4, "rewind.gone"), (10, "rewind.ahead")):
        with pytest.raises(Stop) as caught:
            planning.refuse_rewind(("t", 0), at, 5, 9)
        assert caught.value.code == code


class Cluster:
    """Two partitions: the first 5 offsets of each are gone, and 20 is the first since any time."""

    def begins(self, places: Any) -> dict[Any, int]:
        return dict.fromkeys(places, 5)

    def since(self, places: Any, moment: int) -> dict[Any, int]:
        assert moment == 1_769_860_800_000  # milliseconds
        return dict.fromkeys(places, 20)


def test_kafka_goes_back_to_offsets_and_times_that_it_still_has() -> None:
    from penstock.connectors.kafka.source import KafkaSource
    from penstock.connectors.kafka.source_settings import KafkaSourceSettings

    source = KafkaSource(KafkaSourceSettings.model_validate({"servers": "x:1", "topics": "t"}), "in")
    source._cluster = Cluster()  # type: ignore[assignment]
    made = [planning.range_of("c", "id", ("t", n), n, 0, 10 + 20 * n, 1) for n in range(2)]
    known = Known({r.strand: r for r in made}, 2 << planning.SHIFT, set())

    def ends(to: str) -> dict[str, int]:
        found = source.rewound(known, To.parse(to))
        assert found is not None
        return {name: r.position["to"] for name, r in found.strands.items()}

    assert ends("beginning") == {}
    assert ends("t/1=7") == {"t/0": 10, "t/1": 7}
    assert ends("2026-01-31T12:00:00Z") == {"t/0": 10, "t/1": 20}  # of t/0 nothing was read since
    assert source.rewound(known, To.parse("7")) is None
    for text, code in (("t/1=4", "rewind.gone"), ("t/0=11", "rewind.ahead"), ("t/2=7", "rewind.ahead")):
        with pytest.raises(Stop) as caught:
            source.rewound(known, To.parse(text))
        assert caught.value.code == code
