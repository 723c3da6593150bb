"""Penstock moves records from sources through processors to destinations on Apache Spark, and accounts for every one.

Importing this loads no Spark, and nothing else before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.pipeline import Pipeline
    from penstock.processors.python import processor
    from penstock.summary import Summary
    from penstock_sdk.record import DROP, Drop, Record, Reject

__all__ = ["DROP", "Drop", "Pipeline", "Record", "Reject", "Summary", "__version__", "processor"]

__version__ = "0.1.0"

_FROM = {
    "DROP": "penstock_sdk.record",
    "Drop": "penstock_sdk.record",
    "Pipeline": "penstock.pipeline",
    "Record": "penstock_sdk.record",
    "Reject": "penstock_sdk.record",
    "Summary": "penstock.summary",
    "processor": "penstock.processors.python",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(_FROM[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
