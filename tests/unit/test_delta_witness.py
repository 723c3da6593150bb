"""What the log of a Delta table says of deliveries, read without Spark: from logs written by hand, as Delta writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.delta.destination import DeltaDestination
from penstock.connectors.delta.notes import Note, app_id
from penstock.connectors.delta.settings import DeltaDestinationSettings
from penstock.native import Answer, DeliveryId, Receipt, Staged, Witnessed


def name(batch: int, epoch: int = 7) -> DeliveryId:
    return DeliveryId("p", "in", "out", batch, f"{epoch}-{batch}", 3, epoch)


def delivery(batch: int, written: int | None = 5, epoch: int = 7) -> Witnessed:
    return Witnessed(name(batch, epoch), Staged(5, 0, {}), None if written is None else Receipt(written))


class Table:
    def __init__(self, root: Path) -> None:
        self.root, self.version = root, 0
        (root / "_delta_log").mkdir(parents=True)
        self.commit({"metaData": {"id": "x"}})

    def commit(self, *actions: dict[str, Any], metadata: str | None = None) -> Path:
        info = {"commitInfo": {"operation": "WRITE", **({} if metadata is None else {"userMetadata": metadata})}}
        path = self.root / "_delta_log" / f"{self.version:020}.json"
        path.write_text("".join(json.dumps(a, separators=(",", ":")) + "\n" for a in (info, *actions)))
        self.version += 1
        return path

    def delivered(self, batch: int, rows: int = 5, *, epoch: int = 7, written: int = 5) -> Path:
        """The file that it added."""
        path = self.root / f"part {epoch} {batch}.parquet"
        path.write_bytes(b"x" * 10)
        added = {"path": path.name.replace(" ", "%20"), "size": 10, "stats": json.dumps({"numRecords": rows})}
        d = name(batch, epoch)
        txn = {"txn": {"appId": app_id(d), "version": batch}}
        self.commit(txn, {"add": added}, metadata=Note.of(d, Receipt(written)).text())
        return path

    def answers(self, *deliveries: Witnessed, more: tuple[DeliveryId, ...] = (), **settings: Any) -> list[Answer]:
        out = DeltaDestination(DeltaDestinationSettings(path=str(self.root), **settings), "out")
        assert not out.asks_spark
        return [f.answer for f in out.witness(deliveries, [*(w.id for w in deliveries), *more])]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "table")


def test_every_delivery_has_its_commit(table: Table) -> None:
    for batch in (1, 2, 3):
        table.delivered(batch)
        table.commit()  # somebody else's
    assert table.answers(delivery(1), delivery(2), delivery(3)) == [Answer.AGREES] * 3


def test_a_commit_that_is_not_there_is_missing(table: Table) -> None:
    table.delivered(1)
    table.delivered(3)
    assert table.answers(delivery(1), delivery(2), delivery(3)) == [Answer.AGREES, Answer.MISSING, Answer.AGREES]
    assert table.answers(delivery(3), delivery(4)) == [Answer.AGREES, Answer.MISSING]


def test_a_table_without_any_commit_of_it_has_lost_it(table: Table) -> None:
    assert table.answers(delivery(1)) == [Answer.MISSING]


def test_a_table_that_is_not_there_is_said_once(tmp_path: Path) -> None:
    out = DeltaDestination(DeltaDestinationSettings(path=str(tmp_path / "nothing")), "out")
    [found] = out.witness([delivery(1), delivery(2)], [name(1), name(2)])
    assert (found.answer, found.batch) == (Answer.MISSING, None)


def test_a_delivery_under_way_is_no_disagreement(table: Table) -> None:
    table.delivered(1)
    assert table.answers(delivery(1), delivery(2, None)) == [Answer.AGREES, Answer.WAITING]
    table.delivered(2)
    assert table.answers(delivery(1), delivery(2, None)) == [Answer.AGREES, Answer.VISIBLE]


def test_a_commit_that_the_ledger_does_not_know_is_extra(table: Table) -> None:
    table.delivered(1)
    table.delivered(2)
    assert table.answers(delivery(1)) == [Answer.AGREES, Answer.EXTRA]
    assert table.answers(delivery(1), more=(name(2),)) == [Answer.AGREES]  # with other settings


def test_a_file_has_to_be_there_unless_a_later_commit_has_removed_it(table: Table) -> None:
    path = table.delivered(1)
    path.write_bytes(b"x")
    assert table.answers(delivery(1)) == [Answer.MISSING]
    path.unlink()
    assert table.answers(delivery(1)) == [Answer.MISSING]
    table.commit({"remove": {"path": path.name.replace(" ", "%20")}})
    assert table.answers(delivery(1)) == [Answer.AGREES]


def test_the_numbers_have_to_agree(table: Table) -> None:
    table.delivered(1, rows=4)
    assert table.answers(delivery(1)) == [Answer.DIFFERS]
    assert table.answers(delivery(1), mode="upsert", key="id") == [Answer.AGREES]  # files hold other rows as well
    table.delivered(2, rows=5, written=4)
    assert table.answers(delivery(2)) == [Answer.DIFFERS]


def test_another_epoch_has_numbers_of_its_own(table: Table) -> None:
    table.delivered(1, epoch=7)
    table.delivered(2, epoch=8)
    assert table.answers(delivery(1, epoch=7), delivery(2, epoch=8)) == [Answer.AGREES] * 2


@pytest.mark.parametrize(("number", "answer"), [(2, Answer.AGREES), (1, Answer.MISSING), (None, Answer.UNKNOWN)])
def test_where_the_log_is_too_short_a_checkpoint_knows_the_number(
    table: Table, number: int | None, answer: Answer
) -> None:
    table.delivered(1)
    table.delivered(2)
    last = table.commit()
    for path in (table.root / "_delta_log").glob("*.json"):
        if path != last:
            path.unlink()
    rows = [] if number is None else [{"appId": app_id(name(2)), "version": number}]
    kind = pa.struct([("appId", pa.string()), ("version", pa.int64())])
    checkpoint = pa.table({"txn": pa.array([*rows, None, {"appId": "another's", "version": 99}], kind)})
    pq.write_table(checkpoint, table.root / "_delta_log" / f"{3:020}.checkpoint.parquet")
    assert table.answers(delivery(1), delivery(2)) == [Answer.UNKNOWN, answer]
