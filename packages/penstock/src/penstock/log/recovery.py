"""What a writer finds when it opens a log: where to go on, and what a crash has left. The only place that decides between a torn tail,
which nobody was told of and which is cut off, and damage to what was durable.

The index says from where the active segment has to be read; without one, all of it is.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass, field
from pathlib import Path

from penstock import fs
from penstock.log import index, segment
from penstock.log.errors import LogDamaged
from penstock.log.format import HEADER_BYTES, Bad, Head, Header, Kind
from penstock.log.index import Index, IndexFile, Mark, Place
from penstock.log.offsets import load
from penstock.log.segment import Damage, Segment
from penstock.testing import faults

NEW = ".new"  # a segment on its way; it gets its name when its header is on disk


@dataclass(slots=True)
class Recovered:
    """The active segment, ready to be appended to."""

    path: Path
    header: Header
    position: int
    end: int
    index: Index | None
    names: dict[str, Place] = field(default_factory=dict)  # namespaces since the index's last point
    cut: int = 0  # bytes of a torn tail that were cut off
    lost: list[Damage] = field(default_factory=list)  # what was durable and can't be read


class New:
    """A segment with no entry. It gets its name when its header is on disk and its index is there: nobody ever sees it without."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.path = folder / segment.name(header.base)
        self.header = header
        self._new = self.path.with_suffix(NEW)
        self.fd = os.open(self._new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o666)
        try:
            fs.write(self.fd, header.pack())
            fs.fsync(self.fd, self._new)
            self.index = IndexFile(index.path_of(self.path), header)
        except BaseException:
            os.close(self.fd)
            raise
        try:
            self.index.durable(Mark(HEADER_BYTES, header.base))
            faults.reach("K14", "created")
            self._new.replace(self.path)
        except BaseException:
            self.close()
            raise

    def publish(self) -> None:
        """From here on it may be on disk: whoever made it goes on with it, or not at all."""
        faults.reach("K14", "renamed")
        fs.fsync_folder(self.path.parent)

    def close(self) -> None:
        os.close(self.fd)
        self.index.close()


def refuse_newer(folder: Path) -> None:
    """Before anything is touched: a log that a newer Penstock has written to."""
    if folder.is_dir():
        for base in segment.bases(folder)[::-1]:
            try:
                segment.header(folder / segment.name(base))
            except (Bad, FileNotFoundError):
                continue


def recover(folder: Path, *, skip: bool) -> Recovered:
    """For the one writer. With `skip` damage is passed over and told, else it is raised."""
    fs.make_folder(folder)
    for left in folder.glob(f"*{NEW}"):
        left.unlink()
    bases = segment.bases(folder)
    if not bases:
        made = New(folder, Header(secrets.token_bytes(16), 0))
        try:
            made.publish()
        finally:
            made.close()
        bases = [0]
    path = folder / segment.name(bases[-1])
    opened = Segment(path)
    try:
        found = _tail(opened, skip=skip)
    finally:
        opened.close()
    _write_again(path, found)
    fs.fsync_folder(folder)
    return found


def _write_again(path: Path, found: Recovered) -> None:
    """What nobody vouches for may be in memory only: a process was killed before its fsync, or the fsync failed. After one that failed
    another one says nothing, unless the bytes were written anew."""
    durable = found.index.durable if found.index else None
    at = durable.position if durable else HEADER_BYTES
    fd = os.open(path, os.O_RDWR)
    try:
        while piece := os.pread(fd, min(1 << 20, max(0, found.position - at)), at):
            os.pwrite(fd, piece, at)
            at += len(piece)
        fs.fsync(fd, path)
    finally:
        os.close(fd)


def _tail(opened: Segment, *, skip: bool) -> Recovered:
    size = opened.size
    found = index.load(index.path_of(opened.path), opened.header, size)
    start = found.last(opened.header.base) if found else Mark(HEADER_BYTES, opened.header.base)
    durable = found.durable if found and found.durable else start
    told = max(_acked(opened.path.parent, skip=skip), _missing(opened))
    if told > durable.offset:
        durable = Mark(durable.position, told)
    result = Recovered(opened.path, opened.header, start.position, start.offset, found)
    for step in opened.walk(start, size, durable.offset):
        problem = step if isinstance(step, Damage) else opened.problem(step)
        if isinstance(step, Head) and problem is None:
            if step.kind != Kind.LOST:
                result.names[step.namespace] = Place(step.position, step.end - 1)
            result.position, result.end = step.next, step.end
            continue
        assert problem is not None
        if _torn(opened, problem, durable):
            result.cut = size - problem.position
            if faults.safeguard("log-cut"):
                os.truncate(opened.path, problem.position)
                result.position = problem.position
            else:
                result.position = size
            break
        if not skip:
            raise LogDamaged(
                problem.why,
                segment=opened.path,
                position=problem.position,
                offset=problem.offset,
                count=problem.end - problem.offset,
            )
        result.lost.append(problem)
        result.position, result.end = problem.next, max(result.end, problem.end)
    return result


def _acked(folder: Path, *, skip: bool) -> int:
    """What a reader has acked was durable."""
    try:
        return max((state.reach for state in load(folder).values()), default=0)
    except LogDamaged:
        if not skip:
            raise
        return 0


def _missing(opened: Segment) -> int:
    """What the index of a later segment says, if somebody has removed the segment itself."""
    orphan = index.orphan(opened.path.parent)
    return 0 if orphan is None else orphan[1]


def _torn(opened: Segment, problem: Damage, durable: Mark) -> bool:
    """True if nobody was ever told that what should be there was durable: neither the index, nor a reader, nor a later entry says so."""
    if not faults.safeguard("log-evidence"):
        return True
    return durable.offset <= problem.offset and not opened.vouched(problem)
