"""What an engine is given to run, what it says about it at the end, and what can be said of a plan before Spark is there.

Plans are made by `Assembly.plan`; results are read by `summary.py` and the command line. Nothing here runs anything.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.engine.batch.context import Guarantee, Outcomes, Target
from penstock.engine.classify import classify
from penstock.engine.gate import DEFAULT, Window
from penstock.engine.view import Remaining, Status
from penstock.errors import PenstockError
from penstock.ledger import KEEP_BATCHES, Nack, Prepared, TargetRef
from penstock.ledger.replays import SUFFIX
from penstock.native import Limits, NativeDestination, NativeSource, Unsuitable, Where
from penstock.plan.nodes import Node, shape_behind, stages
from penstock.secrets import Secrets


@dataclass(frozen=True)
class LanePlan:
    """One source and what is downstream of it, not yet running. `targets` makes a lane's own destinations."""

    source: NativeSource[Any]
    limits: Limits
    nodes: tuple[Node, ...]
    targets: Mapping[str, Target]
    dlq: Target | None = None
    replays: bool = False  # its records are the dead letters of the source

    @property
    def name(self) -> str:
        """By which the ledger and people know it."""
        return self.source.source_id + (SUFFIX if self.replays else "")

    def all_targets(self) -> tuple[Target, ...]:
        return (*self.targets.values(), *([self.dlq] if self.dlq else []))


class Beside(Protocol):
    """What destinations of several lanes have in common, and what outlives each of them."""

    def close(self) -> None: ...
    def interrupt(self) -> None: ...
    def resent(self) -> Mapping[str, int]: ...


@dataclass(frozen=True)
class PipelinePlan:
    """Runs once: lanes close their sources. `again` makes the same plan with new parts; None where they were objects of a program."""

    id: str
    lanes: tuple[LanePlan, ...]
    rebuild: Callable[[Prepared | TargetRef], NativeDestination[Any]]
    window: Window = DEFAULT
    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    handlers: tuple[Callable[[Outcomes], None], ...] = ()
    secrets: Secrets = field(default_factory=Secrets)  # what came by reference; no text that leaves the engine holds it
    beside: Beside | None = None  # what its lanes share
    keep: int = KEEP_BATCHES  # settled batches of each lane that the ledger keeps for people to look at
    again: Callable[[], PipelinePlan] | None = None
    lane: Callable[[str], LanePlan] | None = None  # one more lane of a source, with parts of its own, beside the others
    steps: tuple[str, int] | None = None  # only this source, and only so many records of it, one at a time

    def connectors(self) -> Iterator[NativeSource[Any] | NativeDestination[Any]]:
        for lane in self.lanes:
            yield lane.source
            yield from (target.destination for target in lane.all_targets())


@dataclass(frozen=True)
class LaneResult:
    source: str
    read: int  # of batches finished in this run
    acked: int
    delivered: Mapping[str, int]
    filtered: Mapping[str, int]
    dead_lettered: Mapping[str, int]
    discarded: Mapping[str, int]
    produced: Mapping[str, int]
    held: tuple[Nack, ...]  # what the gate closed at
    remaining: Remaining | None


@dataclass(frozen=True)
class PipelineResult:
    id: str
    status: Status
    error: PenstockError | None
    trace: str
    seconds: float
    lanes: tuple[LaneResult, ...]


def check(pipeline: PipelinePlan, *, sources: bool = True) -> PipelineResult | None:
    """What can be said without Spark is said before it starts; one bad pipeline does not keep the others from running."""
    try:
        for part in pipeline.connectors():
            if sources or not isinstance(part, NativeSource):
                part.check()
    except Exception as e:
        error = classify(e)
        trace = pipeline.secrets.clean_chain(error, traceback.format_exc())
        return PipelineResult(pipeline.id, Status.DEGRADED, error, trace, 0.0, ())
    return None


def unbegun(id: str) -> PipelineResult:
    """Stopped before there was anything to stop."""
    return PipelineResult(id, Status.STOPPED, None, "", 0.0, ())


def python_modules(p: PipelinePlan) -> set[str]:
    """The modules of Python stages, as far as there are any and that is known before Spark is there."""
    found: set[str] = set()
    for lane in p.lanes:
        for shape in lane.source.shapes():
            with suppress(Unsuitable):
                behind = shape_behind(lane.nodes, shape)
                for nodes in (lane.nodes, *((*lane.nodes, *t.chain(behind)) for t in lane.targets.values())):
                    for stage in stages(nodes, shape):
                        if stage.where is Where.PYTHON:
                            found |= {type(node.processor).__module__ for node in stage.nodes}
        found.update(lane.source.modules)
        if found:
            parts = (lane.source, *(t.destination for t in lane.targets.values()))
            found |= {type(part).__module__ for part in parts}
    return {module for module in found if module.startswith("penstock.")}
