"""A connector that is no longer in its pipeline: its `deleted` is called, and what is kept of it goes. Called by the engine before lanes
start."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

from penstock.errors import PenstockError
from penstock.host import memory
from penstock.host.feed import expanded
from penstock.host.memory import Memory
from penstock.host.remote import Host, Log
from penstock.host.sink import DestinationRemote
from penstock.host.spec import DestinationSpec, SourceSpec
from penstock.log import Reader
from penstock.log import offsets as offset_files


def gone(parent: Path, pipeline: str, there: Collection[str]) -> Iterator[tuple[Path, Memory]]:
    """Connectors of the pipeline that are remembered and not in it any more."""
    for folder in sorted(parent.iterdir()) if parent.is_dir() else ():
        found = memory.load(folder) if folder.is_dir() else None
        if found is not None and found.pipeline == pipeline and found.connector not in there:
            yield folder, found


def part_destination(folder: Path, found: Memory, log: Log) -> str:
    """What came of it, in words."""
    settings, name = expanded(found.settings), f"{found.pipeline}:{found.connector}"
    try:
        host = DestinationRemote(lambda tokens: DestinationSpec(name, found.plugin, settings, str(folder), tokens), log)
        try:
            host.delete()
        finally:
            host.close()
    except PenstockError as e:
        return f"it could not be told ({e.what}), and is told at the next start"
    shutil.rmtree(folder)
    return "it was told"


def part_source(folder: Path, found: Memory, log: Log) -> str:
    """What came of it, in words. A log with records that were not delivered stays: nobody has acked them."""
    settings = expanded(found.settings)
    name = f"{found.pipeline}:{found.connector}"
    try:
        host = Host(lambda tokens: SourceSpec(name, found.plugin, settings, str(folder), tokens), log)
        try:
            host.delete()
        finally:
            host.close()
        left = _left(folder)
    except PenstockError as e:
        return f"it could not be told ({e.what}), and is told at the next start"
    if left:
        return f"{left:,} records in its log were not delivered; they stay in {folder}"
    shutil.rmtree(folder)
    return "it was told, and its log is removed"


def _left(folder: Path) -> int:
    """Records that some destination lacks."""
    with Reader(folder) as reader:
        done = min((state.frontier for state in offset_files.load(folder).values()), default=0)
        return max(0, reader.end - done)
