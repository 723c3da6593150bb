"""The registry of plugin programs: a folder, and the lock file that says what in it may be run.

A program is an executable file, or a folder with a `__main__.py` in it, which this interpreter runs. Nothing is run that is not in the
lock file with the digest that it has now.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from penstock import fs
from penstock.errors import UsageError
from penstock.filelock import FileLock, Held
from penstock.plugins import lock
from penstock.plugins.dispensers import Log, Program, ask
from penstock.plugins.lock import Locked
from penstock.plugins.names import PluginName, is_name, is_version, newness, same_version
from penstock_protocol.interfaces import PluginError, Specification

FOLDER = "plugins"
VARIABLE = "PENSTOCK_PLUGINS"
_NOT_TAKEN = shutil.ignore_patterns("__pycache__", "*.pyc", ".git", ".venv", ".*_cache")


def default_folder() -> Path:
    return Path(os.environ.get(VARIABLE) or FOLDER)


class Standalone:
    """The plugins of one folder. What is there is read anew for each question: another process may add to it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = default_folder() if folder is None else folder

    def locked(self) -> list[Locked]:
        """In the order of their names, the newest first."""
        return sorted(
            sorted(lock.read(self.folder), key=lambda p: newness(p.version), reverse=True), key=lambda p: p.name
        )

    def find(self, name: PluginName) -> Program | None:
        """The version that is asked for, or the newest."""
        for p in self.locked():
            if p.name == name.name and (not name.version or same_version(name.version, p.version)):
                return self.program(p)
        return None

    def program(self, p: Locked) -> Program:
        return Program(p.specification, partial(self.command, p))

    def strangers(self) -> list[str]:
        """What lies in the folder and is not in the lock file: it is never run."""
        known = {p.file for p in lock.read(self.folder)}
        if not self.folder.is_dir():
            return []
        return sorted(
            e.name for e in self.folder.iterdir() if e.name not in known and not e.name.startswith((".", lock.FILE))
        )

    def command(self, p: Locked) -> list[str]:
        """How it is started, after a look at whether it still is what was added."""
        path = self.folder / p.file
        again = f"if that was meant, `penstock plugins install` it again; else restore {path}"
        try:
            found = lock.digest(path)
        except FileNotFoundError:
            raise UsageError(
                f"The plugin {p.name} {p.version} is gone: there is no {path}", code="plugins.changed", hint=again
            ) from None
        except (OSError, ValueError) as e:
            raise UsageError(
                f"The plugin {p.name} {p.version} can't be read: {path}", code="plugins.changed", why=str(e), hint=again
            ) from e
        if found != p.sha256:
            raise UsageError(
                f"The plugin {p.name} {p.version} is not run: {path} has changed since it was added",
                code="plugins.changed",
                why=f"its SHA-256 is {found[:12]}…, {lock.FILE} has {p.sha256[:12]}…",
                hint=again,
            )
        return _command(path)

    # -- what may be run ----------------------------------------------------------------------------------------------------

    def add(self, path: Path, *, replace: bool = False, log: Log = lambda *_: None) -> Locked:
        """Copies a program into the folder, starts it once to hear what it is, and writes it down."""
        _vet(path)
        fs.make_folder(self.folder)
        with self._alone(), tempfile.TemporaryDirectory(prefix=".new-", dir=self.folder) as temp:
            copy = Path(temp, path.resolve().name)
            try:
                _copy(path, copy, self.folder)
            except OSError as e:  # of a folder it lists every file
                raise UsageError(
                    f"{path} can't be copied into {self.folder}", code="plugins.install", why=str(e)
                ) from e
            sha256 = lock.digest(copy)
            specification = _asked(copy, path, log)
            new = Locked(f"{specification.name}@{specification.version}", sha256, specification)
            others = self._others(new, replace)
            if lock.digest(copy) != sha256:
                raise UsageError(
                    f"{path} changes itself when it is run: it could never be run again",
                    code="plugins.install",
                    hint="a Python package must not write into its own folder",
                )
            self._put(copy, new)
            lock.write(self.folder, [*others, new])
        return new

    @contextmanager
    def _alone(self) -> Iterator[None]:
        held = FileLock(self.folder / ".lock")
        try:
            held.take()
        except Held as e:
            raise UsageError(
                f"Another process changes {self.folder}", code="plugins.install", why=str(e), hint="try again"
            ) from e
        try:
            yield
        finally:
            held.release()

    def _others(self, new: Locked, replace: bool) -> list[Locked]:
        others = []
        for p in lock.read(self.folder):
            if p.name != new.name or not same_version(p.version, new.version):
                others.append(p)
            elif p.sha256 != new.sha256 and not replace:
                raise UsageError(
                    f"There is another {p.name} {p.version} in {self.folder}",
                    code="plugins.install",
                    hint="give the new one another version, or say --replace",
                )
        return others

    def _put(self, copy: Path, new: Locked) -> None:
        """Under its final name; a crash before the lock is written leaves a file that is not run."""
        final = self.folder / new.file
        if final.is_dir() and not final.is_symlink():
            shutil.rmtree(final)
        copy.replace(final)
        fs.fsync_folder(self.folder)

    def drop(self, name: PluginName) -> list[Locked]:
        """Takes out one version, or all where none is named."""
        with self._alone():
            all_ = lock.read(self.folder)
            gone = [
                p for p in all_ if p.name == name.name and (not name.version or same_version(name.version, p.version))
            ]
            lock.write(self.folder, [p for p in all_ if p not in gone])
            for p in gone:
                path = self.folder / p.file
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        return gone


def _vet(path: Path) -> None:
    if not path.exists():
        raise UsageError(f"There is no {path}", code="plugins.install", hint="give the path of a program")
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise UsageError(
            f"{path} is a folder without a __main__.py",
            code="plugins.install",
            hint="a Python package needs one that calls `penstock_sdk.serve`; else give the path of a program",
        )
    if not path.is_dir() and not path.is_file():
        raise UsageError(f"{path} is neither a program nor a folder", code="plugins.install", hint="give one that is")
    if path.is_file() and not os.access(path, os.X_OK):
        raise UsageError(f"{path} can't be run", code="plugins.install", hint=f"make it so: chmod +x {path}")


def _copy(path: Path, copy: Path, folder: Path) -> None:
    """What links lead to, not the links. The plugins folder may be in there; it is no part of the program."""

    def left(where: str, names: list[str]) -> set[str]:
        ours = {name for name in names if os.path.realpath(os.path.join(where, name)) == os.path.realpath(folder)}  # noqa: PTH118
        return ours | _NOT_TAKEN(where, names)

    if path.is_dir():
        shutil.copytree(path, copy, ignore=left)
        return
    shutil.copyfile(path, copy)
    copy.chmod(0o755)


def _command(path: Path) -> list[str]:
    """-B: compiled code beside the sources would change the folder's digest."""
    return [sys.executable, "-B", str(path.absolute())] if path.is_dir() else [str(path.absolute())]


def _asked(copy: Path, path: Path, log: Log) -> Specification:
    try:
        found = ask(_command(copy), log)
    except PluginError as e:
        raise UsageError(
            f"{path} is no connector that can be run here",
            code="plugins.install",
            why=str(e),
            hint="`penstock connector test` says more about a program of your own",
        ) from e
    if not is_name(found.name) or not is_version(found.version):
        raise UsageError(
            f"{path} calls itself {found.name!r} {found.version!r}",
            code="plugins.install",
            why="a name is letters, digits, dots and hyphens; a version is something like 1.2.0",
            hint="name it so in its specification",
        )
    return found
