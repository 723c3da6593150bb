"""What connector authors import. Depends on the protocol only: no engine, no pyspark."""

from penstock_sdk.errors import PenstockError, Rejected, Retry, Stop

__all__ = ["PenstockError", "Rejected", "Retry", "Stop", "__version__"]

__version__ = "0.1.0"
