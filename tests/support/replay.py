"""What public connectors and their host said to each other, as conversations: the recordings, cut into the lives of plugin processes and
those into steps. `replay_host` and `replay_sdk` play one side of a conversation; tests play the other with our own code.

A step happens only when all steps before it have: both sides go by one `Turns`, so that a replay takes no longer than its messages.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from penstock_protocol.dialects import DIALECTS, Dialect
from penstock_protocol.pb.opencdc.v1.opencdc_pb2 import OPERATION_CREATE, Change, Data, Record
from penstock_protocol.records import Records

RECORDINGS = Path(__file__).parents[3] / "shared" / "vectors" / "wire"
PATIENCE = 20.0  # seconds that a replay waits for a step that does not come; a good one never waits

needs_recordings = pytest.mark.skipif(not RECORDINGS.is_dir(), reason=f"the recordings are missing: {RECORDINGS}")


@dataclass(frozen=True, slots=True)
class Step:
    """`kind`: call and answer (of a single call), open, send, close, cancel (the host's side of the stream), message and end (the
    plugin's)."""

    kind: str
    service: str  # SourcePlugin …
    name: str  # Configure, Open (also for Start), Run …
    data: bytes = b""
    status: str = "OK"
    error: str = ""
    version: int = 2  # of the dialect

    @property
    def by_host(self) -> bool:
        return self.kind in ("call", "open", "send", "close", "cancel")

    @property
    def method(self) -> str:
        return DIALECTS[self.version].method(self.service, self.name)

    def decoded(self) -> Any:
        """Its message."""
        return self.parsed(self.data)

    def parsed(self, data: bytes) -> Any:
        """Another one of the same kind."""
        dialect = DIALECTS[self.version]
        pair = dialect.message(getattr(dialect, self.service.removesuffix("Plugin")), self.name)
        return (pair.Request if self.by_host else pair.Response).FromString(data)

    def __str__(self) -> str:
        return f"{self.kind} {self.service}/{self.name} {self.status if self.kind in ('answer', 'end') else ''}".strip()


@dataclass(frozen=True, slots=True)
class Life:
    """One plugin process from its start to its end."""

    dialect: Dialect
    steps: Sequence[Step]
    environment: Mapping[str, str]
    arguments: Sequence[str]
    connector: str
    printed: Sequence[str]  # on stdout
    said: Sequence[str]  # on stderr
    exit_code: int | None

    def of(self, *kinds: str) -> list[Step]:
        return [step for step in self.steps if step.kind in kinds]

    def roles(self) -> set[str]:
        return {step.service for step in self.steps}


@dataclass(slots=True)
class Scenario:
    name: str
    file: str
    events: list[dict[str, Any]] = field(default_factory=list)

    def lives(self) -> list[Life]:
        """Each plugin process of it; most have one."""
        processes: dict[int, list[dict[str, Any]]] = {}
        for event in self.events:
            processes.setdefault(event.get("process", 0), []).append(event)
        return [_life(events) for events in processes.values()]

    def methods(self) -> set[str]:
        return {event["method"] for event in self.events}


@cache
def scenarios() -> Mapping[str, Scenario]:
    """All of them by name; empty where there are no recordings."""
    found: dict[str, Scenario] = {}
    for path in sorted(RECORDINGS.glob("*.jsonl")):
        for line in path.open():
            event = json.loads(line)
            scenario = found.setdefault(event["scenario"], Scenario(event["scenario"], path.name))
            assert scenario.file == path.name, f"{scenario.name} is in two files"
            scenario.events.append(event)
    return found


def _life(events: Sequence[dict[str, Any]]) -> Life:
    start = next(event for event in events if event["method"] == "process")
    printed = [event.get("line") or event.get("text", "") for event in events if event["method"] == "stdout"]
    printed = [text for text in printed if text]
    number = int(printed[0].split("|")[1]) if printed and printed[0].startswith("1|") else 2
    said = [event.get("line", "") for event in events if event["method"] == "stderr"]
    code = next((event["code"] for event in events if event["method"] == "exit"), None)
    steps = tuple(_steps(events))
    arguments = start.get("args", [])
    return Life(DIALECTS[number], steps, start["env"], arguments, start["connector"], printed, said, code)


def _steps(events: Sequence[dict[str, Any]]) -> Iterator[Step]:
    running = 0
    for event in events:
        if not event["method"].startswith("/connector."):
            continue  # its output, its end, schemas, what go-plugin serves besides
        service, name = event["method"].split(".")[-1].split("/")
        kind = _kind(event, name)
        running += (kind == "open") - (kind == "end")
        if kind in ("send", "close", "cancel") and not running:
            continue  # the stream has ended before: nobody sees that
        yield Step(
            kind,
            service,
            "Open" if name == "Start" else name,
            _data(event),
            event.get("grpc_status", "OK"),
            event.get("error", ""),
            int(event["method"][len("/connector.v")]),
        )


def _kind(event: Mapping[str, Any], name: str) -> str:
    note = event.get("note")
    by_host = event["direction"] == "host→plugin"
    if name != "Run":
        return "call" if by_host else "answer"
    if not by_host:
        return "end" if note == "stream ended" else "message"
    notes = {"stream opened": "open", "half-close": "close"}
    return "send" if note is None else notes.get(note, "cancel")


def _data(event: Mapping[str, Any]) -> bytes:
    """A message over 200 kB was not kept, only its size: one of that size stands for it."""
    if "size" not in event:
        return base64.b64decode(event.get("bytes", ""))
    return large(event["size"])


def large(size: int) -> bytes:
    """A message with one record, of so many bytes."""
    length = size - 100
    for _ in range(2):  # what comes on top of the payload is known only then
        payload = Change(after=Data(raw_data=b"x" * length))
        data = Records.of([Record(position=b"p1", operation=OPERATION_CREATE, payload=payload)]).data
        length += size - len(data)
    assert len(data) == size
    return data


def same(one: Message, other: Message) -> bool:
    """Not by ==: NaN is in some of them, and there it counts."""
    return one.SerializeToString(deterministic=True) == other.SerializeToString(deterministic=True)


def status(name: str) -> grpc.StatusCode:
    return grpc.StatusCode[name]


class Turns:
    """Whose turn it is. What goes wrong on one side ends the waiting on the other."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.problems: list[str] = []
        self._at = 0
        self._changed = threading.Condition()

    def current(self) -> Step | None:
        return self.steps[self._at] if self._at < len(self.steps) else None

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(lambda: ready() or self.problems, PATIENCE):
                self.problems.append(f"{what} did not come: the turn is with step {self._at}, {self.current()}")
                self._changed.notify_all()
            if self.problems:
                raise AssertionError("; ".join(self.problems))

    def reach(self, place: int) -> None:
        """Waits until everything before this step has happened."""
        what = str(self.steps[place]) if place < len(self.steps) else "the end"
        self.wait(lambda: self._at >= place, what)

    def take(self, wanted: Callable[[Step], bool], what: str, unless: Callable[[], bool] = bool) -> Step | None:
        """Waits for the turn of such a step; it has happened when this returns. None if `unless` comes first."""

        def ready() -> bool:
            return (step := self.current()) is not None and wanted(step)

        self.wait(lambda: ready() or unless(), what)
        with self._changed:
            if not ready():
                return None
            step = self.current()
            self._at += 1
            self._changed.notify_all()
            return step

    def pause(self, seconds: float) -> None:
        """Until something happens, at most so long."""
        with self._changed:
            self._changed.wait(seconds)

    def problem(self, text: str) -> None:
        with self._changed:
            self.problems.append(text)
            self._changed.notify_all()

    def poke(self) -> None:
        """Something that others wait for has changed, besides the turn."""
        with self._changed:
            self._changed.notify_all()
