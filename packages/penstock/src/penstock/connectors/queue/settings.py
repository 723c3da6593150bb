"""Settings of `queue`, declared once. No Spark."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.config import Settings, Size
from penstock.connectors.files.settings import Path

_PATH = (
    "The folder of the queue, a commit log. It is made by the first pipeline that writes to it; what is staged lies beside it, in a folder"
    " `.NAME.penstock`."
)


class QueueDestinationSettings(Settings):
    """Appends every record to a queue, exactly once: a commit log that other pipelines read.

    All sources of a pipeline, and other pipelines, may write to the same queue; the records of each source keep their order. What every
    reader has acknowledged is taken away; while nobody has read from it, everything stays.
    """

    path: Path = Field(min_length=1, description=_PATH)
    max_size: Annotated[Size, Field(ge=1 << 20)] | None = Field(
        None,
        alias="max-size",
        description="The most that it may have on disk. A queue that is full makes its writers wait. Default: no limit.",
    )


class QueueSourceSettings(Settings):
    """Reads a queue that other pipelines write to. Each source has an offset of its own in it: several of them read all of it each."""

    path: Path = Field(min_length=1, description=_PATH)
