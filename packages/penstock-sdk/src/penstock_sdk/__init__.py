"""What connector authors import. Depends on the protocol only: no engine, no pyspark."""

from penstock_sdk.connector import Connector
from penstock_sdk.context import Context
from penstock_sdk.destination import Acks, Batch, Destination
from penstock_sdk.errors import PenstockError, Rejected, Retry, Stop
from penstock_sdk.problems import SettingsError
from penstock_sdk.record import DROP, Drop, Record, Reject, record_id
from penstock_sdk.settings import Settings, setting
from penstock_sdk.source import Settled, Source

__all__ = [
    "DROP",
    "Acks",
    "Batch",
    "Connector",
    "Context",
    "Destination",
    "Drop",
    "PenstockError",
    "Record",
    "Reject",
    "Rejected",
    "Retry",
    "Settings",
    "SettingsError",
    "Settled",
    "Source",
    "Stop",
    "__version__",
    "record_id",
    "serve",
    "setting",
]

__version__ = "0.1.0"


def serve(connector: Connector) -> int:
    """Makes a program of a connector: `if __name__ == "__main__": sys.exit(serve(connector))`. Blocks until the host ends it; the
    exit code."""
    from penstock_sdk import program  # brings gRPC along, which a connector that is built in does not need

    return program.serve(connector)
