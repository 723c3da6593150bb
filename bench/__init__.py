"""Benchmarks: each compares with the same work by other means, in one run, alternating. Figures are ratios."""
