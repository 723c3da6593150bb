"""Settings of `blackhole`: it has none. No Spark."""

from __future__ import annotations

from penstock.config import Settings


class BlackholeDestinationSettings(Settings):
    """Takes every record and keeps none.

    The records are computed and counted. For trying a pipeline, for measuring, and as a dead letter queue that says: the
    copy in the state folder is enough.
    """
