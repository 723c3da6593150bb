"""Makes a damaged log readable again: what can't be read is marked as lost, record by record, so that whoever accounts for them can say so.

The only one besides the writer that changes a log that is not compacted; needs the writer to be stopped. Each segment is replaced in
one rename, and the damaged one is kept beside it under another name.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from penstock import fs
from penstock.errors import PenstockError
from penstock.filelock import FileLock, Held
from penstock.log import index, segment
from penstock.log.compaction import NewSegment, new_generation
from penstock.log.errors import LogError, LogLocked
from penstock.log.format import HEADER_BYTES, VERSION, Bad, Head, Header, Kind, Mode
from penstock.log.offsets import FILE as OFFSETS
from penstock.log.reader import Lost, Reader
from penstock.log.recovery import New, recover, refuse_newer
from penstock.log.segment import Damage, Segment
from penstock.log.verify import checked, verify

REPAIR = ".repair"
DAMAGED = ".damaged"
_MOST = (1 << 32) - 1


@dataclass(slots=True)
class Repaired:
    lost: list[Lost] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)  # damaged files, under the names they have now
    cut: int = 0  # bytes of a torn tail
    offsets_reset: bool = False


def repair(folder: Path) -> Repaired:
    """Does nothing to a log that is as it should be. `LogLocked` while it is being written or compacted."""
    Reader(folder, on_damage="skip").close()  # says so if there is none
    with _alone(folder):
        refuse_newer(folder)
        _refuse_misnamed(folder)
        done = Repaired()
        for left in folder.glob(f"*{REPAIR}"):
            left.unlink()
        _headers(folder, done)
        found = recover(folder, skip=True)
        if (orphan := index.orphan(folder)) is not None:
            orphan[0].unlink()
        done.cut = found.cut
        wrong = {problem.file for problem in verify(folder).problems}
        if folder / OFFSETS in wrong:
            _set_aside(folder / OFFSETS, done)
            done.offsets_reset = True
        _first(folder, found.header, done)
        bases = Reader(folder).bases()
        for base, following in zip(bases, [*bases[1:], None], strict=True):
            path = folder / segment.name(base)
            if path in wrong or (following is None and found.lost):
                _mend(path, following, found.end, done)
            elif index.path_of(path) in wrong:
                index.path_of(path).unlink()
        return done


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    locks = [FileLock(folder / "writer.lock"), FileLock(folder / "compaction.lock")]
    try:
        for lock, what in zip(locks, ("is being written", "is being compacted"), strict=True):
            try:
                lock.take()
            except Held as held:
                raise LogLocked(folder, what, str(held)) from None
        yield
    finally:
        for lock in locks:
            lock.release()


def _set_aside(path: Path, done: Repaired) -> Path:
    """The file stays for whoever wants to look at it; a later repair never takes its place."""
    number = 1
    while (aside := path.with_name(f"{path.name}{DAMAGED}{number if number > 1 else ''}")).exists():
        number += 1
    os.link(path, aside)
    if path.name == OFFSETS:
        path.unlink()
    done.kept.append(aside)
    return aside


# -- segments -----------------------------------------------------------------------------------------------------------------


def _mend(path: Path, following: int | None, end: int, done: Repaired) -> None:
    opened = Segment(path)
    reach = end if following is None else following
    header = replace(opened.header, version=VERSION, generation=new_generation(), covers=following or 0, length=0)
    _set_aside(path, done)
    with NewSegment(path, header, REPAIR) as made:
        for step in checked(opened, opened.size, reach):
            if isinstance(step, Damage):
                for head in _stubs(step):
                    made.add(head, step.why.encode())
                    done.lost.append(Lost(head.offset, head.count, step.why, path, step.position, step.namespace))
            else:
                made.add(step, opened.data(step))
        made.finish()
        made.publish()


def _stubs(damage: Damage) -> Iterator[Head]:
    """In place of records that are lost."""
    at = damage.offset
    while at < damage.end:
        count = min(damage.end - at, _MOST)
        key = damage.namespace.encode()
        yield Head(Kind.LOST, at, count, 0, time.time_ns(), Mode.SYNC, key, 0, 0, 0, 0)
        at += count


def _first(folder: Path, known: Header, done: Repaired) -> None:
    """In place of segments that are missing at the beginning. (Those that are missing later are lost at the end of the one before.)"""
    first = segment.bases(folder)[0]
    if first == 0:
        return
    why = "its segment is missing"
    path = folder / segment.name(0)
    with NewSegment(path, Header(known.log_id, 0, generation=new_generation(), covers=first), REPAIR) as made:
        for head in _stubs(Damage(0, first, 0, 0, why)):
            made.add(head, why.encode())
            done.lost.append(Lost(head.offset, head.count, why, path, 0))
        made.finish()
        made.publish()


# -- headers ------------------------------------------------------------------------------------------------------------------


def _refuse_misnamed(folder: Path) -> None:
    """A segment that is whole and has another's name: to guess anything here would make it worse."""
    for base in segment.bases(folder):
        path = folder / segment.name(base)
        with path.open("rb") as file:
            try:
                found = Header.unpack(file.read(HEADER_BYTES))
            except Bad:
                continue
        if found.base != base:
            raise LogError(
                f"{path} is the segment that begins at offset {found.base}",
                code="log.misnamed",
                why="somebody has renamed it, or copied it over another one",
                hint=f"give it its own name, {segment.name(found.base)}; nothing was changed",
            )


def _headers(folder: Path, done: Repaired) -> None:
    """A segment whose first bytes are damaged gets them back: its name, its entries and its neighbours say what they were."""
    bases = segment.bases(folder)
    good: dict[int, Header] = {}
    for base in bases:
        try:
            good[base] = segment.header(folder / segment.name(base))
        except Bad:
            continue
    ids = {header.log_id for header in good.values()}
    if len(ids) > 1:
        raise LogError(
            f"The segments in {folder} are of several logs",
            code="log.foreign",
            hint="move away those that do not belong there: penstock log verify names them",
        )
    for base in bases:
        if base not in good:
            path = folder / segment.name(base)
            following = next((b for b in bases if b > base), None)
            header = _guess(path, base, following, ids)
            _set_aside(path, done)
            if header is None:
                _give_up(path, base, following, ids, done)
            else:
                _with_header(path, header)


def _guess(path: Path, base: int, following: int | None, ids: set[bytes]) -> Header | None:
    """The header with which its entries are right."""
    data = path.read_bytes()[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0")
    raw = Header.read(data)
    beside = index.path_of(path).read_bytes() if index.path_of(path).exists() else b""
    candidates = [*ids, index.log_id(beside), raw.log_id] if not ids else list(ids)
    holes = raw.holes if raw.generation and following is not None and raw.holes <= following else 0
    for log_id in candidates:
        for version in range(VERSION, 0, -1):
            header = Header(log_id, base, version, raw.generation, following or 0, holes)
            if _fits(path, header):
                return header
    return None


def _fits(path: Path, header: Header) -> bool:
    size = path.stat().st_size
    if size <= HEADER_BYTES:
        return False
    try:
        return Segment(path, header).find(HEADER_BYTES, size, header.base) is not None
    except PenstockError:
        return False


def _with_header(path: Path, header: Header) -> None:
    new = path.with_suffix(REPAIR)
    with path.open("rb") as old, new.open("wb") as made:
        made.write(header.pack())
        old.seek(HEADER_BYTES)
        while piece := old.read(1 << 20):
            made.write(piece)
        made.flush()
        fs.fsync(made.fileno(), new)
    new.replace(path)
    fs.fsync_folder(path.parent)


def _give_up(path: Path, base: int, following: int | None, ids: set[bytes], done: Repaired) -> None:
    """Nothing in it can be read: everything is lost that it should hold."""
    if not ids:
        raise LogError(
            f"Nothing in {path} can be read, and no other segment says which log it is of",
            code="log.unrepairable",
            hint="take the log back from a copy, or move the folder away to begin a new one",
        )
    why = "nothing in its segment can be read"
    log_id = next(iter(ids))
    if following is None:
        made_new = New(path.parent, Header(log_id, base))
        made_new.publish()
        made_new.close()
        done.lost.append(Lost(base, 0, why, path, 0))
        return
    with NewSegment(path, Header(log_id, base, generation=new_generation(), covers=following), REPAIR) as made:
        for head in _stubs(Damage(base, following, 0, 0, why)):
            made.add(head, why.encode())
            done.lost.append(Lost(head.offset, head.count, why, path, 0))
        made.finish()
        made.publish()
