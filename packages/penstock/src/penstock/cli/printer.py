"""The one place that writes to the terminal. What people read goes to stderr, what programs read (`--json`) to stdout."""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any, TextIO

from penstock.errors import PenstockError
from penstock.secrets import Secrets
from penstock.summary import Summary


def print_error(error: PenstockError) -> None:
    print(printable(str(error)), file=sys.stderr)


def printable(text: str) -> str:
    """Nothing from a file name or a record may drive the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else "\N{REPLACEMENT CHARACTER}" for c in text)


class Printer:
    def __init__(self, *, as_json: bool) -> None:
        self._json = as_json
        self.secrets = Secrets()  # what connectors must not log

    def take_log(self) -> None:
        """What the engine and its connectors log goes to stderr, a line each."""
        handler = _LogLines(self)
        logger = logging.getLogger("penstock")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False

    def event(self, event: str, pipeline: str, source: str, details: dict[str, Any]) -> None:
        """Called from any thread of the engine; one line per event."""
        if self._json:
            self._line({"event": event, "pipeline": pipeline, "source": source, **details})
            return
        lane = f"{pipeline}/{source}: " if pipeline else ""
        text = _TEXTS.get(event, "{event}").format(event=event, **details)
        if text:
            _write(sys.stderr, lane + text)

    def summary(self, summary: Summary) -> None:
        if self._json:
            self._line(summary.to_json())
            return
        for p in summary.pipelines:
            print(f"\n{p.id}: {p.status.value} after {p.seconds:.1f} s", file=sys.stderr)
            for lane in p.lanes:
                rate = f", {lane.read / p.seconds:,.0f} records/s" if lane.read > p.seconds > 0 else ""
                print(f"  {lane.source}: {lane.read:,} read, {lane.acked:,} acked{rate}", file=sys.stderr)
                for name, n in lane.delivered.items():
                    counts = {
                        "filtered": lane.filtered,
                        "dead-lettered": lane.dead_lettered,
                        "discarded": lane.discarded,
                    }
                    shown = [f"{n:,} delivered", f"{lane.filtered.get(name, 0):,} filtered"]
                    if lane.produced.get(name):
                        shown.append(f"{lane.produced[name]:,} made by splitting")
                    shown += [f"{c[name]:,} {what}" for what, c in counts.items() if what != "filtered" and c.get(name)]
                    print(f"  {lane.source} → {name}: {', '.join(shown)}", file=sys.stderr)
                for held in lane.held:
                    print(printable(f"  {lane.source}: held at {held.id} ({held.node}: {held.error})"), file=sys.stderr)
                if lane.remaining:
                    r = lane.remaining
                    count = "an unknown number of" if r.records is None else f"{r.records:,}"
                    print(
                        f"  {lane.source}: {count} records in {r.files} files remain in {r.batches} unfinished batch(es);"
                        + (
                            " they wait for the one that is held"
                            if lane.held
                            else " they are delivered at the next start"
                        ),
                        file=sys.stderr,
                    )
            if p.error:
                print_error(p.error)

    def trace(self, summary: Summary) -> None:
        for p in summary.pipelines:
            if p.trace:
                print(p.trace, file=sys.stderr)

    def _line(self, value: dict[str, Any]) -> None:
        _write(sys.stdout, json.dumps(value))


class _LogLines(logging.Handler):
    def __init__(self, printer: Printer) -> None:
        super().__init__()
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        _write(sys.stderr, self._printer.secrets.hide(record.getMessage()).replace("\n", "\\n"))


def _write(stream: TextIO, text: str) -> None:
    """A reader that has gone away (`… | head`) is no reason to stop moving records."""
    try:
        print(printable(text), file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


_TEXTS = {
    "degraded": "{error}",
    "starting": "starting {what} …",
    "stopping": "stopping: the batch in flight is finished, for at most {deadline:.0f} s; once more stops at once",
    "snapshot": "",
    "batch": "batch {batch}: {records:,} records of {files} file(s) done, {filtered:,} of them filtered, {dead_lettered:,} dead-lettered",
    "warning": "batch {batch}: {records:,} records do not meet the rule of {processor!r} and went on",
    "recovery": "recovery: batch {batch} was {state}: {action}",
    "retry": "{error}\n  trying again in {seconds} s (try {try})",
    "halved": "batch {batch} is cut in halves: {why}",
    "lost": "batch {batch} was in flight and is lost: {records} records are counted as discarded (at most once)",
    "reread": "batch {batch} is taken anew: {why}",
}
