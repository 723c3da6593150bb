"""What a connector knows about where it runs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from penstock_sdk.logs import Log


@dataclass(frozen=True, slots=True)
class Context:
    """`stopping` is set when the connector is to end: whoever waits for something else waits for this, too."""

    connector_id: str = ""
    log: Log = field(default_factory=lambda: Log("connector"))
    stopping: threading.Event = field(default_factory=threading.Event)
