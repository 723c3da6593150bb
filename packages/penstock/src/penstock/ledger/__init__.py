"""The durable account of snapshots, deliveries, frontiers and acks: the only truth about what was delivered."""

from penstock.ledger.api import Attempt, Lane, Prepared, Snapshot, State, Totals
from penstock.ledger.sqlite import Ledger

__all__ = ["Attempt", "Lane", "Ledger", "Prepared", "Snapshot", "State", "Totals"]
