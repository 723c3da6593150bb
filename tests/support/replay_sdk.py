"""The host's side of a recorded conversation, and a connector on our SDK that does what the recorded one did: gives its records, acks and
refuses what it acked and refused, and fails with its words. Our SDK is between the two, served on a socket as in a program.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

import grpc

from penstock_protocol import client, handshake, server
from penstock_protocol.dialects import DIALECTS
from penstock_protocol.handshake import Handshake
from penstock_protocol.interfaces import Ack, Parameter, Specification
from penstock_sdk import Batch, Context, Destination, Record, Rejected, Settings, Source
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.foreign import parse_parameters
from penstock_sdk.problems import Problem, SettingsError
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.wire import from_wire
from tests.support.replay import PATIENCE, Life, Step, scenarios
from tests.support.replay_host import count, handed_out

PREFIXES = {"read": "read plugin error: ", "ack": "ack plugin error: "}


class Script:
    """What the connector does, and how far it may go: the fake host says when a message is due."""

    def __init__(self, life: Life) -> None:
        said = [handed_out(step) for step in life.of("message")]
        self.batches = [[from_wire(record) for record in records] for records, _ in said]
        self.acks = [ack for _, acks in said for ack in acks]
        self.errors = {step.name: step.error for step in life.of("answer") if _by_connector(step)}
        self.end = next((step.error for step in life.of("end") if step.status == "UNKNOWN"), "")
        self.panics = next((step for step in life.of("answer", "end") if step.status == "UNAVAILABLE"), None)
        self._given = self._due = 0
        self._ending = False
        self._changed = threading.Condition()

    def due(self, messages: int, *, ending: bool = False) -> None:
        """So many messages may have been sent by now. `ending`: then the stream fails, if it does."""
        with self._changed:
            self._due, self._ending = max(self._due, messages), self._ending or ending
            self._changed.notify_all()

    def read(self, timeout: float) -> Sequence[Record]:
        with self._changed:
            self._changed.wait_for(lambda: self._given < self._due or self._ending, timeout)
            if self._given < self._due:
                return self._next()
            if self._ending:
                self.fail("read", self.end)
                if self.end.startswith("read stream error: "):
                    return [Record({"pause": timedelta(1)}, position=b"x")]  # there is no form for it on the wire
        return ()

    def rest(self) -> Sequence[Record]:
        with self._changed:
            return self._next() if self._given < len(self.batches) else ()

    def _next(self) -> Sequence[Record]:
        self._given += 1
        return self.batches[self._given - 1]

    def fail(self, method: str, error: str) -> None:
        prefix = PREFIXES[method]
        if error.startswith(prefix):
            raise ValueError(error.removeprefix(prefix))
        if self.panics is not None and self.panics.kind == "end":
            raise RuntimeError("panic")

    def call(self, name: str) -> None:
        if name in self.errors:
            raise ValueError(self.errors[name])
        if self.panics is not None and self.panics.name == name:
            raise RuntimeError("panic")


def _by_connector(step: Step) -> bool:
    """In its own words: the SDK's are about states."""
    return step.status == "UNKNOWN" and not step.error.startswith("expected connector state")


@cache
def specifications() -> Mapping[str, Specification]:
    """As recorded, by the name of the connector."""
    found = {}
    for name, scenario in scenarios().items():
        if name.startswith("specify-") and name.endswith("-v2"):
            (life,) = scenario.lives()
            answer = life.of("answer")[0]
            found[life.connector] = DIALECTS[2].specification(answer.decoded())
    return found


def served(life: Life, script: Script) -> server.Served:
    """The connector as our SDK serves it, with the recorded specification. What the recorded one lacked, it lacks."""
    specification = specifications()[life.connector]
    source = _played(_Source, script, specification.source)
    destination = _played(_Destination, script, specification.destination)
    return server.Served(
        specification,
        partial(SourceAdapter, source, Context()) if specification.source else None,
        partial(DestinationAdapter, destination, Context()) if specification.destination else None,
    )


def _played(base: type[Any], script: Script, declared: Mapping[str, Parameter]) -> type[Any]:
    kind = type("Played", (base,), {"script": script})
    kind.settings_type = _settings(declared, script)  # type: ignore[attr-defined]
    return kind


def _settings(declared: Mapping[str, Parameter], script: Script) -> type[Settings]:
    """The recorded parameters; what they don't say (chaos refuses what it is told to) comes from the script."""

    class Recorded(Settings):
        @classmethod
        def parse(cls, config: Mapping[str, str]) -> Any:
            if problems := parse_parameters(declared, config):
                raise SettingsError(problems)
            if "Configure" in script.errors:
                raise SettingsError([Problem("", script.errors["Configure"])])
            script.call("Configure")
            return cls

    return Recorded


class _Source(Source[Settings]):
    script: ClassVar[Script]

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        self.script.call("Open")

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        return self.script.read(timeout)

    def drain(self) -> Sequence[Record]:
        return self.script.rest()

    def ack(self, positions: Sequence[bytes]) -> None:
        self.script.fail("ack", self.script.end)

    def close(self) -> None:
        self.script.call("Teardown")


class _Destination(Destination[Settings]):
    script: ClassVar[Script]

    def open(self) -> None:
        self.script.call("Open")
        self._left: Iterator[Ack] = iter(self.script.acks)

    def write(self, batch: Batch) -> None:
        if self.script.panics is not None:
            raise RuntimeError("panic")
        answers = [next(self._left, Ack(b"")) for _ in batch]  # the rest was cut off by the host's end
        if bad := {i: ack.error for i, ack in enumerate(answers) if ack.error}:
            raise Rejected(bad)

    def close(self) -> None:
        self.script.call("Teardown")


class _Line(io.StringIO):
    """Where the handshake is printed to."""

    def __init__(self) -> None:
        super().__init__()
        self.printed = threading.Event()

    def flush(self) -> None:
        if self.getvalue():
            self.printed.set()


@dataclass(slots=True)
class Answered:
    """What our SDK has said, beside what was recorded."""

    outcomes: list[tuple[Step, str, str, bytes]] = field(default_factory=list)  # step, status, text, message
    messages: list[bytes] = field(default_factory=list)
    ends: list[tuple[Step, str, str]] = field(default_factory=list)  # of each stream


class FakeHost:
    """Sends what the recorded host has sent, in its order, and waits for each answer where there was one."""

    def __init__(self, life: Life, folder: Path, steps: Sequence[Step] | None = None) -> None:
        self.script = Script(life)
        self.steps = life.steps if steps is None else steps
        line = _Line()
        environment = {**life.environment, handshake.SOCKETS: str(folder)}
        self.code: list[int] = []
        self._thread = threading.Thread(
            target=lambda: self.code.append(server.serve(served(life, self.script), environment, line)), daemon=True
        )
        self._thread.start()
        assert line.printed.wait(PATIENCE), "no handshake"
        self.handshake = Handshake.parse(line.getvalue())
        self._channel = client.connect(self.handshake)
        self._pool = ThreadPoolExecutor(4)
        self._calls: dict[str, Any] = {}
        self._streams: list[_Stream] = []
        self.answered = Answered()

    def close(self) -> None:
        client.shut_down(self._channel, PATIENCE)
        self._channel.close()
        self._thread.join(PATIENCE)
        self._pool.shutdown()
        assert self.code == [0]

    def play(self) -> Answered:
        messages = 0
        for place, step in enumerate(self.steps):
            if step.kind == "message":
                messages += 1
                self.script.due(messages)
                self._streams[-1].wait(count(step))
            elif step.kind == "answer":
                self.answered.outcomes.append((step, *self._outcome(step)))
            elif step.kind == "end":
                self.script.due(messages, ending=step.status != "CANCELLED")
                stream = self._streams.pop()  # of two, the second one ends first
                if step.status == "CANCELLED":
                    stream.cancel()
                self._over(step, stream)
            elif step.kind == "cancel":
                rest = [s for s in self.steps[place:] if s.kind == "message"]  # they were on their way
                self.script.due(messages + len(rest))
                self._streams[-1].wait(sum(map(count, rest)), ahead=True)
                self._streams[-1].cancel()
            else:
                self._act(step)
        for stream in self._streams:
            stream.cancel()
            self.answered.messages += stream.messages
        return self.answered

    def _over(self, step: Step, stream: _Stream) -> None:
        self.answered.ends.append((step, *stream.ended()))
        self.answered.messages += stream.messages

    def _act(self, step: Step) -> None:
        match step.kind:
            case "call":
                call = self._channel.unary_unary(step.method)
                self._calls[step.method] = self._pool.submit(call, step.data, timeout=PATIENCE)
            case "open":
                self._streams.append(_Stream(self._channel, step))
            case "send":
                self._streams[-1].send(step.data)
            case "close":
                self._streams[-1].send(None)

    def _outcome(self, step: Step) -> tuple[str, str, bytes]:
        try:
            return "OK", "", self._calls.pop(step.method).result(PATIENCE)
        except grpc.RpcError as e:
            return _ended(e)


def _ended(error: grpc.RpcError) -> tuple[str, str, bytes]:
    assert isinstance(error, grpc.Call)
    return error.code().name, error.details() or "", b""


class _Stream:
    """A stream of raw messages that counts what comes."""

    def __init__(self, channel: grpc.Channel, step: Step) -> None:
        self._step = step
        self._changed = threading.Condition()
        self._outgoing: list[bytes | None] = []
        self.messages: list[bytes] = []
        self._said = self._wanted = 0
        self._end: tuple[str, str] | None = None
        self._call = channel.stream_stream(step.method)(self._requests())
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _requests(self) -> Iterator[bytes]:
        sent = 0
        while True:
            with self._changed:
                self._changed.wait_for(lambda at=sent: len(self._outgoing) > at or self._end is not None)  # type: ignore[misc]
                if self._end is not None or (message := self._outgoing[sent]) is None:
                    return
            sent += 1
            yield message

    def _receive(self) -> None:
        end = "OK", ""
        try:
            for data in self._call:
                message = Step("message", self._step.service, "Run", data, version=self._step.version)
                with self._changed:
                    self.messages.append(data)
                    self._said += count(message)
                    self._changed.notify_all()
        except grpc.RpcError as e:
            end = _ended(e)[:2]
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def send(self, message: bytes | None) -> None:
        with self._changed:
            self._outgoing.append(message)
            self._changed.notify_all()

    def wait(self, more: int, *, ahead: bool = False) -> None:
        """Until so many more records or acks have come than were waited for before. `ahead`: they will be waited for again."""
        wanted = self._wanted + more
        self._await(lambda: self._said >= wanted, f"{wanted} records or acks")
        if not ahead:
            self._wanted = wanted

    def ended(self) -> tuple[str, str]:
        self._await(lambda: self._end is not None, "the end of the stream")
        assert self._end is not None
        return self._end

    def cancel(self) -> None:
        self._call.cancel()
        self._thread.join(PATIENCE)

    def _await(self, ready: Callable[[], bool], what: str) -> None:
        with self._changed:
            came = self._changed.wait_for(lambda: ready() or self._end is not None, PATIENCE)
        assert came, f"{what} did not come"
        assert ready(), f"{what} did not come: the stream has ended with {self._end}"
