"""Settings of `blackhole`: it has none. No Spark."""

from __future__ import annotations

from penstock.config import Settings


class BlackholeDestinationSettings(Settings):
    """Nothing can be set."""
