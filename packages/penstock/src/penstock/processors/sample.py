"""`sample`: keeps a share of the records, always the same ones.

`rate: 0.1` keeps about a tenth. Whether a record is kept depends on `seed` and on the record's identity (source, seq and
part) alone: every attempt, every restart and every machine keeps the same records, and the others are filtered. Another `seed`
keeps other records; two samples in a row need different seeds, or the second keeps what the first has kept.

A record is kept where the first 32 bits of the MD5 of `seed:source:seq:part` are less than rate · 2^32. It looks at no payload:
it runs in Spark on raw and typed ones, and in Python with its neighbours on open ones.
"""

from __future__ import annotations

import math
from hashlib import md5
from typing import ClassVar

from pydantic import Field

from penstock import record
from penstock.config import Settings
from penstock.native import DROP, Columns, Drop, Example, Processor, Record, Shape, Step, Where


class SampleSettings(Settings):
    rate: float = Field(gt=0, le=1, description="The share that is kept, above 0 and up to 1, e.g. `0.1`.")
    seed: str = Field("", description="Any text: another one keeps other records.")


class Sample(Processor[SampleSettings]):
    uses = frozenset({record.SOURCE, record.SEQ, record.PART})
    example: ClassVar[Example | None] = Example(
        settings={"rate": "0.5"}, given={"after": {"id": 7}}, gives={"after": {"id": 7}}
    )

    def __init__(self, settings: SampleSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.below = math.ceil(settings.rate * 2**32)

    def where(self, shape: Shape) -> Where:
        return Where.PYTHON if shape is Shape.OPEN else Where.SPARK

    def fields(self) -> frozenset[str]:
        return frozenset()

    def apply(self, r: Record) -> Record | Drop:
        text = f"{self.settings.seed}:{r.source}:{r.seq}:{r.part}"
        return r if int(md5(text.encode(), usedforsecurity=False).hexdigest()[:8], 16) < self.below else DROP

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        identity = [columns[c].cast("string") for c in (record.SOURCE, record.SEQ, record.PART)]
        text = F.concat_ws(":", F.lit(self.settings.seed), *identity)
        first = F.conv(F.substring(F.md5(text.cast("binary")), 1, 8), 16, 10).cast("long")
        return Step(drop=first >= F.lit(self.below))
