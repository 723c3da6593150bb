"""What `penstock log show` does: from which record to which, what was found on the way, and who is still listening.

Runs beside a writer and compaction; changes nothing.
"""

from __future__ import annotations

import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.cli.log_lines import Lines, full, json_item
from penstock.cli.log_records import Gone, Item, One, Wanted, everything, items, last
from penstock.cli.printer import err
from penstock.cli.shown import count
from penstock.errors import UsageError
from penstock.log import LogDamaged, Lost, Reader

LAST = 20  # records that are shown unless told otherwise
POLL = 0.1  # seconds


@contextmanager
def _noticed(interrupted: threading.Event) -> Iterator[None]:
    """Ctrl-C in the middle of a finalizer is lost, since Python has nobody to raise it to: it is written down as well."""

    def notice(*_: object) -> None:
        interrupted.set()
        raise KeyboardInterrupt

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else's, or deaf to it
        yield
        return
    signal.signal(signal.SIGINT, notice)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


class Show:
    """One run of `show`."""

    def __init__(self, reader: Reader, to: int | None, wanted: Wanted, *, full: bool, as_json: bool) -> None:
        self._reader, self._wanted = reader, wanted
        self._to = to
        self._full, self._json = full, as_json
        self._listener = Listener()
        self._interrupted = threading.Event()
        self._end = self._stop(reader.end)
        self._lines = Lines(max(0, self._end - 1))
        self._shown = 0
        self._begin = 0
        self._damage: Lost | None = None

    def _stop(self, end: int) -> int:
        return end if self._to is None else min(end, self._to + 1)

    def run(self, start: int | None, *, follow: bool) -> None:
        self._begin = self._first(start)
        try:
            with _noticed(self._interrupted):
                for item in self._items(self._begin, follow):
                    self._show(item)
                    if self._ends():
                        return
            self._lines.flush()
        except KeyboardInterrupt:
            if not follow:
                raise
            self._lines.flush()

    def _ends(self) -> bool:
        if self._interrupted.is_set():
            raise KeyboardInterrupt
        return self._listener.gone()

    def _first(self, start: int | None) -> int:
        if start is not None and start >= 0:
            return start
        return last(self._reader, LAST if start is None else -start, self._end, self._wanted)

    def _items(self, at: int, follow: bool) -> Iterator[Item]:
        end = self._end
        while True:
            yield from items(self._reader, at, end, self._wanted)
            at = max(at, end)
            if not follow or (self._to is not None and at > self._to):
                return
            self._lines.flush()
            while (end := self._stop(self._reader.end)) <= at:
                if self._ends():
                    return
                time.sleep(POLL)

    def _show(self, item: Item) -> None:
        self._shown += isinstance(item, One)
        if isinstance(item, Gone) and not item.repaired and self._damage is None:
            self._damage = item.lost
        if self._json:
            json_item(item)
        elif self._full:
            full(item)
        else:
            self._lines.add(item)

    def hint(self, start: int | None) -> None:
        """What there is besides."""
        if self._json:
            return
        first, end = self._reader.first, self._reader.end
        there = f"offsets {first}–{end - 1}" if end > first else "no records yet"
        if self._shown == 0:
            err(f"No records to show. The log has {there}.")
        elif start is None and self._begin > first:
            shown = f"the last {count(self._shown, 'record')}; the log has {there}"
            err(f"\n{shown}\n  more: --from {first}, --from X --to Y, --namespace REGEX, --follow")

    def fail(self) -> None:
        if (lost := self._damage) is not None:
            raise LogDamaged(
                lost.why, segment=lost.segment, position=lost.position, offset=lost.offset, count=lost.count
            )


def wanted(namespace: str | None) -> Wanted:
    if namespace is None:
        return everything
    try:
        found = re.compile(namespace)
    except re.error as error:
        raise UsageError(
            f"--namespace {namespace!r} is no regular expression",
            code="usage.regex",
            why=str(error),
            hint="signs such as ( * + ? [ have a meaning: put \\ before them, or leave them out",
        ) from None
    return lambda text: found.search(text) is not None


class Listener:
    """Whoever reads what is written. `head -1` goes away, and then there is nobody to write for."""

    def __init__(self) -> None:
        try:
            self._fd = sys.stdout.fileno()
        except (OSError, ValueError):  # no file: a test's
            self._fd = -1
        self._was = self._now()
        self._poll = select.poll()
        if self._fd >= 0:
            self._poll.register(self._fd, 0)

    def gone(self) -> bool:
        return self._now() != self._was or any(what & select.POLLERR for _, what in self._poll.poll(0))

    def _now(self) -> tuple[int, int]:
        """`write` puts /dev/null in the place of a pipe that is closed."""
        if self._fd < 0:
            return 0, 0
        found = os.fstat(self._fd)
        return found.st_dev, found.st_ino
