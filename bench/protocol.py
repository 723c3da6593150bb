"""The protocol layer alone: records of a Go source through our clients to a Go destination, and the acks back to the source.

`python -m bench protocol`, or `python -m bench.protocol SHARE ROUNDS` for a share of the records. The source makes records up and the
destination forgets them. Nothing is decoded on the way but the acks. The two Go programs use the processor as well, so speeds come with
our own CPU time of a record.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from penstock_protocol.client import Destination, Source
from penstock_protocol.process import PluginProcess
from tests.support.go import built

WAIT = 60.0


@dataclass(frozen=True)
class Case:
    dialects: tuple[int, int]  # of the source and of the destination
    batch: int  # records in a message of the source
    size: int  # bytes of a payload

    def __str__(self) -> str:
        first, second = self.dialects
        return f"v{first} to v{second}, {self.batch:5,} in a message, {self.size:5,} bytes"

    @property
    def records(self) -> int:
        """About two seconds' worth."""
        if self.batch > 1:
            return 600_000 if self.size < 100 else 300_000
        return 40_000 if self.dialects[1] == 2 else 15_000


CASES = (
    *(Case((2, 2), batch, size) for batch in (1000, 1) for size in (25, 1000)),
    *(Case(dialects, 1, 25) for dialects in ((1, 2), (2, 1), (1, 1))),
    Case((1, 1), 1, 1000),
)


@dataclass(frozen=True)
class Run:
    rate: float  # records a second
    cpu: float  # our own, µs a record


def main(share: float = 1.0, rounds: int = 5) -> None:
    if shutil.which("go") is None:
        print("  go is missing: nothing is measured")
        return
    runs: dict[Case, list[Run]] = {case: [] for case in CASES}
    for n in range(rounds):
        print(f"  round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        for case in CASES if n % 2 == 0 else CASES[::-1]:
            runs[case].append(measured(case, int(case.records * share)))
    for case, found in runs.items():
        print(
            f"  {case}: {_shown([run.rate for run in found])} records/s, {_cpu(found):.2f} µs of our CPU each",
            flush=True,
        )


def measured(case: Case, count: int) -> Run:
    program = [str(built("./bench"))]
    first, second = case.dialects
    with (
        PluginProcess(program, connector_id="bench:from", dialects=[first]) as giver,
        PluginProcess(program, connector_id="bench:to", dialects=[second]) as taker,
    ):
        source, destination = giver.source(WAIT), taker.destination(WAIT)
        source.configure({"count": str(count), "batch": str(case.batch), "size": str(case.size)})
        destination.configure({})
        destination.open()
        started, cpu = time.monotonic(), time.process_time()
        source.open(b"")
        moved(source, destination, count)
        run = Run(count / (time.monotonic() - started), (time.process_time() - cpu) / count * 1e6)
        source.stop()
        source.teardown()
        destination.teardown()
        return run


def moved(source: Source, destination: Destination, count: int) -> None:
    """One thread passes records on, another the acks: as many are in flight as the streams hold."""

    def forward() -> None:
        sent = 0
        while sent < count:
            records = source.read(WAIT)
            sent += len(records)
            destination.write(records)

    forwarding = threading.Thread(target=forward)
    forwarding.start()
    acked = 0
    while acked < count:
        found = destination.acks(WAIT)
        if any(ack.error for ack in found):
            raise SystemExit("a record was refused")
        source.ack([ack.position for ack in found])
        acked += len(found)
    forwarding.join()


def _cpu(runs: Sequence[Run]) -> float:
    return statistics.median(run.cpu for run in runs)


def _shown(rates: Sequence[float]) -> str:
    return f"{statistics.median(rates):9,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


if __name__ == "__main__":
    given = sys.argv[1:]
    main(float(given[0]) if given else 1.0, int(given[1]) if len(given) > 1 else 5)
