"""What `penstock log list` and `penstock log offsets` say: how large a log is, who reads it, and how far each of them is.

Reads heads of entries, never their data, and only as far back as some reader has not acknowledged. No lock; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.cli.log_names import Named, is_log, readable
from penstock.cli.shown import ago, count, table
from penstock.engine.view import human_size
from penstock.errors import PenstockError
from penstock.log import Reader, Span
from penstock.log.acked import Acked, Known, ReaderState
from penstock.log.errors import LogDamaged
from penstock.log.offsets import load

HEADS = 20_000  # entries that `list` looks at for the lag of a log: it is to be quick


# -- readers ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a reader is with a namespace."""

    namespace: str
    effective: int | None  # everything of it at or below is acked
    pending: int | None  # the lowest that is not
    lag: int  # records


@dataclass(frozen=True)
class Follower:
    name: str
    state: ReaderState
    pending: int | None
    lag: int
    places: Sequence[Place]


@dataclass(frozen=True)
class Followers:
    """All readers of a log. `exact`: all that is pending was looked at; else a lag is at most what it says."""

    readers: Sequence[Follower]
    first: int
    end: int
    exact: bool = True
    damage: LogDamaged | None = None

    @property
    def slowest(self) -> Follower | None:
        return max(self.readers, key=lambda r: r.lag, default=None)

    @property
    def point(self) -> int | None:
        """The lowest offset that is still needed; None without readers."""
        if not self.readers:
            return None
        return min((r.pending for r in self.readers if r.pending is not None), default=self.end)

    @property
    def holders(self) -> list[str]:
        return [r.name for r in self.readers if r.pending is not None and r.pending == self.point]


def followers(folder: Path, most: int | None = None) -> Followers:
    """`most`: heads to look at."""
    states = load(folder)
    with Reader(folder, on_damage="skip") as reader:
        first, end = reader.first, reader.end
        start = max(first, min((state.frontier for state in states.values()), default=end))
        known, damage = Known(start), None
        try:
            with Reader(folder) as careful:
                _extend(known, careful, end, most)
        except LogDamaged as found:
            known, damage = Known(start), found
            _extend(known, reader, end, most)
    exact = known.end >= end
    readers = [_follower(name, state, known, 0 if exact else end - known.end) for name, state in sorted(states.items())]
    return Followers(readers, first, end, exact, damage)


def _extend(known: Known, reader: Reader, end: int, most: int | None) -> None:
    spans = reader.spans(known.start, end)
    seen = 0

    def some() -> Any:
        nonlocal seen
        span: Span
        for span in spans if most is None else islice(spans, most):
            seen += 1
            yield span

    known.extend(some())
    if most is None or seen < most:
        known.end = max(known.end, end)  # the last ones may be lost: nobody waits for them


def _follower(name: str, state: ReaderState, known: Known, unseen: int) -> Follower:
    acked = Acked(state.frontier, state.namespaces, state.ranges)
    pending = acked.settle(known)
    if pending is None and unseen:
        pending = known.end
    places = [_place(namespace, acked, known) for namespace in sorted({*acked.effective, *known.namespaces})]
    return Follower(name, state, pending, acked.lag(known) + unseen, places)


def _place(namespace: str, acked: Acked, known: Known) -> Place:
    effective = acked.effective.get(namespace)
    lag, pending = 0, None
    if runs := known.namespaces.get(namespace):
        for start, end in runs.after(max(acked.frontier, -1 if effective is None else effective + 1)):
            waiting = end - start - acked.beyond.count(start, end)
            if waiting and pending is None:
                pending = acked.beyond.first_missing(start, end)
            lag += waiting
    return Place(namespace, effective, pending, lag)


def offsets_table(found: Followers) -> str:
    header = ("READER", "NAMESPACE", "EFFECTIVE", "PENDING FROM", "LAG", "LAST FLUSHED")
    rows = []
    for r in found.readers:
        flushed = r.state.updated.replace("+00:00", "Z") or "never"
        for place in r.places or [Place("", None, r.pending, r.lag)]:
            effective, pending = ("–" if n is None else str(n) for n in (place.effective, place.pending))
            rows.append([r.name, place.namespace or "–", effective, pending, f"{place.lag:,}", flushed])
    return table(rows, header, numbers=(2, 3, 4))


def holding(found: Followers) -> str:
    """Who keeps compaction from taking more away, and from where on."""
    if not found.readers:
        return "No reader is known: everything is kept, and compaction takes nothing."
    if not found.holders:
        return "No reader waits for anything: compaction may take all of the closed segments but the last record of each namespace."
    names = " and ".join(found.holders)
    return f"{names} {'hold' if len(found.holders) > 1 else 'holds'} compaction: everything from offset {found.point} on is kept."


def offsets_json(name: str, found: Followers) -> dict[str, Any]:
    return {
        "log": name,
        "first": found.first,
        "end": found.end,
        "compaction": {"point": found.point, "held_by": found.holders},
        "readers": [
            {
                "reader": r.name,
                "pending": r.pending,
                "lag": r.lag,
                "flushed": r.state.updated or None,
                "namespaces": [
                    {"namespace": p.namespace, "effective": p.effective, "pending": p.pending, "lag": p.lag}
                    for p in r.places
                ],
            }
            for r in found.readers
        ],
    }


# -- logs ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogView:
    """A line of the list; `error` is what kept it from being filled."""

    log: Named
    first: int | None = None
    end: int | None = None
    size: int = 0
    segments: int = 0
    last: int | None = None  # ns since 1970, of the last record
    followers: Followers | None = None
    error: PenstockError | None = None


def look(log: Named) -> LogView:
    """A log that can't be read must not hide the others."""
    made: dict[str, Any] = {}
    try:
        with readable(log.folder), Reader(log.folder, on_damage="skip") as reader:
            segments = reader.segments()
            made |= {"size": sum(s.size for s in segments), "segments": len(segments), "first": reader.first}
            made["end"] = end = reader.end
            made["last"] = _last(reader, end)
            made["followers"] = followers(log.folder, HEADS)
        made["error"] = made["followers"].damage
    except PenstockError as error:
        if is_log(log.folder):
            made["error"] = error
    return LogView(log, **made)


def _last(reader: Reader, end: int) -> int | None:
    """The last record is never compacted away."""
    for found in reader.entries(max(reader.first, end - 1), end):
        at = getattr(found, "head", None)
        if at is not None:
            return int(at.timestamp)
    return None


def list_table(views: Sequence[LogView]) -> str:
    header = ("LOG", "OFFSETS", "SIZE", "SEGMENTS", "READERS", "LAG", "LAST WRITE")
    return table([_cells(view) for view in views], header, numbers=(2, 3, 4, 5))


def _cells(view: LogView) -> list[str]:
    if view.end is None or view.first is None:
        return [view.log.name, "no segments" if view.error is None else "can't be read", *["?"] * 5]
    there = f"{view.first}–{view.end - 1}" if view.end > view.first else "none yet"
    readers, lag = "?", "?"
    if view.followers is not None:
        slowest = view.followers.slowest
        readers = f"{len(view.followers.readers):,}"
        lag = "–" if slowest is None else f"{'' if view.followers.exact else '≤'}{slowest.lag:,}"
    last = None if view.last is None else view.last // 1_000_000
    return [view.log.name, there, human_size(view.size), f"{view.segments:,}", readers, lag, ago(last)]


def list_json(view: LogView) -> Mapping[str, Any]:
    from penstock.cli.log_lines import stamp

    found = view.followers
    slowest = found.slowest if found else None
    return {
        "log": view.log.name,
        "path": str(view.log.folder),
        "first": view.first,
        "end": view.end,
        "bytes": view.size,
        "segments": view.segments,
        "readers": None if found is None else len(found.readers),
        "slowest": slowest.name if slowest else None,
        "lag": slowest.lag if slowest else None,
        "lag_exact": found.exact if found else None,
        "last_write": None if view.last is None else stamp(view.last),
        "error": None if view.error is None else {"code": view.error.code, "what": view.error.what},
    }


def summary(views: Sequence[LogView]) -> str:
    total = sum(view.size for view in views)
    return f"{count(len(views), 'log')}, {human_size(total)}"
