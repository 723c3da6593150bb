"""What is remembered of a hosted connector between two starts: a small file beside its log. Which plugin it was, and the settings that it
was opened with, as references: values are never on disk. Also how many records it has sent again.

Written by the connector's host, read by the engine before the next start and by the commands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock import fs
from penstock.errors import Stop

FILE = "connector.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Memory:
    pipeline: str
    connector: str
    plugin: str
    settings: Mapping[str, str] = field(default_factory=dict)  # references
    resent: int = 0  # over all starts

    def save(self, folder: Path) -> None:
        text = json.dumps({"format": "penstock connector", "version": VERSION, **asdict(self)})
        fs.replace(folder / FILE, text.encode() + b"\n")


def load(folder: Path) -> Memory | None:
    """None where it was never opened."""
    path = folder / FILE
    try:
        found: Any = json.loads(path.read_bytes())
        if found["version"] > VERSION:
            raise _bad(path, f"it is of version {found['version']}, and this Penstock reads up to {VERSION}")
        names = ("pipeline", "connector", "plugin", "settings", "resent")
        return Memory(*(found[name] for name in names))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise _bad(path, str(e)) from e


def _bad(path: Path, why: str) -> Stop:
    return Stop(
        f"What is remembered of a connector can't be read: {path}",
        code="host.memory",
        why=why,
        hint="put the file back from a copy; or remove it: the connector is then told that it was created",
    )


def forget(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)
    fs.fsync_folder(folder)
