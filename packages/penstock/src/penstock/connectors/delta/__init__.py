"""`delta`: rows of a Delta table, exactly once."""
