"""A Python function over every record: records a second, whole process, and with start-up taken out.

`python -m bench python`, or `python -m bench.python LINES ROUNDS`: LINES and four times as many, alternating; start-up is what both
have in common.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.measure import Job, in_rounds, medians, penstock, rate, show, write_lines

PIPELINE = """\
version: "2.2"
pipelines:
  - id: bench
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
    processors:
      - {{id: touch, plugin: python, settings: {{function: "bench_function:touch"}}}}
"""
FUNCTION = """\
def touch(r):
    r.after = r.after.upper()
    return r
"""


def main(lines: int = 2_000_000, rounds: int = 5) -> None:
    sizes = {f"{n:,} records": n for n in (lines, 4 * lines)}
    with tempfile.TemporaryDirectory() as folder:
        jobs = {name: prepare(Path(folder) / str(n), n) for name, n in sizes.items()}
        taken = []
        for seconds in in_rounds(jobs, rounds):
            taken.append(seconds)
            print(f"  {show(seconds)}", flush=True)
    median = medians(taken)
    for name, n in sizes.items():
        print(f"  {name}: {n / median[name]:,.0f} records/s, whole process (median of {rounds})", flush=True)
    small, large = median.values()
    found = rate(3 * lines, small, large)
    print(f"  start-up taken out: {found:,.0f} records/s (target at least 400,000)", flush=True)


def prepare(root: Path, lines: int) -> Job:
    write_lines(root / "in", lines)
    (root / "p.yaml").write_text(PIPELINE.format(root=root))
    (root / "bench_function.py").write_text(FUNCTION)
    return penstock(root / "p.yaml", lines)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
