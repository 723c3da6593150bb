"""A record function, used by examples/orders.yaml. Runs in Spark's tasks, once per record.

It may change the record and return it, return several records, `DROP` it on purpose, or `Reject` it with a reason. What it raises
costs this one record.
"""

from __future__ import annotations

from penstock import DROP, Drop, Record, Reject


def clean(r: Record) -> Record | Drop | Reject:
    """Drops test orders, rejects orders without a customer, and tidies the name of the others."""
    assert isinstance(r.after, dict)  # json.decode comes before it
    if r.after.get("test"):
        return DROP
    name = str(r.after.get("customer") or "").strip()
    if not name:
        return Reject("an order needs a customer", code="orders.customer")
    r.after["customer"] = name
    return r
