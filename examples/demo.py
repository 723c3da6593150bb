"""`make demo`: a pipeline from `penstock init`, a bad record and where it went, then a kill -9 in the middle and a count in plain Python.

Everything happens in `demo/` in the working directory, which is removed and made again at each start, but only if this
program made it. The files stay there afterwards, to look at.
"""

from __future__ import annotations

import json
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
PENSTOCK = Path(sys.executable).absolute().parent / "penstock"
RUN = ("run", "pipeline.yaml", "--once")
FILES, ORDERS = 15, 2000
PATH = "          path: ./orders"


def main() -> int:
    if not fresh_folder():
        return 2
    say("1. A folder with a pipeline, and twelve orders: one of them is broken")
    if penstock("init", str(DEMO), at=Path()):
        return 1
    print(f"\n$ cd {DEMO}")
    if penstock(*RUN) or penstock("dlq", "list"):
        return 1
    MARKER.write_text("This folder is removed when the demo starts again.\n")

    say(f"2. {FILES * ORDERS:,} more orders, three files to a batch, and a kill -9 in the middle")
    expected = {order["id"] for order in delivered()} | write_orders()
    small_batches()
    if not kill_in_the_middle():
        return 1
    there = sum(1 for _ in delivered())
    print(f"killed: {there:,} orders are in {DEMO}/out, {len(expected) - there:,} are not")

    say("3. The same command again: it finishes what was begun")
    if penstock(*RUN):
        return 1
    good = count(expected)
    print(f"\nLook around: {DEMO}/pipeline.yaml, {DEMO}/orders, {DEMO}/out. Next: README.md")
    return 0 if good else 1


def fresh_folder() -> bool:
    """Removes what an earlier demo has left; a folder that it did not make is not touched."""
    if DEMO.exists():
        if not MARKER.exists():
            print(f"{DEMO.absolute()} was not made by this demo: move it away, or start elsewhere", file=sys.stderr)
            return False
        shutil.rmtree(DEMO)
    DEMO.mkdir(parents=True)
    MARKER.write_text("This folder is removed when the demo starts again.\n")
    return True


def write_orders() -> set[str]:
    """One order in ten is cancelled, which the pipeline drops; returns the ids that have to arrive."""
    for f in range(FILES):
        orders = [
            {
                "id": f"n-{f:02d}-{n:04d}",
                "item": "lamp",
                "quantity": 1 + n % 5,
                "price": 19.9,
                "status": "paid" if n % 10 else "cancelled",
            }
            for n in range(ORDERS)
        ]
        text = "".join(json.dumps(order) + "\n" for order in orders)
        (DEMO / "orders" / f"more-{f:02d}.jsonl").write_text(text)
    return {f"n-{f:02d}-{n:04d}" for f in range(FILES) for n in range(ORDERS) if n % 10}


def small_batches() -> None:
    """So that there is a middle: as one batch all of it would arrive at once."""
    file = DEMO / "pipeline.yaml"
    lines = file.read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(PATH))
    lines.insert(at + 1, "        batch: {max-files: 3}")
    file.write_text("\n".join(lines) + "\n")


def penstock(*arguments: str, at: Path = DEMO) -> int:
    """The real command line. Paths in a pipeline file are those of the working directory."""
    print("\n$ penstock", *arguments, flush=True)
    return subprocess.run([PENSTOCK, *arguments], cwd=at).returncode


def kill_in_the_middle() -> bool:
    """Lets a batch or two arrive and kills the engine. It has no chance to tidy up."""
    print("\n$ penstock", *RUN, flush=True)
    before = files()
    engine = subprocess.Popen([PENSTOCK, *RUN], cwd=DEMO, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while engine.poll() is None and len(files() - before) < 6:
        time.sleep(0.005)
    engine.send_signal(signal.SIGKILL)
    if engine.wait() != -signal.SIGKILL:
        print(f"penstock ended with {engine.returncode} before it could be killed", file=sys.stderr)
    return engine.returncode == -signal.SIGKILL


def files() -> set[Path]:
    return set((DEMO / "out").glob("*.txt"))


def delivered() -> Iterator[dict[str, str]]:
    for path in files():
        yield from map(json.loads, path.read_text().splitlines())


def count(expected: set[str]) -> bool:
    """Reads the output files with plain Python and compares with what was written."""
    found = Counter(order["id"] for order in delivered())
    missing, strange = expected - found.keys(), found.keys() - expected
    twice = [line for line, n in found.items() if n > 1]
    print(
        f"\ncounted: {len(expected):,} expected, {found.total():,} found,"
        f" {len(missing)} missing, {len(twice)} twice, {len(strange)} strange"
    )
    return not (missing or twice or strange)


def say(text: str) -> None:
    print(f"\n{text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
