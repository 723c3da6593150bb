"""The interface of native destinations. Being an `ExactlyOnceDestination` *is* the claim; there is no flag."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from penstock import record
from penstock.native.delivery import Delivery, DeliveryId, Ordering, Receipt, Refuse, Staged
from penstock.native.processor import Processor
from penstock.native.witness import ELSEWHERE, Answer, Finding, Noted, Witnessed, by_last, went_elsewhere
from penstock.packages import Needs
from penstock.record import Shape

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from penstock.native.source import Surroundings

S = TypeVar("S")


class NativeDestination(Generic[S]):
    """At least once. One instance per lane and destination, in the engine process; lanes call theirs at the same time.

    In every method `Retry` makes the lane back off, run recovery and try again, `Stop` stops the pipeline, and any other
    exception counts as `Stop`.
    """

    packages: ClassVar[Needs] = {}  # what Spark has to load for it, by Spark's minor version
    columns: ClassVar[frozenset[str]] = frozenset(record.COLUMNS)  # the record columns it looks at
    takes_sound: ClassVar[bool] = False  # payloads that are sound (see `Processor`) need not be looked at one by one
    shapes: ClassVar[frozenset[Shape]] = frozenset(Shape)  # the payloads it can take; open ones come as JSON text
    may_refuse: ClassVar[bool] = False  # `write` or `commit` may refuse single records
    keeps_refused: ClassVar[bool] = False  # `commit` gives the payload with each refusal: what it staged has it
    # `write` is given `Delivery.kept`, and makes rows of it if it wants; so is `stage`, where they are kept for late nacks
    reads_kept: ClassVar[bool] = False
    spark: SparkSession | None = None  # the lane's own; set before anything that may need Spark is asked
    place: Path | None = None  # a folder of its own in the state folder, that need not exist yet; set as `spark` is
    locates: ClassVar[bool] = False  # `write` asks `Delivery.locate` for position and metadata, where there is one

    def __init__(self, settings: S, destination_id: str) -> None:
        """Called before Spark is there. No I/O."""
        self.settings = settings
        self.destination_id = destination_id

    def check(self) -> None:
        """Called once before Spark starts: can this ever work? Raise `Stop` if not."""

    @property
    def ordering(self) -> Ordering:
        """In which order its rows have to arrive."""
        return Ordering.SOURCE

    def start(self, around: Surroundings) -> None:
        """Called before each `write`: where it runs."""

    def setup(self, spark: SparkSession, schema: StructType) -> None:
        """Called once per lane before its first batch, with the columns to come. Creates what is missing; idempotent."""

    def processors_for(self, shape: Shape) -> tuple[Processor[Any], ...]:  # noqa: ARG002
        """What every record goes through last, behind the processors of the file, where payloads have this shape."""
        return ()

    def unfit(
        self,
        columns: Mapping[str, Column],  # noqa: ARG002
        shape: Shape,  # noqa: ARG002
        schema: StructType,  # noqa: ARG002
        *,
        sound: bool = False,  # noqa: ARG002
    ) -> Column | None:
        """Which processed records it can't hold: text = why, NULL = it can. Each of those is a nack of its own. None where
        it can hold whatever these columns may hold. `sound`: typed payloads are there, and their texts are UTF-8."""
        return None

    @staticmethod
    def unfit_payload(value: Any) -> str | None:  # noqa: ARG004
        """The same over one payload that is not typed, in a Python stage: bytes, a dict, or None. It is sent to Spark's
        tasks. A destination that asks for more than `after` has no use for it."""
        return None

    def begun(self, d: DeliveryId) -> bool:  # noqa: ARG002
        """Whether `write` may have written something of this delivery. Where it has not, a batch that was prepared with other settings
        is written with those of today."""
        return True

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:
        """Writes the rows; return = all durable. May be called again with the same hash after a crash or `Retry`. Records it can't
        take it hands to `refuse`, as `ExactlyOnceDestination.commit` does."""
        raise NotImplementedError

    @property
    def asks_spark(self) -> bool:
        """Whether `witness` needs `spark`. It is started for that alone."""
        return False

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:  # noqa: ARG002
        """Asks the destination itself what it has of these deliveries, and changes nothing: for `penstock reconcile`.

        Called outside of an engine, also while one runs: only `place`, and `spark` with `asks_spark`, were set before. They are of one
        lane, were prepared with these settings, and come in the order of their batches. Gives a finding for each, and one for what is
        there of this lane and is none of `known`: all deliveries of the lane that the ledger still has, for whomever. What it raises
        is shown as why it could not be asked. A finding that is wrong is asked for again where the ledger has gone on meanwhile.
        """
        yield Finding(Answer.UNKNOWN, "it keeps nothing of what it was given, and can't be asked")


@dataclass(frozen=True)
class Lines:
    """How a destination wants its lines written."""

    text: Column
    folder: Column | None = None  # the folder below its own that a record goes to; one file holds one folder's records
    compression: str = "none"  # as Spark's text writer names it
    tasks: int | None = None  # not more than so many, where files should be large
    rows_per_file: int = 0  # 0 = no limit


class ExactlyOnceDestination(NativeDestination[S]):
    """Stages invisibly, then publishes data and hash together."""

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:
        """Where a pipeline asks for less than exactly once, this one gives more."""
        return self.commit(d, self.stage(d), refuse)

    def lines(self, d: Delivery, columns: Mapping[str, Column]) -> Lines | None:  # noqa: ARG002
        """For a destination whose staged form is one line of text per record: that line. The engine then writes all outcomes
        of a batch in one job, under `staging_folder`, and gives the destination's own files to `adopt`."""
        return None

    def staging_folder(self, d: Delivery) -> Path:
        """With `lines`: where this attempt may write. It does not exist yet; the folder above it does when this returns."""
        raise NotImplementedError

    def adopt(self, d: Delivery, files: Sequence[Path], rows: int, size: int) -> Staged:
        """With `lines`: these files, in this order, hold `rows` lines of `size` bytes together. Checks and fsyncs them."""
        raise NotImplementedError

    def stage(self, d: Delivery) -> Staged:
        """Writes `d.rows` where nobody sees them, under hash and attempt id. Runs Spark jobs.

        Called once per attempt. The process may die at any point in it, and tasks of a dead attempt may still be writing
        while the next one stages. Everything named in the result is on disk when this returns.
        """
        raise NotImplementedError

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        """Makes exactly what `s` names visible, together with the hash. Only the driver; a Spark job only where there is no other way to
        publish (`delta`).

        Called after the ledger holds `s`, and again after every crash until it returned once and that was written down:
        it rolls forward from wherever the last call stopped. Records it can't take it hands to `refuse`, in record order;
        where that says False it publishes only what came before, and is called again later to go on at that record.
        """
        raise NotImplementedError

    def find(self, d: DeliveryId) -> Receipt | None:
        """Asks the destination, not the ledger: is this delivery there, whole? Called before every `commit`."""
        raise NotImplementedError

    def discard(self, d: DeliveryId) -> None:
        """Removes whatever attempts of this delivery have staged. Called when they will never be committed, and after
        `commit`; idempotent. Touches nothing that is visible."""
        raise NotImplementedError

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:
        """By `find`: the newest delivery, and those that may be under way."""
        newest = max((w.id.batch for w in deliveries if w.done), default=-1)
        noted = None
        for w in reversed([w for w in deliveries if not w.done or w.id.batch == newest]):
            receipt = self.find(w.id)
            if receipt is not None:
                noted = Noted(w.id.hash, w.id.batch, receipt)
                break
        for w, finding in by_last(deliveries, known, noted):
            # `find` does not say whether with other settings it is another place.
            elsewhere = finding.answer is Answer.MISSING and went_elsewhere(w, deliveries, known)
            yield Finding(Answer.UNKNOWN, ELSEWHERE, w.id.batch) if elsewhere else finding
