"""Penstock moves records from sources through processors to destinations on Apache Spark, and accounts for every one.

Importing this loads no Spark.
"""

from penstock.pipeline import Pipeline, Summary
from penstock.processors.python import processor
from penstock_sdk.record import DROP, Drop, Record, Reject

__all__ = ["DROP", "Drop", "Pipeline", "Record", "Reject", "Summary", "__version__", "processor"]

__version__ = "0.1.0"
