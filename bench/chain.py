"""Five operations on fields, whole process: Penstock (exactly once) against hand-written Structured Streaming.

`python -m bench chain`, or `python -m bench.chain LINES ROUNDS [open|object|typed]`. Open: lines of JSON, decode, five operations,
encode; by hand `from_json` and `to_json`, the fields as columns. Object: the same against `withField` on the object. Typed: Parquet
to Parquet; by hand the same columns in Spark SQL.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

from bench.formats import _rows_of_parquet, write
from bench.measure import Job, handwritten, in_rounds, penstock, show

PIPELINE = """\
version: "2.2"
pipelines:
  - id: bench
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in, format: {form}}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out, format: {form}}}}}
    processors:
{first}      - {{id: region, plugin: field.set, settings: {{field: .Payload.After.region, value: us}}}}
      - {{id: origin, plugin: field.set, settings: {{field: .Payload.After.origin, value: shop}}}}
      - {{id: amount, plugin: field.convert, settings: {{field: .Payload.After.amount, type: string}}}}
      - {{id: key, plugin: field.rename, settings: {{mapping: ".Payload.After.id:key"}}}}
      - {{id: less, plugin: field.exclude, settings: {{fields: .Payload.After.price}}}}
{last}"""
DECODE = "      - {id: decode, plugin: json.decode}\n"
ENCODE = "      - {id: encode, plugin: json.encode}\n"
TARGETS = {"open": 1.1, "object": 1.1, "typed": 0.85}


def main(lines: int = 2_000_000, rounds: int = 5, names: tuple[str, ...] = ("open", "object", "typed")) -> None:
    for name in names:
        compare(name, lines, rounds)


def compare(name: str, lines: int, rounds: int) -> None:
    lines_of_json = name in ("open", "object")
    form = "text" if lines_of_json else "parquet"
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write("json" if lines_of_json else form, root / "in", lines)
        around = {"first": DECODE, "last": ENCODE} if lines_of_json else {"first": "", "last": ""}
        (root / "p.yaml").write_text(PIPELINE.format(root=root, form=form, **around))
        hand = handwritten("handwritten_chain.py", root, lines)
        count = None if lines_of_json else _rows_of_parquet
        kept = lines
        jobs = {
            "hand-written": Job(
                (*hand.command[:2], "object" if name == "object" else form, *hand.command[2:]), root, kept, count=count
            ),
            "penstock": Job(penstock(root / "p.yaml", kept).command, root, kept, count=count),
        }
        ratios = []
        for seconds in in_rounds(jobs, rounds):
            ratios.append(seconds["hand-written"] / seconds["penstock"])
            print(f"  {name}, {lines:,} records: {show(seconds)}, speed ratio {ratios[-1]:.2f}", flush=True)
        median = statistics.median(ratios)
        print(f"  {name}: median ratio {median:.2f} ({rounds} rounds; target at least {TARGETS[name]})", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]) or ("open", "object", "typed"))
