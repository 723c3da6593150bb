"""What connector authors import. Depends on the protocol only: no engine, no pyspark."""

from penstock_sdk.errors import PenstockError, Rejected, Retry, Stop
from penstock_sdk.record import DROP, Drop, Record, Reject, record_id

__all__ = [
    "DROP",
    "Drop",
    "PenstockError",
    "Record",
    "Reject",
    "Rejected",
    "Retry",
    "Stop",
    "__version__",
    "record_id",
]

__version__ = "0.1.0"
