"""The events of a run in words, for people. Programs get them as they are (`--json`). Pure."""

from __future__ import annotations

from typing import Any

WAITED_FOR = 3  # lanes that are named when a stop waits for them

_TEXTS = {
    "degraded": "degraded: {error}",
    "starting": "starting {what} …",
    "warning": "batch {batch}: {records:,} records do not meet the rule of {processor!r} and went on",
    "recovery": "recovery: batch {batch} was {state}: {action}",
    "run-again": "recovery: batch {batch} was begun and not delivered; it runs again",
    "finish": "recovery: batch {batch} was prepared; it is finished as it is",
    "there": "recovery: batch {batch} was delivered to {destination!r} before the crash; not sent again",
    "not there": "recovery: batch {batch} was not delivered to {destination!r} before the crash; it is now, as it was prepared",
    "retry": "{error}; trying again in {seconds} s (try {try})",
    "halved": "batch {batch} is cut in halves: {why}",
    "lost": "batch {batch} was in flight and is lost: {records} records are counted as discarded (at most once)",
    "removed": "the connector was taken out of the pipeline: {what}",
    "skipped": "the record with seq {seq} is settled without being sent, as somebody wanted",
    "resent": "{records:,} records were sent again, because nobody knows whether they were written",
    "reread": "batch {batch} is taken anew: {why}",
    "stopped": "stopped by {by}; the others go on",
    "started": "started again by {by}",
    "no-control": "pipelines of this engine can't be stopped or started one by one: {why}",
}
_SILENT = ("snapshot", "batch")  # the table, and the line every few seconds, show these
_IDLE = ("waiting for input", "looking for input", "beginning")


def said(event: str, pipeline: str, source: str, details: dict[str, Any]) -> str:
    """What is said of an event, "" for nothing. One that is not known here is at least named."""
    if event in _SILENT:
        return ""
    if event == "stopping":
        return _stopping(**details)
    if event == "retry":
        details = {**details, "error": _short(details["error"])}
    if event == "recovery" and details["action"] in _TEXTS:
        event = details["action"]
    if event == "recovered":
        event = "there" if details["there"] else "not there"
    lane = "/".join(name for name in (pipeline, source) if name)
    text = _TEXTS.get(event, "{event}").format(event=event, **details)
    return f"{lane}: {text}" if lane else text


def _short(error: str) -> str:
    """On one line: it may come again and again. The whole of it is said if it is given up."""
    head, *rest = error.splitlines()
    why = next((line.strip().removeprefix("why: ") for line in rest if line.strip().startswith("why: ")), "")
    return f"{head}: {why}" if why else head


def _stopping(deadline: float, waiting_for: list[str] | None = None, **_: Any) -> str:
    busy = [lane for lane in waiting_for or () if not lane.endswith(_IDLE)]
    if not busy:
        return "stopping"
    more = len(busy) - WAITED_FOR
    lanes = "; ".join(busy[:WAITED_FOR]) + (f"; and {more} more" if more > 0 else "")
    return f"stopping: waiting at most {deadline:.0f} s for {lanes}\n  Ctrl-C again stops at once"
