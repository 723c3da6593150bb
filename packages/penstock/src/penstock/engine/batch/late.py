"""Late nacks: a destination refuses single records while it commits. Nothing is recomputed: the records were kept, or the destination
has them where it staged them.

With room in the gate each becomes a dead letter, in the transaction that marks the delivery done. When one is too many the
delivery stops there; the batch stays prepared and goes on at that record at the next start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from penstock import record
from penstock.engine import aside
from penstock.engine.batch.admit import GateClosed
from penstock.engine.batch.context import Work
from penstock.engine.batch.deadletter import Letter, letter_of, place_of
from penstock.engine.batch.prepare import stage_letters
from penstock.engine.gate import Ring, Window, pass_through
from penstock.ledger import Attempt, Late, NackState, Prepared, Snapshot
from penstock.native import Ranges, Receipt, Refusal


class LateNacks:
    """`refuse` of one delivery, and what follows from it. Called by the destination's thread only while it commits."""

    def __init__(self, work: Work, s: Snapshot, p: Prepared) -> None:
        self._work = work
        self._s = s
        self._p = p
        self._refused: dict[tuple[int, int], Refusal] = {}
        self._stopped: Refusal | None = None

    def __call__(self, refusal: Refusal) -> bool:
        self._refused[refusal.seq, refusal.part] = refusal
        if not self._window.bounded or refusal.seq in self._skips:
            return True
        ordinal, nacks = self._ordinals()
        at = pass_through(self._window, self._before, self._detail["records"], nacks)[1]
        if at is not None and at <= ordinal[refusal.seq]:
            self._stopped = refusal
            return False
        return True

    @cached_property
    def _skips(self) -> set[int]:
        """Records that a person wants to be skipped: a refusal of one of them closes no gate."""
        return {x.number for x in self._work.ledger.skips(self._s.lane) if not x.strand}

    @property
    def _window(self) -> Window:
        return self._work.window

    @property
    def _detail(self) -> Any:
        return self._p.gate or {"records": 0, "nacks": [], "before": None}

    @property
    def _before(self) -> Ring:
        return Ring.from_json(self._detail["before"])

    @cached_property
    def _every(self) -> Any:
        """The seqs of the batch."""
        import numpy as np

        return np.load(self._work.state / self._detail["seqs"])

    def _ordinals(self) -> tuple[dict[int, int], list[int]]:
        """The ordinal of each refused record, and those of all nacks of the batch at this destination, in order."""
        seqs = sorted({seq for seq, _ in self._refused} - self._skips)
        if "seqs" in self._detail:
            ordinal = {seq: int(self._every.searchsorted(seq)) for seq in seqs}
        else:
            ordinal = {seq: n for n, seq in enumerate(seqs)}
        return ordinal, sorted({*self._detail["nacks"], *ordinal.values()})

    def settle(self, receipt: Receipt) -> Late | None:
        """Dead letters for what was refused, and the ring that counts them."""
        if not receipt.refused:
            return None
        self._refused = {(r.seq, r.part): r for r in receipt.refused}
        letters = list(self._letters(receipt.refused))
        attempt = Attempt(0, f"late-{self._work.ledger.fence}")
        deliveries = stage_letters(
            self._work, self._s, attempt, letters, f":{self._p.destination}", self._detail.get("schema", "")
        )
        _, nacks = self._ordinals()
        unbounded = Window(self._window.size, self._window.size + len(nacks))
        ring, _ = pass_through(unbounded, self._before, self._detail["records"], nacks)
        skipped = sorted({letter.dead.seq for letter in letters} & self._skips)
        nacks_ = [
            letter.nack(state=NackState.DROPPED) if letter.dead.seq in skipped else letter.nack() for letter in letters
        ]
        return Late(nacks_, deliveries, ring.to_json(), skipped)

    def hold(self, settled_to: int | None = None) -> Ranges | None:
        """Writes the record down at which the delivery stopped. Returns what may be acked of the batch, below `settled_to`."""
        letter = self._stopping_letter()
        nack = letter.nack(state=NackState.HELD, record=letter.json())
        detail = {"seq": letter.dead.seq, "part": letter.dead.part, "error": letter.dead.error}
        first = min(seq for seq, _ in self._refused)  # what was refused with room is saved only when it is done
        to = first if settled_to is None else min(first, settled_to)
        return self._work.ledger.hold_delivery(self._s, self._p.destination, nack, to, detail)

    def closed(self) -> GateClosed:
        return GateClosed(self._stopping_letter(), self._window)

    def _stopping_letter(self) -> Letter:
        assert self._stopped is not None
        return next(self._letters([self._stopped]))

    def _letters(self, refused: Sequence[Refusal]) -> Iterator[Letter]:
        rows = self._rows(refused)
        place = place_of(self._work, self._s)
        name = self._p.destination
        for r in refused:
            row = rows.get((r.seq, r.part), {})
            form = _form(row)
            given = aside.decoded(row[record.GIVEN]) if row.get(record.GIVEN) else form
            if row.get(record.POSITION) and "position" not in given:
                place_ = {"position": aside.payload(row[record.POSITION]), "metadata": row.get(record.METADATA) or {}}
                given = {**place_, **given}
            if (line := row.get(record.LINE)) is not None:
                given = {"after": aside.payload(line.encode() if isinstance(line, str) else line)}
            dead = aside.Dead(r.seq, r.part, name, r.code, r.reason, _now(), given, form)
            yield letter_of(self._work.source.source_id, name, dead, place)

    def _rows(self, refused: Sequence[Refusal]) -> dict[tuple[int, int], dict[str, Any]]:
        """What the destination says of them, or else what was kept."""
        import pyarrow.dataset as ds

        if self._detail["kept"] is None:
            return {(r.seq, r.part): {record.AFTER: aside.decoded(r.payload)} for r in refused if r.payload is not None}
        seqs = {r.seq for r in refused}
        folder = self._work.state / self._detail["kept"] / f"{record.OUTCOME}={aside.DELIVERED}"
        table = ds.dataset(folder, format="parquet").to_table(filter=ds.field(record.SEQ).isin(list(seqs)))
        return {(row[record.SEQ], row.get(record.PART, 0)): row for row in table.to_pylist(maps_as_pydicts="strict")}


def _form(row: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for name in (record.AFTER, record.BEFORE, record.KEY):
        value = row.get(name)
        if value is not None:
            found[name] = aside.payload(value.encode() if isinstance(value, str) else value)
    return found


def _now() -> int:
    import time

    return time.time_ns() // 1_000_000
