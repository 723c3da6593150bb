"""Decode, filter, set a field, encode to 1 and to 3 destinations: what three cost, measured in the cost of one.

`python -m bench fanout`, or `python -m bench.fanout LINES ROUNDS`. Start-up is what the same pipeline takes for 400 lines.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.measure import Job, in_rounds, kept_lines, medians, penstock, show, write_lines

FEW = 400
PIPELINE = """\
version: "2.2"
pipelines:
  - id: bench
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
{destinations}
    processors:
      - {{id: decode, plugin: json.decode, settings: {{field: .Payload.After}}}}
      - {{id: small, plugin: filter, condition: "after.amount < 50"}}
      - {{id: region, plugin: field.set, settings: {{field: .Payload.After.region, value: eu}}}}
      - {{id: encode, plugin: json.encode, settings: {{field: .Payload.After}}}}
"""
DESTINATION = "      - {{id: {out}, type: destination, plugin: files, settings: {{path: {root}/{out}}}}}"


def main(lines: int = 2_000_000, rounds: int = 5) -> None:
    with tempfile.TemporaryDirectory() as folder:
        few, many = Path(folder) / "few", Path(folder) / "many"
        write_lines(few / "in", FEW)
        write_lines(many / "in", lines)
        jobs = {
            "1 start-up": prepare(few, FEW, 1),
            "3 start-up": prepare(few, FEW, 3),
            "1": prepare(many, lines, 1),
            "3": prepare(many, lines, 3),
        }
        taken = []
        for seconds in in_rounds(jobs, rounds):
            taken.append(seconds)
            print(f"  {lines:,} lines to {show(seconds)}; cost of 3 in 1: {costs(seconds)}", flush=True)
    median = medians(taken)
    print(f"  medians: {show(median)} ({rounds} rounds)", flush=True)
    print(f"  {lines:,} lines: cost of 3 in 1: {costs(median)} (target at most 3.5)", flush=True)


def costs(seconds: dict[str, float]) -> str:
    """Each side's own start-up is taken out. No number when there were too few lines, or too much noise, to say."""
    one, three = seconds["1"] - seconds["1 start-up"], seconds["3"] - seconds["3 start-up"]
    work = three / one if one > 0 and three > 0 else float("nan")
    return f"whole {seconds['3'] / seconds['1']:.2f}, start-up taken out {work:.2f}"


def prepare(root: Path, lines: int, destinations: int) -> Job:
    """A pipeline file for so many destinations, each a folder of `root`."""
    outs = tuple(f"out{n}" for n in range(1, destinations + 1))
    block = "\n".join(DESTINATION.format(out=out, root=root) for out in outs)
    pipeline = root / f"p{destinations}.yaml"
    pipeline.write_text(PIPELINE.format(root=root, destinations=block))
    return penstock(pipeline, kept_lines(lines), outs)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
