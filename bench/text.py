"""Text to text, whole process from start to exit: Penstock (exactly once) against hand-written Structured Streaming.

`python -m bench text`, or `python -m bench.text LINES ROUNDS`.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from bench.measure import handwritten, in_rounds, penstock, show, write_lines

PIPELINE = """\
version: "2.2"
pipelines:
  - id: bench
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
"""


def main() -> None:
    for lines, rounds in ((2_000_000, 5), (8_000_000, 5)):
        compare(lines, rounds)


def compare(lines: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_lines(root / "in", lines)
        (root / "p.yaml").write_text(PIPELINE.format(root=root))
        jobs = {
            "hand-written": handwritten("handwritten_text.py", root, lines),
            "penstock": penstock(root / "p.yaml", lines),
        }
        ratios = []
        for seconds in in_rounds(jobs, rounds):
            ratios.append(seconds["hand-written"] / seconds["penstock"])
            print(f"  {lines:,} lines: {show(seconds)}, speed ratio {ratios[-1]:.2f}", flush=True)
        print(f"  {lines:,} lines: median ratio {statistics.median(ratios):.2f} ({rounds} rounds)", flush=True)


if __name__ == "__main__":
    compare(int(sys.argv[1]), int(sys.argv[2]))
