"""`blackhole`: takes every record and keeps none. Exactly once, since there is nothing that could be there twice."""
