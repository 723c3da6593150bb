"""Runs lanes: loops of Spark jobs over ranges that the ledger has written down."""
