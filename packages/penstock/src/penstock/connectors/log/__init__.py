"""`log`: writes every record to the engine's log and drops it. At least once: a line may come again after a crash."""
