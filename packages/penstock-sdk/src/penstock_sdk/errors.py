"""Exceptions, arranged by what the caller should do. Connectors raise them; the engine acts on the class alone.

PenstockError
├── Retry      transient: the lane backs off, runs recovery and tries the same batch again
├── Rejected   this record is bad: it is nacked, its neighbours are not touched
└── Stop       nothing here can mend it: every lane of the pipeline stops and the pipeline is `degraded`
"""

from __future__ import annotations

from collections.abc import Mapping


class PenstockError(Exception):
    """An error that a person reads: code · what · where · why · what to do next.

    `what` is one sentence. The other parts are optional and are printed on lines of their own.
    """

    def __init__(self, what: str, *, code: str = "", where: str = "", why: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.code = code
        self.where = where
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        head = f"[{self.code}] {self.what}" if self.code else self.what
        tail = [
            f"{label}: {text}" for label, text in (("at", self.where), ("why", self.why), ("do", self.hint)) if text
        ]
        return "\n  ".join([head, *tail])


class Retry(PenstockError):
    """Transient. Assume nothing of what was tried has happened."""


class Rejected(PenstockError):
    """This record is bad. A destination says with a mapping which records of a batch are, by their place in it, and why: all others
    are written then."""

    def __init__(
        self, what: str | Mapping[int, str], *, code: str = "", where: str = "", why: str = "", hint: str = ""
    ) -> None:
        self.records: dict[int, str] = {} if isinstance(what, str) else dict(what)
        text = what if isinstance(what, str) else "; ".join(f"record {i}: {t}" for i, t in sorted(what.items()))
        super().__init__(text, code=code, where=where, why=why, hint=hint)


class Stop(PenstockError):
    """Fatal for the pipeline. There is no automatic restart."""
