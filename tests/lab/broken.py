"""Three builds that are broken on purpose. A campaign that does not find them proves nothing with what it does not find elsewhere.

Each is a change of the running code, made in the child before its engine starts; nothing of the kind can be reached from outside.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


def no_fsync() -> None:
    """Nothing is brought to disk. Only a power cut shows it."""
    from penstock import fs

    def lazy(fd: int, path: Path) -> None: ...

    fs.fsync = lazy


def ack_early() -> None:
    """The source is told that a batch is settled when it was read and staged: before it is prepared."""
    from penstock.engine.batch import run

    code: Any = run
    prepare = code.prepare

    def early(work: Any, s: Any, *more: Any) -> None:
        work.source.acked(s.ranges)
        prepare(work, s, *more)

    code.prepare = early


def stage_again() -> None:
    """What was prepared before a crash is read and staged once more, as a batch of its own."""
    from penstock.engine import lane, recovery
    from penstock.ledger import State

    decide = recovery.decide

    def again(state: State) -> recovery.Action:
        return recovery.Action.FORGET if state is State.PREPARED else decide(state)

    lane.decide = again  # type: ignore[attr-defined]


BUILDS = {"no fsync": no_fsync, "ack early": ack_early, "stage again": stage_again}
