"""A destination a hundred times slower than its hosted source: memory and log over ten minutes (row S10).

`python -m bench backpressure`, or `python -m bench.backpressure SECONDS`. The source (`chaos`, as quick as it can be) goes through a log of
64 MB; a processor sleeps for each record. Memory is that of every process of the engine together, and of each kind, in MB: after the
first minute, and at most after that.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from pathlib import Path

from bench.idle import below
from penstock.native import Record
from penstock.pipeline import Pipeline, run

SECONDS = 600.0
EVERY = 5.0
LIMIT = 64 << 20
PAUSE = 0.0005  # seconds of each record, in each of two tasks


def slow(r: Record) -> Record:
    time.sleep(PAUSE)
    return r


def main(seconds: float = SECONDS) -> None:
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        work = Path(folder)
        pipeline = Pipeline("p").source("in", "chaos", records=10**9, size=100, log={"max-size": str(LIMIT)})
        pipeline.processor("slow", slow).destination("out", "files", path=work / "out", format="text")

        def watch(engine: object) -> None:
            def body() -> None:
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    time.sleep(EVERY)
                    log = work / "state" / "logs" / "p.in"
                    size = sum(f.stat().st_size for f in log.glob("*.seg") if f.exists()) / 1e6 if log.exists() else 0.0
                    samples.append({"log": size, **memory(os.getpid())})
                engine.stop.request()  # type: ignore[attr-defined]

            threading.Thread(target=body, daemon=True).start()

        result = run([pipeline], once=False, state=work / "state", started=watch).pipelines[0]
        lane = result.lanes[0]
        print(
            f"  {lane.read:,} records delivered in {result.seconds:.0f} s, {lane.remaining} left; {result.status.value}"
        )
    later = samples[int(60 / EVERY) :]
    for name in later[0]:
        first, most, last = later[0][name], max(s.get(name, 0.0) for s in later), later[-1].get(name, 0.0)
        print(f"  {name:8} {first:8.1f} MB after a minute, {most:8.1f} at most, {last:8.1f} at the end", flush=True)


def memory(root: int) -> dict[str, float]:
    """Resident, of the engine and everything below it, by kind."""
    found = {"engine": 0.0, "java": 0.0, "host": 0.0, "tasks": 0.0, "all": 0.0}
    for pid in {root, *below(root)}:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            rss = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6
        except (OSError, IndexError):
            continue
        kind = (
            "engine"
            if pid == root
            else "java"
            if b"java" in words[0]
            else "host"
            if b"penstock.host" in words
            else "tasks"
        )
        found[kind] += rss
        found["all"] += rss
    return found


if __name__ == "__main__":
    main(*(float(text) for text in sys.argv[1:]))
