"""Settings of `log`, declared once. No Spark."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config import Settings


class LogDestinationSettings(Settings):
    """Writes every record to the engine's log, a line each.

    `penstock run` shows the lines on stderr. A line may come again after a crash. All records go through the engine, so it
    is for few of them.
    """

    level: Literal["trace", "debug", "info", "warn", "error"] = Field(
        "info", description="The level of the lines. The command line shows `info` and above."
    )
    message: str = Field("", description="A text in front of every record.")
