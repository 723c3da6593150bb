"""What runs in Spark's Python tasks: the processors that are Python, fused."""
