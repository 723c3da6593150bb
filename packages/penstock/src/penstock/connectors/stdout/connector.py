"""`stdout`, as it is registered."""

from __future__ import annotations

import sys

from penstock.connectors.stdout.destination import StdoutDestination
from penstock_sdk import Connector, serve

connector = Connector(
    "stdout",
    "0.1.0",
    "One line of standard output per record.",
    destination=StdoutDestination,
    description="Writes every record as a line of standard output: its payload, or all of it as JSON.",
    author="Penstock",
)

if __name__ == "__main__":
    sys.exit(serve(connector))
