"""`lines`, as it is registered and served."""

from __future__ import annotations

import sys

from penstock.connectors.lines.source import LinesSource
from penstock_sdk import Connector, serve

connector = Connector(
    "lines",
    "0.1.0",
    "Follows one file, line by line.",
    source=LinesSource,
    description="Follows one file as `tail -F` does, over rotation, truncation and restarts; each line is a record with raw bytes.",
    author="Penstock",
)

if __name__ == "__main__":
    sys.exit(serve(connector))
