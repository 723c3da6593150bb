"""Reads CSV files whose quoted values hold line breaks, in Python tasks of Spark: lines are joined until the quote is closed.

A file is one task's, or shares one with other small files. Spark's own reader for such files takes the line end from the first
lines, changes what is not UTF-8, and lets a quote that is not closed swallow what follows, all without a word. Here a record is
its bytes, and what is wrong with it is found as it is for a line.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock import record
from penstock.connectors.files.lines import BOM, DDL, FILE, ROWS, values_of
from penstock.connectors.files.opening import opened

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK = 1024 * 1024
BATCH = 8 * 1024 * 1024  # bytes of records made into a batch together
LONGEST = 1024 * 1024 * 1024  # bytes of a record


@dataclass(frozen=True)
class Whole:
    """A file, from its beginning to its end."""

    path: str
    size: int
    base: int


def tasks(files: Sequence[Whole], cores: int) -> list[tuple[Whole, ...]]:
    """Large files alone; small ones together, in order."""
    most = max(CHUNK, sum(f.size for f in files) // (4 * cores))
    made: list[list[Whole]] = []
    held = most + 1
    for f in files:
        if held + f.size > most:
            made.append([])
            held = 0
        made[-1].append(f)
        held += f.size + 8 * 1024
    return [tuple(group) for group in made]


@dataclass(frozen=True)
class ReadRecords:
    """For `spark.range(0, n, 1, n).mapInArrow(…)` with n tasks, as `lines.ReadLines`."""

    tasks: tuple[tuple[Whole, ...], ...]
    columns: tuple[str, ...]
    delimiter: str
    root: str | None = None

    @property
    def ddl(self) -> str:
        return ", ".join(f"{name} {DDL[name]}" for name in self.columns)

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for file in self.tasks[number]:
                    yield from self._file(file)

    def _file(self, file: Whole) -> Iterator[pa.RecordBatch]:
        held: list[bytes] = []
        first = size = 0
        for text in records_of(file.path, self.delimiter):
            held.append(text)
            size += len(text)
            if len(held) >= ROWS or size >= BATCH:
                yield self._batch(file, held, first)
                first += len(held)
                held, size = [], 0
        if held:
            yield self._batch(file, held, first)

    def _batch(self, file: Whole, texts: list[bytes], first: int) -> pa.RecordBatch:
        import pyarrow as pa

        places = range(first, first + len(texts))
        made: list[Any] = []
        for name in self.columns:
            if name == record.AFTER:
                made.append(pa.array(texts, pa.binary()).view(pa.string()))
            elif name == record.SEQ:
                made.append(pa.array([file.base + i for i in places], pa.int64()))
            elif name == record.POSITION:
                made.append(pa.array([f"{file.path}#{i}".encode() for i in places], pa.binary()))
            elif name == record.SKIP:
                made.append(pa.array([i == 0 for i in places], pa.bool_()))
            else:
                known = values_of(self.root, file.path) if self.root is not None else [(FILE, file.path)]
                made.append(pa.array([known] * len(texts), pa.map_(pa.string(), pa.string())))
        return pa.RecordBatch.from_arrays(made, list(self.columns))


def records_of(path: str, delimiter: str) -> Iterator[bytes]:
    """Without their last line ends. Raises `OSError` with the path for whatever keeps the file from being read."""
    try:
        yield from joined(lines_of(path), delimiter.encode())
    except OSError as e:
        raise OSError(e.errno or errno.EIO, e.strerror or str(e), path) from e
    except (EOFError, ValueError) as e:  # a packed file that ends too soon; a record that has no end
        raise OSError(errno.EIO, str(e), path) from e


def joined(lines: Iterable[bytes], delimiter: bytes) -> Iterator[bytes]:
    """Lines to records. A quote opens a value only where the value begins; inside, two are one. The last record is given as it
    is, also where its quote is not closed."""
    opens = re.compile(b'(?:^|%s)"' % re.escape(delimiter))
    held: list[bytes] = []
    size, inside = 0, False
    for line in lines:
        inside = _open_behind(line, opens, inside=inside) if inside or b'"' in line else False
        if not inside and not held:
            yield line
            continue
        held.append(line)
        size += len(line)
        if size > LONGEST:
            raise ValueError(f"a record has more than {LONGEST} bytes: a quote is not closed")
        if not inside:
            yield b"\n".join(held)
            held, size = [], 0
    if held:
        yield b"\n".join(held)


def _open_behind(line: bytes, opens: re.Pattern[bytes], *, inside: bool) -> bool:
    at = 0
    while True:
        if inside:
            at = line.find(b'"', at)
            if at < 0:
                return True
            if line[at + 1 : at + 2] == b'"':
                at += 2
                continue
            inside, at = False, at + 1
        found = opens.search(line, at)
        if found is None:
            return False
        inside, at = True, found.end()


def lines_of(path: str, most: int = LONGEST) -> Iterator[bytes]:
    """Without their ends. Raises `ValueError` for one of more than `most` bytes."""
    rest = b""
    begun = False
    with opened(path) as f:
        while chunk := f.read(CHUNK):
            if not begun:
                chunk, begun = chunk.removeprefix(BOM), True
            *whole, rest = (rest + chunk).split(b"\n")
            yield from whole
            if len(rest) > most:
                raise ValueError(f"a line has more than {most} bytes")
    if rest:
        yield rest
