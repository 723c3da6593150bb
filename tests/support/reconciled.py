"""State folders with deliveries that real destinations have committed, without Spark: for `penstock reconcile`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.assembly import rebuild
from penstock.engine.frontier import frontier
from penstock.ledger import Prepared, Snapshot, TargetRef
from penstock.native import Delivery, DeliveryId, ExactlyOnceDestination, Refusal, Staged
from penstock.ranges import Range, Ranges
from tests.support.states import State, penstock


def never(refusal: Refusal) -> bool:
    raise AssertionError(refusal)


class Delivered(State):
    """`batch` of lines to a destination that is made as the ledger knows it; each batch reads on in the same log."""

    def __init__(self, path: Path, plugin: str, settings: Mapping[str, str]) -> None:
        super().__init__(path)
        self.ref = TargetRef("out", plugin, settings)
        self.read = 0

    def destination(self) -> ExactlyOnceDestination[Any]:
        made = rebuild(self.ref)
        assert isinstance(made, ExactlyOnceDestination)
        made.check()
        return made

    def taken(self, records: int) -> Snapshot:
        lane = self.ledger.lane(self.pipeline, self.source)
        position = {"from": self.read, "to": self.read + records}
        ranges = Ranges((Range("log", position, self.read, records),), self.read + records)
        self.read += records
        return self.ledger.take(lane, ranges)[0]

    def prepared(self, *texts: str, filtered: int = 0, read: int | None = None) -> tuple[Snapshot, DeliveryId, Staged]:
        """A batch of which nothing is visible yet."""
        s = self.taken(len(texts) + filtered if read is None else read)
        hash_ = f"{s.batch:02x}".ljust(32, "a")
        d = Delivery(
            self.pipeline, self.source, "out", s.batch, hash_, self.ledger.fence, s.epoch, attempt=1, attempt_id="a"
        )
        staged = stage(self.destination(), d, texts)
        ref = self.ref
        p = Prepared("out", d.hash, ref.plugin, ref.settings, staged.to_json(), filtered)
        self.ledger.prepare(s, len(texts) + filtered, [p])
        return s, d, staged

    def delivered(self, *texts: str, filtered: int = 0) -> DeliveryId:
        """A batch that is done."""
        s, d, staged = self.prepared(*texts, filtered=filtered)
        receipt = self.destination().commit(d, staged, never)
        self.ledger.done(s, "out", receipt.to_json(), receipt.written, frontier)
        return d


def stage(out: Any, d: Delivery, texts: Sequence[str]) -> Staged:
    """What its tasks would have left."""
    if hasattr(out, "_queue"):
        folder = out._staging(d) / d.attempt_id
        folder.mkdir(parents=True)
        path = folder / "part-00000-x.parquet"
        after = pa.array([text.encode() for text in texts], pa.binary())
        pq.write_table(pa.table({"operation": pa.array(["create"] * len(texts)), "after": after}), path)
        staged: Staged = out._staged([path], len(texts))
        return staged
    folder = out.staging_folder(d)
    folder.mkdir(parents=True)
    path = folder / "part-00000-x.txt"
    text = "".join(f"{line}\n" for line in texts)
    path.write_text(text)
    adopted: Staged = out.adopt(d, [path], len(texts), len(text.encode()))
    return adopted


def said(folder: Path, code: int, **environment: str) -> str:
    ended = penstock(folder, "reconcile", "orders", **environment)
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout


def findings(folder: Path, code: int, **environment: str) -> list[tuple[str, int | None]]:
    """What is said of the first destination that agrees, or does not; without what can't be told."""
    ended = penstock(folder, "reconcile", "orders", "--json", **environment)
    assert ended.returncode == code, ended.stdout + ended.stderr
    [source] = json.loads(ended.stdout)["sources"]
    [out] = source["destinations"]
    assert out["error"] is None
    return [(f["answer"], f["batch"]) for f in out["findings"] if f["answer"] != "unknown"]
