"""The state folder for commands that only look at one: is it one, what does its ledger say, and is an engine running on it?

Nothing here takes a lock or writes: an engine that starts at the same moment must not notice.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from penstock.cli.options import STATE
from penstock.engine.lock import StateFolder
from penstock.errors import UsageError
from penstock.ledger import readonly
from penstock.ledger.look import View, look

T = TypeVar("T")


def ask(state: Path, question: Callable[[View], T]) -> T:
    """What the ledger of a state folder says; a clear error where there is none that can be read."""
    check(state)
    return look(StateFolder(state).ledger, question)


def check(state: Path) -> None:
    folder = StateFolder(state)
    try:
        names = {path.name for path in state.iterdir()}
        folder.check_version()
    except FileNotFoundError:
        raise readonly.missing(state, *_elsewhere(state)) from None
    except OSError as e:
        raise readonly.unreadable(state, e) from e
    if folder.ledger.name in names:
        return
    if not names or "VERSION" in names:
        raise readonly.empty(state)
    raise UsageError(
        f"{state} is not a state folder",
        code="state.foreign",
        why=f"it has no {folder.ledger.name} and no VERSION",
        hint="name the folder that `penstock run` made: .penstock beside the pipeline file, unless --state said otherwise",
    )


def _elsewhere(state: Path) -> list[str]:
    """`run` puts it beside the pipeline file, which is often one folder down."""
    if state != STATE:
        return []
    try:
        near = sorted(path.parent for path in Path().glob(f"*/{STATE}/VERSION"))[:3]
    except OSError:
        return []
    if not near:
        return []
    return ["name one that is near: " + ", or ".join(f"--state {path}" for path in near)]


def option(state: Path) -> str:
    """What has to be typed to name this folder."""
    return "" if state == STATE else f" --state {shlex.quote(str(state))}"


# -- names ----------------------------------------------------------------------------------------------------------


def known_pipeline(name: str | None, view: View) -> None:
    """A name that was mistyped must not look like one that has done nothing."""
    names = view.pipelines()
    if name is not None and name not in names:
        what = f"There is no pipeline {name!r} in this state folder"
        raise UsageError(what, code="state.unknown-pipeline", hint=_nearest(name, names))


def known_source(name: str | None, view: View) -> None:
    names = view.sources()
    if name is not None and name not in names:
        what = f"There is no source {name!r} in this state folder"
        raise UsageError(what, code="state.unknown-source", hint=_nearest(name, names))


def _nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(names) or 'none'}"


# -- is an engine running on it? ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Engine:
    """The engine that has the folder. `running` is None when that can't be told from here."""

    running: bool | None
    pid: int | None = None
    machine: str = ""
    started: str = ""

    def __str__(self) -> str:
        if self.running:
            return f"an engine is running: pid {self.pid}, since {self.started}"
        if self.running is False:
            return "no engine is running"
        if self.pid is None:
            return "whether an engine is running is not known: the file `lock` does not say whose it is"
        return f"whether an engine is running is not known from here: the last one was pid {self.pid} on {self.machine}"


def engine(state: Path) -> Engine:
    """Without touching the lock: to try it, even shared and for a moment, would make an engine fail that starts just then.
    The file names its holder, and stays when that has died; so the process is asked whether it still has the file open."""
    lock = state / "lock"
    try:
        text = lock.read_text(errors="replace")
    except FileNotFoundError:
        return Engine(False)
    except OSError:
        return Engine(None)
    try:
        value = json.loads(text)
        pid, machine, started = int(value["pid"]), str(value["machine"]), str(value["started"])
    except (ValueError, KeyError, TypeError):
        return Engine(None)  # it is just starting, or the file was changed
    if machine != socket.gethostname():
        return Engine(None, pid, machine, started)
    return Engine(_has_open(pid, lock), pid, machine, started)


def _has_open(pid: int, file: Path) -> bool | None:
    """Another process may have the number of one that has died, but not its file."""
    if pid <= 0 or not _alive(pid):
        return False
    try:
        wanted = file.stat()
        open_files = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return None  # no /proc here, or the process is another user's
    for path in open_files:
        try:
            if os.path.samestat(path.stat(), wanted):
                return True
        except OSError:
            continue  # closed meanwhile, or nothing that has a place
    return False


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
