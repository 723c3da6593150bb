"""The interface of native destinations. Being an `ExactlyOnceDestination` *is* the claim; there is no flag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from penstock.native.delivery import Delivery, DeliveryId, Receipt, Staged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

S = TypeVar("S")


class NativeDestination(Generic[S]):
    """At least once. One instance per lane and destination, in the engine process; lanes call theirs at the same time.

    In every method `Retry` makes the lane back off, run recovery and try again, `Stop` stops the pipeline, and any other
    exception counts as `Stop`.
    """

    packages: ClassVar[Mapping[str, str]] = {}

    def __init__(self, settings: S, destination_id: str) -> None:
        """Called before Spark is there. No I/O."""
        self.settings = settings
        self.destination_id = destination_id

    def check(self) -> None:
        """Called once before Spark starts: can this ever work? Raise `Stop` if not."""

    def setup(self, spark: SparkSession, schema: StructType) -> None:
        """Called once per lane before its first batch, with the columns to come. Creates what is missing; idempotent."""

    def write(self, d: Delivery) -> Receipt:
        """Writes the rows; return = all durable. May be called again with the same hash after a crash or `Retry`."""
        raise NotImplementedError


class ExactlyOnceDestination(NativeDestination[S]):
    """Stages invisibly, then publishes data and hash together."""

    def stage(self, d: Delivery) -> Staged:
        """Writes `d.rows` where nobody sees them, under hash and attempt id. Runs Spark jobs.

        Called once per attempt. The process may die at any point in it, and tasks of a dead attempt may still be writing
        while the next one stages. Everything named in the result is on disk when this returns.
        """
        raise NotImplementedError

    def commit(self, d: DeliveryId, s: Staged) -> Receipt:
        """Makes exactly what `s` names visible, together with the hash. Only the driver; no Spark job.

        Called after the ledger holds `s`, and again after every crash until it returned once and that was written down:
        it rolls forward from wherever the last call stopped.
        """
        raise NotImplementedError

    def find(self, d: DeliveryId) -> Receipt | None:
        """Asks the destination, not the ledger: is this delivery there, whole? Called by recovery before `commit`."""
        raise NotImplementedError

    def discard(self, d: DeliveryId) -> None:
        """Removes whatever attempts of this delivery have staged. Called when they will never be committed, and after
        `commit`; idempotent. Touches nothing that is visible."""
        raise NotImplementedError
