"""Made the logs in tests/data/log, once: they stay as they are, so that every later Penstock is held to reading them.

Run by hand, for a new version: `python -m scripts.golden_log v3` after the log's own code writes it. A folder that is there is not
touched. The code that packs segments is this file's own: the library writes only its newest version. Tests use it for logs that no
writer would make.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path

import google_crc32c

from penstock.log import Mode, Offsets, Writer, arrow, batches
from penstock.log.repair import repair
from penstock_sdk.record import Record

DATA = Path(__file__).parents[1] / "tests" / "data" / "log"
START = 1_700_000_000_000_000_000  # the time of the first entry, in ns; each one after it is a ns later
RECORD, BATCH, LOST = range(3)
WHY = "the checksum of an entry's data is wrong"

A = [
    Record(b"one", namespace="shop.orders", phase="copy", key=b"k-1", position=b"\x00\xff", metadata={"file": "ä.csv"}),
    Record(
        {"id": 2, "name": "Zoë"}, namespace="shop.people", phase="copy", timestamp=datetime(2024, 2, 29, 12, tzinfo=UTC)
    ),
]
B = [Record(b"n%d" % i, namespace="shop.orders") for i in range(3)]
C = [Record({"id": i}, namespace="shop.people", phase="copy", operation="snapshot") for i in range(9)]
D = [
    Record(
        None,
        namespace="shop.orders",
        phase="copy",
        operation="delete",
        before={"paid": Decimal("1.50"), "on": date(2024, 2, 29)},
    ),
    Record(b"to be lost", namespace="shop.orders"),
    Record(b"\xfe raw", phase="complete"),
]
E = [Record({"at": datetime(2024, 1, 1)}, namespace="shop.people"), Record(b"", namespace="shop.orders", operation="update")]  # fmt: skip


@dataclass(frozen=True)
class Entry:
    kind: int
    offset: int
    count: int
    data: bytes
    key: bytes = b""
    mode: int = 1
    timestamp: int = START
    durable: int = 0


# -- packing ---------------------------------------------------------------------------------------------------------------


def header(version: int, log_id: bytes, base: int, generation: int = 0, covers: int = 0, holes: int = 0) -> bytes:
    head = struct.pack(">8sHHIQQQ16sI", b"PENSTLOG", version, 0, generation, base, covers, holes, log_id, 0)
    return head + _crc(head)


def _crc(data: bytes) -> bytes:
    return int(google_crc32c.value(data)).to_bytes(4, "big")


def packed(version: int, log_id: bytes, position: int, entry: Entry) -> bytes:
    """An entry for this place in its file. A stranger may put the data wherever it likes; here it is put where Arrow likes it."""
    durable = b"" if version == 1 else struct.pack(">Q", entry.durable)
    padding = -(position + 20 + len(durable) + 29 + len(entry.key)) % 64 if entry.kind == BATCH else 0
    message = 8 + len(entry.key) + len(entry.data)
    checked = b"".join(
        (
            struct.pack(">IBBHI", google_crc32c.value(log_id + entry.data), entry.kind, 0, padding, entry.count),
            durable,
            bytes(padding),
            struct.pack(">QIQBI", entry.offset, message, entry.timestamp, entry.mode, len(entry.key)),
            entry.key,
            struct.pack(">I", len(entry.data)),
        )
    )
    return b"\x8cPLE" + _crc(log_id + checked) + checked + entry.data


def segment(head: bytes, log_id: bytes, entries: Sequence[Entry]) -> bytes:
    made = head
    for entry in entries:
        made += packed(int.from_bytes(head[8:10], "big"), log_id, len(made), entry)
    return made


def entries(
    offset: int, records: Sequence[Record], *, batch: bool = False, compression: str | None = None
) -> Iterator[Entry]:
    """Entries for these records, of which each one follows the one before it."""
    key, mode = (records[0].namespace or "").encode(), Mode.of(records[0].phase)
    if batch:
        data = arrow.write(batches.to_arrow(records), compression).to_pybytes()
        yield Entry(BATCH, offset, len(records), data, key, mode)
    else:
        for i, record in enumerate(records):
            key, mode = (record.namespace or "").encode(), Mode.of(record.phase)
            yield Entry(RECORD, offset + i, 1, batches.pack(record), key, mode)


# -- the logs --------------------------------------------------------------------------------------------------------------


def version_1(folder: Path) -> None:
    """By hand, and without any index: that is derived."""
    log_id = bytes(range(16))
    parts = (
        (0, [*entries(0, A), *entries(2, B, batch=True)]),
        (5, [*entries(5, C, batch=True, compression="zstd"), *entries(14, D)]),
        (17, list(entries(17, E))),
    )
    folder.mkdir(parents=True)
    clock = count(START)
    for base, made in parts:
        made = [Entry(e.kind, e.offset, e.count, e.data, e.key, e.mode, next(clock)) for e in made]
        made = [Entry(LOST, 15, 1, WHY.encode(), b"shop.orders", 1, e.timestamp) if e.offset == 15 else e for e in made]
        (folder / f"{base:020d}.seg").write_bytes(segment(header(1, log_id, base), log_id, made))
    body = b'{"mail":{"frontier":5,"namespaces":{"shop.orders":4},"ranges":[[6,8]],"updated":"2024-02-29T12:00:00+00:00"}}\n'
    (folder / "offsets").write_bytes(b"penstock-offsets 1 %08x\n" % google_crc32c.value(body) + body)


def newest(folder: Path) -> None:
    """By the library. One record is damaged and marked as lost by `repair`."""
    clock = count(START)
    with Writer(folder, segment_bytes=1100, clock=lambda: next(clock)) as writer:
        for record in A:
            writer.append([record])
        writer.append_batch(batches.to_arrow(B), "shop.orders")
    with Writer(folder, segment_bytes=1100, compression="zstd", clock=lambda: next(clock)) as writer:
        writer.append_batch(batches.to_arrow(C), "shop.people", Mode.COPY)
        for record in (*D, *E):
            writer.append([record])
    for file in folder.glob("*.seg"):
        file.write_bytes(file.read_bytes().replace(b"to be lost", b"to be LOST"))
    assert [lost.offset for lost in repair(folder).lost] == [15]
    with Offsets(folder) as offsets:
        offsets.ack("mail", range(5))
        offsets.ack("mail", range(6, 8))
    for file in (*folder.glob("*.lock"), *folder.glob("*.damaged")):
        file.unlink()


def expected() -> list[dict[str, object]]:
    """What is in them, for tests: fields that are not the usual ones, as Python writes them."""
    usual = Record()
    made: list[dict[str, object]] = []
    names = ("after", "before", "key", "position", "operation", "namespace", "phase", "metadata", "timestamp")
    for offset, record in enumerate([*A, *B, *C, *D, *E]):
        fields = {n: repr(getattr(record, n)) for n in names if getattr(record, n) != getattr(usual, n)}
        made.append({"offset": offset, **({"lost": WHY} if offset == 15 else fields)})
    return made


def main() -> None:
    version = sys.argv[1]
    (version_1 if version == "v1" else newest)(DATA / version)
    (DATA / "expected.json").write_text(
        "[\n" + ",\n".join(json.dumps(e, ensure_ascii=False) for e in expected()) + "\n]\n"
    )


if __name__ == "__main__":
    main()
