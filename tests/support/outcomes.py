"""Records with an outcome, and what is really there of them. The judge imports nothing of Penstock.

Records are JSON lines `{"id": "<file>:<number>", "n": <number>}`. The pipelines here are run by children (`Spec.pipeline`)
and inside the tests.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock import DROP, Pipeline, Record, Reject, processor
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.native import (
    DeliveryId,
    ExactlyOnceDestination,
    NativeDestination,
    Ranges,
    Receipt,
    Refusal,
    Refuse,
    Staged,
)
from penstock.native.delivery import Delivery
from tests.support.oracle import outputs


def write_json(folder: Path, files: int, lines: int, *, first: int = 0) -> list[str]:
    """Issues records, in files older than the settle time, and returns their ids."""
    folder.mkdir(parents=True, exist_ok=True)
    ids = []
    for f in range(first, first + files):
        rows = [{"id": f"f{f:05d}:{n}", "n": n} for n in range(lines)]
        temp = folder / f".f{f:05d}.writing"
        temp.write_text("".join(json.dumps(r) + "\n" for r in rows))
        os.utime(temp, (1_700_000_000 + f,) * 2)
        temp.rename(folder / f"f{f:05d}.txt")
        ids += [str(r["id"]) for r in rows]
    return ids


def delivered(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in outputs(folder) for line in path.read_bytes().splitlines()]


def dead(state: Path) -> list[dict[str, Any]]:
    """Every dead letter in the state folder, with the id of its record."""
    rows = []
    for path in sorted((state / "dead-letters").glob("*/*.parquet")):
        for row in pq.read_table(path).to_pylist():
            given = json.loads(row["given"])["after"] if row["given"] else None
            row["record"] = json.loads(given["text"])["id"] if given else None
            rows.append(row)
    return rows


def judge(
    issued: Iterable[str], filtered: Iterable[str], letters: list[dict[str, Any]], outs: dict[str, Path]
) -> list[str]:
    """What is wrong: per destination each record is delivered, filtered or dead-lettered, exactly once, in order per file,
    and destinations hold equal values."""
    wrong: list[str] = []
    every, dropped = set(issued), set(filtered)
    values: dict[str, dict[str, Any]] = {}
    for name, folder in outs.items():
        rows = delivered(folder)
        there = Counter(str(r["id"]) for r in rows)
        letter = Counter(str(x["record"]) for x in letters if x["destination"] in ("", name))
        wrong += [f"{name}: {i} delivered {n} times" for i, n in there.items() if n > 1]
        wrong += [f"{name}: {i} dead-lettered {n} times" for i, n in letter.items() if n > 1]
        wrong += [f"{name}: {i} delivered and dead-lettered" for i in there.keys() & letter.keys()]
        wrong += [f"{name}: {i} filtered and delivered" for i in there.keys() & dropped]
        wrong += [f"{name}: {i} filtered and dead-lettered" for i in letter.keys() & dropped]
        wrong += [f"{name}: {i} missing" for i in every - there.keys() - letter.keys() - dropped]
        wrong += [f"{name}: {i} invented" for i in (there.keys() | letter.keys()) - every]
        last: dict[str, int] = {}
        for r in rows:
            file, _, number = str(r["id"]).partition(":")
            if int(number) <= last.get(file, -1):
                wrong.append(f"{name}: {r['id']} out of order")
            last[file] = int(number)
        values[name] = {str(r["id"]): r for r in rows}
    names = list(values)
    for a, b in itertools.pairwise(names):
        both = values[a].keys() & values[b].keys()
        wrong += [f"{i}: {a} and {b} differ" for i in both if values[a][i] != values[b][i]]
    return wrong


# -- processors ---------------------------------------------------------------------------------------------------------

CHOSEN = {f"f{f:05d}:{n}" for f, n in ((0, 4), (1, 0), (2, 19), (3, 7), (5, 11), (8, 2), (13, 16))}


def shaky(r: Record) -> Record:
    """Fails for seven chosen records, and at random for one in a thousand; stamps the others with a random number."""
    assert isinstance(r.after, dict)
    if r.after["id"] in CHOSEN or random.random() < 0.001:
        raise ValueError(f"{r.after['id']} is not wanted")
    r.after["stamp"] = random.random()
    return r


def stamp(r: Record) -> Record:
    assert isinstance(r.after, dict)
    r.after["stamp"] = random.random()
    return r


def fails_for_one_in_ten(r: Record) -> Any:
    assert isinstance(r.after, dict)
    return Reject("at random") if random.random() < 0.1 else r


def campaign(root: str) -> list[Pipeline]:
    """A decode, a filter, a function that fails, an encode, two destinations."""
    folder = Path(root)
    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 1})
        .processor("decode", "json.decode")
        .processor("some", "filter", condition="after.n % 10 = 3")
        .processor("shaky", shaky)
        .processor("encode", "json.encode")
        .destination("one", "files", path=folder / "one")
        .destination("two", "files", path=folder / "two")
        .dead_letter_queue(window=0)
    ]


def random_nacks(root: str) -> list[Pipeline]:
    folder = Path(root)
    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 2})
        .processor("decode", "json.decode")
        .processor("random", fails_for_one_in_ten)
        .processor("encode", "json.encode")
        .destination("one", "files", path=folder / "one")
        .destination("two", "files", path=folder / "two")
        .dead_letter_queue(window=0)
    ]


# -- killing from user code -----------------------------------------------------------------------------------------------


def kill_engine_once(root: Path) -> Any:
    """A processor that ends the engine's process from inside a task, the first time only (K5)."""
    engine, marker = os.getpid(), root / "killed"

    def f(r: Record) -> Record:
        assert isinstance(r.after, dict)
        if r.after["n"] == 5 and not marker.exists():
            marker.touch()
            os.kill(engine, signal.SIGKILL)
        return r

    return f


class Appender(NativeDestination[None]):
    """A destination that can't stage: it appends to one file, and would do so again."""

    def __init__(self, path: Path, name: str) -> None:
        super().__init__(None, name)
        self.path = path

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:
        assert d.rows is not None
        rows = d.rows.orderBy("seq", "part").select("after").collect()
        with self.path.open("ab") as f:
            f.writelines(str(r[0]).encode() + b"\n" for r in rows)
            os.fsync(f.fileno())
        return Receipt(len(rows))


def appending(root: str, guarantee: str) -> list[Pipeline]:
    """Into a destination that can't stage, with a processor that kills the engine once."""
    folder = Path(root)
    return [
        Pipeline("p")
        .guarantee(guarantee)
        .source("in", "files", path=folder / "in", batch={"max-files": 1})
        .processor("decode", "json.decode")
        .processor("kill", kill_engine_once(folder))
        .processor("encode", "json.encode")
        .destination("out", Appender(folder / "out.txt", "out"))
    ]


def at_least_once(root: str) -> list[Pipeline]:
    return appending(root, "at-least-once")


def at_most_once(root: str) -> list[Pipeline]:
    return appending(root, "at-most-once")


def exactly_once(root: str) -> list[Pipeline]:
    folder = Path(root)
    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 1})
        .processor("decode", "json.decode")
        .processor("kill", kill_engine_once(folder))
        .processor("encode", "json.encode")
        .destination("out", "files", path=folder / "out")
    ]


# -- a destination that refuses ---------------------------------------------------------------------------------------------


class Refusing(ExactlyOnceDestination[None]):
    """Rows in a SQLite table, hash and receipt in the same transaction. It refuses the ids in a file, while it commits."""

    may_refuse = True

    def __init__(self, folder: Path, name: str) -> None:
        super().__init__(None, name)
        self.folder = folder

    def check(self) -> None:
        (self.folder / "staged").mkdir(parents=True, exist_ok=True)
        with self._db() as db:
            db.execute("CREATE TABLE IF NOT EXISTS row (hash TEXT, seq INT, part INT, after TEXT)")
            db.execute("CREATE TABLE IF NOT EXISTS receipt (hash TEXT PRIMARY KEY, receipt TEXT, whole INT)")

    def _db(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "table.db")

    def refused_ids(self) -> set[str]:
        path = self.folder / "refuse.txt"
        return set(path.read_text().split()) if path.exists() else set()

    def stage(self, d: Delivery) -> Staged:
        assert d.rows is not None
        rows = sorted(tuple(r) for r in d.rows.select("seq", "part", "after").collect())
        path = self.folder / "staged" / f"{d.hash}-{d.attempt_id}.json"
        path.write_text(json.dumps(rows))
        return Staged(len(rows), 0, path.name)

    def find(self, d: DeliveryId) -> Receipt | None:
        with self._db() as db:
            row = db.execute("SELECT receipt FROM receipt WHERE hash = ? AND whole", (d.hash,)).fetchone()
        return Receipt.from_json(json.loads(row[0])) if row else None

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        rows = json.loads((self.folder / "staged" / s.manifest).read_text())
        bad = self.refused_ids()
        with self._db() as db:
            there = set(db.execute("SELECT seq, part FROM row WHERE hash = ?", (d.hash,)).fetchall())
            earlier = db.execute("SELECT receipt FROM receipt WHERE hash = ?", (d.hash,)).fetchone()
            refused = list(Receipt.from_json(json.loads(earlier[0])).refused) if earlier else []
            known = {(r.seq, r.part) for r in refused}
            stopped = None
            for seq, part, after in rows:
                if (seq, part) in there or (seq, part) in known:
                    continue
                if json.loads(after)["id"] in bad:
                    refusal = Refusal(seq, part, f"{json.loads(after)['id']} violates a constraint")
                    if not refuse(refusal):
                        stopped = seq
                        break
                    refused.append(refusal)
                    continue
                db.execute("INSERT INTO row VALUES (?, ?, ?, ?)", (d.hash, seq, part, after))
                there.add((seq, part))
            receipt = Receipt(len(there), refused=tuple(refused), stopped_at=stopped)
            values = (d.hash, json.dumps(receipt.to_json()), stopped is None)
            db.execute("INSERT OR REPLACE INTO receipt VALUES (?, ?, ?)", values)
        return receipt

    def discard(self, d: DeliveryId) -> None:
        with self._db() as db:
            if db.execute("SELECT 1 FROM receipt WHERE hash = ? AND NOT whole", (d.hash,)).fetchone():
                return
        for path in (self.folder / "staged").glob(f"{d.hash}-*"):
            path.unlink()

    def ids(self) -> list[str]:
        with self._db() as db:
            return [json.loads(a)["id"] for (a,) in db.execute("SELECT after FROM row ORDER BY rowid")]


def refusing(root: str, window: int = 0, threshold: int = 0) -> list[Pipeline]:
    """Two destinations; the second refuses records in commit."""
    folder = Path(root)
    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 2})
        .processor("decode", "json.decode")
        .processor("encode", "json.encode")
        .destination("one", "files", path=folder / "one")
        .destination("two", Refusing(folder / "two", "two"))
        .dead_letter_queue(window=window, threshold=threshold)
    ]


def refusing_with_room(root: str) -> list[Pipeline]:
    return refusing(root)


def refusing_without_room(root: str) -> list[Pipeline]:
    return refusing(root, window=1)


def three_destinations(root: str) -> list[Pipeline]:
    """A random stamp, three destinations."""
    folder = Path(root)
    p = (
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 2})
        .processor("decode", "json.decode")
        .processor("stamp", stamp)
        .processor("encode", "json.encode")
    )
    for name in ("one", "two", "three"):
        p.destination(name, "files", path=folder / name)
    return [p]


def drop_all(r: Record) -> Any:
    return DROP


# -- a processor that decides differently at another attempt ------------------------------------------------------------------


def fickle(root: str) -> list[Pipeline]:
    """Rejects record 5 as long as a file is there (or, with the file `reverse`, as long as it is not)."""
    folder = Path(root)
    marker, reverse = folder / "fails", (folder / "reverse").exists()

    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        return Reject("not now") if r.after["n"] == 5 and marker.exists() != reverse else r

    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in")
        .processor("decode", "json.decode")
        .processor("fickle", f)
        .processor("encode", "json.encode")
        .destination("out", "files", path=folder / "out")
        .dead_letter_queue(window=0)
    ]


# -- batches that kill --------------------------------------------------------------------------------------------------------


def aborting(root: str) -> list[Pipeline]:
    """Ends the worker at record 4321, or at the one a file names."""
    folder = Path(root)
    named = folder / "bad.txt"
    bad = named.read_text() if named.exists() else "f00000:4321"

    def aborts(r: Record) -> Record:
        assert isinstance(r.after, dict)
        if r.after["id"] == bad:
            os.abort()
        return r

    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in")
        .processor("decode", "json.decode")
        .processor("abort", aborts)
        .processor("encode", "json.encode")
        .destination("out", "files", path=folder / "out")
        .dead_letter_queue(window=0)
    ]


# -- every kind of processor ----------------------------------------------------------------------------------------------------


@processor(batch=True)
def touch_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def every_kind(root: str) -> list[Pipeline]:
    """Spark stages, Python stages of records and of batches, destinations with processors of their own."""
    folder = Path(root)
    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 20})
        .processor("raw", "filter", condition="after like '%\"n\": 13}'")
        .processor("batch", touch_batch)
        .processor("decode", "json.decode")
        .processor("python", stamp)
        .processor("set", "field.set", field=".Payload.After.region", value="eu")
        .processor("sql", "sql", expression="after.n * 2", field=".Payload.After.twice")
        .processor("encode", "json.encode")
        .processor("typed", "json.decode", schema="id STRING, n BIGINT, stamp DOUBLE, region STRING, twice BIGINT")
        .processor("again", "json.encode")
        .destination("one", "files", path=folder / "one")
        .destination("two", "files", path=folder / "two")
        .processor("own", "filter", condition="after like '%:17\"%'", on="two")
    ]


def refusing_with_some_room(root: str) -> list[Pipeline]:
    return refusing(root, window=5, threshold=1)


class RecordingSource(FilesSource):
    """Appends to a file what is acked, cut or whole."""

    record: Path

    def acked(self, ranges: Ranges) -> tuple[str, ...]:
        with self.record.open("a") as f:
            for r in ranges:
                low, high = ("cut" if x is not None else None for x in (r.low, r.high))
                f.write(f"{Path(r.strand).name} {low} {high}\n")
        return ()


def refusing_and_recording(root: str) -> list[Pipeline]:
    folder = Path(root)
    source = RecordingSource(FilesSourceSettings(path=str(folder / "in")), "in")
    source.record = folder / "acks.txt"
    return [
        Pipeline("p")
        .source("in", source)
        .destination("one", "files", path=folder / "one")
        .destination("two", Refusing(folder / "two", "two"))
    ]


def aborting_without_room(root: str) -> list[Pipeline]:
    [p] = aborting(root)
    return [p.dead_letter_queue(window=1)]


def gated(root: str) -> list[Pipeline]:
    """A gate and records to reject, as a file says."""
    folder = Path(root)
    given = json.loads((folder / "gate.json").read_text())
    bad = set(given["bad"])

    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        return Reject("bad") if r.after["id"] in bad else r

    return [
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 1})
        .processor("decode", "json.decode")
        .processor("reject", f)
        .processor("encode", "json.encode")
        .destination("out", "files", path=folder / "out")
        .dead_letter_queue(window=given["window"], threshold=given["threshold"])
    ]


def _through(root: str, f: Any) -> Pipeline:
    folder = Path(root)
    return (
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 1})
        .processor("decode", "json.decode")
        .processor("f", f)
        .processor("encode", "json.encode")
        .destination("out", "files", path=folder / "out")
    )


def rejecting(root: str) -> list[Pipeline]:
    return [_through(root, lambda _: Reject("all")).dead_letter_queue(window=0)]


def dropping(root: str) -> list[Pipeline]:
    return [_through(root, drop_all)]


def queued(root: str) -> list[Pipeline]:
    """A dead letter queue in files."""

    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        return Reject("no") if r.after["n"] in (2, 7) else r

    return [_through(root, f).dead_letter_queue("files", window=0, path=Path(root) / "queue")]
