"""`blackhole` as a destination: the records are computed and counted, and go nowhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from penstock import record
from penstock.connectors.blackhole.settings import BlackholeDestinationSettings
from penstock.native import (
    Answer,
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Finding,
    Receipt,
    Refuse,
    Staged,
    Witnessed,
)


class BlackholeDestination(ExactlyOnceDestination[BlackholeDestinationSettings]):
    columns: ClassVar[frozenset[str]] = frozenset({record.AFTER})

    def stage(self, d: Delivery) -> Staged:
        from pyspark.sql import Observation
        from pyspark.sql import functions as F

        assert d.rows is not None
        seen = Observation()
        d.rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.format("noop").mode("append").save()
        return Staged(seen.get["rows"])

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:  # noqa: ARG002
        return Receipt(s.rows)

    def find(self, d: DeliveryId) -> Receipt | None:  # noqa: ARG002
        return None

    def discard(self, d: DeliveryId) -> None:
        pass

    def witness(self, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> Iterator[Finding]:  # noqa: ARG002
        yield Finding(Answer.UNKNOWN, "it keeps nothing, and can't be asked")
