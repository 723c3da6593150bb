"""`plugins.lock`: which plugin programs may be run, each with the digest that it had when it was added, and what it said about itself.

Read by the standalone registry, so that files can be checked and plugins described without starting anything. JSON, replaced as a whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import fs
from penstock.errors import UsageError
from penstock_protocol.interfaces import Parameter, ParameterType, Specification, Validation, ValidationType

FILE = "plugins.lock"
VERSION = 1
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Locked:
    """One plugin. `file` is its name in the plugins folder: a program, or the folder of a Python package."""

    file: str
    sha256: str
    specification: Specification

    @property
    def name(self) -> str:
        return self.specification.name

    @property
    def version(self) -> str:
        return self.specification.version


def read(folder: Path) -> list[Locked]:
    """Empty where there is none."""
    path = folder / FILE
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as e:
        raise _broken(path, str(e)) from e
    try:
        found = json.loads(text)
        if found["version"] != VERSION:
            raise _broken(path, f"it has version {found['version']!r}, this Penstock reads {VERSION}")
        return [_locked(one) for one in found["plugins"]]
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise _broken(path, f"{type(e).__name__}: {e}") from e


def write(folder: Path, plugins: Sequence[Locked]) -> None:
    in_order = sorted(plugins, key=lambda p: (p.name, p.version))
    made = {"version": VERSION, "plugins": [_json(p) for p in in_order]}
    fs.replace(folder / FILE, (json.dumps(made, indent=2, ensure_ascii=False) + "\n").encode())


def _broken(path: Path, why: str) -> UsageError:
    return UsageError(
        f"{path} can't be read",
        code="plugins.lock",
        why=why,
        hint="restore it, or remove it and run `penstock plugins install` for each plugin again",
    )


def digest(path: Path) -> str:
    """Of a program its bytes; of a folder the names and bytes of everything in it. ValueError for what is neither."""
    if path.is_symlink():
        raise ValueError("it is a link")
    if path.is_file():
        return _file(path)
    total = hashlib.sha256()
    for name in _names(path, ""):
        each = path / name
        mode = each.lstat().st_mode
        if not stat.S_ISREG(mode):
            raise ValueError(f"{name} in it is neither a file nor a folder")
        total.update(f"{_file(each)} {name}\0".encode(errors="surrogateescape"))
    return total.hexdigest()


def _file(path: Path) -> str:
    with path.open("rb") as file:
        total = hashlib.sha256()
        while piece := file.read(_PIECE):
            total.update(piece)
    return total.hexdigest()


def _names(folder: Path, start: str) -> Iterator[str]:
    for entry in sorted(os.scandir(folder), key=lambda e: e.name):
        name = f"{start}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            yield from _names(Path(entry.path), f"{name}/")
        else:
            yield name


# -- a specification as JSON ----------------------------------------------------------------------------------------


def _json(p: Locked) -> dict[str, Any]:
    s = p.specification
    return {
        "name": s.name,
        "version": s.version,
        "file": p.file,
        "sha256": p.sha256,
        "summary": s.summary,
        "description": s.description,
        "author": s.author,
        "source": {name: _parameter_json(one) for name, one in sorted(s.source.items())},
        "destination": {name: _parameter_json(one) for name, one in sorted(s.destination.items())},
    }


def _parameter_json(p: Parameter) -> dict[str, Any]:
    checks = [{"type": v.type.name.lower(), "value": v.value} for v in p.validations]
    return {"type": p.type.name.lower(), "default": p.default, "description": p.description, "validations": checks}


def _locked(found: Mapping[str, Any]) -> Locked:
    file = found["file"]
    if not isinstance(file, str) or not file or "/" in file or file in (".", ".."):
        raise ValueError(f"{file!r} is no name of a file in the folder")
    about: dict[str, Any] = {key: found[key] for key in ("name", "version", "summary", "description", "author")}
    if not all(isinstance(text, str) for text in (*about.values(), found["sha256"])):
        raise ValueError(f"a text of {file!r} is none")
    for kind in ("source", "destination"):
        about[kind] = {name: _parameter(one) for name, one in found[kind].items()}
    return Locked(file, found["sha256"], Specification(**about))


def _parameter(found: Mapping[str, Any]) -> Parameter:
    checks = tuple(Validation(ValidationType[v["type"].upper()], v["value"]) for v in found["validations"])
    return Parameter(found["default"], found["description"], ParameterType[found["type"].upper()], checks)
