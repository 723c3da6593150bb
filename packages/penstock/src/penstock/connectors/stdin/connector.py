"""`stdin`, as it is registered."""

from __future__ import annotations

import sys

from penstock.connectors.stdin.source import StdinSource
from penstock_sdk import Connector, serve

connector = Connector(
    "stdin",
    "0.1.0",
    "Lines of standard input.",
    source=StdinSource,
    description="Every line of standard input is a record with raw bytes. They can't be read again after a restart.",
    author="Penstock",
)

if __name__ == "__main__":
    sys.exit(serve(connector))
