"""A process that writes, reads or compacts a log, to be killed: `python -m tests.support.log_child JOB`. Only tests start it.

What it did it says on its standard output, a line at a time, written at once: what was said before a SIGKILL is known. The small
helpers at the end are for tests that do the same in their own process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.log import LogFull, LogUnwritable, Lost, Reader, Writer, compact
from penstock.testing import faults
from penstock_sdk.record import Record


@dataclass(frozen=True)
class Job:
    folder: str
    work: str  # append, compact, follow or hold
    count: int = 1  # of records, for append
    first: int = 0  # the number of the first one
    size: int = 20  # characters of text in each
    every: int = 1  # a commit after so many
    namespaces: tuple[str, ...] = ("a",)  # in turn
    settings: dict[str, Any] = field(default_factory=dict)  # of the Writer
    kill_at: str = ""  # a point, or point:part of the detail; "" is every point
    kill_nth: int = 0  # the process dies at this one
    file_bytes: int = 0  # no file may become larger
    off: tuple[str, ...] = ()


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(job: Job) -> None:
    seen = 0

    def hook(point: str, detail: str) -> None:
        nonlocal seen
        wanted, _, part = job.kill_at.partition(":")
        if wanted not in ("", point) or part not in detail:
            return
        seen += 1
        if seen == job.kill_nth:
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # not one step further while the signal is on its way

    faults.install(hook, job.off)
    if job.file_bytes:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (job.file_bytes, resource.RLIM_INFINITY))
    {"append": _append, "compact": _compact, "follow": _follow, "hold": _hold}[job.work](job)
    say("end")


def _append(job: Job) -> None:
    writer = Writer(Path(job.folder), **{"commit_interval": 1e9, **job.settings})
    say("open", writer.end, writer.recovered.cut)
    for n in range(job.first, job.first + job.count):
        try:
            at = writer.append([record(n, job.namespaces[n % len(job.namespaces)], job.size)])
        except (LogUnwritable, LogFull) as error:
            say("refused", n, len(error.appended))
            break
        say("appended", n, at.start)
        if (n + 1) % job.every == 0:
            say("durable", writer.commit())
    if job.file_bytes:  # dies with what it has
        os.kill(os.getpid(), signal.SIGKILL)
    writer.close()


def _compact(job: Job) -> None:
    done = compact(Path(job.folder), **job.settings)
    say("compacted", done.removed)


def _follow(job: Job) -> None:
    """Until the record with the number `count`."""
    with Reader(Path(job.folder)) as reader:
        say("ready")
        for found in reader.follow(job.first, stop=lambda: False, poll=0.001):
            for offset, n in numbered([found]):
                say("saw", offset, n)
                if n >= job.count:
                    return


def _hold(job: Job) -> None:
    with Writer(Path(job.folder), **job.settings) as writer:
        say("ready", writer.end)
        sys.stdin.read()


# -- for the parent ---------------------------------------------------------------------------------------------------------

_children: list[subprocess.Popen[str]] = []


@dataclass
class Ended:
    returncode: int
    lines: list[list[str]]
    err: str

    @property
    def killed(self) -> bool:
        return self.returncode == -signal.SIGKILL

    def said(self, word: str) -> list[list[int]]:
        return [[int(w) for w in line[1:]] for line in self.lines if line[0] == word]

    @property
    def acknowledged(self) -> dict[int, int]:
        """Number by offset, of what a commit returned for."""
        durable = max((line[0] for line in self.said("durable")), default=0)
        return {offset: n for n, offset in self.said("appended") if offset < durable}


def start(job: Job) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.log_child", json.dumps(asdict(job))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    _children.append(child)
    return child


def ended(child: subprocess.Popen[str], before: Sequence[str] = ()) -> Ended:
    """`before`: lines that were read already."""
    out, err = child.communicate(timeout=120)
    lines = [line.split() for line in [*before, *out.splitlines()] if line.split()]
    return Ended(child.returncode, lines, err)


def run(job: Job) -> Ended:
    return ended(start(job))


def end_children() -> None:
    while _children:
        child = _children.pop()
        if child.poll() is None:
            child.kill()
            child.communicate()


def record(n: int, namespace: str = "a", size: int = 20) -> Record:
    return Record({"n": n, "text": "x" * size}, namespace=namespace)


def batch(numbers: Iterable[int], size: int = 20) -> pa.RecordBatch:
    numbers = list(numbers)
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64()), "text": ["x" * size] * len(numbers)})


def numbered(found: Iterable[Any]) -> Iterator[tuple[int, int]]:
    """Offset and number of each record, of both kinds above."""
    for rows in found:
        assert not isinstance(rows, Lost), rows
        columns = "n" in rows.rows.schema.names
        numbers = rows.rows.column("n").to_pylist() if columns else [r.after["n"] for r in rows.records()]
        yield from enumerate(numbers, rows.offset)


def held(folder: Path, start: int = 0) -> list[tuple[int, int]]:
    """What a reader finds."""
    with Reader(folder) as reader:
        return list(numbered(reader.read(start)))


if __name__ == "__main__":
    value = json.loads(sys.argv[1])
    main(Job(**{**value, "namespaces": tuple(value["namespaces"]), "off": tuple(value["off"])}))
