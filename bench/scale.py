"""Growth: the same pipeline over 10^5, 10^6 and 10^7 records; 10^5 small files; and, when asked, 10^8 short records.

`python -m bench scale`, or `python -m bench.scale growth | files | long`. Prints the time per record, and for `long` the memory of
Python (the engine and its workers) and of the JVM over time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measure import Job, count_lines, penstock, timed

GROWTH = """\
version: "2.2"
pipelines:
  - id: growth
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in, format: json}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out, format: json}}}}
    processors:
      - {{id: small, plugin: filter, condition: "after.amount < 0"}}
      - {{id: region, plugin: field.set, settings: {{field: .Payload.After.region, value: eu}}}}
"""
SMALL = """\
version: "2.2"
pipelines:
  - id: small
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
"""
LONG = """\
version: "2.2"
pipelines:
  - id: long
    connectors:
      - {{id: in, type: source, plugin: generator, settings: {{recordCount: "{records}", template: "{{seq}},{{int:1..1000}}"}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
"""


def main(names: tuple[str, ...] = ("growth", "files")) -> None:
    for name in names:
        {"growth": growth, "files": files, "long": long}[name]()


def growth() -> None:
    for records in (100_000, 1_000_000, 10_000_000):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "in").mkdir()
            for n in range(4):
                with (root / "in" / f"{n}.jsonl").open("w") as f:
                    f.writelines(f'{{"id": "{n}-{i}", "amount": {i % 100}}}\n' for i in range(records // 4))
            (root / "p.yaml").write_text(GROWTH.format(root=root))
            seconds = timed(Job(penstock(root / "p.yaml", records).command, root, records, count=count_lines))
            print(f"  {records:,} records: {seconds:.1f} s, {seconds / records * 1e6:.2f} µs each", flush=True)


def files(n: int = 100_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for i in range(n):
            if i % 1000 == 0:
                (root / "in" / f"{i // 1000:03d}").mkdir(parents=True)
            (root / "in" / f"{i // 1000:03d}" / f"{i:06d}.txt").write_text(f"{i}-a\n{i}-b\n{i}-c\n")
        (root / "p.yaml").write_text(SMALL.format(root=root).replace("/in}", "/in, recursive: true}"))
        time.sleep(1)
        seconds = timed(penstock(root / "p.yaml", 3 * n))
        print(f"  {n:,} files of 3 lines: {seconds:.1f} s, {n / seconds:,.0f} files/s", flush=True)


def long(records: int = 100_000_000) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "p.yaml").write_text(LONG.format(root=root, records=records))
        ended = threading.Event()
        watcher = threading.Thread(target=_watch, args=(str(root), ended))
        watcher.start()
        try:
            seconds = timed(penstock(root / "p.yaml", records))
        finally:
            ended.set()
            watcher.join()
        print(f"  {records:,} records: {seconds:.0f} s, {records / seconds:,.0f} records/s", flush=True)


def _watch(mark: str, ended: threading.Event) -> None:
    started = time.monotonic()
    while not ended.wait(10):
        python, java = 0, 0
        for command, size in _processes(mark):
            java += size if "java" in command.split()[0] else 0
            python += size if "java" not in command.split()[0] else 0
        print(f"    {time.monotonic() - started:5.0f} s: Python {python:,} MB, JVM {java:,} MB", flush=True)


def _processes(mark: str) -> Iterator[tuple[str, int]]:
    """Command and resident megabytes of the run and of all that it has started."""
    listing = subprocess.run(["ps", "-eo", "pid,ppid,rss,args"], check=True, capture_output=True, text=True).stdout
    rows = [line.split(None, 3) for line in listing.splitlines()[1:]]
    mine = {pid for pid, _, _, args in rows if f"{mark}/p.yaml" in args}
    while more := {pid for pid, parent, _, _ in rows if parent in mine and pid not in mine}:
        mine |= more
    for pid, _, size, args in rows:
        if pid in mine:
            yield args, int(size) // 1024


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
