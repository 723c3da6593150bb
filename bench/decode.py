"""Decode, filter, set a field, encode, whole process: Penstock (exactly once) against hand-written Structured Streaming.

`python -m bench decode`, or `python -m bench.decode LINES ROUNDS [schema]`: LINES, then four times as many, and from the medians
of both the rate with start-up taken out. Penstock decodes without a schema, in Python; with `schema` it is given the one
that the hand-written program has, and decodes in Spark as that does.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from bench.measure import handwritten, in_rounds, kept_lines, medians, penstock, rate, show, write_lines

SCHEMA = ', schema: "id STRING, amount BIGINT, region STRING, pad STRING"'
PIPELINE = """\
version: "2.2"
pipelines:
  - id: bench
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
    processors:
      - {{id: decode, plugin: json.decode, settings: {{field: .Payload.After{schema}}}}}
      - {{id: small, plugin: filter, condition: "after.amount < 50"}}
      - {{id: region, plugin: field.set, settings: {{field: .Payload.After.region, value: eu}}}}
      - {{id: encode, plugin: json.encode, settings: {{field: .Payload.After}}}}
"""


def main(lines: int = 2_000_000, rounds: int = 5, schema: str = "") -> None:
    small = compare(lines, rounds, schema)
    large = compare(4 * lines, rounds, schema)
    rates = {name: rate(3 * lines, small[name], large[name]) for name in small}
    shown = ", ".join(f"{name} {r:,.0f} lines/s" for name, r in rates.items())
    ratio = rates["penstock"] / rates["hand-written"]
    print(f"  start-up taken out: {shown}, ratio {ratio:.2f} (target at least 1.25)", flush=True)


def compare(lines: int, rounds: int, schema: str) -> dict[str, float]:
    """Prints the ratios for one size. Returns the median seconds of each side."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_lines(root / "in", lines)
        (root / "p.yaml").write_text(PIPELINE.format(root=root, schema=schema))
        jobs = {
            "hand-written": handwritten("handwritten_decode.py", root, kept_lines(lines)),
            "penstock": penstock(root / "p.yaml", kept_lines(lines)),
        }
        taken, ratios = [], []
        for seconds in in_rounds(jobs, rounds):
            taken.append(seconds)
            ratios.append(seconds["hand-written"] / seconds["penstock"])
            print(f"  {lines:,} lines: {show(seconds)}, speed ratio {ratios[-1]:.2f}", flush=True)
        median = statistics.median(ratios)
        print(f"  {lines:,} lines: median ratio {median:.2f} ({rounds} rounds; target at least 0.95)", flush=True)
        return medians(taken)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), SCHEMA if sys.argv[3:] == ["schema"] else "")
