"""`log` as a destination: one line per record on the logger `penstock.log`, by the engine itself."""

from __future__ import annotations

import logging
from typing import ClassVar

from penstock import record
from penstock.connectors.log.settings import LogDestinationSettings
from penstock.native import Delivery, NativeDestination, Receipt, Refuse, Shape

LEVELS = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warn": logging.WARNING,
    "error": logging.ERROR,
}
LOGGER = logging.getLogger("penstock.log")


class LogDestination(NativeDestination[LogDestinationSettings]):
    columns: ClassVar[frozenset[str]] = frozenset({record.AFTER})
    shapes: ClassVar[frozenset[Shape]] = frozenset({Shape.RAW, Shape.OPEN})

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:  # noqa: ARG002
        assert d.rows is not None
        level, message = LEVELS[self.settings.level], self.settings.message
        written = 0
        for row in d.rows.select(record.AFTER).toLocalIterator():
            value = row[0]
            text = value.decode(errors="replace") if isinstance(value, bytes | bytearray) else value
            LOGGER.log(level, "%s", f"{d.destination}: {message + ' ' if message else ''}{text}")
            written += 1
        return Receipt(written)
