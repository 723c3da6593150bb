"""Records as columns of Arrow, for destinations that write columns. Needs pyarrow, which the SDK does not bring along."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock_sdk.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

PAYLOADS = ("key", "before", "after")
NAMES = ("position", "operation", "namespace", "phase", "timestamp", "metadata", *PAYLOADS)


def columns_of(records: Sequence[Record]) -> pa.RecordBatch:
    """One row for each record. A payload is binary where it is raw, and a struct of all fields that some record has where it is not."""
    try:
        import pyarrow as pa
    except ImportError as e:
        raise ImportError("Batch.arrow() needs pyarrow: pip install 'penstock-sdk[arrow]'") from e
    kinds = {
        "position": pa.binary(),
        "timestamp": pa.timestamp("us", "UTC"),
        "metadata": pa.map_(pa.string(), pa.string()),
    }
    made = {}
    for name in NAMES:
        found: list[Any] = [getattr(r, name) for r in records]
        if name in PAYLOADS:
            made[name] = _payloads(pa, name, found)
        else:
            values = [list(v.items()) for v in found] if name == "metadata" else found
            made[name] = pa.array(values, kinds.get(name, pa.string()))
    return pa.RecordBatch.from_pydict(made)


def _payloads(pa: Any, name: str, found: list[Any]) -> Any:
    raw = sum(isinstance(value, bytes) for value in found)
    structured = sum(isinstance(value, dict) for value in found)
    if raw and structured:
        raise ValueError(f"{name} is raw in {raw} records and structured in {structured}: it has no one type")
    return pa.array(found, pa.binary() if not structured else None)
