"""What is done to an engine from inside its process: a clock that jumps, a disk that is full, a power cut. Named by `Spec.inside`."""

from __future__ import annotations

import errno
import os
import random
import time
from pathlib import Path
from typing import Any

from penstock.testing.child import Inside
from tests.lab.broken import BUILDS
from tests.support.forgetful import Forgetful


class Trouble(Inside):
    """`clock`: at each point the clock is set, by up to so many seconds. `full`: which fsync is told that the disk is full.
    `power`: folders that lose what was not fsynced when the process kills itself. `broken`: one of the builds that are.
    `segment`: the bytes in a segment of a queue, which is compacted whenever it can be."""

    def __init__(
        self,
        seed: int = 0,
        clock: float = 0,
        full: int = 0,
        power: tuple[str, ...] = (),
        broken: str = "",
        segment: int = 0,
    ) -> None:
        if segment:
            from penstock.connectors.queue import appending, source

            appending.SEGMENT_BYTES = segment
            source.TIDY = 0.0
        if broken:
            BUILDS[broken]()
        self._chance = random.Random(seed)
        self._clock, self._full = clock, full
        self._offset = 0.0
        self._disks = [Forgetful(Path(folder), trusted=("ledger.db",)) for folder in power if Path(folder).is_dir()]
        if clock:
            self._wind()

    def _wind(self) -> None:
        true: Any = time.time
        true_ns: Any = time.time_ns
        time.time = lambda: true() + self._offset
        time.time_ns = lambda: true_ns() + int(self._offset * 1e9)

    def reached(self, point: str, detail: str) -> None:
        for disk in self._disks:
            disk.hook(point, detail)
        if self._clock:
            self._offset = self._chance.uniform(-self._clock, self._clock)
        if point == "fsync" and self._full:
            self._full -= 1
            if self._full == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), detail)

    def dying(self) -> None:
        for disk in self._disks:
            disk.crash(self._chance.randrange)
