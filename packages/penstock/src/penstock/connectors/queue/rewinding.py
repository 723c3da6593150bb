"""How far back a log can be read: what compaction has left, and which record was the first since a time."""

from __future__ import annotations

from penstock.errors import Stop
from penstock.log import Lost, Reader
from penstock.ranges import To


def whole_from(reader: Reader) -> int:
    """The oldest offset from which on nothing was compacted away."""
    start = end = reader.first
    for span in reader.spans(reader.first):
        if span.offset > end:
            start = span.offset
        end = span.offset + span.count
    return start


def offset_since(reader: Reader, oldest: int, time: int) -> int | None:
    """The first record that was appended at or after a time (ns since 1970); the end where there is none. None: records that are that
    young may have been compacted away."""
    for entry in reader.entries(oldest):
        if isinstance(entry, Lost) or entry.head.timestamp < time:
            continue
        return None if entry.head.offset <= oldest and oldest > 0 else max(entry.head.offset, oldest)
    return reader.end


def gone(source: str, to: To, oldest: int) -> Stop:
    return Stop(
        f"{source!r} can't go back to {to.text}",
        code="rewind.gone",
        why=f"records before offset {oldest:,} were delivered everywhere and compacted away; from there on the log has all",
        hint=f"--to {oldest} is as far as it goes in whole; --to beginning takes all that is still there",
    )


def ahead(source: str, to: To, taken: int) -> Stop:
    return Stop(
        f"{source!r} has not come to {to.text} yet",
        code="rewind.ahead",
        why=f"the next one to be read is {taken:,}: what is between would never be delivered",
        hint=f"go back to an offset up to {taken}",
    )
