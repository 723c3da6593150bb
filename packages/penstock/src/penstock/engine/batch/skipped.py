"""A delivery that stopped at a record which a person wants to be skipped now: the rows that were kept for it, without that record."""

from __future__ import annotations

import shutil
from pathlib import Path

from penstock import fs, record
from penstock.engine import aside
from penstock.engine.batch.context import Work
from penstock.ledger import Snapshot
from penstock.native import Refusal

REASON = "a person wants it to be skipped"


def without_skipped(work: Work, s: Snapshot, folder: Path) -> tuple[Path, list[Refusal]]:
    """Where they are, and what is missing there. The folder as it is, where nothing of it is to be skipped."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    seqs = [x.number for x in work.ledger.skips(s.lane) if not x.strand]
    if not seqs:
        return folder, []
    part = f"{record.OUTCOME}={aside.DELIVERED}"
    to = folder.with_name(f"{folder.name}-without")
    shutil.rmtree(to, ignore_errors=True)
    fs.make_folder(to / part, 0o700)
    found: list[Refusal] = []
    for path in sorted((folder / part).glob("part-*")):
        table = pq.read_table(path, coerce_int96_timestamp_unit="us", partitioning=None)
        skipped = pc.is_in(table.column(record.SEQ), pa.array(seqs, pa.int64()))
        names = [c for c in (record.SEQ, record.PART) if c in table.column_names]
        rows = table.filter(skipped).select(names).to_pylist()
        found += [Refusal(row[record.SEQ], row.get(record.PART, 0), REASON, code="record.skipped") for row in rows]
        pq.write_table(table.filter(pc.invert(skipped)), to / part / path.name)
    return (to, found) if found else (folder, [])
