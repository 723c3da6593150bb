"""Reads stretches of plain line files in Python tasks of Spark, and cuts files at lines on the driver.

It gives the lines, and the numbers for `seq`, that Spark's text reader gives with `lineSep` "\\n" and one partition per block;
unlike that reader it can begin and end at any line, and reads many small files in one task. Called by the source.

A line belongs to the block in which it starts, where a line that starts right at a boundary still counts to the block before
it: a newline in byte p begins a line of block p // block. So a task that is given a block finds its first line by itself, and
nobody has to read the file beforehand. What is not read again here is the file's size and time: the check around the read
tells when a file is not the one that was cut, and the evidence when a line is missing.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from penstock import record
from penstock.connectors.files.csv import PARTITION
from penstock.connectors.files.listing import partitions

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

BLOCK = 64 * 1024 * 1024
CHUNK = 1024 * 1024  # bytes read at a time, and bytes of lines made into batches together; with 4 MB a fifth slower
TAIL = 64 * 1024  # bytes read at a time where the end of a line is looked for
ROWS = 10_000  # of one batch
LONGEST = 2**31 - 16 * CHUNK  # bytes of a line; neither Arrow nor Spark has longer strings
TASKS_PER_CORE = 4
TASK_MIN = 1024 * 1024  # work below which a task of its own does not pay, as bytes
OPEN_COST = 8 * 1024  # what opening a file costs, as bytes to read
BOM = b"\xef\xbb\xbf"
FILE = "penstock.file"

DDL = {
    record.AFTER: "string",
    record.SEQ: "bigint",
    record.POSITION: "binary",
    record.METADATA: "map<string,string>",
    record.SKIP: "boolean",  # the first line of a file
}


@dataclass(frozen=True)
class Stretch:
    """The lines of one file that start in [start, stop).

    `start` need not be the start of a line: the first one at or behind it is meant. `place` is the place of that line in its block.
    """

    path: str
    start: int
    stop: int
    place: int
    base: int


# -- on the driver --------------------------------------------------------------------------------------------------


def cut(
    path: str, start: int, place: int, size: int, *, max_records: int | None, max_bytes: int, block: int = BLOCK
) -> tuple[int, int, int | None]:
    """Where a stretch from the line at `start` ends: the start of a line or `size`; the place of that line in its block; and
    the number of lines, if they were counted.

    By bytes it ends at the first line behind the last boundary of blocks that `max_bytes` reach, at least one block on; only
    that line is looked for. By records it has exactly `max_records` lines, unless the file or `max_bytes` end it sooner; all of
    it is read, at 2 GB/s.
    """
    boundary = max((start + max_bytes) // block, _block_of(start, block) + 1) * block
    if boundary >= size and max_records is None:
        return size, 0, None
    with open(path, "rb", buffering=0) as f:
        limit = _line_behind(f, boundary, size)
        if max_records is None:
            return limit, 0, None
        if start == 0 and size == len(BOM) and f.seek(0) == 0 and f.read(size) == BOM:
            return size, 0, 0
        return _count(f, start, place, limit, max_records, block)


def _line_behind(f: BinaryIO, at: int, size: int) -> int:
    """The start of the first line behind `at`, or `size`."""
    if at >= size:
        return size
    f.seek(at)
    step = TAIL
    while data := f.read(step):
        if (found := data.find(b"\n")) >= 0:
            return min(at + found + 1, size)
        at += len(data)
        step = CHUNK
    return size


def _count(f: BinaryIO, at: int, place: int, limit: int, most: int, block: int) -> tuple[int, int, int]:
    """Counts lines up to `limit`, which is the start of a line or the end of the file. No read crosses a block."""
    lines, ended = 0, True
    place += 1  # of the next line that starts
    f.seek(at)
    while at < limit and (data := f.read(min(CHUNK, block - at % block, limit - at))):
        if at % block == 0 and at > 0:
            place = 0
        found = data.count(b"\n")
        if lines + found >= most:
            wanted = most - lines
            return at + _nth(data, wanted) + 1, place + wanted - 1, most
        lines, place, at = lines + found, place + found, at + len(data)
        ended = data.endswith(b"\n")
    return limit, 0, lines if ended else lines + 1


def _nth(data: bytes, n: int) -> int:
    """Where the nth newline is, n from 1. There are that many."""
    low, high = 0, len(data)
    while high - low > 1:
        middle = (low + high) // 2
        before = data.count(b"\n", low, middle)
        if before >= n:
            high = middle
        else:
            low, n = middle, n - before
    return low


def tasks(stretches: Sequence[Stretch], cores: int, block: int = BLOCK) -> list[tuple[Stretch, ...]]:
    """The stretches in order, divided at blocks and packed into tasks: at most a block of bytes for each, and about four per
    core when it is all small."""
    parts = [part for stretch in stretches for part in _by_block(stretch, block)]
    work = sum(part.stop - part.start + OPEN_COST for part in parts)
    share = max(math.ceil(work / (TASKS_PER_CORE * cores)), TASK_MIN)
    packed: list[tuple[Stretch, ...]] = []
    task: list[Stretch] = []
    size = 0
    for part in parts:
        more = part.stop - part.start
        if task and (size + more > block or size + more + (len(task) + 1) * OPEN_COST > share):
            packed.append(tuple(task))
            task, size = [], 0
        task.append(part)
        size += more
    if task:
        packed.append(tuple(task))
    return packed


def _block_of(start: int, block: int) -> int:
    """The block that a line belongs to."""
    return max(start - 1, 0) // block


def _by_block(stretch: Stretch, block: int) -> Iterator[Stretch]:
    """One stretch for each block. Where a later one begins is not known yet, but its first line has place 0."""
    start, place = stretch.start, stretch.place
    while start < stretch.stop:
        stop = min((_block_of(start, block) + 1) * block + 1, stretch.stop)
        yield replace(stretch, start=start, stop=stop, place=place)
        start, place = stop, 0


# -- in Spark's tasks -----------------------------------------------------------------------------------------------


class _Piece(NamedTuple):
    """Whole lines, each with its newline."""

    data: bytes
    ends: NDArray[np.intp]  # where the newlines are
    stretch: Stretch
    first: int  # seq of the first line, without the base


@dataclass(frozen=True)
class ReadLines:
    """For `spark.range(0, n, 1, n).mapInArrow(…)` with n tasks: the row with a task's number becomes the lines of its
    stretches. Memory: about three times the longest line (measured with 300 MB), and a few chunks."""

    tasks: tuple[tuple[Stretch, ...], ...]
    columns: tuple[str, ...]  # of after, seq, position, metadata and _skip
    block: int = BLOCK
    root: str | None = None  # of the source, where names of folders below it hold values

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {DDL[name]}" for name in self.columns)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for pieces in _gathered(self._pieces(self.tasks[number])):
                    yield from self._batches(pieces)

    def _pieces(self, stretches: Iterable[Stretch]) -> Iterator[_Piece]:
        import numpy as np

        for stretch in stretches:
            for part in _by_block(stretch, self.block):
                begin = _block_of(part.start, self.block) * self.block
                first = begin + (1 if begin > 0 else 0) + part.place
                for data in _whole_lines(part):
                    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
                    yield _Piece(data, ends, part, first)
                    first += len(ends)

    def _batches(self, pieces: list[_Piece]) -> Iterator[pa.RecordBatch]:
        """An Arrow string is where the one before it ends, so the newlines have to go. `replace` and offsets take 20 ns a
        line. Nothing looks into the bytes: what is no UTF-8 passes as it is."""
        import numpy as np
        import pyarrow as pa

        counts = [len(piece.ends) for piece in pieces]
        befores = _sums_before([len(piece.data) for piece in pieces])
        ends = np.concatenate([piece.ends + before for piece, before in zip(pieces, befores, strict=True)])
        lines = np.arange(len(ends))
        offsets = np.zeros(len(ends) + 1, np.int32)
        offsets[1:] = ends - lines
        text = pa.py_buffer(b"".join(piece.data for piece in pieces).replace(b"\n", b""))
        whose = np.repeat(np.arange(len(pieces)), counts)
        firsts = np.array([piece.first for piece in pieces], np.int64)
        in_file = np.repeat(firsts - _sums_before(counts), counts) + lines
        base = np.array([piece.stretch.base for piece in pieces], np.int64)
        paths = pa.array([piece.stretch.path for piece in pieces], pa.string())
        for low in range(0, len(lines), ROWS):
            rows = slice(low, low + ROWS)
            n = len(lines[rows])
            made: list[pa.Array] = []
            for name in self.columns:
                if name == record.AFTER:
                    buffers = [None, pa.py_buffer(offsets), text]
                    made.append(pa.Array.from_buffers(pa.string(), n, buffers, null_count=0, offset=low))
                elif name == record.SEQ:
                    made.append(pa.array(base[whose[rows]] + in_file[rows], pa.int64()))
                elif name == record.POSITION:
                    made.append(_positions(paths.take(pa.array(whose[rows])), in_file[rows]))
                elif name == record.SKIP:
                    made.append(pa.array(in_file[rows] == 0, pa.bool_()))
                elif self.root is None:
                    made.append(_metadata(paths.take(pa.array(whose[rows]))))
                else:
                    found = pa.array(
                        [values_of(self.root, p) for p in paths.to_pylist()], pa.map_(pa.string(), pa.string())
                    )
                    made.append(found.take(pa.array(whose[rows])))
            yield pa.RecordBatch.from_arrays(made, list(self.columns))


def _sums_before(numbers: list[int]) -> NDArray[np.int64]:
    import numpy as np

    return np.cumsum([0, *numbers[:-1]], dtype=np.int64)


def _positions(paths: Any, in_file: NDArray[np.int64]) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.binary_join_element_wise(paths, pa.array(in_file).cast(pa.string()), "#").cast(pa.binary())


def values_of(root: str, path: str) -> list[tuple[str, str]]:
    """What a record says of its file, the values in names of folders included."""
    found = partitions(Path(root), path)
    return [(FILE, path), *((PARTITION + name, value) for name, value in found.items() if value is not None)]


def _metadata(paths: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    offsets = pa.array(np.arange(len(paths) + 1, dtype=np.int32))
    return pa.MapArray.from_arrays(offsets, pa.repeat(pa.scalar(FILE), len(paths)), paths)


def _gathered(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    """Small files together: a batch for each of them would cost more than its lines."""
    group: list[_Piece] = []
    size = 0
    for piece in pieces:
        group.append(piece)
        size += len(piece.data)
        if size >= CHUNK:
            yield group
            group, size = [], 0
    if group:
        yield group


def _whole_lines(part: Stretch) -> Iterator[bytes]:
    """The lines that start in [start, stop), a chunk of whole lines at a time, each with a newline, also where the file has none.

    Those are the lines begun by a newline in [start - 1, stop - 1), and in any case the one at 0; the first newline from
    stop - 1 on ends the last of them.
    """
    last = part.stop - 1
    at = max(part.start - 1, 0)
    begun = part.start == 0
    pending: list[bytes] = []  # of a line whose end has not been seen
    held = 0
    try:
        with open(part.path, "rb", buffering=0) as f:
            f.seek(at)
            while data := f.read(min(CHUNK, max(part.stop - at, TAIL, held))):
                here, at = at, at + len(data)
                low = len(BOM) if here == 0 and data.startswith(BOM) else 0
                if not begun:
                    low = data.find(b"\n", 0, max(last - here, 0)) + 1
                    if low == 0:
                        if at >= last:
                            return  # all of it is inside one line
                        continue
                    begun = True
                final = at > last
                high = (data.find(b"\n", max(low, last - here)) if final else data.rfind(b"\n", low)) + 1
                if high == 0:
                    pending.append(data[low:])
                    held += len(pending[-1])
                    if held > LONGEST:
                        what = f"a line of more than {LONGEST} bytes behind byte {part.start}"
                        raise OSError(errno.EFBIG, what, part.path)  # noqa: TRY301
                    continue
                pending.append(data[low:high])
                yield _taken(pending)
                if final:
                    return
                pending.append(data[high:])
                held = len(pending[0])
    except OSError as e:
        raise OSError(e.errno, e.strerror, part.path) from e  # a failed read does not say of which file
    if any(pending):
        pending.append(b"\n")
        yield _taken(pending)


def _taken(parts: list[bytes]) -> bytes:
    """Joined, and no longer held: else a long line would be in memory once more while it is made into a batch."""
    whole = b"".join(parts)
    parts.clear()
    return whole
