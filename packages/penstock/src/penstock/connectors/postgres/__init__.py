"""`postgres`: rows of a table, exactly once."""
