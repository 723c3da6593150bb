"""Durable file operations. Everything that must survive a power cut goes through here, and nothing else calls fsync.

Runs in the engine process. `write temp, fsync, rename, fsync folder` is the only way a small file is replaced.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.testing import faults


def fsync_file(path: Path) -> None:
    """The file's bytes are on disk when this returns (its name only after `fsync_folder`)."""
    _fsync(path, os.O_RDONLY)


def fsync_folder(path: Path) -> None:
    """The names in this folder are on disk when this returns."""
    _fsync(path, os.O_RDONLY | os.O_DIRECTORY)


def _fsync(path: Path, flags: int) -> None:
    fd = os.open(path, flags)
    try:
        fsync(fd, path)
    finally:
        os.close(fd)


def fsync(fd: int, path: Path) -> None:
    """The same for a file that is open; `path` is its name."""
    if faults.safeguard("fsync"):
        faults.reach("fsync", str(path))
        os.fsync(fd)


def make_folder(path: Path, mode: int = 0o777) -> None:
    """Creates the folder and its parents, each name durable in the folder above it."""
    if path.is_dir():
        return
    make_folder(path.parent, mode)
    path.mkdir(mode=mode, exist_ok=True)
    fsync_folder(path.parent)


def write(fd: int, content: bytes) -> None:
    """All of it."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]


def replace(path: Path, content: bytes) -> None:
    """Readers see the old content or the new, also after a crash."""
    temp = path.with_name(f".{path.name}.tmp")
    fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        write(fd, content)
        fsync(fd, temp)
    finally:
        os.close(fd)
    temp.replace(path)
    fsync_folder(path.parent)
