"""Each format to itself, whole process: Penstock (exactly once) against hand-written Structured Streaming.

`python -m bench formats`, or `python -m bench.formats LINES ROUNDS [FORMAT…]`. JSON is read without a schema by Penstock and
with one by hand, since a streaming query needs one; `json-schema` gives Penstock the same one.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import FILES, Job, count_lines, handwritten, in_rounds, penstock, show

SCHEMA = "id STRING, amount BIGINT, region STRING, price DOUBLE, at TIMESTAMP, pad STRING"
PIPELINE = """\
version: "2.2"
pipelines:
  - id: bench
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in, format: {form}{more}}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out, format: {form}}}}}
"""
FORMATS = ("json", "json-schema", "csv", "parquet")


def main(lines: int = 2_000_000, rounds: int = 5, names: tuple[str, ...] = FORMATS) -> None:
    for name in names:
        compare(name, lines, rounds)


def compare(name: str, lines: int, rounds: int) -> None:
    form, _, schema = name.partition("-")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write(form, root / "in", lines)
        more = f', schema: "{SCHEMA}"' if schema else ""
        (root / "p.yaml").write_text(PIPELINE.format(root=root, form=form, more=more))
        hand = handwritten("handwritten_formats.py", root, lines)
        count = {"json": count_lines, "csv": _rows_of_csv, "parquet": _rows_of_parquet}[form]
        commands = {
            "hand-written": (*hand.command[:2], form, *hand.command[2:]),
            "penstock": penstock(root / "p.yaml", lines).command,
        }
        jobs = {who: Job(command, root, lines, count=count) for who, command in commands.items()}
        ratios = []
        for seconds in in_rounds(jobs, rounds):
            ratios.append(seconds["hand-written"] / seconds["penstock"])
            print(f"  {name}, {lines:,} records: {show(seconds)}, speed ratio {ratios[-1]:.2f}", flush=True)
        median = statistics.median(ratios)
        print(f"  {name}: median ratio {median:.2f} ({rounds} rounds; target at least 0.8)", flush=True)


def write(form: str, folder: Path, lines: int) -> None:
    """Four files of records with six fields, about 150 bytes each as text."""
    folder.mkdir(parents=True)
    for n in range(FILES):
        path = folder / f"in-{n}.{form}"
        if form == "parquet":
            _write_parquet(path, n, lines // FILES)
        else:
            with path.open("w") as f:
                f.writelines(_lines(form, n, lines // FILES))
        os.utime(path, (time.time() - 60,) * 2)


def _lines(form: str, n: int, lines: int) -> Iterator[str]:
    pad = "x" * 60
    if form == "csv":
        yield "id,amount,region,price,at,pad\n"
        for i in range(lines):
            yield f"{n}-{i:08d},{i % 100},eu,{i % 1000 / 8},2026-01-01T00:00:00Z,{pad}\n"
        return
    for i in range(lines):
        yield (
            f'{{"id": "{n}-{i:08d}", "amount": {i % 100}, "region": "eu", "price": {json.dumps(i % 1000 / 8)},'
            f' "at": "2026-01-01T00:00:00Z", "pad": "{pad}"}}\n'
        )


def _write_parquet(path: Path, n: int, lines: int) -> None:
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = np.arange(lines)
    pads = [f"{i * 2654435761 % 2**32:08x}" * 8 for i in range(10_000)]  # not one value, so that pages are not empty
    table = pa.table(
        {
            "id": pa.array([f"{n}-{i:08d}" for i in range(lines)]),
            "amount": pa.array(numbers % 100),
            "region": pa.array(["eu"] * lines),
            "price": pa.array(numbers % 1000 / 8),
            "at": pa.array(np.full(lines, 1767225600000000), pa.timestamp("us", tz="UTC")),
            "pad": pa.array([pads[i % 10_000] for i in range(lines)]),
        }
    )
    pq.write_table(table, path, row_group_size=500_000)


def _rows_of_csv(path: Path) -> int:
    found = count_lines(path)
    return found - 1 if found else 0


def _rows_of_parquet(path: Path) -> int:
    import pyarrow.parquet as pq

    rows: int = pq.read_metadata(path).num_rows
    return rows


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]) or FORMATS)
