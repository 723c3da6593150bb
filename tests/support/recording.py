"""Connectors that write down what happens to them, for children to run (`Spec.pipeline`)."""

from __future__ import annotations

import os
from pathlib import Path

from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.native import Ranges
from penstock.pipeline import Pipeline


class RecordingSource(FilesSource):
    """Appends every ack to a file, durably, the way a broker would remember it."""

    def __init__(self, settings: FilesSourceSettings, source_id: str, record: Path) -> None:
        super().__init__(settings, source_id)
        self.record = record

    def acked(self, ranges: Ranges) -> tuple[str, ...]:
        fd = os.open(self.record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(fd, "".join(f"{Path(r.strand).name}\n" for r in ranges).encode())
        os.fsync(fd)
        os.close(fd)
        return ()


def acks(root: str) -> list[Pipeline]:
    """p from in/ to out/, with every ack in acks.txt."""
    folder = Path(root)
    source = RecordingSource(FilesSourceSettings(path=str(folder / "in")), "in", folder / "acks.txt")
    pipeline = Pipeline("p").source("in", source, batch={"max-files": 1})
    return [pipeline.destination("out", "files", path=folder / "out")]
