"""Errors of the engine itself. The tree by recovery (`Retry`, `Rejected`, `Stop`) is the SDK's, so that connectors and engine share it.

PenstockError
├── Retry · Rejected
├── Stop
│   ├── AccountError   a batch whose numbers do not add up; nothing of it was prepared
│   ├── InputChanged   an input of an unprepared batch is not what its snapshot says
│   ├── UnreadableFile a file of a batch can't be read to its end, or not at all
│   ├── TooLarge       a batch holds records that are larger than is allowed
│   ├── LedgerError    the account itself could not be written: the lane never continues in place
│   └── Fenced         another engine has taken this state folder over
└── UsageError         bad usage or configuration: exit code 2, nothing was started
"""

from __future__ import annotations

from penstock_sdk.errors import PenstockError, Rejected, Retry, Stop

__all__ = [
    "AccountError",
    "Fenced",
    "InputChanged",
    "LedgerError",
    "PenstockError",
    "Rejected",
    "Retry",
    "Stop",
    "TooLarge",
    "UnreadableFile",
    "UsageError",
]


class AccountError(Stop):
    """What was read is not what was delivered and filtered. Acks are fail-closed, so the pipeline stops."""


class InputChanged(Stop):
    """With `reread` the snapshot is given up, nothing of it having been prepared, and taken anew; else the pipeline stops."""

    def __init__(self, what: str, *, reread: bool, code: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(what, code=code, why=why, hint=hint)
        self.reread = reread


class UnreadableFile(Stop):
    """The batch is split around the file, which becomes a dead letter."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(
            f"The file {path} can't be read to its end",
            code="files.unreadable-file",
            why=why,
            hint="nothing of this batch was delivered; repair the file, or move it away and set `on-change: reread`",
        )
        self.path = path


class TooLarge(Stop):
    """The batch is tried again in a way that makes these records nacks."""


class LedgerError(Stop):
    """A ledger write failed. Whether it is on disk is unknown until recovery reads it again."""


class Fenced(Stop):
    """A newer engine owns the state folder; nothing this one does may count any more."""


class UsageError(PenstockError):
    """The command or the configuration is wrong; said before anything is started."""
