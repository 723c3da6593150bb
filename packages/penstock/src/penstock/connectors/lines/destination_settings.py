"""Settings of `lines` as a destination, declared once. No Spark."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config import Settings
from penstock.connectors.files.settings import Path


class LinesDestinationSettings(Settings):
    """Appends a line per record to one file, exactly once.

    All sources of a pipeline, and other pipelines, may append to the same file; the lines of each source keep their order. The file may be
    rotated or removed between two batches: the next one goes on in a new one.
    """

    path: Path = Field(
        min_length=1,
        description="The file to append to; it and its folder are made when they are missing. What is staged lies beside it, in a folder"
        " `.NAME.penstock`.",
    )
    format: Literal["text", "json"] = Field(
        "text", description="The payload as it is (raw, or open as JSON), or as a line of JSON (open and typed)."
    )
