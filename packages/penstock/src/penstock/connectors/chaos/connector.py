"""The connector itself: what registries find, and what `serve` makes a program of."""

from __future__ import annotations

import sys

from penstock.connectors.chaos.destination import ChaosDestination
from penstock.connectors.chaos.source import ChaosSource
from penstock_sdk import Connector, serve

connector = Connector(
    "chaos",
    "0.1.0",
    "Does what it is told, also what no connector should: for tests.",
    ChaosSource,
    ChaosDestination,
    description="Each method can succeed, fail, block, be slow or end the process; records can come twice, late or never.",
    author="Penstock",
)

if __name__ == "__main__":
    sys.exit(serve(connector))
