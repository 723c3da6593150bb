"""The commit log: durable, replayable, with an offset per reader. What connector hosts append to, and queues and buffers are made of.

One `Writer`, any number of `Reader`s in any process, `Offsets` for what each of them has acknowledged, `compact` for what none of them
needs any more, `verify` and `repair` for disks that fail. No Spark. The bytes: docs/formats/commit-log.md.
"""

from penstock.log.compaction import Compacted, compact
from penstock.log.errors import LogDamaged, LogError, LogFull, LogLocked, LogUnwritable, LogVersion
from penstock.log.format import Mode, Span
from penstock.log.offsets import Offsets
from penstock.log.reader import Lost, Reader, Rows
from penstock.log.repair import Repaired, repair
from penstock.log.verify import Problem, Verified, verify
from penstock.log.writer import Writer

__all__ = [
    "Compacted",
    "LogDamaged",
    "LogError",
    "LogFull",
    "LogLocked",
    "LogUnwritable",
    "LogVersion",
    "Lost",
    "Mode",
    "Offsets",
    "Problem",
    "Reader",
    "Repaired",
    "Rows",
    "Span",
    "Verified",
    "Writer",
    "compact",
    "repair",
    "verify",
]
