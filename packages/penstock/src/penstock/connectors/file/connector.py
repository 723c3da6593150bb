"""`file`, as it is registered and served."""

from __future__ import annotations

import sys

from penstock.connectors.file.destination import FileDestination
from penstock.connectors.file.source import FileSource
from penstock_sdk import Connector, serve

connector = Connector(
    "file",
    "0.1.0",
    "Reads lines from a file, and appends records to one.",
    source=FileSource,
    destination=FileDestination,
    description="A file as source and destination, with the meaning that Conduit's connector of this name has.",
    author="Penstock",
)

if __name__ == "__main__":
    sys.exit(serve(connector))
