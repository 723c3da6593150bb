"""What a destination says when a person asks what it has (`penstock reconcile`): the data, and what follows from a last receipt. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.native.delivery import DeliveryId, Receipt, Staged

ONLY_THE_LAST = "it keeps only the last receipt"
ELSEWHERE = "something newer went to it with other settings"


class Answer(StrEnum):
    """Of a delivery, by the destination's own word."""

    AGREES = "agrees"
    VISIBLE = "visible"  # there, in whole or in part, and the ledger does not have it as done yet
    WAITING = "waiting"  # prepared, and not there yet
    UNKNOWN = "unknown"  # it can't be told, or not any more
    MISSING = "missing"
    DIFFERS = "differs"
    EXTRA = "extra"  # there, and no delivery of the ledger explains it

    @property
    def wrong(self) -> bool:
        return self in (Answer.MISSING, Answer.DIFFERS, Answer.EXTRA)


@dataclass(frozen=True)
class Witnessed:
    """A delivery as the ledger has it."""

    id: DeliveryId  # with the fence that the ledger has now
    staged: Staged
    receipt: Receipt | None  # None: it is prepared, and may be under way

    @property
    def done(self) -> bool:
        return self.receipt is not None


@dataclass(frozen=True)
class Finding:
    answer: Answer
    text: str = ""
    batch: int | None = None  # None: it is about no single batch


@dataclass(frozen=True)
class Noted:
    """The last receipt of a lane as a destination has it."""

    hash: str
    batch: int
    receipt: Receipt | None = None  # None: only its name is known, or it is not whole
    epoch: int | None = None  # None: it was not written down
    broken: str = ""  # why it can't be read
    raw: Any = None  # all that was written down

    @classmethod
    def read(cls, note: Callable[[], Any]) -> Noted | None:
        """Of what `note` gives: a receipt as `files`, `lines` and `queue` write it, or None."""
        try:
            found = note()
            if found is None:
                return None
            receipt = Receipt.from_json(found["receipt"])
            return cls(found["hash"], found["batch"], receipt, found.get("epoch"), raw=found)
        except (ValueError, KeyError, TypeError) as e:
            return cls("", -1, broken=f"{type(e).__name__}: {e}")


def by_last(
    deliveries: Sequence[Witnessed], known: Sequence[DeliveryId], noted: Noted | None, whose: str = "its last receipt"
) -> Iterator[tuple[Witnessed, Finding]]:
    """What each delivery is, where a destination has the last receipt alone."""
    newest = max((w.id.batch for w in deliveries if w.done), default=-1)
    for w in deliveries:
        if noted is not None and w.id.hash == noted.hash:
            yield w, Finding(*_same(w, noted), w.id.batch)
        elif not w.done:
            yield w, Finding(Answer.WAITING, "prepared, and not there yet", w.id.batch)
        elif w.id.batch < newest:
            yield w, Finding(Answer.UNKNOWN, ONLY_THE_LAST, w.id.batch)
        else:
            yield w, Finding(*_other(w, known, noted, whose), w.id.batch)


def went_elsewhere(w: Witnessed, deliveries: Sequence[Witnessed], known: Sequence[DeliveryId]) -> bool:
    """Whether the destination was given something newer that is not among these: its settings have changed."""
    these = {v.id.hash for v in deliveries}
    return any(d.destination == w.id.destination and d.batch > w.id.batch and d.hash not in these for d in known)


def _same(w: Witnessed, noted: Noted) -> tuple[Answer, str]:
    if w.receipt is None:
        whole = noted.receipt is not None
        return Answer.VISIBLE, f"there{'' if whole else ' in part'}, not yet noted in the ledger"
    if noted.receipt is None:
        return Answer.DIFFERS, "there in part, and the ledger has it as done"
    theirs, ours = _numbers(noted.receipt), _numbers(w.receipt)
    if theirs == ours:
        return Answer.AGREES, ""
    return Answer.DIFFERS, f"its receipt says {theirs}, the ledger {ours}"


def _numbers(r: Receipt) -> str:
    return f"{r.written:,} written" + (f" and {len(r.refused):,} refused" if r.refused else "")


def _other(w: Witnessed, known: Sequence[DeliveryId], noted: Noted | None, whose: str) -> tuple[Answer, str]:
    """Of the newest one, where the receipt is another's."""
    if noted is None:
        return Answer.MISSING, f"{whose} is not there"
    if noted.broken:
        return Answer.DIFFERS, f"{whose} can't be read: {noted.broken}"
    theirs = next((d for d in known if d.hash == noted.hash), None)
    if theirs is not None and theirs.batch >= w.id.batch:
        return (
            Answer.UNKNOWN,
            ONLY_THE_LAST,
        )  # with other settings, or by a neighbour, something newer went to the same place
    if theirs is not None:
        return Answer.MISSING, f"{whose} is that of batch {theirs.batch}"
    if noted.epoch in (None, w.id.epoch) and noted.batch > w.id.batch:
        return Answer.DIFFERS, (
            f"{whose} is of batch {noted.batch}, which the ledger does not have: the state folder is older than what was delivered"
        )
    return Answer.DIFFERS, f"{whose} is of batch {noted.batch} of another state folder, or from before a rewind"
