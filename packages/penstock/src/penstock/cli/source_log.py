"""What `penstock pipelines show` says of the log between a hosted source and Spark: how much is in it, how far batches and destinations are
behind, and how many records the source has sent again.

Takes no lock and changes nothing. A log that can't be read is said in a line, and hides nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import deadletters
from penstock.cli.log_names import LOGS, Named, is_log
from penstock.cli.shown import count, when
from penstock.cli.state import option
from penstock.engine.view import human_size
from penstock.errors import PenstockError
from penstock.host import memory

if TYPE_CHECKING:
    from penstock.cli.log_tables import LogView


@dataclass(frozen=True)
class SourceLog:
    """`taken`: the offset up to which batches have taken it; None where it was never read. `troubles`: what can't be said, and why."""

    name: str
    view: LogView | None = None  # None: there is no log
    taken: int | None = None
    resent: int | None = None
    troubles: tuple[PenstockError, ...] = ()

    @property
    def behind(self) -> int | None:
        """Records of the log that no batch has taken."""
        if self.view is None or self.view.end is None or self.view.first is None:
            return None
        return max(0, self.view.end - (self.view.first if self.taken is None else self.taken))

    @property
    def unacked(self) -> Mapping[str, int]:
        """Destination → records of the log that are not settled there."""
        found = None if self.view is None else self.view.followers
        return {} if found is None else {reader.name: reader.lag for reader in found.readers}

    def json(self) -> dict[str, Any]:
        v = self.view
        return {
            "name": self.name,
            "bytes": None if v is None else v.size,
            "first": None if v is None else v.first,
            "end": None if v is None else v.end,
            "taken": self.taken,
            "behind": self.behind,
            "unacked": dict(self.unacked),
            "unacked_exact": self._exact,
            "resent": self.resent,
            "last_write": None if v is None or v.last is None else v.last // 1_000_000,
            "errors": [{"code": e.code, "what": e.what} for e in self.troubles],
        }

    @property
    def _exact(self) -> bool:
        """False: there was too much to look at, and the numbers of destinations are upper limits."""
        return self.view is None or self.view.followers is None or self.view.followers.exact

    def lines(self, state: Path) -> Iterator[str]:
        yield f"\n  log {self.name}: {self._size(state)}"
        if self.view is None:
            if self.taken is not None:
                yield f"    batches have taken it up to offset {self.taken - 1}"
        elif self.behind is not None:
            yield from self._behind(self.behind)
        if self.resent:
            yield f"    sent again by the source: {count(self.resent, 'record')}, not logged twice"
        for e in self.troubles:
            yield f"    {e.what} [{e.code}]"
            if e.why:
                yield f"      {e.why}"
            if e.code.startswith("log."):
                yield f"      look at: penstock log verify {self.name}{option(state)}"

    def _size(self, state: Path) -> str:
        v = self.view
        if v is None:
            return f"there is none at {state / LOGS / self.name}; that of a queue is where the queue is"
        if v.end is None or v.first is None:
            return "it can't be read"
        if v.end == v.first:
            return f"{human_size(v.size)}, no records yet"
        last = "" if v.last is None else f", last written {when(v.last // 1_000_000)}"
        return f"{human_size(v.size)}, offsets {v.first}–{v.end - 1}{last}"

    def _behind(self, n: int) -> Iterator[str]:
        yield f"    behind: {count(n, 'record')} that no batch has taken" if n else "    behind: nothing"
        for name, more in self.unacked.items():
            if more:
                yield f"    → {name}: {'' if self._exact else 'at most '}{count(more, 'record')} of it not settled"
        end = self.view.end if self.view else None
        if self.taken is not None and end is not None and self.taken > end:
            yield f"    batches have taken offsets up to {self.taken - 1}: was it put back from an older copy?"


def source_log(state: Path, pipeline: str, source: str, taken: Mapping[str, int]) -> SourceLog | None:
    """`taken`: what the ledger says, log id → offset; asked for before this is called, so that the log is never behind it. None: the source
    has no log."""
    name = deadletters.folder(pipeline, source)
    folder = state / LOGS / name
    if not folder.is_dir() and not taken:
        return None
    resent, troubles = _resent(folder)
    last = max(taken.values(), default=None)
    if not _there(folder):
        return SourceLog(name, None, last, resent, tuple(troubles))
    from penstock.cli.log_tables import look

    view = look(Named(name, folder))
    if view.error is not None:
        troubles.append(view.error)
    if view.error is None and view.end is None:  # it was removed a moment ago
        return SourceLog(name, None, last, resent, tuple(troubles))
    return SourceLog(name, view, taken.get(_id(folder) or ""), resent, tuple(troubles))


def _there(folder: Path) -> bool:
    try:
        return is_log(folder)
    except OSError:
        return True  # whoever reads it says why it can't be


def _id(folder: Path) -> str | None:
    from penstock.log import Reader

    try:
        with Reader(folder, on_damage="skip") as reader:
            return reader.log_id
    except (PenstockError, OSError):
        return None


def _resent(folder: Path) -> tuple[int | None, list[PenstockError]]:
    try:
        found = memory.load(folder)
    except PenstockError as e:
        return None, [e]
    return None if found is None else found.resent, []
