"""`make demo`: moves lines through a real pipeline, kills the engine in the middle, and counts with plain Python.

Everything happens in `demo/` in the working directory, which is removed and made again at each start, but only if this
program made it. The files stay there afterwards, to look at.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

DEMO = Path("demo")
MARKER = DEMO / ".made-by-penstock-demo"
PENSTOCK = Path(sys.executable).parent / "penstock"
BATCH = re.compile(r": batch \d+:")  # the line that says that a batch is done
COMMAND = ("run", f"{DEMO}/pipeline.yaml", "--once")

PIPELINE = f"""\
version: "2.2"
pipelines:
  - id: shop
    connectors:
      - {{id: orders, type: source, plugin: files, settings: {{path: {DEMO}/in}},
         batch: {{max-files: 3}}}}
      - {{id: kept, type: destination, plugin: files, settings: {{path: {DEMO}/out}}}}
    processors:
      - {{id: no-tests, plugin: filter, condition: "after like '%,test'"}}
"""


def main() -> int:
    if not fresh_folder():
        return 2
    (DEMO / "pipeline.yaml").write_text(PIPELINE)

    say("1. A pipeline file, and 6 files with 500 lines each")
    print(indent(PIPELINE.partition("pipelines:\n")[2]))
    expected = write_orders(first=0, files=6, lines=500)
    if run() != 0:
        return 1
    if not count(expected):
        return 1

    say("2. 15 more files with 2,000 lines each, and a kill -9 in the middle")
    expected |= write_orders(first=6, files=15, lines=2000)
    if not kill_in_the_middle(after=2):
        return 1
    lines = sum(1 for _ in delivered())
    print(f"    {lines:,} lines are at the destination, {len(expected) - lines:,} are not")

    say("3. The same command again: it finishes what was begun")
    if run() != 0:
        return 1
    good = count(expected)
    print(f"\nLook around: {DEMO}/pipeline.yaml, {DEMO}/in, {DEMO}/out. Next: README.md")
    return 0 if good else 1


def fresh_folder() -> bool:
    """Removes what an earlier demo has left; a folder that it did not make is not touched."""
    if DEMO.exists():
        if not MARKER.exists():
            print(f"{DEMO.absolute()} was not made by this demo: move it away, or start elsewhere", file=sys.stderr)
            return False
        shutil.rmtree(DEMO)
    (DEMO / "in").mkdir(parents=True)
    MARKER.write_text("This folder is removed when the demo starts again.\n")
    return True


def write_orders(first: int, files: int, lines: int) -> set[str]:
    """Writes files of orders, one in ten a test; returns the lines that have to arrive."""
    expected: set[str] = set()
    for f in range(first, first + files):
        rows = [f"order {f:02d}-{n:04d},{'test' if n % 10 == 0 else 'real'}" for n in range(lines)]
        (DEMO / "in" / f"orders-{f:02d}.csv").write_text("".join(row + "\n" for row in rows))
        expected.update(row for row in rows if row.endswith(",real"))
    return expected


def run() -> int:
    """The real command line, its output shortened."""
    with start() as engine:
        for line in shown(output(engine)):
            print(line)
    if engine.returncode != 0:
        print(f"penstock ended with {engine.returncode}", file=sys.stderr)
    return engine.returncode


def kill_in_the_middle(after: int) -> bool:
    """Lets a few batches through, waits until the next one is being written, and kills the engine. No chance to tidy up."""
    staging = DEMO / "out" / "_penstock" / "shop.orders"
    with start() as engine:
        seen = 0
        for line in output(engine):
            print(f"    {line}")
            seen += bool(BATCH.search(line))
            if seen == after:
                break
        until = time.monotonic() + 5
        while seen == after and time.monotonic() < until and not any(p.is_dir() for p in staging.iterdir()):
            time.sleep(0.001)
        engine.send_signal(signal.SIGKILL)
    killed = engine.returncode == -signal.SIGKILL
    print("    killed: the engine is gone" if killed else f"    penstock ended with {engine.returncode}")
    return killed


def start() -> subprocess.Popen[str]:
    print("    $ penstock", *COMMAND, flush=True)
    return subprocess.Popen([PENSTOCK, *COMMAND], stderr=subprocess.PIPE, text=True)


def output(engine: subprocess.Popen[str]) -> Iterator[str]:
    """What the engine tells people, line by line, as it comes."""
    assert engine.stderr is not None
    for line in engine.stderr:
        if line.strip():
            yield line.rstrip()


def shown(lines: Iterator[str]) -> Iterator[str]:
    """Of many lines about batches only the first and the last."""
    held: list[str] = []
    for line in lines:
        if BATCH.search(line):
            held.append(line)
            if len(held) == 1:
                yield f"    {line}"
            continue
        yield from closing(held)
        held = []
        yield f"    {line}"
    yield from closing(held)


def closing(held: list[str]) -> Iterator[str]:
    if len(held) > 2:
        yield "    …"
    if len(held) > 1:
        yield f"    {held[-1]}"


def delivered() -> Iterator[str]:
    for path in (DEMO / "out").glob("*.txt"):
        yield from path.read_text().splitlines()


def count(expected: set[str]) -> bool:
    """Reads the output files with plain Python and compares with what was written."""
    found = Counter(delivered())
    missing, strange = expected - found.keys(), found.keys() - expected
    twice = [line for line, n in found.items() if n > 1]
    print(
        f"    counted: {len(expected):,} expected, {found.total():,} found,"
        f" {len(missing)} missing, {len(twice)} twice, {len(strange)} strange"
    )
    return not (missing or twice or strange)


def indent(text: str) -> str:
    return "\n".join("  " + line.removeprefix("  ") for line in text.splitlines())


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
