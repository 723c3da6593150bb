"""What can go wrong with a log, by what the caller should do. Raised everywhere in `penstock.log`.

Retry
├── LogFull         the log has the size it may have; it goes on when readers have acked and compaction has run
└── LogUnwritable   the disk refused it; what `appended` names is in the log, the rest is not
Stop
└── LogError
    ├── LogDamaged  bytes that were durable are not what they were
    └── LogVersion  made by a newer Penstock; nothing was changed
UsageError
└── LogLocked       another process does what only one may do
"""

from __future__ import annotations

from pathlib import Path

from penstock.errors import Retry, Stop, UsageError


class LogError(Stop):
    """Nothing here can mend it."""


class LogDamaged(LogError):
    """Found by a checksum, or by an offset that is missing."""

    def __init__(self, why: str, *, segment: Path, position: int, offset: int, count: int | None = None) -> None:
        lost = "" if count is None else f" to {offset + count - 1}" if count > 1 else ""
        super().__init__(
            f"The log {segment.parent} is damaged at offset {offset}{lost}",
            code="log.damaged",
            where=f"{segment}, byte {position}",
            why=why,
            hint="penstock log verify shows all of it; penstock log repair marks what is lost, so that the rest can be read",
        )
        self.segment = segment
        self.position = position
        self.offset = offset
        self.count = count


class LogVersion(LogError):
    def __init__(self, file: Path, version: int, known: int) -> None:
        super().__init__(
            f"{file} has version {version}; this Penstock reads up to {known}",
            code="log.version",
            hint="install the Penstock that wrote it, or a newer one; nothing was changed",
        )


class LogFull(Retry):
    """`appended`: the offsets of what did fit."""

    def __init__(self, folder: Path, size: int, limit: int, need: int, appended: range) -> None:
        super().__init__(
            f"The log {folder} is full: {size:,} of {limit:,} bytes, and {need:,} more are needed",
            code="log.full",
            why="it holds what its readers have not acknowledged yet",
            hint="penstock log offsets shows which reader is behind; make max-size larger, or forget a reader that is gone: "
            "penstock log forget",
        )
        self.appended = appended


class LogUnwritable(Retry):
    def __init__(self, file: Path, error: OSError, appended: range) -> None:
        super().__init__(
            f"The log {file.parent} can't be written",
            code="log.unwritable",
            where=str(file),
            why=error.strerror or str(error),
            hint="free space or make it writable; what was durable is safe",
        )
        self.appended = appended


class LogLocked(UsageError):
    def __init__(self, folder: Path, what: str, holder: str) -> None:
        super().__init__(
            f"The log {folder} {what} by another process",
            code="log.locked",
            why=holder,
            hint="stop that one first, or wait until it has finished",
        )
