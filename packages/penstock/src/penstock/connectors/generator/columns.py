"""Records as Spark columns over a range of numbers. Driver side; what is returned is evaluated in Spark tasks.

Every value is a hash of the seed, its name and the record's number, never `rand()`: a record is the same in every cut and on
every core. Texts are put together from constant tables and whole numbers: Java's versions differ in how they print floating
point, and its formatters are slow (8 million times on 2 cores: 0.6 s like this, 1.8 s by `date_format`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

from penstock import record
from penstock.connectors.generator.template import LARGEST, Kind, Piece, Pieces, Value
from penstock.connectors.generator.words import WORDS

if TYPE_CHECKING:
    from pyspark.sql import Column

START = datetime(2024, 1, 1, tzinfo=UTC)  # the time of record 0; each record is a millisecond later
CREATED = "opencdc.createdAt"
COLLECTION = "opencdc.collection"
_DAY = 86_400_000
_MINUTES = " ".join(f"{h:02d}:{m:02d}:" for h in range(24) for m in range(60))
_SECONDS = " ".join(f"{s:02d}." for s in range(60))
_MILLIS = " ".join(f"{ms:03d}Z" for ms in range(1000))
_N = "id"  # what `spark.range` calls its column


@dataclass(frozen=True)
class Part:
    """The records of one collection."""

    name: str  # empty = no collection
    operations: tuple[str, ...]
    pieces: Pieces


@dataclass(frozen=True)
class Stretch:
    """The records with the numbers from `low` to before `high`, whose seqs begin at `base`."""

    parts: tuple[Part, ...]
    seed: int
    low: int
    high: int
    base: int

    def columns(self) -> dict[str, Column]:
        """The record columns that this source has something to say about; none of them costs anything until it is used."""
        from pyspark.sql import functions as F

        n = F.col(_N)
        text = n.cast("string")
        return {
            record.SEQ: n + F.lit(self.base - self.low) if self.base != self.low else n,
            record.POSITION: text.cast("binary"),
            record.OPERATION: self._by_part([self._operation(p) for p in self.parts]),
            record.NAMESPACE: self._by_part([F.lit(p.name or None).cast("string") for p in self.parts]),
            record.METADATA: self._by_part([self._metadata(p) for p in self.parts]),
            record.KEY: self._by_part([self._value(Value(Kind.WORD, "key"), p, "key") for p in self.parts]),
            record.BEFORE: self._by_part([self._payload(p, record.BEFORE) for p in self.parts]),
            record.AFTER: self._by_part([self._payload(p, record.AFTER) for p in self.parts]),
        }

    def _by_part(self, values: Sequence[Column]) -> Column:
        """Collections take turns."""
        from pyspark.sql import functions as F

        turn = F.col(_N) % F.lit(len(values))
        last = len(values) - 1
        return reduce(lambda rest, i: F.when(turn == i, values[i]).otherwise(rest), range(last), values[last])

    def _operation(self, part: Part) -> Column:
        return self._chosen(part.operations, self._hash(part, "operation", ""))

    def _metadata(self, part: Part) -> Column:
        from pyspark.sql import functions as F

        created = F.expr(f"concat(cast({_N} + {_millis(START)}L as string), '000000')")
        collection = [F.lit(COLLECTION), F.lit(part.name)] if part.name else []
        return F.create_map(F.lit(CREATED), created, *collection)

    def _payload(self, part: Part, side: str) -> Column:
        """What was before is there for updates and deletes, what is after for all but deletes."""
        from pyspark.sql import functions as F

        having = ("update", "delete") if side == record.BEFORE else ("create", "update", "snapshot")
        nothing = F.lit(None).cast("string")
        if not set(part.operations) & set(having):
            return nothing
        texts = [self._piece(p, part, side) for p in part.pieces]
        payload = texts[0] if len(texts) == 1 else F.concat(*texts)
        return payload if set(part.operations) <= set(having) else F.when(self._operation(part).isin(*having), payload)

    def _piece(self, piece: Piece, part: Part, side: str) -> Column:
        from pyspark.sql import functions as F

        if isinstance(piece, Value):
            return self._value(piece, part, side)
        return F.lit(piece).cast("string")  # the bytes of a file stay as they are

    def _value(self, v: Value, part: Part, side: str) -> Column:
        from pyspark.sql import functions as F

        h = self._hash(part, side, v.name)
        if v.kind is Kind.CHOICE:
            return self._chosen(v.choices, h)
        if v.kind is Kind.TIME:
            return self._time()
        return F.expr(_TEXTS[v.kind](v, h))

    def _hash(self, part: Part, side: str, name: str) -> str:
        """SQL of 64 bits that look like chance."""
        salt = hashlib.blake2b(json.dumps([self.seed, part.name, side, name]).encode(), digest_size=8).digest()
        return f"xxhash64({int.from_bytes(salt) >> 1}L, {_N})"

    def _chosen(self, texts: Sequence[str], h: str) -> Column:
        from pyspark.sql import functions as F

        if len(texts) == 1:
            return F.lit(texts[0])
        return F.get(F.array(*(F.lit(t) for t in texts)), F.expr(f"cast(pmod({h}, {len(texts)}L) as int)"))

    def _time(self) -> Column:
        """The days that occur in the stretch are a table too."""
        from pyspark.sql import functions as F

        first, last = self.low // _DAY, max(self.low, self.high - 1) // _DAY
        days = " ".join(f"{START + timedelta(days=d):%Y-%m-%d}T" for d in range(first, last + 1))
        return F.expr(
            f"concat({_at(days, f'{_N} div {_DAY}L - {first}L')}, {_at(_MINUTES, f'{_N} div 60000L % 1440L')},"
            f" {_at(_SECONDS, f'{_N} div 1000L % 60L')}, {_at(_MILLIS, f'{_N} % 1000L')})"
        )


@dataclass(frozen=True)
class Places:
    """Position and metadata of a record by its seq. Sent to Spark's tasks."""

    offset: int  # from seq to number
    names: tuple[str, ...]  # of the collections

    def __call__(self, seq: int) -> tuple[bytes, dict[str, str]]:
        n = seq + self.offset
        name = self.names[n % len(self.names)]
        metadata = {CREATED: f"{_millis(START) + n}000000"}
        return str(n).encode(), {**metadata, COLLECTION: name} if name else metadata


def _millis(when: datetime) -> int:
    return int(when.timestamp()) * 1000


def _at(table: str, index: str) -> str:
    """The optimiser makes a constant array of the words of a table."""
    return f"get(split('{table}', ' '), cast({index} as int))"


def _whole(v: Value, h: str) -> str:
    if (v.low, v.high) == (0, LARGEST * 2 - 1):
        return f"shiftrightunsigned({h}, 1)"
    return f"({v.low}L + pmod({h}, {v.high - v.low + 1}L))"


def _decimal(v: Value, h: str) -> str:
    units = f"({v.low}L + pmod({h}, {v.high - v.low + 1}L))"
    sign, size = (f"if({units} < 0, '-', ''), ", f"abs({units})") if v.low < 0 else ("", units)
    scale = f"{10**v.digits}L"
    behind = f"lpad(cast({size} % {scale} as string), {v.digits}, '0')"
    return f"concat({sign}cast({size} div {scale} as string), '.', {behind})"


def _uuid(v: Value, h: str) -> str:
    """Version 4. A bit above those that are shown keeps leading zeros."""
    del v
    other = h.replace("xxhash64(", "xxhash64(1, ")
    shown = (
        f"substr(hex(shiftrightunsigned({h}, 32) | {1 << 32}L), 2), '-',"
        f" substr(hex((shiftrightunsigned({h}, 16) & {0xFFFF}L) | {1 << 16}L), 2), '-',"
        f" hex(({h} & {0xFFF}L) | {0x4000}L), '-',"
        f" hex((shiftrightunsigned({other}, 48) & {0x3FFF}L) | {0x8000}L), '-',"
        f" substr(hex(({other} & {(1 << 48) - 1}L) | {1 << 48}L), 2)"
    )
    return f"lower(concat({shown}))"


_TEXTS: dict[Kind, Callable[[Value, str], str]] = {
    Kind.SEQ: lambda _v, _h: f"cast({_N} as string)",
    Kind.INT: lambda v, h: f"cast({_whole(v, h)} as string)",
    Kind.FLOAT: _decimal,
    Kind.BOOL: lambda _v, h: f"if({h} < 0, 'true', 'false')",
    Kind.WORD: lambda _v, h: _at(WORDS, f"pmod({h}, {len(WORDS.split())}L)"),
    Kind.UUID: _uuid,
    Kind.DURATION: lambda _v, h: f"cast(pmod({h}, 1000L) * 1000000000L as string)",
}
