"""The record on Spark: the names of its columns and the words for what becomes of it. Imports nothing of ours.

A column is written by the source, or filled in by `engine/batch/read.py` with the default below it.
"""

from __future__ import annotations

from enum import StrEnum

SOURCE = "source"  # the source connector's id
SEQ = "seq"  # long: unique in its source, strictly increasing along a strand
PART = "part"  # int: 0 unless the record was split; (source, seq, part) is its identity
POSITION = "position"  # binary: the source's own, equal on every replay
OPERATION = "operation"  # create | update | delete | snapshot
NAMESPACE = "namespace"  # the metadata key opencdc.collection
PHASE = "phase"  # copy | sync | complete
TIMESTAMP = "timestamp"  # the snapshot's batch time unless the source knows better
METADATA = "metadata"  # map<string,string>
KEY = "key"
BEFORE = "before"
AFTER = "after"

# Internal, between the stages of a batch.
OUTCOME = "_outcome"  # NULL = to be delivered; else which kind of line `_aside` holds
ASIDE = "_aside"  # JSON: a dead letter, or the counts of a Python stage
GIVEN = "_given"  # JSON: the record as its source gave it, where a later stage may need it
SKIP = "_skip"  # boolean: a row of a source that is no record, e.g. the header of a file
LINE = "_line"  # text: the payload as its source gave it, raw; instead of `_given` where nothing else is to be kept
ORDER = "_order"  # int: stretches of a strand follow each other by it, where partitions no longer do

# How Spark writes typed payloads as JSON: nothing is left out, nothing is cut off.
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}

COLUMNS = (SOURCE, SEQ, PART, POSITION, OPERATION, NAMESPACE, PHASE, TIMESTAMP, METADATA, KEY, BEFORE, AFTER)


class Shape(StrEnum):
    """What a payload column holds."""

    RAW = "raw"  # binary, untouched
    TYPED = "typed"  # a struct with a known schema
    OPEN = "open"  # JSON-like, for records that differ


class Outcome(StrEnum):
    """What became of a record at a destination. Nothing else exists."""

    DELIVERED = "delivered"
    FILTERED = "filtered"
    DEAD_LETTERED = "dead-lettered"
    DISCARDED = "discarded"
    PENDING = "pending"
