"""`penstock trace`: the life of one record, from ledgers and logs that are made by hand. The real command, without Spark."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.trace_find import Finder, Found, Missing, Verdict
from penstock.connectors.places import numbers, seq_of, seqs_of
from penstock.engine.frontier import frontier
from penstock.errors import UsageError
from penstock.ids import ids_of
from penstock.ledger import Kind, Nack, NackState, Prepared, Snapshot, TargetRef
from penstock.ledger.life import Fate
from penstock.ledger.look import View, look
from penstock.ledger.trace import Trace
from penstock.log import Reader, Writer
from penstock.pipeline import Pipeline
from penstock.ranges import Range, Ranges
from penstock_sdk.record import Record, record_id
from tests.support.states import State, bytes_of, letter, penstock

LOG = "ab" * 16


# -- ranges as sources make them ------------------------------------------------------------------------------------


def file(path: str = "/in/a.txt", base: int = 0, size: int = 1000, start: int = 0, **position: int) -> Range:
    return Range(path, {"size": size, "mtime": 1, "from": start, "to": size, **position}, base, size)


def kafka(start: int, end: int, partition: int = 0, number: int = 0) -> Range:
    position = {"cluster": "c", "topic": "orders", "id": "t", "partition": partition, "from": start, "to": end}
    return Range(f"orders/{partition}", position, (number << 44) + start, 9)


def log(start: int, end: int, base: int | None = None, strand: str = LOG) -> Range:
    return Range(strand, {"from": start, "to": end, "after": "raw"}, start if base is None else base, 9)


def made(start: int, end: int, base: int | None = None) -> Range:
    return Range("generator", {"from": start, "to": end, "seed": 1, "format": "f"}, start if base is None else base, 9)


def table(base: int, after: list[str] | None, *parts: tuple[int, list[str]]) -> Range:
    position = {"from": after, "to": parts[-1][1], "high": parts[-1][1], "first": True, "whole": True, "digest": 1}
    return Range(f"t@{base}", {**position, "parts": [list(p) for p in parts]}, base, 9)


class Traced(State):
    def take_of(self, *ranges: Range, next_seq: int, targets: tuple[str, ...] = ("out",)) -> Snapshot:
        refs = [TargetRef(name, "files", {}) for name in targets]
        return self.ledger.take(self.ledger.lane(self.pipeline, self.source), Ranges(ranges, next_seq), refs)[0]

    def finish(
        self,
        s: Snapshot,
        records: int = 10,
        *,
        out: tuple[str, ...] = ("out",),
        filtered: int = 0,
        nacks: tuple[Nack, ...] = (),
        done: bool = True,
    ) -> None:
        given = [Prepared(d, f"hash-{s.batch}-{d}", "files", {}, {}, filtered, nacked=len(nacks)) for d in out]
        self.ledger.prepare(s, records, given, nacks)
        for d in out if done else ():
            self.ledger.done(
                s, d, {"written": records - filtered - len(nacks)}, records - filtered - len(nacks), frontier
            )

    def batch_of(self, *ranges: Range, next_seq: int, **how: Any) -> Snapshot:
        s = self.take_of(*ranges, next_seq=next_seq)
        self.finish(s, **how)
        return s

    def at(self, position: str | bytes) -> Any:
        """What is found at a position: the answer of the only lane."""
        given = position.encode() if isinstance(position, str) else position
        return self.asked(lambda trace: Finder(trace, trace.lanes()[0]).position(given, ()))

    def asked(self, question: Any) -> Any:
        return look(self.ledger.path, lambda view: question(view.trace))


@pytest.fixture
def state(tmp_path: Path) -> Iterator[Traced]:
    made = Traced(tmp_path / ".penstock")
    yield made
    made.close()


def only(answer: Any) -> Found:
    assert isinstance(answer, list), answer
    (found,) = answer
    assert isinstance(found, Found)
    return found


def missing(answer: Any, verdict: Verdict) -> str:
    assert isinstance(answer, Missing), answer
    assert answer.verdict is verdict, answer.why
    return answer.why


def fates(found: Found) -> dict[str, Fate]:
    return {a.destination: a.fate for a in found.life.arrivals}


def nack(seq: int, destination: str = "", position: bytes = b"/in/a.txt#3", **more: Any) -> Nack:
    id_ = record_id("in", position, more.get("part", 0))
    fields: dict[str, Any] = {"part": 0, **more}
    return Nack(seq, fields.pop("part"), destination, id_, position, "decode", "json.invalid", "no JSON", 5, **fields)


# -- positions and seqs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("r", "position", "seq"),
    [
        (file(base=50), b"/in/a.txt#3", 53),
        (file(base=50), b"/in/b.txt#3", None),
        (file(base=50), b"/in/a.txt#1002", None),
        (file(base=50), b"no position", None),
        (file(base=50, to=500, next=40), b"/in/a.txt#39", 89),
        (file(base=50, to=500, next=40), b"/in/a.txt#40", None),
        (file(base=50, start=500, place=40), b"/in/a.txt#39", None),
        (file(base=50, start=500, place=40), b"/in/a.txt#40", 90),
        (file("/in/a#b.parquet", rows=7), b"/in/a#b.parquet#6", 6),
        (file("/in/a.gz", size=10), b"/in/a.gz#5000", 5000),
        (kafka(100, 200, 3, number=2), b"orders/3/150", (2 << 44) + 150),
        (kafka(100, 200, 3, number=2), b"orders/3/200", None),
        (kafka(100, 200, 3, number=2), b"orders/2/150", None),
        (kafka(100, 200), b"150", None),
        (log(100, 200, base=7), b"150", 57),
        (log(100, 200, base=7), b"99", None),
        (made(100, 200, base=7), b"150", 57),
        (table(10, ["5"], (3, ["9"]), (2, ["20"])), b'["20"]', 14),
        (table(10, ["5"], (3, ["9"]), (2, ["20"])), b'["9"]', 12),
        (table(10, ["5"], (3, ["9"]), (2, ["20"])), b'["5"]', None),
        (table(10, ["5"], (3, ["9"]), (2, ["20"])), b'["21"]', None),
        (table(10, None, (1, ["b"])), b'["a"]', None),
    ],
)
def test_a_position_is_a_seq_of_its_range_alone(r: Range, position: bytes, seq: int | None) -> None:
    assert seq_of(r, position) == seq


def test_a_row_that_is_in_the_middle_of_a_task_has_one_of_its_seqs() -> None:
    r = table(10, ["5"], (3, ["9"]), (4, ["20"]))
    assert seqs_of(r, b'["10"]') == (13, 17)
    assert seqs_of(r, b'["8"]') == (10, 13)
    assert seqs_of(table(0, None, (9, ["2024-05-01 00:00:00+00", "7"])), b'["2024-04-30 10:00:00","999"]') == (0, 9)


def test_what_was_cut_off_a_range_is_not_in_it() -> None:
    first, second = Ranges((kafka(100, 200),), 1 << 44).split(150)
    assert (seq_of(first[0], b"orders/0/149"), seq_of(first[0], b"orders/0/150")) == (149, None)
    assert (seq_of(second[0], b"orders/0/149"), seq_of(second[0], b"orders/0/150")) == (None, 150)


def test_the_places_of_a_file_are_what_its_source_gives() -> None:
    from penstock.connectors.files.places import BLOCK, candidates
    from penstock.connectors.files.source import Places

    places = Places((50,), ("/in/a.txt",), "/in")
    for number in (0, 41):
        assert seq_of(file(base=50), places(50 + number)[0]) == 50 + number
    assert list(candidates(file(size=1000), 3)) == [0, 1, 2, 3]  # one more, for a header
    large = list(candidates(file(size=(64 << 20) + 10), 2))
    assert large == [0, 1, 2, BLOCK + 1, BLOCK + 2, BLOCK + 3]  # as the source counts in the second block


def test_numbers_of_the_generator_and_of_kafka_are_what_their_sources_give() -> None:
    from penstock.connectors.generator.columns import Places
    from penstock.connectors.kafka.planning import stretch_of

    r = made(100, 200, base=7)
    assert seq_of(r, Places(r.position["from"] - r.base, ("",))(50)[0]) == 50
    s = stretch_of(kafka(5, 9, 3, number=2))
    assert seq_of(kafka(5, 9, 3, number=2), f"{s.name}/{7}".encode()) == s.first + 7


def test_ids_of_many_are_those_of_each() -> None:
    positions = [b"", b"1", b"/in/a.txt#3", "ü".encode() * 300]
    assert list(ids_of("ünter", positions)) == [record_id("ünter", p) for p in positions]


# -- outcomes -------------------------------------------------------------------------------------------------------


def test_a_record_that_was_delivered_has_hash_time_and_ack(state: Traced) -> None:
    s = state.batch_of(file(), next_seq=1002, out=("eu", "us"))
    found = only(state.at("/in/a.txt#3"))
    assert fates(found) == {"eu": Fate.DELIVERED, "us": Fate.DELIVERED}
    assert (found.life.seqs, found.life.batches[-1].batch, found.life.acked) == ((3, 4), s.batch, True)
    delivery = found.life.arrivals[0].delivery
    assert delivery is not None
    assert delivery.hash == "hash-1-eu"
    assert delivery.at is not None
    assert delivery.at >= s.batch_time


def test_a_record_of_a_batch_that_was_filtered_whole_was_filtered(state: Traced) -> None:
    state.batch_of(file(), next_seq=1002, records=10, filtered=10)
    assert fates(only(state.at("/in/a.txt#3"))) == {"out": Fate.FILTERED}


def test_where_some_were_filtered_nobody_knows_which(state: Traced, tmp_path: Path) -> None:
    state.batch_of(file(), next_seq=1002, records=10, filtered=4)
    found = only(state.at("/in/a.txt#3"))
    assert fates(found) == {"out": Fate.EITHER}
    assert found.life.arrivals[0].among == (4, 10)
    said = penstock(tmp_path, "trace", "--position", "/in/a.txt#3").stdout
    assert "delivered, or one of the 4 filtered of 10 records" in said


def test_a_dead_letter_is_dead_where_it_is_bad_and_delivered_elsewhere(state: Traced) -> None:
    state.batch_of(file(), next_seq=1002, out=("eu", "us"), nacks=(nack(3, "us"),))
    found = only(state.at("/in/a.txt#3"))
    assert fates(found) == {"eu": Fate.DELIVERED, "us": Fate.DEAD_LETTERED}
    assert found.life.acked is True
    assert fates(only(state.at("/in/a.txt#4"))) == {"eu": Fate.DELIVERED, "us": Fate.DELIVERED}


@pytest.mark.parametrize(
    ("now", "fate"),
    [(NackState.DROPPED, Fate.DROPPED), (NackState.REPLAYED, Fate.REPLAYED), (NackState.OPEN, Fate.DEAD_LETTERED)],
)
def test_what_somebody_decided_about_a_dead_letter_is_its_outcome(state: Traced, now: NackState, fate: Fate) -> None:
    state.batch_of(file(), next_seq=1002, nacks=(nack(3, state=now),))
    assert fates(only(state.at("/in/a.txt#3"))) == {"out": fate}


def test_a_prepared_batch_is_pending_where_it_is_not_done_and_not_acked(state: Traced) -> None:
    s = state.take_of(file(), next_seq=1002)
    state.finish(s, out=("eu", "us"), done=False)
    state.ledger.done(s, "eu", {"written": 10}, 10, frontier)
    found = only(state.at("/in/a.txt#3"))
    assert fates(found) == {"eu": Fate.DELIVERED, "us": Fate.PENDING}
    assert found.life.acked is False


def test_an_open_batch_is_pending_at_all_that_an_attempt_would_bring_it_to(state: Traced) -> None:
    state.take_of(file(), next_seq=1002, targets=("eu", "us"))
    found = only(state.at("/in/a.txt#3"))
    assert fates(found) == {"eu": Fate.PENDING, "us": Fate.PENDING}
    assert (found.life.tries.count, found.life.acked) == (1, False)


def test_what_was_given_up_is_discarded(state: Traced) -> None:
    s = state.take_of(file(), next_seq=1002)
    state.finish(s, done=False)
    state.ledger.abandon(s, "out", "orders", 10, frontier)
    assert fates(only(state.at("/in/a.txt#3"))) == {"out": Fate.DISCARDED}


def test_a_batch_that_was_lost_in_flight_is_discarded(state: Traced) -> None:
    lane = state.ledger.lane("orders", "in")
    s = state.ledger.take_and_settle(lane, Ranges((file(),), 1002), (), frontier)[0]
    state.ledger.lost(s, 7, ["out"])
    found = only(state.at("/in/a.txt#3"))
    assert (fates(found), found.life.acked) == ({"": Fate.DISCARDED}, True)


def test_a_held_record_and_what_is_before_it_and_behind_it(state: Traced) -> None:
    """Split before the record that closed the gate: what is before it is delivered and acked, what is behind it waits."""
    s = state.take_of(kafka(0, 100), next_seq=1 << 44)
    first, second = s.ranges.split(40)
    held = nack(40, position=b"orders/0/40", state=NackState.HELD, record="{}")
    halves = state.ledger.split(s, first, second, "gate", held)
    state.finish(halves[0], 40)
    before, at, behind = (only(state.at(f"orders/0/{n}")) for n in (39, 40, 41))
    assert [b.batch for b in before.life.batches] == [s.batch, halves[0].batch]
    assert [b.state for b in at.life.batches] == ["split", "open"]
    assert [b.reason for b in at.life.batches] == ["", "gate"]
    assert (fates(before), before.life.acked) == ({"out": Fate.DELIVERED}, True)
    assert (set(fates(at).values()), at.life.acked) == ({Fate.HELD}, False)
    assert (set(fates(behind).values()), behind.life.acked) == ({Fate.PENDING}, False)


def test_a_delivery_that_stopped_late_acks_what_is_before_the_record(state: Traced) -> None:
    s = state.take_of(kafka(0, 100), next_seq=1 << 44)
    state.finish(s, 100, done=False)
    held = nack(40, "out", position=b"orders/0/40", state=NackState.HELD, record="{}")
    state.ledger.hold_delivery(s, "out", held, 40, {"seq": 40})
    assert only(state.at("orders/0/39")).life.acked is True
    found = only(state.at("orders/0/40"))
    assert (fates(found), found.life.acked) == ({"out": Fate.HELD}, False)


def test_a_replay_is_shown_with_the_record_it_is_about(state: Traced, tmp_path: Path) -> None:
    state.batch_of(file(), next_seq=1002, nacks=(nack(3),))
    lane = state.ledger.lane("orders", "in~replay")
    position = {"replay": 1, "start": "start", "destination": "", "node": "", "letters": [[3, 0, 1]]}
    s = state.ledger.take(lane, Ranges((Range("replay", position, 3, 1),), 4))[0]
    state.finish(s, 1)
    found = only(state.at("/in/a.txt#3"))
    assert [again.batch.batch for again in found.life.replays] == [s.batch]
    assert "replay" in penstock(tmp_path, "trace", "--position", "/in/a.txt#3").stdout


def bad_at(seq: int, destination: str = "") -> Nack:
    return nack(seq, destination, position=f"/in/a.txt#{seq}".encode())


def again(
    state: Traced, seqs: tuple[int, ...], *, bad: tuple[Nack, ...] = (), to: str = "", out: tuple[str, ...] = ("out",)
) -> Snapshot:
    """A replay of these records, in which some are bad again."""
    lane = state.ledger.lane("orders", "in~replay")
    letters = [[seq, 0, 1] for seq in seqs]
    position = {"replay": 1, "start": "start", "destination": to, "node": "", "letters": letters}
    s = state.ledger.take(lane, Ranges((Range(f"replay of {seqs} to {to}", position, seqs[0], 1),), seqs[-1] + 1))[0]
    state.ledger._db.execute("UPDATE nack SET replay = 1 WHERE state = 'open'")
    state.finish(s, len(seqs), nacks=bad, out=out)
    return s


def replays(found: Found) -> list[dict[str, Fate]]:
    return [{a.destination: a.fate for a in one.arrivals} for one in found.life.replays]


def test_a_replay_in_which_the_record_failed_again_is_not_called_delivered(state: Traced, tmp_path: Path) -> None:
    state.batch_of(file(), next_seq=1002, nacks=(bad_at(3), bad_at(4)))
    again(state, (3, 4), bad=(bad_at(3), bad_at(4)))
    again(state, (3, 4), bad=(bad_at(4),))
    assert replays(only(state.at("/in/a.txt#3"))) == [{"out": Fate.DEAD_LETTERED}, {"out": Fate.DELIVERED}]
    assert replays(only(state.at("/in/a.txt#4"))) == [{"out": Fate.DEAD_LETTERED}, {"out": Fate.DEAD_LETTERED}]
    shown = penstock(tmp_path, "trace", "--position", "/in/a.txt#4").stdout
    assert shown.count("    → out: dead-lettered, ") == 2
    assert "hash-2-out" in shown


def test_a_replay_that_failed_at_one_of_two_destinations_is_delivered_at_the_other(state: Traced) -> None:
    s = state.take_of(file(), next_seq=1002, targets=("eu", "us"))
    state.finish(s, nacks=(bad_at(3),), out=("eu", "us"))
    late = replace(bad_at(3, "eu"), at=2**50)
    again(state, (3,), bad=(late,), out=("eu", "us"))
    again(state, (3,), to="eu", out=("eu",))
    found = replays(only(state.at("/in/a.txt#3")))
    assert found[0]["eu"] is Fate.DEAD_LETTERED
    assert found[1] == {"eu": Fate.DELIVERED}


def test_of_a_replay_that_was_cut_the_half_with_the_record_is_shown(state: Traced) -> None:
    state.batch_of(file(), next_seq=1002, nacks=(bad_at(3), bad_at(7)))
    lane = state.ledger.lane("orders", "in~replay")
    position = {"replay": 1, "start": "start", "destination": "", "node": "", "letters": [[3, 0, 1], [7, 0, 1]]}
    s = state.ledger.take(lane, Ranges((Range("replay", position, 3, 1),), 8))[0]
    halves = state.ledger.split(s, *s.ranges.split(5), "killed")
    for half in halves:
        state.finish(half, 1)
    for n, half in zip((3, 7), halves, strict=True):
        assert [one.batch.batch for one in only(state.at(f"/in/a.txt#{n}")).life.replays] == [half.batch]


def test_a_place_in_a_file_may_be_named_from_where_one_is(state: Traced, tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    state.batch_of(file(str(tmp_path / "a.txt")), next_seq=1002)
    assert f"position  {tmp_path}/a.txt#3" in penstock(tmp_path, "trace", "--position", "a.txt#3").stdout


# -- finding the batch ----------------------------------------------------------------------------------------------


def test_a_file_that_was_read_in_parts_is_found_in_the_right_one(state: Traced) -> None:
    state.batch_of(file(to=500, next=40), next_seq=1002)
    state.batch_of(file(start=500, place=40), file("/in/b.txt", base=1002), next_seq=2004)
    assert [only(state.at(f"/in/a.txt#{n}")).life.batches[-1].batch for n in (0, 39, 40)] == [1, 1, 2]
    assert only(state.at("/in/b.txt#0")).life.seqs == (1002, 1003)


def test_what_was_read_twice_has_two_lives_the_newest_first(state: Traced) -> None:
    state.batch_of(kafka(0, 100), next_seq=1 << 44)
    state.ledger.rewind("orders", "in")
    state.batch_of(kafka(0, 50, number=1), next_seq=2 << 44)
    lives = state.at("orders/0/7")
    assert [found.life.seqs[0] for found in lives] == [(1 << 44) + 7, 7]
    assert [found.life.batches[-1].batch for found in lives] == [2, 1]
    assert only(state.at("orders/0/70")).life.batches[-1].batch == 1


def test_a_log_that_was_rewound_to_where_it_still_begins_has_two_lives(state: Traced) -> None:
    """The seq of offset 0 is then in the middle of what was read before."""
    state.batch_of(log(0, 100), next_seq=100)
    state.ledger.rewind("orders", "in")
    state.batch_of(log(50, 100, base=100), next_seq=150)
    assert [found.life.seqs[0] for found in state.at("70")] == [120, 70]
    assert [found.life.seqs[0] for found in state.at("20")] == [20]


def test_many_batches_are_found_by_a_few_rows(state: Traced) -> None:
    """With and without a partition that is only in one of them. By the primary key, never by a scan of the table."""
    batches = 2000
    with closing(sqlite3.connect(state.ledger.path, isolation_level=None)) as db:
        key = state.ledger.lane("orders", "in").key
        ranges = [[kafka(n * 10, n * 10 + 10)] + [kafka(0, 5, 1, number=1)] * (n == 700) for n in range(batches)]
        db.execute("BEGIN")
        db.executemany(
            "INSERT INTO snapshot VALUES (?, ?, 1, 'done', ?, 1, 10, NULL, NULL, NULL)",
            ((key, n + 1, Ranges(tuple(r), 2 << 44).to_json()) for n, r in enumerate(ranges)),
        )
        db.execute("UPDATE lane SET next_batch = ?, acked_batch = ?", (batches + 1, batches))
        db.execute("COMMIT")

    def question(view: View) -> tuple[int, int, list[str]]:
        asked: list[str] = []
        trace = Counting(view._db, asked)
        found = only(Finder(trace, trace.lanes()[0]).position(b"orders/0/12345", ()))
        rows = trace.fetched
        rare = only(Finder(trace, trace.lanes()[0]).position(b"orders/1/3", ()))
        assert rare.life.batches[-1].batch == 701
        return found.life.batches[-1].batch, rows, asked

    batch, rows, asked = look(state.ledger.path, question)
    assert batch == 1235
    assert rows < 100
    assert asked
    assert not [
        step for step in asked if step.startswith("SCAN") and "CONSTANT" not in step and "lane" not in step.split()
    ]


class Counting(Trace):
    """Counts rows, and keeps what SQLite plans to do."""

    def __init__(self, db: sqlite3.Connection, asked: list[str]) -> None:
        super().__init__(db)
        self.fetched, self._asked = 0, asked

    def _rows(self, sql: str, *parameters: Any) -> list[Any]:
        self._asked += [step for *_, step in self._db.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
        found = super()._rows(sql, *parameters)
        self.fetched += len(found)
        return found


# -- what is not there ----------------------------------------------------------------------------------------------


def _pruned(state: Traced, batches: int = 6, kept: int = 3) -> None:
    state.ledger.keep(state.ledger.lane("orders", "in").key, kept)
    for n in range(batches):
        state.batch_of(kafka(n * 10, n * 10 + 10), next_seq=1 << 44)


def test_what_was_read_before_the_batches_that_are_kept_is_older_than_retention(state: Traced, tmp_path: Path) -> None:
    _pruned(state)
    why = missing(state.at("orders/0/29"), Verdict.OLDER)
    assert "keeps 3 batches of orders/in, from batch 4" in why
    assert "retention: {batches: N}" in why
    assert only(state.at("orders/0/30")).life.batches[-1].batch == 4
    ended = penstock(tmp_path, "trace", "--position", "orders/0/3")
    assert ended.returncode == 1
    assert "orders/in: older than retention" in ended.stdout
    assert "delivered or filtered" in ended.stdout


def test_what_comes_behind_all_that_was_read_is_not_read_yet(state: Traced) -> None:
    _pruned(state)
    assert "up to 60" in missing(state.at("orders/0/60"), Verdict.NOT_READ)
    state.batch_of(file(to=500, next=40, base=1 << 44), next_seq=(1 << 44) + 1002)
    assert "up to 40" in missing(state.at("/in/a.txt#40"), Verdict.NOT_READ)


def test_a_place_that_a_file_has_not_is_unknown(state: Traced) -> None:
    state.batch_of(file(), next_seq=1002, records=10)
    missing(state.at("/in/a.txt#11"), Verdict.UNKNOWN)
    missing(state.at("/in/a.txt#2000"), Verdict.UNKNOWN)
    missing(state.at("/in/b.txt#1"), Verdict.NOT_READ)


def test_a_file_that_is_forgotten_may_be_older_than_retention(state: Traced) -> None:
    state.ledger.keep(state.ledger.lane("orders", "in").key, 2)
    for n in range(4):
        state.batch_of(file(f"/in/{n}.txt", base=n * 1002), next_seq=(n + 1) * 1002)
    missing(state.at("/in/0.txt#3"), Verdict.OLDER)
    state.ledger.forget(state.ledger.lane("orders", "in").key, ["/in/0.txt"])
    assert "older than retention" in missing(state.at("/in/0.txt#3"), Verdict.UNKNOWN)


def test_a_position_of_another_kind_of_source_is_said_to_be_none(state: Traced) -> None:
    state.batch_of(kafka(0, 10), next_seq=1 << 44)
    assert "orders/3/1042" in missing(state.at("/in/a.txt#3"), Verdict.UNKNOWN)


def test_a_dead_letter_is_found_when_its_batch_is_older_than_retention(state: Traced) -> None:
    state.ledger.keep(state.ledger.lane("orders", "in").key, 2)
    dead = nack(3, "us", position=b"orders/0/3")
    state.batch_of(kafka(0, 10), next_seq=1 << 44, out=("eu", "us"), nacks=(dead,))
    for n in range(1, 5):
        state.batch_of(kafka(n * 10, n * 10 + 10), next_seq=1 << 44)
    found = only(state.at("orders/0/3"))
    assert fates(found) == {"us": Fate.DEAD_LETTERED, "": Fate.NOT_KEPT}
    assert (found.life.batches, found.life.acked) == ((), True)


def test_rows_of_a_table_are_found_between_seqs_read_later_or_older(state: Traced) -> None:
    state.ledger.keep(state.ledger.lane("orders", "in").key, 2)
    bounds = [None, ["10"], ["20"], ["30"], ["40"]]
    for n, (after, to) in enumerate(pairwise(bounds)):
        state.batch_of(table(n * 10, after, (10, to or [])), next_seq=n * 10 + 10)
    found = only(state.at('["35"]'))
    assert (found.life.seqs, found.life.exact, found.sure) == ((30, 40), False, False)
    assert fates(found) == {"out": Fate.DELIVERED}
    assert only(state.at('["40"]')).life.seqs == (39, 40)
    missing(state.at('["41"]'), Verdict.NOT_READ)
    missing(state.at('["5"]'), Verdict.OLDER)
    missing(state.at('["x"]'), Verdict.UNKNOWN)


def test_a_row_that_is_a_dead_letter_has_its_seq(state: Traced) -> None:
    state.batch_of(table(0, None, (10, ["10"])), next_seq=10, nacks=(nack(4, position=b'["5"]'),))
    found = only(state.at('[ "5" ]'))
    assert (found.life.seqs, fates(found)) == ((4, 5), {"out": Fate.DEAD_LETTERED})


# -- logs -----------------------------------------------------------------------------------------------------------


class Hosted(Traced):
    """The log of the source `in`."""

    @property
    def log(self) -> Path:
        return self.path / "logs" / "orders.in"

    def append(self, *records: Record) -> None:
        with Writer(self.log) as writer:
            writer.append(list(records))

    def read(self, start: int, end: int) -> Snapshot:
        with Reader(self.log) as reader:
            return self.batch_of(log(start, end, strand=reader.log_id), next_seq=end, records=end - start)


@pytest.fixture
def hosted(tmp_path: Path) -> Iterator[Hosted]:
    made = Hosted(tmp_path / ".penstock")
    made.append(*(Record(b"x", key=b"k%d" % (i % 3), position=b"\xff%d" % i) for i in range(10)))
    made.append(Record(b"y", key={"id": 7}, position=b"last"))
    made.read(0, 4)
    made.read(4, 8)
    yield made
    made.close()


def traced(folder: Path, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    ended = penstock(folder, "trace", "--json", *arguments)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return [json.loads(line) for line in ended.stdout.splitlines()]


def test_a_record_of_a_log_is_found_by_position_offset_and_id(hosted: Hosted, tmp_path: Path) -> None:
    before = bytes_of(tmp_path)
    ways = (
        ("--position", "hex:ff35"),
        ("--position", "base64:/zU="),
        ("--offset", "5"),
        ("--id", record_id("in", b"\xff5")),
    )
    for way in ways:
        [found] = traced(tmp_path, *way)
        assert (found["offset"], found["seq"], found["batches"][-1]["batch"]) == (5, 5, 2), way
        assert found["id"] == record_id("in", b"\xff5")
        assert found["position"] == {"base64": "/zU="}
        assert found["log"] == "orders.in"
        assert found["appended"] > 0
        assert [(d["destination"], d["outcome"], d["hash"]) for d in found["destinations"]] == [
            ("out", "delivered", "hash-2-out")
        ]
        assert found["acked"] is True
    assert bytes_of(tmp_path) == before


def test_a_record_that_is_in_the_log_and_in_no_batch_is_not_read_yet(hosted: Hosted, tmp_path: Path) -> None:
    for way in (("--offset", "9"), ("--position", "hex:ff39")):
        [said] = traced(tmp_path, *way, code=1)
        assert (said["found"], said["verdict"]) == (False, "not-read-yet")
        assert "at offset 9" in said["why"]
    [said] = traced(tmp_path, "--offset", "900", code=1)
    assert said["verdict"] == "not-read-yet"


def test_a_position_that_the_log_has_not_is_unknown_and_says_what_there_is(hosted: Hosted, tmp_path: Path) -> None:
    [said] = traced(tmp_path, "--position", "nowhere", code=1)
    assert said["verdict"] == "unknown"
    assert "offsets 0–10" in said["why"]


def test_an_offset_of_a_batch_that_is_gone_is_older_than_retention(hosted: Hosted, tmp_path: Path) -> None:
    hosted.ledger.keep(hosted.ledger.lane("orders", "in").key, 1)
    hosted.read(8, 10)
    [said] = traced(tmp_path, "--offset", "2", code=1)
    assert said["verdict"] == "older-than-retention"


def test_a_key_finds_records_of_the_log_the_newest_first(hosted: Hosted, tmp_path: Path) -> None:
    assert [found["offset"] for found in traced(tmp_path, "--key", "k1")] == [7, 4, 1]
    assert [found["offset"] for found in traced(tmp_path, "--key", "k1", "--limit", "1")] == [7]
    hosted.read(8, 11)
    assert [found["offset"] for found in traced(tmp_path, "--key", '{"id": 7}')] == [10]


def test_a_queue_needs_no_log_for_offsets_and_its_folder_for_keys(tmp_path: Path) -> None:
    queue = tmp_path / "queue"
    with Writer(queue) as writer:
        writer.append([Record(b"x", key=b"k%d" % i) for i in range(5)])
    with Reader(queue) as reader:
        log_id = reader.log_id
    state = Traced(tmp_path / ".penstock")
    state.batch_of(log(0, 5, strand=log_id), next_seq=5, records=5)
    state.close()
    [found] = traced(tmp_path, "--position", "3")
    assert (found["offset"], found["seq"]) == (3, 3)
    assert traced(tmp_path, "--offset", "3")[0]["id"] == record_id("in", b"3")
    assert traced(tmp_path, "--id", record_id("in", b"3"))[0]["offset"] == 3
    [said] = traced(tmp_path, "--key", "k3", code=1)
    assert "keeps no keys" in said["why"]
    assert traced(tmp_path, "--key", "k3", "--log", "queue")[0]["offset"] == 3
    assert "log.missing" in penstock(tmp_path, "trace", "--key", "k", "--log", ".").stderr


# -- ids and keys without a log -------------------------------------------------------------------------------------


def test_the_first_digits_of_a_dead_letter_are_enough(state: Traced, tmp_path: Path) -> None:
    state.batch(10, [letter(3), letter(7)])
    id_ = letter(3).id
    [found] = traced(tmp_path, "--id", id_[:10])
    assert (found["id"], found["seq"], found["position"]) == (id_, 3, {"text": "/in/a.jsonl#3"})
    assert found["destinations"][0]["dead_letters"][0]["code"] == "json.invalid"
    assert [x["kind"] for x in found["letters"]] == [Kind.DEAD_LETTERS.value]


def test_digits_that_several_dead_letters_begin_with_are_refused(state: Traced, tmp_path: Path) -> None:
    state.batch(100, [letter(n) for n in range(40)])
    starts = [letter(n).id[0] for n in range(40)]
    twice = next(digit for digit in starts if starts.count(digit) > 1)
    ended = penstock(tmp_path, "trace", "--id", twice)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "dlq.ambiguous" in ended.stderr


def test_an_id_of_any_record_is_found_by_trying_what_is_kept(state: Traced, tmp_path: Path) -> None:
    state.batch_of(kafka(0, 5000), kafka(0, 10, 1, number=1), next_seq=2 << 44, records=5010)
    [found] = traced(tmp_path, "--id", record_id("in", b"orders/0/4321"))
    assert (found["seq"], found["position"]) == (4321, {"text": "orders/0/4321"})
    [said] = traced(tmp_path, "--id", record_id("in", b"orders/0/5000"), code=1)
    assert "none of the 5,010 records" in said["why"]


def test_looking_for_an_id_ends_when_the_time_is_up(state: Traced, tmp_path: Path) -> None:
    state.batch_of(kafka(0, 1 << 40), next_seq=1 << 44)
    [said] = traced(tmp_path, "--id", "0" * 32, "--seconds", "0.2", code=1)
    assert said["verdict"] == "unknown"
    assert "--position is found at once" in said["why"]


def test_digits_of_no_dead_letter_are_too_few_to_look_for(state: Traced, tmp_path: Path) -> None:
    state.batch_of(kafka(0, 10), next_seq=1 << 44)
    [said] = traced(tmp_path, "--id", "abc", code=1)
    assert "all 32 digits" in said["why"]


def test_a_key_finds_dead_letters_where_nothing_else_keeps_keys(state: Traced, tmp_path: Path) -> None:
    given = {"key": {"text": "k3"}, "after": {"text": "line 3"}}
    state.batch(10, [letter(3, given=given), letter(4, given={"key": {"value": {"id": 4}}})])
    assert [found["seq"] for found in traced(tmp_path, "--key", "k3")] == [3]
    assert [found["seq"] for found in traced(tmp_path, "--key", '{"id":4}')] == [4]
    [said] = traced(tmp_path, "--key", "k5", code=1)
    assert "keeps no keys" in said["why"]


def test_looking_for_a_key_says_when_the_time_was_up(state: Traced, tmp_path: Path) -> None:
    state.batch(10, [letter(3, given={"key": {"text": "k3"}})])
    ended = penstock(tmp_path, "trace", "--key", "k3", "--seconds", "0")
    assert ended.returncode == 1
    assert "The time was up" in ended.stderr
    assert "The time was up" not in penstock(tmp_path, "trace", "--key", "k3").stderr


# -- the command ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "trace.which"),
        (("--id", "ab", "--offset", "1"), "trace.which"),
        (("--id", "xyz"), "trace.id"),
        (("--position", "hex:x"), "trace.bytes"),
        (("--key", "base64:*"), "trace.bytes"),
        (("--offset", "1"), "trace.no-log"),
        (("--offset", "1", "--pipeline", "nope"), "state.unknown-pipeline"),
        (("--offset", "1", "--source", "nope"), "state.unknown-source"),
    ],
)
def test_what_can_not_be_asked_is_refused(state: Traced, tmp_path: Path, arguments: tuple[str, ...], code: str) -> None:
    state.batch_of(kafka(0, 10), next_seq=1 << 44)
    ended = penstock(tmp_path, "trace", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert code in ended.stderr


def test_people_read_a_life_from_top_to_bottom(state: Traced, tmp_path: Path) -> None:
    state.batch(10, [letter(3)], ("eu", "us"))
    said = penstock(tmp_path, "trace", "--id", letter(3).id[:8]).stdout.splitlines()
    assert said[0] == f"record {letter(3).id} of orders/in"
    assert [line.split()[0] for line in said[1:5]] == ["position", "seq", "batch", "→"]
    assert "  → eu: dead-lettered" in said
    assert any(line.startswith("  letter    in the state folder, ") for line in said)
    assert "  ack       acked: settled at every destination that decides, and the source was told" in said
    assert said[-1] == f"  look at   penstock dlq show {letter(3).id[:12]}"


def test_trace_starts_no_spark_and_changes_nothing(state: Traced, tmp_path: Path) -> None:
    state.batch_of(file(), next_seq=1002)
    before = bytes_of(tmp_path)
    code = (
        "import sys; from penstock.cli.main import cli; cli(['trace', '--position', '/in/a.txt#3'], standalone_mode=False);"
        " assert not {'pyspark', 'pyarrow', 'pydantic'} & set(sys.modules), sys.modules.keys()"
    )
    import subprocess
    import sys

    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert bytes_of(tmp_path) == before


# -- retention ------------------------------------------------------------------------------------------------------


def test_retention_is_a_setting_of_a_pipeline(tmp_path: Path) -> None:
    text = """\
version: "2.2"
pipelines:
  - id: p
    retention: {batches: 250}
    connectors:
      - {id: in, type: source, plugin: files, settings: {path: in}}
      - {id: out, type: destination, plugin: files, settings: {path: out}}
"""
    (tmp_path / "p.yaml").write_text(text)
    assert Pipeline.from_file(tmp_path / "p.yaml").plan().keep == 250
    (tmp_path / "p.yaml").write_text(text.replace("    retention: {batches: 250}\n", ""))
    assert Pipeline.from_file(tmp_path / "p.yaml").plan().keep == 1000
    built = Pipeline("p").source("in", "files", path="in").destination("out", "files", path="out")
    assert built.retention(batches=300).plan().keep == 300
    (tmp_path / "p.yaml").write_text(text.replace("250", "99"))
    ended = penstock(tmp_path, "validate", "p.yaml")
    assert ended.returncode == 2
    assert "batches" in ended.stderr
    assert "p.yaml:4" in ended.stderr
    with pytest.raises(UsageError):
        Pipeline("p").retention(batches=5)


def test_a_lane_keeps_as_many_batches_as_it_was_told(state: Traced) -> None:
    _pruned(state, batches=6, kept=4)
    assert state.asked(lambda trace: trace.kept(trace.lanes()[0].key)) == 4
    assert state.asked(lambda trace: trace.lanes()[0].oldest) == 3


def test_numbers_say_where_records_may_be_missing() -> None:
    kinds = [file(), file(rows=5), kafka(0, 5), log(0, 5), made(0, 5)]
    assert [n.has(2) for r in kinds if (n := numbers(r)) is not None] == [False, True, False, True, True]
    assert numbers(Range("x", {"anything": 1})) is None
    lines = numbers(file(), 3)  # the first may be a header, and then there is one more
    assert lines is not None
    assert [lines.has(n) for n in range(5)] == [False, True, True, False, False]


def test_the_numbers_of_a_large_file_that_is_read_in_parts_are_those_of_its_lines(tmp_path: Path) -> None:
    """A part says the place of a line in its block: the numbers that the reader gives have to be found all the same."""
    from penstock.connectors.files import lines, places

    path = tmp_path / "a.txt"
    line = b"x" * ((1 << 20) - 1) + b"\n"
    path.write_bytes(line * 66 + b"short\n" * 5)
    size = path.stat().st_size
    at = place = 0
    given: list[int] = []
    expected: list[int] = []
    while at < size:
        stop, after, _ = lines.cut(str(path), at, place, size, max_records=30, max_bytes=1 << 30)
        r = file(str(path), size=size, start=at, to=stop, place=place, next=after)
        n = places.numbers(r)
        assert n is not None
        read = lines.ReadLines(((lines.Stretch(str(path), at, stop, place, 0),),), ("seq",))
        seqs = [
            seq for rows in read._batches(list(read._pieces(read.tasks[0]))) for seq in rows.column("seq").to_pylist()
        ]
        assert all(n.low <= seq < n.high for seq in seqs)
        assert n.low == seqs[0]
        assert set(seqs) <= set(places.candidates(r, len(seqs)))
        given += seqs
        expected += [seq for seq in seqs if seq_of(r, places.position(str(path), seq)) == seq]
        at, place = stop, after
    assert len(given) == 71
    assert given == expected
