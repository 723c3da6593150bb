"""`penstock trace` on a ledger of many batches: the whole command, by position, offset and id, and what of it is the ledger.

`python -m bench trace`, or `python -m bench.trace BATCHES ROUNDS`. It works in a folder below the current one. The ledger is made by hand:
an engine would need hours for so many batches.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.engine.lock import StateFolder
from penstock.ledger import Ledger
from penstock.ledger.look import View, look
from penstock_sdk.record import record_id

BATCHES, ROUNDS = 100_000, 5
RECORDS = 100  # of a batch
PARTITIONS = 4
LOG = "ab" * 16
PENSTOCK = str(Path(sys.executable).with_name("penstock"))


@dataclass(frozen=True)
class Lane:
    """A source, and the ranges of its nth batch."""

    source: str

    def ranges(self, n: int) -> list[list[Any]]:
        at = n * RECORDS
        if self.source == "files":
            return [
                [f"/data/in/part-{n:08d}.jsonl", {"size": 9_000, "mtime": n, "from": 0, "to": 9_000}, n * 9_002, 9_000]
            ]
        if self.source == "queue":
            return [[LOG, {"from": at, "to": at + RECORDS, "after": "raw"}, at, 9_000]]
        each = RECORDS // PARTITIONS
        return [
            [
                f"orders/{p}",
                {"cluster": "c", "topic": "orders", "id": "t", "partition": p, "from": n * each, "to": (n + 1) * each},
                (p << 44) + n * each,
                2_000,
            ]
            for p in range(PARTITIONS)
        ]

    def next_seq(self, n: int) -> int:
        return {"files": (n + 1) * 9_002, "queue": (n + 1) * RECORDS}.get(self.source, PARTITIONS << 44)


def made(state: Path, batches: int) -> None:
    """A ledger as an engine with `retention: {batches: …}` leaves it: every batch acked, at two destinations."""
    folder = StateFolder(state)
    folder.open()
    ledger = Ledger(folder.ledger)
    lanes = [(ledger.lane("p", name).key, Lane(name)) for name in ("files", "queue", "kafka")]
    ledger.close()
    with sqlite3.connect(folder.ledger) as db:
        for key, lane in lanes:
            db.executemany(
                "INSERT INTO snapshot VALUES (?, ?, 1, 'done', ?, ?, ?, NULL, NULL, NULL)",
                _snapshots(key, lane, batches),
            )
            db.executemany(
                "INSERT INTO attempt VALUES (?, ?, 1, 'a', 1, ?, NULL, '[]')", ((key, n, n) for n in _numbers(batches))
            )
            db.executemany(
                "INSERT INTO delivery (lane, batch, destination, hash, state, plugin, settings, staged, filtered, receipt, at)"
                " VALUES (?, ?, ?, ?, 'done', 'files', '{}', '{}', 0, ?, ?)",
                (
                    (key, n, d, f"{n:032x}", json.dumps({"written": RECORDS}), n)
                    for n in _numbers(batches)
                    for d in ("eu", "us")
                ),
            )
            last = lane.ranges(batches - 1)
            db.executemany(
                "INSERT INTO strand VALUES (?, ?, ?, ?)", ((key, r[0], json.dumps(r), batches) for r in last)
            )
            db.execute(
                "UPDATE lane SET next_batch = ?, acked_batch = ?, next_seq = ? WHERE id = ?",
                (batches + 1, batches, lane.next_seq(batches - 1), key),
            )
        db.executemany(
            "INSERT INTO nack (lane, seq, part, destination, batch, id, position, node, code, error, state, at)"
            " VALUES (?, ?, 0, '', ?, ?, ?, 'decode', 'json.invalid', 'no JSON', 'open', ?)",
            (
                (lanes[1][0], seq, seq // RECORDS + 1, _id(seq), b"%d" % seq, seq)
                for seq in range(0, batches * RECORDS, RECORDS)
            ),
        )
    folder.close()


def _numbers(batches: int) -> range:
    return range(1, batches + 1)


def _id(seq: int) -> str:
    return record_id("queue", b"%d" % seq)


def _snapshots(key: int, lane: Lane, batches: int) -> Iterator[tuple[int, int, str, int, int]]:
    for n in range(batches):
        text = json.dumps({"next_seq": lane.next_seq(n), "ranges": lane.ranges(n)}, separators=(",", ":"))
        yield key, n + 1, text, n, RECORDS


def main() -> None:
    given = [int(a) for a in sys.argv[1:] if a.isdigit()]
    batches, rounds = (*given, *(BATCHES, ROUNDS)[len(given) :])
    root = Path(tempfile.mkdtemp(prefix="bench-trace-", dir="."))
    try:
        state = root / ".penstock"
        started = time.perf_counter()
        made(state, batches)
        size = (state / "ledger.db").stat().st_size
        print(
            f"{batches:,} batches of 3 sources, {size / 1e6:,.0f} MB, made in {time.perf_counter() - started:.0f} s",
            flush=True,
        )
        at = batches * RECORDS // 3
        cases = {
            "nothing (--help)": ("--help",),
            "files, --position": ("--source", "files", "--position", f"/data/in/part-{batches // 3:08d}.jsonl#41"),
            "queue, --position": ("--source", "queue", "--position", str(at)),
            "queue, --offset": ("--offset", str(at)),
            "kafka, --position": ("--source", "kafka", "--position", f"orders/2/{at // PARTITIONS}"),
            "every source, --position": ("--position", f"orders/2/{at // PARTITIONS}"),
            "dead letter, --id": ("--id", _id(at // RECORDS * RECORDS)),
            "record of the last batch, --id": ("--source", "queue", "--id", _id(batches * RECORDS - 7)),
            "not read yet, --position": ("--source", "kafka", "--position", "orders/2/99999999999"),
        }
        for name, arguments in cases.items():
            _time(name, [PENSTOCK, "trace", "--state", str(state), *arguments], rounds)
        _query(state, at)
    finally:
        shutil.rmtree(root)


def _time(name: str, command: list[str], rounds: int) -> None:
    times = []
    for _ in range(rounds):
        started = time.perf_counter()
        ended = subprocess.run(command, capture_output=True, text=True)
        times.append(time.perf_counter() - started)
        assert ended.returncode in (0, 1), ended.stderr
    found = "found" if ended.returncode == 0 else ended.stdout.strip().partition(": ")[2][:40] or "-"
    print(f"  {name:32} {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f}), {found}", flush=True)


def _query(state: Path, at: int) -> None:
    """Without starting Python."""
    from penstock.cli.trace_find import Finder

    def question(view: View) -> None:
        trace = view.trace
        for lane, position in zip(
            trace.lanes(),
            (b"/data/in/part-00000041.jsonl#3", b"orders/2/%d" % (at // PARTITIONS), b"%d" % at),
            strict=True,
        ):
            started = time.perf_counter()
            answer = Finder(trace, lane).position(position, ())
            assert isinstance(answer, list), answer
            print(f"  the ledger alone, {lane.source:16} {(time.perf_counter() - started) * 1e3:.1f} ms", flush=True)

    look(StateFolder(state).ledger, question)


if __name__ == "__main__":
    main()
