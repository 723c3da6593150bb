"""`generator`: records out of nothing. What record number n is follows from the seed, the format and n alone."""
