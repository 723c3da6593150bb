"""Makes a folder of files from a template, all or none. `init` and `connector new` call it."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from penstock.errors import UsageError


def make(folder: Path, contents: Iterable[tuple[str, bytes]]) -> None:
    """All files are made aside and then renamed, so that there are none where one can't be made."""
    above: list[Path] = []  # folders that were made, from the top
    undo: list[Path] = []  # what was made in there
    try:
        for missing in _missing(folder):
            missing.mkdir()
            above.append(missing)
        aside = Path(tempfile.mkdtemp(prefix=".penstock-init-", dir=folder))
        undo.append(aside)
        for file, content in contents:
            (aside / file).parent.mkdir(parents=True, exist_ok=True)
            (aside / file).write_bytes(content)
        for made in sorted(aside.iterdir()):
            target = folder / made.name
            made.rename(target)
            undo.append(target)
        aside.rmdir()
    except BaseException as e:
        _remove(undo, above)
        if isinstance(e, OSError):
            raise _unusable(folder, e) from e
        raise


def _missing(folder: Path) -> Iterator[Path]:
    """The folder and those above it that are not there, from the top; looks for each when the one before was made."""
    return (path for path in (*reversed(folder.parents), folder) if not os.path.isdir(path))  # noqa: PTH112 - never raises


def _remove(undo: Sequence[Path], above: Sequence[Path]) -> None:
    """What was made here. What can't be removed stays: the first error is the one to tell."""
    for path in undo:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()
    for path in reversed(above):
        with suppress(OSError):  # somebody else's file is in there by now
            path.rmdir()


def _unusable(folder: Path, e: OSError) -> UsageError:
    file = next((path for path in (folder, *folder.parents) if os.path.isfile(path)), None)  # noqa: PTH113 - never raises
    return UsageError(
        f"Nothing was made: {shown(folder)} can't be used",
        code="init.folder",
        why=f"{file} is a file, not a folder" if file else e.strerror or str(e),
        hint="name another folder, or see to the rights and the space of this one",
    )


def shown(folder: Path) -> str:
    return "this folder" if folder == Path() else str(folder)


def quoted(folder: Path) -> str:
    """As a shell takes it; a name that begins like an option is none."""
    text = str(folder)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
