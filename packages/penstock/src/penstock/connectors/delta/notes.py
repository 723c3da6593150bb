"""What `delta` writes into a commit beside the rows: which delivery it was, and how it ended. No Spark.

Delta keeps two things in the same commit: the transaction (`txnAppId`, `txnVersion`), by which it refuses a batch a second time, and
`userMetadata`, where the note is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from penstock.errors import Stop
from penstock.native import DeliveryId, Receipt

VERSION = 1


def app_id(d: DeliveryId) -> str:
    """Of all deliveries of a lane to a destination within an epoch. Their batches have rising numbers."""
    return "/".join(["penstock", *(quote(str(part), safe="") for part in (d.pipeline, d.lane, d.epoch, d.destination))])


@dataclass(frozen=True)
class Note:
    app: str
    batch: int
    hash: str
    fence: int
    receipt: Receipt

    @classmethod
    def of(cls, d: DeliveryId, receipt: Receipt) -> Note:
        return cls(app_id(d), d.batch, d.hash, d.fence, receipt)

    def text(self) -> str:
        own = {"app": self.app, "batch": self.batch, "hash": self.hash, "fence": self.fence}
        return json.dumps({"penstock": VERSION, **own, "receipt": self.receipt.to_json()})

    @classmethod
    def read(cls, text: Any, app: str) -> Note | None:
        """None where the commit is somebody else's."""
        try:
            found = json.loads(text) if isinstance(text, str) else None
        except ValueError:
            return None
        if not isinstance(found, dict) or "penstock" not in found or found.get("app") != app:
            return None
        if found["penstock"] > VERSION:
            raise Stop(
                "The table has commits of a newer version of Penstock",
                code="delta.version",
                why=f"their notes have version {found['penstock']}, and this one knows {VERSION}",
                hint="go on with the newer version",
            )
        return cls(app, found["batch"], found["hash"], found["fence"], Receipt.from_json(found["receipt"]))
