"""Lanes that go back: `rewind` and `reset` of a pipeline that does not run. Used by the command line with the state folder locked, and by a
running engine for a pipeline that stands.

Each source says for itself what is known of it afterwards (`NativeSource.rewound`); the ledger writes that down in one transaction per
lane (`ledger/anew.py`). All sources are asked before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from penstock import deadletters
from penstock.engine.batch.context import Work
from penstock.engine.batch.split import discard
from penstock.engine.making import PLACES, surroundings
from penstock.engine.plans import LanePlan, PipelinePlan
from penstock.errors import Stop, UsageError
from penstock.ledger import Lane, Ledger, Prepared, State, TargetRef
from penstock.native import Known, Limits, NativeDestination
from penstock.ranges import To

__all__ = ["Back", "Place", "To", "parse"]

Rebuild = Callable[[Prepared | TargetRef], NativeDestination[Any]]


@dataclass(frozen=True)
class Back:
    """What became of one lane."""

    source: str
    again: int  # strands (files, partitions, logs) of which something is read again
    batches: int = 0  # that were begun, not prepared, and given up
    dead_letters: int = 0  # that were open, and are dropped
    left: list[str] = field(default_factory=list)  # destinations where something may be left, and why


def parse(text: str) -> To:
    try:
        return To.parse(text)
    except ValueError as e:
        raise UsageError(
            f"--to {text[:80]} is not understood",
            code="rewind.to",
            why=str(e),
            hint="write `beginning`, an offset, or a time",
        ) from None


@dataclass(frozen=True)
class Place:
    """A pipeline in a state folder that nobody else writes to. Without its plan only the beginning can be gone back to."""

    state: Path
    ledger: Ledger
    pipeline: str
    rebuild: Rebuild
    plan: PipelinePlan | None = None

    def rewind(self, source: str | None, to: To, why: Mapping[str, Any]) -> list[Back]:
        lanes = self._lanes(source)
        if (to.offset is not None or to.places) and len(lanes) > 1:
            raise UsageError(
                f"{self.pipeline} has {len(lanes)} sources, and an offset is of one of them",
                code="rewind.source",
                hint=f"name it with --source: {', '.join(lanes)}",
            )
        asked = {name: (row, self._known(row, lane, to)) for name, (row, lane) in lanes.items()}
        found = []
        for name, (row, known) in asked.items():
            self.ledger.rewind(self.pipeline, name, known, {"source": name, "to": to.text, **why})
            again = sum(known.strands.get(strand) != r for strand, r in row.known.strands.items())
            found.append(Back(name, again))
        return found

    def reset(self, source: str | None, why: Mapping[str, Any]) -> list[Back]:
        lanes = self._lanes(source)
        for name, (row, _) in lanes.items():
            self._refuse_unacked(row)
            if (self.pipeline, name) in self.ledger.replays_asked():
                raise UsageError(
                    f"Dead letters of {self.pipeline}/{name} are being replayed",
                    code="state.unfinished",
                    hint="run the pipeline with --once first, so that the replay ends",
                )
        found = []
        for name, (row, lane) in lanes.items():
            left = self._discard(row, lane)
            told = {"source": name, **why}
            forgotten = self.ledger.reset(self.pipeline, name, told)
            found.append(Back(name, len(row.known.strands), forgotten.batches, forgotten.dead_letters, left))
        return found

    def _lanes(self, source: str | None) -> dict[str, tuple[Lane, LanePlan | None]]:
        plans = {lane.source.source_id: lane for lane in self.plan.lanes} if self.plan is not None else {}
        names = list(plans) or self.ledger.sources(self.pipeline)
        if source is not None and source not in names:
            raise UsageError(
                f"The pipeline {self.pipeline!r} has no source {source!r}",
                code="state.unknown-source",
                hint=f"there are: {', '.join(names) or 'none'}",
            )
        wanted = names if source is None else [source]
        return {name: (self.ledger.lane(self.pipeline, name), plans.get(name)) for name in wanted}

    def _known(self, row: Lane, lane: LanePlan | None, to: To) -> Known:
        if self.ledger.unfinished(row.key):
            self.ledger.rewind(row.pipeline, row.source)  # it says why not, before a source is asked
        self._refuse_unacked(row)
        if lane is None:
            if to.beginning:
                return Known({}, row.known.next_seq, set())
            raise UsageError(
                f"Only the source {row.source!r} itself can tell what {to.text} is",
                code="rewind.no-file",
                why="the state folder does not say how it is made",
                hint="name the file of the pipeline with --file; --to beginning needs none",
            )
        assert self.plan is not None
        made = lane.source
        made.around = surroundings(
            self.state, self.plan, lane, row, lambda *_: None, once=False, idle=0.0, lifecycle=False
        )
        try:
            known = made.rewound(row.known, to)
        except Stop as e:  # nothing was changed: what was asked for is wrong, not the pipeline
            raise UsageError(e.what, code=e.code, where=e.where, why=e.why, hint=e.hint) from e
        if known is None:
            raise UsageError(
                f"{row.source!r} can't go back to {to.text}",
                code="rewind.unsupported",
                hint=f"it can go back to: {'; '.join(('beginning', *made.rewinds))}",
            )
        return known

    def _refuse_unacked(self, row: Lane) -> None:
        """Its source would be acked for what it has to give again; files may be deleted then."""
        if self.ledger.unacked(row.key):
            raise UsageError(
                f"{row.pipeline}/{row.source} has a batch that is delivered and not acked yet",
                code="state.unfinished",
                hint="run the pipeline with --once first, so that recovery finishes it",
            )

    def _discard(self, row: Lane, lane: LanePlan | None) -> list[str]:
        """Removes what attempts have staged of batches that are given up. Without Spark, so not every destination can: what stays is
        hidden, and harms nothing but the disk."""
        left: list[str] = []
        for s in self.ledger.unfinished(row.key):
            if s.state is not State.OPEN:
                continue  # the ledger refuses it
            for ref in self.ledger.attempted(s):
                work = self._work(row, lane, ref)
                try:
                    discard(work, s)
                except Exception as e:
                    left.append(f"{ref.destination}: {e}")
        return left

    def _work(self, row: Lane, lane: LanePlan | None, only: TargetRef) -> Work:
        nothing = cast(Any, None)
        source, limits = (lane.source, lane.limits) if lane is not None else (nothing, Limits())
        one = _Attempted(self.ledger, only)
        return Work(row, source, (), {}, limits, nothing, cast(Ledger, one), self._rebuilt, self.state)

    def _rebuilt(self, ref: Prepared | TargetRef) -> NativeDestination[Any]:
        made = self.rebuild(ref)
        made.place = self.state / PLACES / deadletters.folder(self.pipeline, made.destination_id)
        return made


class _Attempted:
    """A ledger that tells `discard` of one destination, so that one which does not answer keeps no other from being tidied."""

    def __init__(self, ledger: Ledger, only: TargetRef) -> None:
        self.fence, self._only = ledger.fence, only

    def attempted(self, _: Any) -> list[TargetRef]:
        return [self._only]
