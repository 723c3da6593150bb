"""The interface of a native source: a feed of ranges that Spark reads itself."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from penstock.native.processor import Processor
from penstock.packages import Needs
from penstock.ranges import Behind, Known, Limits, Ranges, To
from penstock.record import AFTER, Shape

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

S = TypeVar("S")


@dataclass(frozen=True)
class Surroundings:
    """What a source or destination that keeps something of its own has to know about where it runs."""

    pipeline: str
    folder: Path  # in the state folder, for this connector alone
    destinations: tuple[str, ...]
    log: Callable[[str, str], None]  # level and text, for people
    once: bool  # `run --once`: it ends when the source has nothing
    idle: float  # seconds without a record after which a source that could always get more counts as having nothing
    lifecycle: bool = True  # False: a trial, of which nobody outside must hear


class NativeSource(Generic[S]):
    """One instance per lane, in the engine process. All methods but `check` are called from the lane's own thread, one at
    a time. In each of them `Retry` makes the lane back off, run recovery and try again, `Stop` stops the pipeline, and
    any other exception counts as `Stop`.
    """

    packages: ClassVar[Needs] = {}  # what Spark has to load for it, by Spark's minor version
    shape: Shape = Shape.RAW  # of the payloads that `frame` gives
    around: Surroundings | None = None  # where it runs; set by the lane before anything else
    lines: bool = False  # each payload is one line of text: it need not be looked at again before it is written as one
    prunes: bool = False  # `frame` may be asked for `after.x`: only these fields of a typed payload
    modules: tuple[str, ...] = ()  # Python modules of ours that `frame` needs in Spark's tasks: they are loaded before
    processors: tuple[Processor[Any], ...] = ()  # what every record goes through first, e.g. to decode a line
    rewinds: ClassVar[tuple[str, ...]] = ()  # in words: to where `rewound` can go, besides its beginning

    def __init__(self, settings: S, source_id: str) -> None:
        """Called before Spark is there. No I/O."""
        self.settings = settings
        self.source_id = source_id

    def check(self) -> None:
        """Called once before Spark starts: is the path there, does the server answer? Raise `Stop` if it can never work."""

    def empty(self) -> str | None:
        """The columns that `frame` gives, as Spark writes a schema, where they are known before anything is read: the plan is
        then tried on no record before the source is touched. None = at the first batch."""
        return {Shape.RAW: f"{AFTER} BINARY", Shape.OPEN: f"{AFTER} STRING", Shape.TYPED: None}[self.shape]

    def shapes(self) -> tuple[Shape, ...]:
        """The shapes that its payloads may have, for `validate`. More than one: `begin` sets the one of the batch."""
        return (self.shape,)

    def start(self, around: Surroundings) -> None:
        """Called before anything new is read, and again after every `Retry`: starts what the source needs beside it."""

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        """What can be read after what is known, cut by the limits; None = nothing new right now.

        Called whenever the lane has nothing to do. What is returned is written into the ledger before anything is read,
        and is never asked for again. Must not change anything outside.
        """
        raise NotImplementedError

    def behind(self) -> Behind | None:
        """How much waits beyond what `available` gave last; None where that is not known. Shown to people, so cheap: called
        after every look."""
        return None

    def begin(self, ranges: Ranges) -> None:
        """Called first for every attempt at a batch: what has to be known of the ranges before anything is planned."""

    def decoders(self) -> tuple[Processor[Any], ...]:
        """Like `processors`, where it depends on the batch: asked after `begin`."""
        return ()

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        """Exactly these ranges, as record columns (any of `penstock.record.COLUMNS`; missing ones get their default).

        Called once per attempt. Equal ranges give equal rows, `seq` and `position` on any number of cores. `columns` are
        the ones that will be looked at: others may be left out where they cost something. Reads lazily: the job runs later.
        Rows that are no records (a header) carry true in a further column `_skip`.
        Of a range that was cut all records are given; the engine leaves out those that do not count, by their seq.
        """
        raise NotImplementedError

    def locate(self, ranges: Ranges) -> Callable[[int], tuple[bytes, dict[str, str]]] | None:  # noqa: ARG002
        """Position and metadata of a record by its seq, where they follow from it: they then need not travel with every
        record. What is returned is sent to Spark's tasks, so it must pickle; equal to what `frame` gives."""
        return None

    def place(self, ranges: Ranges) -> Callable[[int], tuple[bytes, dict[str, str]]] | None:
        """The same for the few records that become dead letters, in the engine: it may be slow, and need not pickle."""
        return self.locate(ranges)

    def recheck(self, ranges: Ranges) -> None:
        """Raise `InputChanged` unless the ranges are there as they were taken. Called before the read, after it, and to
        explain a job that failed."""

    def promised(self, ranges: Ranges) -> int | None:  # noqa: ARG002
        """How many records the ranges hold, where that is known without reading; else None and the scan is counted."""
        return None

    def evidence(self) -> Mapping[str, Column]:
        """Aggregates over `frame` that are computed directly above the scan, for `verify`. Keep them cheap."""
        return {}

    def verify(self, ranges: Ranges, records: int, evidence: Mapping[str, int]) -> None:
        """Called once per attempt after the job succeeded and before anything is prepared, with the number of records
        that the scan gave. Raise `Stop` unless that is all of these ranges.
        """

    def delivered(self, destination: str, ranges: Ranges) -> None:
        """One destination has everything in these ranges, and the ledger has stored it. A crash can swallow the call."""

    @property
    def answers(self) -> bool:
        """True where somebody waits for the outcome of every record: `refused` is called before each `acked` then."""
        return False

    def refused(self, errors: Mapping[int, str]) -> None:
        """Which records of the ranges that are acked next have a dead letter, by their seq, and why."""

    def acked(self, ranges: Ranges) -> Collection[str]:  # noqa: ARG002
        """Everything in these ranges, and all before it, is settled at every destination that decides.

        Called in order, at most once per range, after the ledger has stored it. A crash can swallow the call: what was
        acked before this start is in `Known.acked`. Returns the strands that are gone for good (a file that was put away),
        which the ledger then forgets, so that their names may be used again.
        """
        return ()

    def count(self, ranges: Ranges) -> int | None:
        """How many records are left in ranges that a stop could not finish. May read them; None when it would take long."""
        return self.promised(ranges)

    def idle(self) -> bool:
        """Asked by `run --once` after `available` gave None: False while something is on its way that is worth waiting for."""
        return True

    def wait(self, timeout: float) -> None:
        """Returns after `timeout` seconds, or earlier if something may be there. Called when `available` gave None."""
        raise NotImplementedError

    def stop(self) -> bool:
        """Nothing new is wanted. True: what is on its way already is still taken, until `drained`. Returns at once."""
        return False

    def drained(self) -> bool:
        """After `stop`, asked when `available` gave None: whether nothing comes any more."""
        return True

    def left(self) -> int:
        """After `close`: records that the source keeps and that no batch has taken; they are delivered at the next start."""
        return 0

    def close(self) -> None:
        """Called once, at the end."""

    def rewound(self, known: Known, to: To) -> Known | None:
        """What is known of it when it goes back: everything behind that is read again, under a new epoch. None where it can't go back
        to that. Raise `Stop` where it is not there any more, or was never read.

        Called while its lane does not run and nothing of it is unfinished; only `around` was set before. What it returns counts as
        acked. What it gives again has to have a new `seq`. It must not change how far the system it reads from has been acked.
        """
        return Known({}, known.next_seq, set()) if to.beginning else None

    def interrupt(self) -> None:
        """From another thread, at a forceful stop: whatever a call waits for is ended."""
