"""Penstock moves records from sources through processors to destinations on Apache Spark, and accounts for every one.

Importing this loads no Spark.
"""

from penstock.pipeline import Pipeline, Summary

__all__ = ["Pipeline", "Summary", "__version__"]

__version__ = "0.1.0"
