"""Hosted destinations: how many records a second, how long one takes from a hosted source, and what a program that crashes costs.

`python -m bench hosted_destination`, or `python -m bench.hosted_destination SHARE ROUNDS WHAT…` for a share of the records and of the
time, and for `speed`, `latency` or `crashes` alone; 0.01 1 is enough to see that all of it runs.

Speed: `files` → Spark → host → connector that forgets, from the first look at the folder to the last ack in the ledger, with Spark
started and its first batch still cold; the start of the host and of the connector is in it. Latency: 100 records a second, each with the
moment of its read as payload, from there to the call of the destination's `write`; the parts are cut at what the engine does with the
batch of each record. Crashes: a plugin program that kills itself, with a batch that it has written and not answered, whenever it has
answered 1,000 records.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.hosted import ROOT, prepared

STOPWATCH, GO = "bench-stopwatch", "go-bench"
FILES = 4
RATE = 100  # records a second, of `latency`
SECONDS = 60.0
COLD = 0.25  # of the time: what Java still compiles is left out of the figures
CRASHING = 100_000
EVERY = 1000
PARTS = ("log", "waiting", "staging", "prepare", "sending")  # of the time between a read and a write


@dataclass(frozen=True)
class Case:
    name: str
    plugin: str
    records: int
    size: int
    ordering: str = "source"


CASES = (
    Case("SDK,   25 bytes", STOPWATCH, 6_000_000, 25),
    Case("Go,    25 bytes", GO, 3_000_000, 25),
    Case("Go,    25 bytes, ordering: none", GO, 3_000_000, 25, "none"),
    Case("SDK, 1000 bytes", STOPWATCH, 1_000_000, 1000),
    Case("Go,  1000 bytes", GO, 600_000, 1000),
)


def main(share: float = 1.0, rounds: int = 3, *wanted: str) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as made:
        folder = Path(made)
        go = prepared(folder, STOPWATCH, "bench.sdk_stopwatch")
        if not wanted or "speed" in wanted:
            speed(folder, [case for case in CASES if go or case.plugin != GO], share, rounds)
        if not wanted or "latency" in wanted:
            latency(folder, SECONDS * max(share, 0.2), rounds)
        if not wanted or "crashes" in wanted:
            crashes(folder, max(5 * EVERY, int(CRASHING * share)))


def child(what: str, folder: Path, **given: Any) -> dict[str, Any]:
    """What a function of this file says, in a process of its own: Java is as cold as it is for users."""
    command = [sys.executable, "-m", "bench.hosted_destination", "one", what, str(folder), json.dumps(given)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        raise SystemExit(done.stderr[-4000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- speed ---------------------------------------------------------------------------------------------------------------------


def speed(folder: Path, cases: Sequence[Case], share: float, rounds: int) -> None:
    rates: dict[Case, list[float]] = {case: [] for case in cases}
    for n in range(rounds):
        print(f"  speed, round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        for case in cases if n % 2 == 0 else cases[::-1]:
            count = int(case.records * share) // FILES * FILES
            lines = written(folder / f"lines-{case.size}-{count}", count, case.size)
            given = {"plugin": case.plugin, "count": count, "lines": str(lines), "ordering": case.ordering}
            rates[case].append(child("rate", folder, **given)["rate"])
    for case, found in rates.items():
        shown = f"{statistics.median(found):9,.0f} ({min(found):,.0f} to {max(found):,.0f})"
        print(f"  {case.name}: {shown} records/s", flush=True)


def written(folder: Path, count: int, size: int) -> Path:
    """Files of lines of so many bytes without their ends, once for all rounds; old enough to be read."""
    if folder.exists():
        return folder
    folder.mkdir()
    body = b"x" * (size - 12)
    for n in range(FILES):
        path = folder / f"{n}.txt"
        with path.open("wb") as file:
            file.writelines(b"%012d%b\n" % (i, body) for i in range(n, count, FILES))
        os.utime(path, (time.time() - 60,) * 2)
    return folder


def rate(folder: Path, plugin: str, count: int, lines: str, ordering: str) -> dict[str, Any]:
    from penstock.connectors.files.source import FilesSource

    looks: list[float] = []
    acks: list[float] = []
    work = Path(tempfile.mkdtemp(dir=folder))
    with ExitStack() as patches:
        patches.enter_context(patch.object(FilesSource, "available", noting(FilesSource.available, before=looks)))
        patches.enter_context(patch.object(FilesSource, "acked", noting(FilesSource.acked, after=acks)))
        from_files = {"plugin": "files", "settings": {"path": lines}}
        delivered = run_through(work, from_files, plugin, {"total": str(work / "total")}, ordering=ordering)
    counted = int((work / "total").read_text())
    if {delivered, counted} != {count}:
        raise SystemExit(f"{delivered:,} of {count:,} records were delivered, and {counted:,} have come")
    shutil.rmtree(work)
    return {"rate": count / (acks[-1] - looks[0])}


def noting(
    call: Callable[..., Any], *, before: list[float] | None = None, after: list[float] | None = None
) -> Callable[..., Any]:
    """The same, with the moments of its calls and returns."""

    def noted(*given: Any, **more: Any) -> Any:
        if before is not None:
            before.append(time.monotonic())
        found = call(*given, **more)
        if after is not None:
            after.append(time.monotonic())
        return found

    return noted


def run_through(
    work: Path,
    source: Mapping[str, Any],
    plugin: str,
    settings: Mapping[str, str],
    batch: Mapping[str, int] = {},
    ordering: str = "source",
) -> int:
    """How many records the ledger says were delivered."""
    from penstock.pipeline import Pipeline, run

    out = {
        "id": "out",
        "type": "destination",
        "plugin": plugin,
        "settings": settings,
        "batch": batch,
        "ordering": ordering,
    }
    connectors = [{"id": "in", "type": "source", **source}, out]
    pipeline = {"id": "p", "guarantee": "at-least-once", "connectors": connectors}
    file = work / "p.yaml"
    file.write_text(json.dumps({"version": "2.2", "pipelines": [pipeline]}))
    result = run(Pipeline.from_files([file]), once=True, state=work / "state").raise_for_error().pipelines[0]
    return result.lanes[0].delivered["out"]


# -- latency -------------------------------------------------------------------------------------------------------------------


def latency(folder: Path, seconds: float, rounds: int) -> None:
    for n in range(rounds):
        print(f"  latency, round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        found = child("delays", folder, seconds=seconds)
        print(
            f"    median {found['median']:.3f} s, p95 {found['p95']:.3f}, most {found['most']:.3f}; {found['records']:,} records in"
            f" {found['batches']} batches"
        )
        parts = ", ".join(f"{name} {middle:.3f} ({high:.3f})" for name, (middle, high) in found["parts"].items())
        print(f"    parts, median (p95): {parts}", flush=True)


@dataclass
class Moments:
    """When things happened to the records of a log, by their offsets. In seconds since 1970, as the connectors' own."""

    known: list[tuple[float, int]] = field(
        default_factory=list
    )  # the engine has heard that everything below is durable
    cut: dict[int, tuple[float, int, int]] = field(default_factory=dict)  # by batch, and which offsets it has
    staged: dict[int, float] = field(default_factory=dict)
    prepared: dict[int, float] = field(default_factory=dict)

    def batch_of(self, offset: int) -> int:
        return next(batch for batch, (_, start, end) in self.cut.items() if start <= offset < end)

    def of(self, offset: int, read: float, came: float) -> tuple[float, ...]:
        """The moments between which the parts are."""
        durable = next(at for at, end in self.known if offset < end)
        batch = self.batch_of(offset)
        return read, durable, self.cut[batch][0], self.staged[batch], self.prepared[batch], came


def delays(folder: Path, seconds: float) -> dict[str, Any]:
    work = Path(tempfile.mkdtemp(dir=folder))
    times = work / "times"
    moments = Moments()
    source = {"plugin": STOPWATCH, "settings": {"count": str(int(seconds * RATE)), "rate": str(RATE)}}
    with ExitStack() as patches:
        for change in watched(moments):
            patches.enter_context(change)
        run_through(work, source, STOPWATCH, {"times": str(times)})
    came = [tuple(int(word) / 1e9 for word in line.split()) for line in times.read_text().splitlines()]
    shutil.rmtree(work)
    warm = range(int(len(came) * COLD), len(came))
    all_of = [moments.of(offset, *came[offset]) for offset in warm]
    whole = sorted(found[-1] - found[0] for found in all_of)
    parts = zip(*([b - a for a, b in pairwise(found)] for found in all_of), strict=True)
    return {
        "median": statistics.median(whole),
        "p95": high(whole),
        "most": whole[-1],
        "records": len(whole),
        "batches": len({moments.batch_of(offset) for offset in warm}),
        "parts": {name: (statistics.median(p), high(p)) for name, p in zip(PARTS, parts, strict=True)},
    }


def high(found: Collection[float]) -> float:
    return statistics.quantiles(found, n=20)[-1]


def watched(moments: Moments) -> Iterator[Any]:
    """What the engine does is written down as it happens."""
    from penstock.engine.batch import run as steps
    from penstock.engine.batch import snapshot
    from penstock.engine.batch.prepare import prepare
    from penstock.engine.batch.stage import stage
    from penstock.host.remote import Host

    heard, take = Host._heard, snapshot.take

    def noted_heard(self: Host, line: bytes) -> None:
        heard(self, line)
        moments.known.append((time.time(), self.known.end))

    def noted_take(*given: Any) -> Any:
        found = take(*given)
        if found is not None:
            (r,) = found[0].ranges
            moments.cut[found[0].batch] = time.time(), r.position["from"], r.position["to"]
        return found

    def noted_stage(*given: Any) -> Any:
        found = stage(*given)
        moments.staged[given[1].batch] = time.time()
        return found

    def noted_prepare(*given: Any) -> None:
        prepare(*given)
        moments.prepared[given[1].batch] = time.time()

    yield patch.object(Host, "_heard", noted_heard)
    yield patch.object(snapshot, "take", noted_take)
    yield patch.object(steps, "stage", noted_stage)
    yield patch.object(steps, "prepare", noted_prepare)


# -- crashes -------------------------------------------------------------------------------------------------------------------


def crashes(folder: Path, count: int) -> None:
    from tests.support.hosted_pipelines import installed

    plugin = installed(folder, "crashing", "penstock.connectors.chaos.connector:connector")
    lines = written(folder / "lines-crash", count // FILES * FILES, 25)
    for most in (1000, 100):
        found = child("crashed", folder, plugin=plugin, lines=str(lines), most=most)
        print(
            f"  crashes every {EVERY:,} records, {most:,} at once: {found['records']:,} of {count:,} arrived, {found['lives']} lives,"
            f" {found['seconds']:.1f} s; {found['duplicates']:,} duplicates, {found['resent']:,} sent again as the engine counts",
            flush=True,
        )


def crashed(folder: Path, plugin: str, lines: str, most: int) -> dict[str, Any]:
    from penstock.host.sink import Sinks

    resent: dict[str, int] = {}
    close = Sinks.close

    def noted_close(self: Sinks) -> None:
        close(self)
        resent.update(self.resent())

    work = Path(tempfile.mkdtemp(dir=folder))
    out, calls = work / "out", work / "calls"
    settings = {"path": str(out), "calls": str(calls), "answer": f"kill every {EVERY} records"}
    started = time.monotonic()
    with patch.object(Sinks, "close", noted_close):
        run_through(work, {"plugin": "files", "settings": {"path": lines}}, plugin, settings, {"max-records": most})
    taken = time.monotonic() - started
    arrived = [json.loads(line)["position"] for line in out.read_text().splitlines()]
    lives = sum(json.loads(line)["method"] == "open" for line in calls.read_text().splitlines())
    shutil.rmtree(work)
    return {
        "records": len(set(arrived)),
        "duplicates": len(arrived) - len(set(arrived)),
        "resent": resent.get("out", 0),
        "lives": lives,
        "seconds": taken,
    }


ONE: Mapping[str, Callable[..., dict[str, Any]]] = {"rate": rate, "delays": delays, "crashed": crashed}

if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(ONE[sys.argv[2]](Path(sys.argv[3]), **json.loads(sys.argv[4]))))
    else:
        share, rounds, *wanted = [*sys.argv[1:], *("1.0", "3")[len(sys.argv) - 1 :]]
        main(float(share), int(rounds), *wanted)
