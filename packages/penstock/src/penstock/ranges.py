"""Ranges: what a batch is made of, in the source's own positions. Plain data that goes into the ledger as JSON.

Made by a source's `available`, written into the snapshot row, and given back unchanged to `frame`, `verify` and `acked`,
in this process or in one started a year later.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, overload

Json = Any  # what json.loads returns


@dataclass(frozen=True, slots=True)
class Range:
    """A stretch of one strand. `strand`, `position` and the cut are its identity and go into the delivery hash; the rest
    does not. A range that was cut by `Ranges.split` is what its source gave, of which only some records count."""

    strand: str  # what keeps order: a file's path, a topic's partition, a log
    position: Mapping[str, Json]  # real positions, e.g. {"size": …, "mtime": …, "from": 0, "to": …}
    base: int = 0  # the seq of its first record, or below it
    size: int = 0  # bytes, for limits and reports
    low: int | None = None  # only records from this seq on, where it was cut
    high: int | None = None  # only records before this seq, where it was cut

    @property
    def cut(self) -> bool:
        return self.low is not None or self.high is not None

    @property
    def identity(self) -> Json:
        """What names it on every machine: seqs are relative to the base, which is this ledger's own."""
        if not self.cut:
            return [self.strand, dict(self.position)]
        low, high = (None if seq is None else seq - self.base for seq in (self.low, self.high))
        return [self.strand, dict(self.position), low, high]

    def to_json(self) -> Json:
        cut = [self.low, self.high] if self.cut else []
        return [self.strand, dict(self.position), self.base, self.size, *cut]

    @classmethod
    def from_json(cls, value: Json) -> Range:
        return cls(*value)


@dataclass(frozen=True)
class Ranges(Sequence[Range]):
    """The ranges of one snapshot. Never empty in the ledger."""

    items: tuple[Range, ...]
    next_seq: int = 0  # the first seq no strand of this source has used yet
    forget: tuple[str, ...] = field(default=(), compare=False)  # strands the ledger need not remember any longer
    full: bool = field(default=True, compare=False)  # False: there is room for more, and waiting may bring it

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Range]:
        return iter(self.items)

    @overload
    def __getitem__(self, index: int) -> Range: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Range, ...]: ...
    def __getitem__(self, index: int | slice) -> Range | tuple[Range, ...]:
        return self.items[index]

    @property
    def size(self) -> int:
        return sum(r.size for r in self.items)

    @property
    def cut(self) -> bool:
        return any(r.cut for r in self.items)

    def split(self, at: int) -> tuple[Ranges, Ranges]:
        """The records before seq `at`, and the others. Every strand has a stretch of seqs of its own, so at most one range
        is cut in two. Either half may be empty."""
        before: list[Range] = []
        after: list[Range] = []
        ordered = sorted(self.items, key=lambda r: r.base)
        for r, following in zip_longest(ordered, ordered[1:]):
            if at <= (r.base if r.low is None else r.low):
                after.append(r)
            elif (following is not None and following.base <= at) or (r.high is not None and r.high <= at):
                before.append(r)
            else:
                before.append(replace(r, high=at))
                after.append(replace(r, low=at))
        return Ranges(tuple(before), self.next_seq), Ranges(tuple(after), self.next_seq)

    def to_json(self) -> str:
        return json.dumps(
            {"next_seq": self.next_seq, "ranges": [r.to_json() for r in self.items]}, separators=(",", ":")
        )

    @classmethod
    def from_json(cls, text: str) -> Ranges:
        value = json.loads(text)
        return cls(tuple(Range.from_json(r) for r in value["ranges"]), value["next_seq"])


@dataclass
class Known:
    """What the ledger knows of a source: per strand the last range taken, and which of those are acked already.

    Loaded when a lane enters its loop, kept up with each batch. Sources only read it.
    """

    strands: dict[str, Range]
    next_seq: int
    acked: set[str]  # strands whose last range has been acked

    def took(self, ranges: Ranges) -> None:
        self._forget(ranges.forget)
        for r in ranges:
            self.strands[r.strand] = r
            self.acked.discard(r.strand)
        self.next_seq = max(self.next_seq, ranges.next_seq)

    def settled(self, ranges: Ranges) -> None:
        self.acked.update(r.strand for r in ranges if r.high is None)
        self._forget(ranges.forget)

    def _forget(self, names: Iterable[str]) -> None:
        for name in names:
            self.strands.pop(name, None)
            self.acked.discard(name)

    def dropped(self, ranges: Ranges) -> None:
        for r in ranges:
            self.strands.pop(r.strand, None)


@dataclass(frozen=True)
class To:
    """How far back a person wants a source to go. Exactly one of the three is set; none of them: to its beginning."""

    text: str = "beginning"  # as it was written
    offset: int | None = None
    time: int | None = None  # ns since 1970
    places: Mapping[str, int] = field(default_factory=dict)  # offsets by strand

    @property
    def beginning(self) -> bool:
        return self.offset is None and self.time is None and not self.places

    @classmethod
    def parse(cls, text: str) -> To:
        """`beginning`, an offset, a time with its zone, or `topic/0=17,topic/1=4`. Raises `ValueError` with what is wrong."""
        text = text.strip()
        if text == "beginning":
            return cls()
        if text.isascii() and text.isdigit():
            return cls(text, offset=int(text))
        if "=" in text:
            pairs = [part.strip().rpartition("=") for part in text.split(",")]
            bad = next((n for n, _, at in pairs if not n or not (at.isascii() and at.isdigit())), None)
            if bad is not None or len({n for n, _, _ in pairs}) < len(pairs):
                raise ValueError("write each partition once, as topic/0=17,topic/1=4")
            return cls(text, places={name: int(at) for name, _, at in pairs})
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError("it is not `beginning`, no offset, and no time such as 2026-01-31T12:00:00Z") from None
        if moment.tzinfo is None:
            raise ValueError("a time needs its zone: Z, or +02:00, behind it")
        passed = moment - datetime.fromtimestamp(0, UTC)
        return cls(text, time=((passed.days * 86_400 + passed.seconds) * 1_000_000 + passed.microseconds) * 1000)


@dataclass(frozen=True)
class Behind:
    """What is known to wait at a source beyond what was taken; what is not known is None."""

    records: int | None = None
    files: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Limits:
    """Where a batch is cut. A source may give less, and one strand more when it cannot be cut inside."""

    max_records: int | None = None
    max_bytes: int = 512 * 1024 * 1024
    max_files: int = 1000
    aim: int | None = None  # bytes that a batch should have about, where that is less
    max_delay: float = 0.0  # seconds that a batch which is not full waits for more
    max_record_bytes: int = 64 * 1024 * 1024  # a record that is larger is a nack

    @property
    def bytes(self) -> int:
        return self.max_bytes if self.aim is None else min(self.aim, self.max_bytes)
