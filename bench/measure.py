"""What the benchmarks share: the input, whole processes timed in alternating order, and the arithmetic on their times."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FILES = 4
LOG = "log.txt"


@dataclass(frozen=True)
class Job:
    """A process to time. `root` is its own folder or shared with others of the same input; `outs` are folders in it."""

    command: tuple[str, ...]
    root: Path
    lines: int  # that it must deliver to each of `outs`
    outs: tuple[str, ...] = ("out",)
    count: Callable[[Path], int] | None = None  # the records of an output file; without it lines of *.txt are counted


def penstock(pipeline: Path, lines: int, outs: tuple[str, ...] = ("out",)) -> Job:
    """Penstock on a pipeline file; its state is beside the file."""
    program = str(Path(sys.executable).parent / "penstock")
    return Job((program, "run", str(pipeline), "--once", "--json"), pipeline.parent, lines, outs)


def handwritten(program: str, root: Path, lines: int) -> Job:
    """A program of this folder, called with the input folder and the output folder."""
    script = str(Path(__file__).parent / program)
    return Job((sys.executable, script, str(root / "in"), str(root / "out")), root, lines)


def in_rounds(jobs: Mapping[str, Job], rounds: int) -> Iterator[dict[str, float]]:
    """The seconds of every job, round by round, every other round in reverse order. Prints the load before each round."""
    for n in range(rounds):
        print(f"  round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        order = list(jobs) if n % 2 == 0 else list(jobs)[::-1]
        seconds = {name: timed(jobs[name]) for name in order}
        yield {name: seconds[name] for name in jobs}


def timed(job: Job) -> float:
    """Runs a job from start to exit, on fresh state and output folders, and checks that it delivered every line."""
    for name in (*(o + end for o in job.outs for end in ("", ".checkpoint")), ".penstock"):
        shutil.rmtree(job.root / name, ignore_errors=True)
    os.sync()
    with (job.root / LOG).open("wb") as log:
        started = time.monotonic()
        code = subprocess.run(job.command, check=False, stdout=log, stderr=log).returncode
        taken = time.monotonic() - started
    if code != 0:
        said = (job.root / LOG).read_text(errors="replace")
        raise SystemExit(f"{' '.join(job.command)}: exit code {code}\n{said[-4000:]}")
    for out in job.outs:
        files = (job.root / out).glob("*.txt" if job.count is None else "[!_.]*.*")
        found = sum((job.count or count_lines)(p) for p in files)
        if found != job.lines:
            raise SystemExit(f"{' '.join(job.command)}: {found} lines in {out} instead of {job.lines}")
    return taken


def medians(seconds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of every job over all rounds."""
    return {name: statistics.median(s[name] for s in seconds) for name in seconds[0]}


def rate(lines: int, small: float, large: float) -> float:
    """Lines a second between two sizes that differ by `lines`: what both need to start is in neither."""
    return lines / (large - small) if large > small else float("nan")  # too few lines, or too noisy, to say


def show(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {s:.2f} s" for name, s in seconds.items())


def count_lines(path: Path) -> int:
    with path.open("rb") as f:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: f.read(1 << 20), b""))


def write_lines(folder: Path, lines: int) -> None:
    """About 150 bytes each, in four files. `amount` goes from 0 to 99 and round again."""
    folder.mkdir(parents=True)
    pad = "x" * 90
    for n in range(FILES):
        path = folder / f"in-{n}.txt"
        with path.open("w") as f:
            for i in range(lines // FILES):
                f.write(f'{{"id": "{n}-{i:08d}", "amount": {i % 100}, "region": "eu", "pad": "{pad}"}}\n')
        os.utime(path, (time.time() - 60,) * 2)


def kept_lines(lines: int) -> int:
    """How many of `write_lines` have an `amount` of 50 or more."""
    hundreds, rest = divmod(lines // FILES, 100)
    return FILES * (50 * hundreds + max(0, rest - 50))
