"""A connector as a program: what `penstock_sdk.serve` does."""

from __future__ import annotations

import os
import sys
from functools import partial

from penstock_protocol import handshake, server
from penstock_sdk.connector import Connector
from penstock_sdk.context import Context
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.logs import Log, to_host
from penstock_sdk.schemas import Decoder, Encoder, from_environment
from penstock_sdk.source_plugin import SourceAdapter


def serve(connector: Connector) -> int:
    """Blocks until the host ends it. The exit code. Source and destination are made when the host asks for them."""
    if sys.argv[1:] == ["version"]:
        print(connector.version)
        return 0
    to_host(os.environ.get(handshake.LOG_LEVEL, "trace"))
    context = Context(os.environ.get(handshake.CONNECTOR_ID, ""), Log(connector.name))
    schemas = from_environment()
    encoder = None if schemas is None else Encoder(schemas, context.connector_id)
    return server.serve(
        server.Served(
            connector.specification(),
            None if connector.source is None else partial(SourceAdapter, connector.source, context, encoder),
            None
            if connector.destination is None
            else partial(DestinationAdapter, connector.destination, context, Decoder(schemas)),
        )
    )
