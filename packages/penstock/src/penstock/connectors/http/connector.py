"""The connector itself: what registries find, and what `serve` makes a program of."""

from __future__ import annotations

import sys

from penstock.connectors.http.destination import HttpDestination
from penstock_sdk import Connector, serve

connector = Connector(
    "http",
    "0.1.0",
    "Sends records to a URL.",
    destination=HttpDestination,
    description=(
        "One request per record or per batch, with retries. A record that the server refuses costs no other record. "
        "Each request has an idempotency key, so that a server can tell what it has seen before."
    ),
    author="Penstock",
)

if __name__ == "__main__":
    sys.exit(serve(connector))
