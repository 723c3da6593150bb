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
from penstock.log.format import HEADER_BYTES, Bad, Head, Header
from penstock.log.index import Index, Mark, Place
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


def create(folder: Path, header: Header) -> Path:
    """A segment with no entry, durable under its name or not there at all."""
    path = folder / segment.name(header.base)
    new = path.with_suffix(NEW)
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        fs.write(fd, header.pack())
        fs.fsync(fd, new)
    finally:
        os.close(fd)
    faults.reach("K14", "created")
    new.replace(path)
    faults.reach("K14", "renamed")
    fs.fsync_folder(folder)
    return path


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
        header = Header(secrets.token_bytes(16), 0)
        return Recovered(create(folder, header), header, HEADER_BYTES, 0, None)
    path = folder / segment.name(bases[-1])
    opened = Segment(path)
    try:
        found = _tail(opened, skip=skip)
    finally:
        opened.close()
    # What a process that was killed has written may still be in memory only.
    fs.fsync_file(path)
    fs.fsync_folder(folder)
    return found


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
        problem = step if isinstance(step, Damage) else _unreadable(opened, step)
        if isinstance(step, Head) and problem is None:
            result.names[step.namespace] = Place(step.position, step.end - 1)
            result.position, result.end = step.next, step.end
            continue
        assert problem is not None
        if _torn(opened, problem, durable, size):
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
    if orphan is None:
        return 0
    base = int(orphan.stem)
    found = index.load(orphan, Header(opened.header.log_id, base), 1 << 62)
    return max(base, found.durable.offset if found and found.durable else 0)


def _unreadable(opened: Segment, head: Head) -> Damage | None:
    try:
        opened.data(head)
    except Bad as bad:
        return Damage(head.offset, head.end, head.position, head.next, str(bad), head.namespace)
    return None


def _torn(opened: Segment, problem: Damage, durable: Mark, size: int) -> bool:
    """True if nobody was ever told that what should be there was durable: neither the index nor a later entry says so."""
    if not faults.safeguard("log-evidence"):
        return True
    if durable.offset > problem.offset:
        return False
    later = opened.find(problem.position + 1, size, problem.offset)
    while later is not None:
        if later.durable > problem.offset:
            return False
        later = opened.find(later.next, size, later.end)
    return True
