"""Settings of `log`, declared once. No Spark."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from penstock.config import Settings


class LogDestinationSettings(Settings):
    level: Literal["trace", "debug", "info", "warn", "error"] = Field("info", description="The level of the lines.")
    message: str = Field("", description="A text in front of every record.")
