"""Where a record is: from what people know of it (a position, an offset, a key, an id) to its seq and batch, or to why it is not there. For
`penstock trace`.

The ledger keeps ranges, and each source says how its positions lie in them (`connectors/places.py`); the positions of a source in a process
of its own are in its log. Nothing here is changed.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from penstock.cli.shown import count, when
from penstock.connectors.jdbc import places as jdbc
from penstock.connectors.places import Numbers, numbering, numbers, seqs_of
from penstock.connectors.queue.places import is_log
from penstock.ids import ids_of
from penstock.ledger import Nack
from penstock.ledger.life import BatchRow, LaneAt, Life
from penstock.ledger.trace import Trace
from penstock.ranges import Range
from penstock_sdk.record import record_id

if TYPE_CHECKING:
    from penstock.cli.trace_log import Hit, SourceLog

PIECE = 4096  # positions between two looks at the clock
MORE = "to keep more from now on, set `retention: {batches: N}` in the pipeline"


class Verdict(StrEnum):
    OLDER = "older-than-retention"
    NOT_READ = "not-read-yet"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Found:
    """`sure`: False where its source may have no record at this place."""

    life: Life
    position: bytes | None = None
    hit: Hit | None = None
    log: str | None = None
    offset: int | None = None
    sure: bool = True


@dataclass(frozen=True)
class Missing:
    lane: LaneAt
    verdict: Verdict
    why: str
    hit: Hit | None = None
    log: str | None = None


Answer = list[Found] | Missing


class Finder:
    """Looks in one lane. `log`: of its source, where it has one that can be read."""

    def __init__(self, trace: Trace, lane: LaneAt, log: SourceLog | None = None) -> None:
        self._trace, self._lane, self._log = trace, lane, log
        self._sample = trace.sample(lane.key)
        self._how = None if self._sample is None else numbering(self._sample)

    # -- by position ------------------------------------------------------------------------------------------------

    def position(self, position: bytes, hits: Sequence[Hit]) -> Answer:
        """`hits`: what its log has with this position."""
        table = self._sample is not None and jdbc.is_ours(self._sample)
        if table and (place := jdbc.place(position)) is not None:
            position = jdbc.written(place)  # people write spaces
        dead = self._dead(record_id(self._lane.source, position))
        if self._hosted:
            return self._with(dead, self._of_hits(hits, position))
        if table:
            return self._with(dead, self._row(position))
        return self._with(dead, self._numbered(position))

    def _with(self, dead: list[Found], answer: Answer) -> Answer:
        """A dead letter is kept for longer than its batch."""
        if isinstance(answer, Missing):
            return dead or answer
        seen = {found.life.seqs[0] for found in answer if found.life.exact}
        exact = {found.life.batches[-1].batch for found in dead if found.life.batches}
        inexact = [f for f in answer if f.life.exact or f.life.batches[-1].batch not in exact]
        return [*inexact, *(found for found in dead if found.life.seqs[0] not in seen)]

    @property
    def _hosted(self) -> bool:
        return self._log is not None and not self._log.numbered

    def _numbered(self, position: bytes) -> Answer:
        lane = self._lane
        if self._sample is None:
            return Missing(lane, Verdict.NOT_READ, "it has read nothing yet")
        if self._how is None:
            return Missing(
                lane,
                Verdict.UNKNOWN,
                "how its source makes positions of ranges is not known: only dead letters are found",
            )
        at = self._how.named(position)
        if at is None:
            return Missing(
                lane, Verdict.UNKNOWN, f"that is no position of its source: they look like {self._how.EXAMPLE}"
            )
        return self.number(at.strand or self._sample.strand, at.number, position)

    def number(self, strand: str, number: int, position: bytes | None, hit: Hit | None = None) -> Answer:
        """The record with this number of a strand: once for each time that it was read."""
        found = []
        log = self._log.name if self._log is not None and is_log(strand) else None
        offset = number if is_log(strand) else None
        for r in self._trace.takings(self._lane.key, strand, lambda r: _numbers(r).first):
            first = _numbers(r).first
            seq = first + number
            row = self._trace.holding(self._lane.key, strand, seq, _seqs)
            n = None if row is None else _alone(row, strand)
            # Where a log was read again from its middle, an earlier time may have had the same seq for another offset.
            if row is not None and n is not None and n.first == first and n.low <= number < n.high:
                life = self._trace.life(self._lane, (seq, seq + 1), row.batch)
                sure = n.has(number) or hit is not None or bool(life.nacks)
                found.append(Found(life, position, hit, log, offset, sure))
        return found or replace(self._missing(strand, number), hit=hit, log=log)

    def _missing(self, strand: str, number: int) -> Missing:
        lane, last = self._lane, self._trace.strand(self._lane.key, strand)
        name = f"the log {strand}" if is_log(strand) else strand
        if last is None:
            if not lane.pruned:
                return Missing(lane, Verdict.NOT_READ, f"no batch has read anything of {name}")
            why = f"nothing is known of {name}: if it was read, that is older than retention; {self._kept()}"
            return Missing(lane, Verdict.UNKNOWN, why)
        n = _numbers(replace(last, low=None, high=None))
        if number >= n.high and not n.ended:
            return Missing(lane, Verdict.NOT_READ, f"{name} was read up to {n.high}, which is the next")
        held = self._trace.takings(lane.key, strand, lambda r: _numbers(r).first)
        if number >= n.high or (next(held, None) is not None and n.ended and number >= n.low):
            return Missing(lane, Verdict.UNKNOWN, f"{name} was read to its end, and has no record {number}")
        if lane.pruned:
            return Missing(lane, Verdict.OLDER, f"{name} was read up to {n.high}; {self._kept()}")
        return Missing(lane, Verdict.UNKNOWN, f"no batch has read {number} of {name}: reading began behind it")

    def _kept(self) -> str:
        """What is there, and how there would be more."""
        lane = self._lane
        kept = f"the ledger keeps {count(self._trace.kept(lane.key), 'batch', 'batches')} of {lane.name}"
        since = f", from batch {lane.oldest} of {when(lane.oldest_time)}" if lane.oldest is not None else ""
        return f"{kept}{since}; {MORE}"

    # -- rows of a table ----------------------------------------------------------------------------------------------

    def _row(self, position: bytes) -> Answer:
        lane, place = self._lane, jdbc.place(position)
        if place is None:
            return Missing(lane, Verdict.UNKNOWN, f"that is no position of its source: they look like {jdbc.EXAMPLE}")
        found, oldest, newest = [], None, None
        for row in self._trace.newest_first(lane.key):
            for r in row.ranges:
                newest, oldest = newest or r, r
                if (seqs := seqs_of(r, position)) is not None:
                    found.append(Found(self._trace.life(lane, seqs, row.batch), position, sure=False))
        if found:
            return found
        if newest is not None and jdbc.behind(newest, place):
            return Missing(lane, Verdict.NOT_READ, f"rows were read up to {newest.position['to']}")
        if oldest is not None and jdbc.before(oldest, place) and lane.pruned:
            return Missing(lane, Verdict.OLDER, self._kept())
        why = "its place among the others does not follow from how it looks, or there was no such row"
        return Missing(lane, Verdict.UNKNOWN, f"{why}; {self._kept()}" if lane.pruned else why)

    # -- records of a log ---------------------------------------------------------------------------------------------

    def offset(self, offset: int) -> Answer | None:
        """None: its source has no log."""
        strand = self._sample.strand if self._sample is not None else self._log.log_id if self._log is not None else ""
        if not is_log(strand):
            return None
        hit = self._log.at(offset) if self._log is not None and self._log.log_id == strand else None
        position = hit.position if hit is not None else None if self._hosted else b"%d" % offset
        answer = self.number(strand, offset, position, hit)
        dead: list[Found] = [] if position is None else self._dead(record_id(self._lane.source, position))
        return self._with(dead, self._said(answer, hit, offset))

    def _of_hits(self, hits: Sequence[Hit], position: bytes | None = None) -> Answer:
        log, found = self._log, []
        assert log is not None
        missing: Missing | None = None
        for hit in hits:
            answer = self._said(self.number(log.log_id, hit.offset, hit.position, hit), hit, hit.offset)
            if isinstance(answer, Missing):
                missing = missing or answer
            else:
                found += answer
        if found or missing:
            return found or missing  # type: ignore[return-value]
        if log.trouble is not None:
            return Missing(
                self._lane, Verdict.UNKNOWN, f"its log can't be read: {log.trouble.what} [{log.trouble.code}]"
            )
        what = "this position" if position is not None else "it"
        there = (
            f"the log {log.name} has offsets {log.first}–{log.end - 1}" if log.end > log.first else "its log is empty"
        )
        looked = "the time was up before all of it was looked at" if log.gave_up else f"none of them has {what}"
        gone = (
            "it never came, or it was taken away there when everybody had it; by --offset batches are found without it"
        )
        why = f"{there}, and {looked}: {gone}"
        return Missing(self._lane, Verdict.UNKNOWN, why)

    def _said(self, answer: Answer, hit: Hit | None, offset: int) -> Answer:
        if not isinstance(answer, Missing) or answer.verdict is not Verdict.NOT_READ or self._log is None:
            return answer
        if hit is not None:
            why = f"it is in the log {self._log.name} at offset {offset}, since {when(hit.appended)}, and no batch has taken it yet"
        else:
            why = f"the log {self._log.name} ends before offset {self._log.end}"
        return replace(answer, why=why)

    # -- by key -------------------------------------------------------------------------------------------------------

    def key(self, hits: Sequence[Hit], dead: Sequence[Nack]) -> Answer:
        """`dead`: dead letters whose record had the key."""
        letters = [self._life(n.seq, n.batch, n.position) for n in dead]
        if self._log is not None:
            return self._with(letters, self._of_hits(hits))
        why = "its source keeps no keys where they can be looked for, and no dead letter has this one; look for it with --position"
        return letters or Missing(self._lane, Verdict.UNKNOWN, why)

    # -- by id --------------------------------------------------------------------------------------------------------

    def _dead(self, id_: str) -> list[Found]:
        nacks = [n for lane, n in self._trace.by_id(id_) if lane == self._lane.key]
        return [self._life(n.seq, n.batch, n.position) for n in {n.seq: n for n in nacks}.values()]

    def _life(self, seq: int, batch: int, position: bytes) -> Found:
        life = self._trace.life(self._lane, (seq, seq + 1), batch)
        row = life.batches[-1] if life.batches else None
        r = None if row is None else next((r for r in row.ranges if is_log(r.strand)), None)
        return Found(life, position, offset=None if r is None else seq - r.base + r.position["from"])

    def dead_letter(self, id_: str) -> list[Found]:
        return self._dead(id_)

    def id(self, id_: str, hits: Sequence[Hit], until: float) -> Answer:
        """One that is no dead letter: every position of what is kept is tried, until the time is up."""
        if self._hosted:
            return self._of_hits(hits)
        if self._how is None:
            return Missing(self._lane, Verdict.UNKNOWN, "only dead letters of its source are found by their id")
        looked, last = 0, 0
        for row in self._trace.newest_first(self._lane.key):
            last = row.batch
            for strand, piece in self._pieces(row):
                positions = [self._how.position(strand, n) for n in piece]
                for number, found in zip(piece, ids_of(self._lane.source, positions), strict=True):
                    if found == id_:
                        return self.number(strand, number, self._how.position(strand, number))
                looked += len(piece)
                if time.monotonic() > until:
                    why = (
                        f"the time was up after {count(looked, 'record')}, at batch {last}: --position is found at once,"
                        " --seconds gives more time"
                    )
                    return Missing(self._lane, Verdict.UNKNOWN, why)
        why = f"none of the {count(looked, 'record')} of the batches that are kept has this id"
        return Missing(
            self._lane,
            Verdict.UNKNOWN,
            f"{why}; older ones have no batch: {self._kept()}" if self._lane.pruned else why,
        )

    def _pieces(self, row: BatchRow) -> Iterator[tuple[str, list[int]]]:
        """The numbers that records of a batch may have, some at a time."""
        assert self._how is not None
        for r in row.ranges:
            n = _numbers(r)
            piece: list[int] = []
            for number in self._how.candidates(replace(r, low=None, high=None), row.records if not r.cut else None):
                if n.low <= number < n.high:
                    piece.append(number)
                if len(piece) >= PIECE:
                    yield r.strand, piece
                    piece = []
            if piece:
                yield r.strand, piece


def _numbers(r: Range) -> Numbers:
    found = numbers(r)
    assert found is not None
    return found


def _alone(row: BatchRow, strand: str) -> Numbers:
    """Where a batch has one range, the number of its records says more."""
    r = row.of(strand)
    assert r is not None
    found = numbers(r, row.records if len(row.ranges) == 1 and not r.cut else None)
    assert found is not None
    return found


def _seqs(r: Range) -> tuple[int, int]:
    n = _numbers(r)
    return n.first + n.low, n.first + n.high
