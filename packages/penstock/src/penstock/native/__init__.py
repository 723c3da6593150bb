"""The public interface for native connectors and processors: everything an author imports, and nothing else.

A native connector is read or written by Spark itself. All of these classes live in the engine process and build plans;
what runs in Spark tasks says so. Whatever is not in `__all__` may change.
"""

from penstock.errors import Rejected, Retry, Stop
from penstock.native.delivery import Delivery, DeliveryId, Ordering, Receipt, Staged
from penstock.native.destination import ExactlyOnceDestination, NativeDestination
from penstock.native.processor import Columns, Processor, Step
from penstock.native.source import NativeSource
from penstock.ranges import Known, Limits, Range, Ranges

__all__ = [
    "Columns",
    "Delivery",
    "DeliveryId",
    "ExactlyOnceDestination",
    "Known",
    "Limits",
    "NativeDestination",
    "NativeSource",
    "Ordering",
    "Processor",
    "Range",
    "Ranges",
    "Receipt",
    "Rejected",
    "Retry",
    "Staged",
    "Step",
    "Stop",
]
