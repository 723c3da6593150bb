"""Which log is meant: by its name in a state folder, or by the path of its folder. For the commands of `penstock log`.

Nothing here takes a lock or writes.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from penstock.engine.lock import StateFolder
from penstock.errors import UsageError

LOGS = "logs"  # the folder of all logs in a state folder


@dataclass(frozen=True)
class Named:
    """A log, and what has to be typed to name it."""

    name: str
    folder: Path


def logs(state: Path) -> list[Named]:
    """All logs of a state folder, by name; a clear error where there is no such folder."""
    root = state / LOGS
    with readable(root):
        if not root.is_dir():
            from penstock.cli.state import check

            check(state)
            return []
        StateFolder(state).check_version()
        return [Named(path.name, path) for path in sorted(root.iterdir()) if path.is_dir()]


def named(state: Path, name: str) -> Named:
    """The one that is meant. A name of the state folder goes before a folder here that is called the same."""
    path = Path(name)
    with readable(path):
        if os.sep in name or name in (".", ".."):
            return _there(name, path)
        if is_log(path) and not (state / LOGS / name).is_dir():
            return Named(name, path)
        known = [found.name for found in logs(state)]
        if name in known:
            return _there(name, state / LOGS / name)
        raise UsageError(
            f"There is no log {name!r} in {state}",
            code="log.unknown",
            why=f"and in this folder it is no log either: {_what(path)}" if name and path.exists() else "",
            hint=nearest(name, known),
        )


def is_log(folder: Path) -> bool:
    """Its segments may be damaged or of a newer version: whoever reads them says so."""
    return folder.is_dir() and any(folder.glob("*.seg"))


def nearest(name: str, names: list[str]) -> str:
    near = difflib.get_close_matches(name, names, 1)
    there = f"there are: {', '.join(names)}" if names else "there are none"
    return f"did you mean {near[0]!r}? {there}" if near else there


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the system refuses is said in words."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"{error.filename or path} can't be used",
            code="log.unreadable",
            why=error.strerror or str(error),
            hint="check the path and who may read it; to change a log, its folder has to be writable",
        ) from error


def _there(name: str, path: Path) -> Named:
    if is_log(path):
        return Named(name, path)
    raise _no_log(path)


def _no_log(path: Path) -> UsageError:
    hint = "penstock log list shows those of a state folder"
    return UsageError(f"There is no log at {path}", code="log.missing", why=_what(path), hint=hint)


def _what(path: Path) -> str:
    if not path.exists():
        return "there is nothing"
    return "the folder has no segments (*.seg)" if path.is_dir() else "it is a file; a log is a folder"
