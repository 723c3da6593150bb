"""The durable account of snapshots, deliveries, frontiers, acks and dead letters: the only truth about what was delivered."""

from penstock.ledger.api import (
    Attempt,
    Kind,
    Lane,
    Late,
    Nack,
    NackState,
    Prepared,
    Snapshot,
    State,
    TargetRef,
    Totals,
)
from penstock.ledger.sqlite import KEEP_BATCHES, Ledger

__all__ = [
    "KEEP_BATCHES",
    "Attempt",
    "Kind",
    "Lane",
    "Late",
    "Ledger",
    "Nack",
    "NackState",
    "Prepared",
    "Snapshot",
    "State",
    "TargetRef",
    "Totals",
]
