"""The host's side: a plugin in another process, called as if it were in this one. Hides gRPC and the dialect.

Each stream has a thread that receives. What has arrived by the time somebody asks is given as one, however many messages it came in: a
plugin that sends single records costs its messages, not a round through everything behind them.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import grpc

from penstock_protocol.dialects import DIALECTS, Dialect
from penstock_protocol.handshake import DEFAULT_MAX_MESSAGE, Handshake
from penstock_protocol.interfaces import (
    Ack,
    DestinationPlugin,
    EndOfStream,
    PluginError,
    SourcePlugin,
    Specification,
    SpecifierPlugin,
)
from penstock_protocol.pb.plugin.plugin_pb2 import Empty, StdioData
from penstock_protocol.records import Records

if TYPE_CHECKING:
    from penstock_protocol.process import PluginProcess

HELD_BYTES = 16 << 20  # received and not asked for yet; then the plugin has to wait
WAITING = 64  # messages on their way to the plugin, at most
LINGER = 0.002  # seconds that a busy stream is left alone, so that what arrives meanwhile is given as one
SMALL = 64 << 10  # bytes, if no more have arrived: large messages need no joining
MANY = 1 << 10  # the same for answers, which somebody waits for
_END = object()


def connect(handshake: Handshake) -> grpc.Channel:
    """No limit on what we receive: a plugin's records are as large as they are."""
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    return grpc.insecure_channel(handshake.target, options=options)


def shut_down(channel: grpc.Channel, timeout: float) -> None:
    """The server ends while it answers: whatever it says is fine."""
    call = channel.unary_unary(
        "/plugin.GRPCController/Shutdown", Empty.SerializeToString, response_deserializer=Empty.FromString
    )
    try:
        call(Empty(), timeout=timeout)
    except grpc.RpcError:
        pass


def printed(channel: grpc.Channel) -> Iterator[bytes]:
    """What a plugin prints after the handshake, as far as it catches that itself: one that nobody listens to may come to wait."""
    call = channel.unary_stream(
        "/plugin.GRPCStdio/StreamStdio", Empty.SerializeToString, response_deserializer=StdioData.FromString
    )
    try:
        for found in call(Empty()):
            yield found.data
    except grpc.RpcError:
        return  # it has ended, or does not know the call


def error_of(error: grpc.RpcError) -> PluginError:
    """In the plugin's words, as far as it had any."""
    code = error.code() if isinstance(error, grpc.Call) else None
    text = (error.details() if isinstance(error, grpc.Call) else None) or str(code or error)
    if code is grpc.StatusCode.UNAVAILABLE:
        return PluginError(f"the plugin is gone: {text}", gone=True)
    gone = code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL, grpc.StatusCode.RESOURCE_EXHAUSTED)
    return PluginError(text, gone=gone, unimplemented=code is grpc.StatusCode.UNIMPLEMENTED)


class Specifier(SpecifierPlugin):
    def __init__(self, channel: grpc.Channel, dialect: int, timeout: float | None = None) -> None:
        self._channel, self._dialect, self._timeout = channel, DIALECTS[dialect], timeout

    def specify(self) -> Specification:
        specify = self._dialect.Specifier.Specify
        call = self._channel.unary_unary(
            self._dialect.method("SpecifierPlugin", "Specify"),
            specify.Request.SerializeToString,
            response_deserializer=specify.Response.FromString,
        )
        try:
            return self._dialect.specification(call(specify.Request(), timeout=self._timeout))
        except grpc.RpcError as e:
            raise error_of(e) from e


class _Client:
    """What sources and destinations have in common."""

    service: str
    process: PluginProcess | None = None  # whoever has started one for it says so

    @property
    def pid(self) -> int:
        return 0 if self.process is None else self.process.process.pid

    def __init__(self, channel: grpc.Channel, dialect: int, *, timeout: float | None = None) -> None:
        """`timeout`: seconds that a single call may take."""
        self._channel = channel
        self._dialect: Dialect = DIALECTS[dialect]
        self._timeout = timeout
        self._stream: _Stream | None = None

    @property
    def _role(self) -> Any:
        raise NotImplementedError

    def _call(self, name: str, **fields: Any) -> Any:
        message = self._dialect.message(self._role, name)
        call = self._channel.unary_unary(
            self._dialect.method(self.service, name),
            message.Request.SerializeToString,
            response_deserializer=message.Response.FromString,
        )
        try:
            return call(message.Request(**fields), timeout=self._timeout)
        except grpc.RpcError as e:
            raise error_of(e) from e

    def _run(self) -> _Stream:
        if self._stream is None:
            raise PluginError("it is not open")
        return self._stream

    def _begin(self) -> None:
        call = self._channel.stream_stream(self._dialect.method(self.service, "Run"), None, None)
        self._stream = _Stream(call)

    def configure(self, config: Mapping[str, str]) -> None:
        self._call("Configure", config=config)

    def finish(self, patience: float) -> bool:
        """Says that nothing more comes from us, and ends the stream. Whether the plugin has ended it by itself."""
        return self._stream is None or self._stream.close(patience)

    def teardown(self, patience: float = 5.0) -> None:
        """The stream is ended first: a plugin waits for that."""
        self.finish(patience)
        self._call("Teardown")

    def _lifecycle(self, name: str, **fields: Any) -> None:
        """A plugin that does not know these calls has nothing to do then."""
        try:
            self._call(name, **fields)
        except PluginError as e:
            if not e.unimplemented:
                raise

    def on_created(self, config: Mapping[str, str]) -> None:
        self._lifecycle("LifecycleOnCreated", config=config)

    def on_updated(self, before: Mapping[str, str], after: Mapping[str, str]) -> None:
        self._lifecycle("LifecycleOnUpdated", config_before=before, config_after=after)

    def on_deleted(self, config: Mapping[str, str]) -> None:
        self._lifecycle("LifecycleOnDeleted", config=config)


class Source(_Client, SourcePlugin):
    service = "SourcePlugin"

    @property
    def _role(self) -> Any:
        return self._dialect.Source

    def open(self, position: bytes) -> None:
        self._call("Open", position=position)
        self._begin()

    def read(self, timeout: float) -> Records:
        return Records(b"".join(self._run().receive(timeout)))

    def ack(self, positions: Sequence[bytes]) -> None:
        for request in self._dialect.ack_requests(positions):
            self._run().send(request.SerializeToString())

    def stop(self) -> bytes:
        return bytes(self._call("Stop").last_position)


class Destination(_Client, DestinationPlugin):
    service = "DestinationPlugin"

    def __init__(
        self,
        channel: grpc.Channel,
        dialect: int,
        *,
        timeout: float | None = None,
        max_message: int = DEFAULT_MAX_MESSAGE,
    ) -> None:
        """`max_message`: what the plugin was told that it has to take."""
        super().__init__(channel, dialect, timeout=timeout)
        self._most = max_message

    @property
    def _role(self) -> Any:
        return self._dialect.Destination

    def open(self) -> None:
        self._call("Open")
        self._begin()

    def write(self, records: Records) -> None:
        for message in self._dialect.record_messages(records, self._most):
            if message:  # a message without records ends some plugins
                self._run().send(message)

    def acks(self, timeout: float) -> Sequence[Ack]:
        response = self._role.Run.Response
        return self._dialect.acks(response.FromString(data) for data in self.received(timeout))

    def received(self, timeout: float) -> Sequence[bytes]:
        """The same as the messages that came, for those who know what they expect."""
        return self._run().receive(timeout, MANY)

    def acks_in(self, message: bytes) -> Sequence[Ack]:
        return self._dialect.acks([self._role.Run.Response.FromString(message)])

    def stop(self, position: bytes) -> None:
        self._call("Stop", last_position=position)


class _Stream:
    """A stream of both directions, of messages as bytes."""

    def __init__(self, call: Callable[[Iterator[bytes]], Any]) -> None:
        self._outgoing: queue.Queue[Any] = queue.Queue(WAITING)
        self._arrived: deque[bytes] = deque()
        self._held = 0
        self._taken = 0.0  # when something was, the last time
        self._ended: PluginError | EndOfStream | None = None
        self._changed = threading.Condition()
        self._closed = False
        self._call = call(self._requests())
        self._receiver = threading.Thread(target=self._receive, name="plugin stream", daemon=True)
        self._receiver.start()

    def _requests(self) -> Iterator[bytes]:
        while (message := self._outgoing.get()) is not _END:
            yield message

    def _receive(self) -> None:
        ended: PluginError | EndOfStream = EndOfStream()
        try:
            for message in self._call:
                with self._changed:
                    while self._held > HELD_BYTES and not self._closed:
                        self._changed.wait()
                    self._arrived.append(message)
                    self._held += len(message)
                    if len(self._arrived) == 1:  # else nobody waits for it
                        self._changed.notify_all()
        except grpc.RpcError as e:
            ended = error_of(e)
        with self._changed:
            self._ended = ended
            self._changed.notify_all()

    def receive(self, timeout: float, enough: int = SMALL) -> list[bytes]:
        """Everything that is there. What came before an error is given first. `enough`: bytes for which nobody waits for more."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived or self._ended is not None, timeout)
            if self._arrived and time.monotonic() - self._taken < 10 * LINGER and self._held < enough:
                # One by one they would cost a round of threads each: 3,400 records/s at one in a message, not 26,000.
                self._changed.wait_for(lambda: self._ended is not None, LINGER)
            if not self._arrived and self._ended is not None:
                raise self._ended
            self._taken = time.monotonic() if self._arrived else self._taken
            taken = list(self._arrived)
            self._arrived.clear()
            self._held = 0
            self._changed.notify_all()
            return taken

    def send(self, message: bytes) -> None:
        """Waits while the plugin does not take anything."""
        while True:
            if self._ended is not None:
                raise (
                    self._ended
                    if isinstance(self._ended, PluginError)
                    else PluginError("its stream has ended", gone=True)
                )
            try:
                self._outgoing.put(message, timeout=0.1)
            except queue.Full:
                continue
            return

    def close(self, patience: float) -> bool:
        """Nothing more from us; then the plugin ends it (True), or we do."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        try:
            self._outgoing.put(_END, timeout=patience)
        except queue.Full:
            pass
        self._receiver.join(patience)
        ended = not self._receiver.is_alive()
        self._call.cancel()
        self._receiver.join()
        return ended
