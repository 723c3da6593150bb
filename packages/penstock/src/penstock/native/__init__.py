"""The public interface for native connectors and processors: everything an author imports, and nothing else.

A native connector is read or written by Spark itself. All of these classes live in the engine process and build plans;
what runs in Spark tasks says so. Whatever is not in `__all__` may change.
"""

from penstock.errors import Rejected, Retry, Stop
from penstock.native.delivery import (
    Delivery,
    DeliveryId,
    Kept,
    Locate,
    LocatesMany,
    Ordering,
    Receipt,
    Refusal,
    Refuse,
    Staged,
)
from penstock.native.destination import ExactlyOnceDestination, Lines, NativeDestination
from penstock.native.processor import Columns, Example, Inline, Processor, Result, Step, Typed, Unsuitable, Where
from penstock.native.source import NativeSource, Surroundings
from penstock.native.witness import Answer, Finding, Witnessed
from penstock.ranges import Behind, Known, Limits, Range, Ranges, To
from penstock.record import Shape
from penstock_sdk.record import DROP, Drop, Record, Reject

__all__ = [
    "DROP",
    "Answer",
    "Behind",
    "Columns",
    "Delivery",
    "DeliveryId",
    "Drop",
    "ExactlyOnceDestination",
    "Example",
    "Finding",
    "Inline",
    "Kept",
    "Known",
    "Limits",
    "Lines",
    "Locate",
    "LocatesMany",
    "NativeDestination",
    "NativeSource",
    "Ordering",
    "Processor",
    "Range",
    "Ranges",
    "Receipt",
    "Record",
    "Refusal",
    "Refuse",
    "Reject",
    "Rejected",
    "Result",
    "Retry",
    "Shape",
    "Staged",
    "Step",
    "Stop",
    "Surroundings",
    "To",
    "Typed",
    "Unsuitable",
    "Where",
    "Witnessed",
]
