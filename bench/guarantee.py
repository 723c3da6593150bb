"""What exactly once costs against at least once: files to files, the same lines, the same Spark, alternating.

`python -m bench guarantee`, or `python -m bench.guarantee LINES ROUNDS`. For `postgres` see `python -m bench postgres`.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.measure import write_lines

GUARANTEES = ("exactly-once", "at-least-once")


def main(lines: int = 4_000_000, rounds: int = 5) -> None:
    from penstock.engine import session

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as made:
        folder = Path(made)
        write_lines(folder / "in", lines)
        spark = session.start(f"local[{os.cpu_count()},4]", {}, folder / "spark.log")
        times: dict[str, list[float]] = {name: [] for name in GUARANTEES}
        try:
            for n in range(-1, rounds):  # the first round is for Java
                print(f"  round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
                for name in GUARANTEES[:: 1 if n % 2 else -1]:
                    taken = piped(spark, folder, name, n + 1, lines)
                    if n >= 0:
                        times[name].append(taken)
        finally:
            spark.stop()
    for name, found in times.items():
        middle = statistics.median(found)
        print(f"  {name}: {middle:.2f} s ({', '.join(f'{t:.2f}' for t in found)}), {lines / middle:,.0f} lines/s")
    ratios = [a / b for a, b in zip(*times.values(), strict=True)]
    each = ", ".join(f"{r - 1:+.0%}" for r in ratios)
    print(f"  exactly once costs {statistics.median(ratios) - 1:+.0%} against at least once ({each})")


def piped(spark: Any, folder: Path, guarantee: str, n: int, lines: int) -> float:
    from penstock.pipeline import Pipeline, run

    p = Pipeline("p").guarantee(guarantee).source("in", "files", path=folder / "in")
    p.destination("out", "files", path=folder / f"out-{guarantee}-{n}")
    began = time.monotonic()
    result = run([p], once=True, state=folder / f"state-{guarantee}-{n}", spark=spark).raise_for_error().pipelines[0]
    taken = time.monotonic() - began
    if result.lanes[0].delivered != {"out": lines}:
        raise SystemExit(f"{result.lanes[0].delivered} of {lines}")
    return taken


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
