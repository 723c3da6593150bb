"""The plugin's side of a recorded conversation, on a socket, and the calls that make our host side play the other. A real gRPC server, with
raw bytes: it compares what it is sent with what the recorded host has sent, and answers with the recorded bytes or error.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from penstock_protocol import client
from penstock_protocol.handshake import Handshake
from penstock_protocol.interfaces import Ack, EndOfStream, PluginError, Specification
from penstock_protocol.pb.opencdc.v1.opencdc_pb2 import Record
from penstock_protocol.records import Records
from tests.support.replay import PATIENCE, Life, Step, Turns, same, status

GONE = {"UNAVAILABLE", "CANCELLED", "INTERNAL", "RESOURCE_EXHAUSTED"}


def as_ours(steps: Sequence[Step]) -> list[Step]:
    """The same life as our host lives it, where it differs on purpose: it runs what it has opened and nothing else, it ends a stream before
    it calls Teardown, and it sends no message that says nothing."""
    ours = [s for s in steps if s.data or s.kind != "send"]
    for service in ("SourcePlugin", "DestinationPlugin"):
        ours = _one_stream(ours, service)
    return ours


def _one_stream(steps: Sequence[Step], service: str) -> list[Step]:
    of_role = [s for s in steps if s.service == service]
    run = [s for s in of_role if s.name == "Run"]
    opened = next((s for s in of_role if s.kind == "answer" and s.name == "Open"), None)
    if opened is None or opened.status != "OK":
        return [s for s in steps if s not in run]
    if not run:
        run = [replace(opened, kind=kind, name="Run", data=b"") for kind in ("open", "close", "end")]
        place = steps.index(opened) + 1
        steps = [*steps[:place], run[0], *steps[place:]]
    end = next((s for s in run if s.kind == "end"), None)
    if end is not None and end.status != "CANCELLED" and not any(s.kind in ("close", "cancel") for s in run):
        return list(steps)  # the plugin has ended it
    teardown = [s for s in of_role if s.name == "Teardown"]
    before = [s for s in steps if s not in teardown and not (s in run and s.kind in ("close", "cancel", "end"))]
    if end is None or end.status == "CANCELLED" or end.error == "forceful teardown":
        return [*before, replace(run[0], kind="cancel"), *teardown]
    return [*before, replace(run[0], kind="close"), end, *teardown]


class FakePlugin(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers from a conversation."""

    def __init__(self, steps: Sequence[Step], socket: Path) -> None:
        self.turns = Turns(steps)
        self._server = grpc.server(
            ThreadPoolExecutor(8),
            options=[("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)],
        )
        self._server.add_generic_rpc_handlers((self,))
        self._server.add_insecure_port(f"unix:{socket}")
        self._server.start()

    def close(self) -> None:
        self._server.stop(None).wait()

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        method = details.method
        if method.endswith("/Run"):
            return grpc.stream_stream_rpc_method_handler(lambda requests, context: self._run(method, requests, context))
        return grpc.unary_unary_rpc_method_handler(lambda request, context: self._answer(method, request, context))

    def _answer(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if (call := self._take(method, "call")) is not None:
            self._compare(call, request)
        answer = self._take(method, "answer")
        assert answer is not None
        if answer.status != "OK":
            context.abort(status(answer.status), answer.error)
        return answer.data

    def _take(self, method: str, *kinds: str, unless: Callable[[], bool] = bool) -> Step | None:
        what = f"the turn of {' or '.join(kinds)} {method}"
        return self.turns.take(lambda s: s.kind in kinds and s.method == method, what, unless)

    def _compare(self, step: Step, got: bytes) -> None:
        if got != step.data and not same(step.parsed(got), step.decoded()):
            self.turns.problem(f"{step}: the host sent {step.parsed(got)!r}, recorded is {step.decoded()!r}")

    def _run(self, method: str, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        context.add_callback(self.turns.poke)
        self._take(method, "open")
        threading.Thread(target=self._requests, args=(method, requests), daemon=True).start()

        def cancelled() -> bool:
            return not context.is_active()

        while (step := self._take(method, "message", "end", unless=cancelled)) is not None:
            if step.kind == "message":
                yield step.data
            elif step.status == "OK":
                return
            else:
                context.abort(status(step.status), step.error)

    def _requests(self, method: str, requests: Iterator[bytes]) -> None:
        try:
            for request in requests:
                if (step := self._take(method, "send")) is not None:
                    self._compare(step, request)
            ways = ("close", "cancel")  # whoever cancels may close before
        except grpc.RpcError:
            ways = ("cancel", "cancel")
        current = self.turns.current()
        if current is not None and current.kind in ways and current.method == method:
            self._take(method, *ways)
        elif any(s.kind in ways and s.method == method for s in self.turns.steps):
            self.turns.problem(f"the host has ended its side where {current} was the next step")


@dataclass(slots=True)
class Heard:
    """What our host side has handed out."""

    outcomes: list[tuple[Step, Any]] = field(default_factory=list)  # of each single call: what it gave or raised
    records: list[Record] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
    end: PluginError | EndOfStream | None = None

    def has(self, count: int) -> bool:
        return len(self.records) + len(self.acks) >= count


class Drive:
    """Our host side makes the recorded host's calls, each in its turn."""

    def __init__(self, life: Life, folder: Path) -> None:
        socket = folder / "s"
        self.steps = as_ours(life.steps)
        self._plugin = FakePlugin(self.steps, socket)
        self._turns = self._plugin.turns
        self._channel = client.connect(Handshake(life.dialect.number, "unix", str(socket)))
        self._clients: dict[tuple[str, int], Any] = {}
        self._calls: dict[str, Future[Any]] = {}
        self._pool = ThreadPoolExecutor(4)
        self._readers: list[threading.Thread] = []
        self.heard = Heard()

    def close(self) -> None:
        self._turns.problem("it is over")
        self._channel.close()
        self._plugin.close()
        self._pool.shutdown()
        for reader in self._readers:
            reader.join(PATIENCE)

    def play(self) -> Heard:
        said = 0
        for place, step in enumerate(self.steps):
            if step.by_host:
                self._turns.reach(place)
                self._turns.wait(partial(self.heard.has, said), f"what comes before {step}")
                self._act(step)
            elif step.kind == "answer":
                self.heard.outcomes.append((step, self._outcome(step)))
            elif step.kind == "message":
                said += count(step)
        self._turns.reach(len(self.steps))
        if any(s.kind in ("end", "cancel") for s in self.steps):
            for reader in self._readers:
                reader.join(PATIENCE)
        assert not self._turns.problems, self._turns.problems
        return self.heard

    def _outcome(self, step: Step) -> Any:
        try:
            return self._calls.pop(step.method).result(PATIENCE)
        except PluginError as e:
            return e

    def _client(self, step: Step) -> Any:
        made = {
            "SpecifierPlugin": client.Specifier,
            "SourcePlugin": client.Source,
            "DestinationPlugin": client.Destination,
        }
        key = step.service, step.version
        if key not in self._clients:
            more = {"max_message": 64 << 20} if step.service == "DestinationPlugin" else {}
            self._clients[key] = made[step.service](self._channel, step.version, **more)
        return self._clients[key]

    def _act(self, step: Step) -> None:
        plugin = self._client(step)
        match step.kind:
            case "call":
                if step.method not in self._calls:  # else it is under way: the end of the stream is part of it
                    self._calls[step.method] = self._pool.submit(self._call, plugin, step)
            case "open":
                self._readers.append(threading.Thread(target=self._read, args=(plugin, step.service), daemon=True))
                self._readers[-1].start()
            case "send" if step.service == "SourcePlugin":
                message = step.decoded()
                plugin.ack(list(message.ack_positions) if step.version == 2 else [message.ack_position])
            case "send":
                plugin.write(Records(step.data))
            case "close" | "cancel":
                method = replace(step, name="Teardown").method
                patience = PATIENCE if step.kind == "close" else 0.0
                self._calls[method] = self._pool.submit(plugin.teardown, patience)

    def _call(self, plugin: Any, step: Step) -> Any:
        message = step.decoded()
        source = step.service == "SourcePlugin"
        match step.name:
            case "Specify":
                return plugin.specify()
            case "Configure":
                return plugin.configure(dict(message.config))
            case "Open":
                return plugin.open(message.position) if source else plugin.open()
            case "Stop":
                return plugin.stop() if source else plugin.stop(message.last_position)
            case "Teardown":
                return plugin.teardown()
            case "LifecycleOnCreated":
                return plugin.on_created(dict(message.config))
            case "LifecycleOnUpdated":
                return plugin.on_updated(dict(message.config_before), dict(message.config_after))
            case "LifecycleOnDeleted":
                return plugin.on_deleted(dict(message.config))
        raise AssertionError(f"our host has no {step.name}")

    def _read(self, plugin: Any, service: str) -> None:
        try:
            while True:
                if service == "SourcePlugin":
                    self.heard.records += plugin.read(PATIENCE)
                else:
                    self.heard.acks += plugin.acks(PATIENCE)
                self._turns.poke()
        except (PluginError, EndOfStream) as e:
            self.heard.end = e


def handed_out(step: Step) -> tuple[list[Record], list[Ack]]:
    """What a message from a plugin is to a host."""
    message = step.decoded()
    if step.service == "SourcePlugin":
        return (list(message.records) if step.version == 2 else [message.record]), []
    if step.version == 2:
        return [], [Ack(ack.position, ack.error) for ack in message.acks]
    return [], [Ack(message.ack_position, message.error)]


def count(step: Step) -> int:
    """How many records or acks are in a message."""
    records, acks = handed_out(step)
    return len(records) + len(acks)


def check(steps: Sequence[Step], heard: Heard) -> None:
    """What was handed out is what the recorded plugin has said."""
    for step, outcome in heard.outcomes:
        _check_outcome(step, outcome)
    said = [handed_out(step) for step in steps if step.kind == "message"]
    records, acks = [r for found, _ in said for r in found], [a for _, found in said for a in found]
    assert len(heard.records) == len(records)
    assert all(map(same, heard.records, records))
    assert heard.acks == acks
    for step in steps:
        if step.kind == "end":
            _check_end(step, heard.end)
        elif step.kind == "cancel":
            assert isinstance(heard.end, PluginError)
            assert heard.end.gone


def _check_outcome(step: Step, outcome: Any) -> None:
    if step.status == "OK" or (step.status == "UNIMPLEMENTED" and step.name.startswith("Lifecycle")):
        assert not isinstance(outcome, PluginError), f"{step}: {outcome}"
        if step.name == "Specify":
            _check_specification(step, outcome)
        elif step.name == "Stop" and step.service == "SourcePlugin":
            assert outcome == step.decoded().last_position
        return
    _check_error(step, outcome)


def _check_end(step: Step, end: PluginError | EndOfStream | None) -> None:
    if step.status == "OK":
        assert isinstance(end, EndOfStream), f"{step}: {end!r}"
    else:
        _check_error(step, end)


def _check_error(step: Step, outcome: Any) -> None:
    assert isinstance(outcome, PluginError), f"{step}: {outcome!r}"
    assert step.error in str(outcome)
    assert outcome.gone == (step.status in GONE), f"{step}: {outcome!r}"
    assert outcome.unimplemented == (step.status == "UNIMPLEMENTED")


def _check_specification(step: Step, found: Specification) -> None:
    message = step.decoded()
    recorded = message.specification if step.version == 2 else message
    for name in ("name", "version", "summary", "description", "author"):
        assert getattr(found, name) == getattr(recorded, name)
    for ours, theirs in ((found.source, recorded.source_params), (found.destination, recorded.destination_params)):
        assert set(ours) == set(theirs)
        for name, parameter in ours.items():
            assert (parameter.default, parameter.description) == (theirs[name].default, theirs[name].description)
            assert parameter.type == theirs[name].type
            assert [(v.type, v.value) for v in parameter.validations] == [
                (v.type, v.value) for v in theirs[name].validations
            ]
