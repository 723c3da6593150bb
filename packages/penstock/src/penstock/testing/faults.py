"""The one seam for tests: named points where a process can be killed, and safeguards that can be switched off.

Production code calls `reach(name)` at each point and asks `safeguard(name)` where a promise is kept. Both are a test of
a module variable, and nothing but a call of `install` from Python changes it: there is no environment variable, file or
setting, so a production run cannot be made unsafe from outside.

The names: K1 … K25 are the kill points of the contract; the others are listed in POINTS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

POINTS = {
    "K1": "before the snapshot",
    "K2": "after the snapshot, before the read",
    "K3": "before a split is recorded",
    "K4": "after a split, before its first half runs",
    "K6": "staged, not prepared",
    "K7": "prepared, not committed",
    "K6a": "between two renames of one delivery",
    "K8": "committed, not done",
    "K9": "in the dead-letter write",
    "K10": "before a prepare with nothing staged",
    "K10a": "after a prepare with nothing staged",
    "K11": "during recovery",
    "K12": "an entry of a log is about to be written",
    "K13": "entries of a log are written, not fsynced",
    "K14": "a segment of a log rolls; the detail is the step",
    "K15": "compaction is about to rename or remove; the detail is the file",
    "materialise": "the job that writes the processed batch starts",
    "stage": "a staging job starts",
    "outcome": "the batch is done, the handlers are being told",
    "skip": "a record that is to be skipped is a batch of its own, and not settled",
    "hold": "a delivery stopped at a record that closed the gate",
    "written": "a destination that can't stage was written",
    "send": "the rows of a delivery are about to be sent to a hosted destination",
    "sent": "they were sent, and the delivery is not done",
    "prepare": "the prepare transaction starts",
    "commit": "the commits start",
    "done": "the frontier is stored, the ack not sent",
    "ack": "the ack is being sent",
    "acked": "the ack was sent",
    "ledger": "a ledger transaction is about to commit; the detail is its name",
    "fsync": "a file or folder is about to be fsynced; the detail is its path",
}

SAFEGUARDS = {
    "staging": "what is staged is invisible until it is prepared",
    "receipt": "a delivery that the destination already holds is not made again",
    "roll-forward": "prepared work is committed as it was staged, never recomputed",
    "one-snapshot": "a retry runs the snapshot that is written down instead of taking a new one",
    "attempt-names": "every attempt stages under a name of its own",
    "ack-once": "the frontier is stored before the ack is sent",
    "prefix-ack": "a batch is acked only when everything before it is done",
    "fence": "a ledger write of an engine that was replaced is refused",
    "lock": "one engine per state folder, one writer per log",
    "epoch": "every new ledger starts at a random epoch, so hashes of another life never match",
    "version": "a state folder of a newer version is refused",
    "fsync": "what a prepare names is on disk before the ledger says so",
    "settle": "a file that is still being written is not taken",
    "unchanged": "a file is checked before and after it is read, and rows of a table are counted",
    "account": "a batch whose numbers do not add up is not prepared",
    "gate": "too many nacks stop the pipeline",
    "split": "a batch whose gate closed is cut before the record that closed it",
    "materialise": "what several destinations get is computed once",
    "nacks-with-prepare": "nacks are saved in the transaction that prepares the rest",
    "replayed-with-done": "a dead letter counts as replayed in the transaction that ends its batch",
    "dlq-decides": "a source is acked only when the dead letter queue has taken its dead letters",
    "isolate": "a batch that kills is cut in halves",
    "prepared-settings": "prepared work is finished with the settings it was prepared with",
    "settle-first": "at most once: the source is acked before the batch is processed",
    "outcome-first": "handlers are told of a batch before its source is acked",
    "drain": "a graceful stop finishes the batch in flight",
    "rehearse": "a plan is tried on no record before its source is touched",
    "redact": "a value that came by reference is shown as its reference",
    "log-crc": "an entry of a log is believed only if its checksums are right",
    "log-cut": "a torn tail of a log is cut off before anything is appended",
    "log-durable": "readers of a log see only what was fsynced",
    "log-evidence": "what was durable once is never taken for a torn tail",
    "resend": "what a source sends again is not logged again",
    "ack-after-commit": "a hosted source is acked when its records are settled, not when they are logged",
    "open-when-settled": "a hosted source is opened when everything in its log is settled",
    "high-water": "what a hosted destination has answered is not sent to it again",
    "newest-attempt": "of a task that runs twice only the newest attempt writes, and none beside another",
    "tail-again": "only a record that was refused as the first of a batch is bad",
    "compaction-hold": "compaction takes nothing away at or above the lowest pending offset",
    "compaction-last": "compaction keeps the last record of every namespace",
    "compaction-cover": "segments that were merged into another one are not read a second time",
    "offset-prefix": "a gap holds a reader's offset",
    "offset-forward": "an effective offset never goes back",
    "offset-members": "an ack covers exactly its own records",
    "offset-flush": "what was acked is written down at the flush interval",
    "offset-bound": "of what a reader has acked out of order only so much is written down",
    "lines-note": "`lines` appends a delivery that it holds already no second time",
    "read-back": "`queue` and `kafka` believe that a delivery is there only if its hash is at the place that was written down",
    "queue-tail": "`queue` appends only what the log does not have of a delivery that was begun",
    "delta-note": "`delta` commits a delivery that the table has already no second time",
    "delta-rules": "`delta` asks of every record whether it keeps the rules of the table",
    "postgres-note": "`postgres` moves a delivery that it holds already no second time",
    "kafka-fence": "`kafka` lets no writer begin whose try was replaced by a newer one",
    "kafka-tail": "`kafka` writes only what the topics do not have of a delivery that was begun",
    "trap": "an expression that raises costs one record, not the job",
}

_hook: Callable[[str, str], None] | None = None
_off: frozenset[str] = frozenset()


def reach(point: str, detail: str = "") -> None:
    """Called by production code at a named point. Free unless a test has installed a hook."""
    if _hook is not None:
        _hook(point, detail)


def safeguard(name: str) -> bool:
    """True unless a test has switched this safeguard off."""
    return name not in _off


def install(hook: Callable[[str, str], None] | None = None, off: Collection[str] = ()) -> None:
    """For tests: calls `hook(point, detail)` at every point and switches safeguards off. `install()` ends both."""
    global _hook, _off
    if unknown := set(off) - SAFEGUARDS.keys():
        raise ValueError(f"no such safeguard: {', '.join(sorted(unknown))}")
    _hook, _off = hook, frozenset(off)
