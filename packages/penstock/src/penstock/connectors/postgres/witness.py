"""What is in the database, against what the ledger says was written to it: the row of the lane, and, where rows are only added, that the
table has at least as many as the last delivery wrote. Runs wherever `penstock reconcile` does; no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.connectors.postgres.book import Book
from penstock.connectors.postgres.database import quoted
from penstock.connectors.postgres.settings import PostgresDestinationSettings
from penstock.native import Answer, DeliveryId, Finding, Receipt, Witnessed
from penstock.native.witness import Noted, by_last

if TYPE_CHECKING:
    from psycopg import Connection


def witness(
    c: Connection[Any],
    book: Book,
    settings: PostgresDestinationSettings,
    deliveries: Sequence[Witnessed],
    known: Sequence[DeliveryId],
) -> Iterator[Finding]:
    if not deliveries:
        return
    noted = _noted(book.last(c, deliveries[-1].id))
    for w, finding in by_last(deliveries, known, noted, f"its row in {settings.bookkeeping}.delivery"):
        wrong = _table(c, settings, w) if finding.answer is Answer.AGREES else None
        yield finding if wrong is None else Finding(*wrong, w.id.batch)


def _noted(row: tuple[str, int, int, Any, Any] | None) -> Noted | None:
    if row is None:
        return None
    hash_, batch, epoch, receipt, progress = row
    if receipt is None and progress is None:
        return Noted(hash_, batch, epoch=epoch, broken="it has neither a receipt nor how far it is")
    return Noted(hash_, batch, None if receipt is None else Receipt.from_json(receipt), epoch)


def _table(c: Connection[Any], settings: PostgresDestinationSettings, w: Witnessed) -> tuple[Answer, str] | None:
    """Which rows came with which delivery the table does not say. Not more of them are counted than it has to have."""
    import psycopg

    table = quoted(settings.table)
    [there] = c.execute("SELECT to_regclass(%s) IS NOT NULL", [table]).fetchone() or [False]
    if not there:
        return Answer.MISSING, f"there is no table {settings.table}"
    if settings.keys or w.receipt is None:
        return None
    try:
        with c.transaction():
            counted = f"SELECT count(*) FROM (SELECT 1 FROM {table} LIMIT {w.receipt.written:d}) AS counted"
            [rows] = c.execute(counted).fetchone() or [0]
    except psycopg.errors.InsufficientPrivilege:  # to write it need not be read
        return None
    if rows < w.receipt.written:
        written = f"{w.receipt.written:,} were written by this delivery alone"
        return Answer.MISSING, f"{settings.table} has {rows:,} rows, and {written}"
    return None
