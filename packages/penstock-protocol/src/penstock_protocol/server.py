"""The plugin's side: serves a connector to whichever host has started this process. Hides gRPC, the dialect and the handshake.

`serve` is the whole life of a plugin program: it prints the handshake, serves one role, and returns when the host says so.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import grpc
from google.protobuf.message import DecodeError

from penstock_protocol import handshake as names
from penstock_protocol.dialects import DIALECTS, UNARY, Dialect
from penstock_protocol.handshake import Handshake
from penstock_protocol.interfaces import (
    DestinationPlugin,
    EndOfStream,
    PluginError,
    SourcePlugin,
    Specification,
)
from penstock_protocol.records import Records

POLL = 0.2  # seconds after which a stream looks whether its host is still there
THREADS = 16
GRACE = 1.0  # seconds for calls that are under way at the end
_SERVING = b"\x08\x01"  # of grpc.health.v1.HealthCheckResponse
_USAGE = """This is a connector: a plugin that is started by a host, not by hand.
A host finds it in its folder of plugins. To test it: penstock connector test {program}
"""


@dataclass(frozen=True, slots=True)
class Served:
    """A connector. What it does not have is None; source and destination are made when a host asks for them."""

    specification: Specification
    source: Callable[[], SourcePlugin] | None = None
    destination: Callable[[], DestinationPlugin] | None = None


def serve(served: Served, environment: Mapping[str, str] | None = None, out: TextIO | None = None) -> int:
    """Until the host ends it. The exit code."""
    environment = os.environ if environment is None else environment
    if environment.get(names.COOKIE) != names.COOKIE_VALUE:
        sys.stderr.write(_USAGE.format(program=Path(sys.argv[0]).name))
        return 1
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the host, though the terminal sends it to both
    with tempfile.TemporaryDirectory(prefix="plugin", dir=environment.get(names.SOCKETS) or None) as folder:
        ended = threading.Event()
        number = names.dialect(environment)
        server = _server(served, DIALECTS[number], names.max_message(environment), ended)
        address = str(Path(folder) / "socket")
        server.add_insecure_port(f"unix:{address}")
        server.start()
        stream = sys.stdout if out is None else out
        stream.write(Handshake(number, "unix", address).line() + "\n")
        stream.flush()
        ended.wait()
        server.stop(GRACE).wait()
    return 0


def _server(served: Served, dialect: Dialect, most: int, ended: threading.Event) -> grpc.Server:
    options = [("grpc.max_receive_message_length", most), ("grpc.max_send_message_length", -1)]
    server = grpc.server(ThreadPoolExecutor(THREADS, "plugin"), options=options)
    v = dialect.number
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler(f"connector.v{v}.SpecifierPlugin", _specifier(served, dialect)),
            grpc.method_handlers_generic_handler(
                f"connector.v{v}.SourcePlugin", _Role(served.source, dialect, dialect.Source, _source).handlers()
            ),
            grpc.method_handlers_generic_handler(
                f"connector.v{v}.DestinationPlugin",
                _Role(served.destination, dialect, dialect.Destination, _destination).handlers(),
            ),
            *_besides(ended),
        )
    )
    return server


def _besides(ended: threading.Event) -> Iterator[Any]:
    """What every plugin of this kind serves: its health, its output (ours goes the ordinary way), and an end."""

    def check(_: bytes, __: grpc.ServicerContext) -> bytes:
        return _SERVING

    def shutdown(_: bytes, __: grpc.ServicerContext) -> bytes:
        ended.set()
        return b""

    def nothing(_: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
        while context.is_active() and not ended.wait(POLL):
            pass
        yield from ()

    yield grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health", {"Check": grpc.unary_unary_rpc_method_handler(check)}
    )
    yield grpc.method_handlers_generic_handler(
        "plugin.GRPCController", {"Shutdown": grpc.unary_unary_rpc_method_handler(shutdown)}
    )
    yield grpc.method_handlers_generic_handler(
        "plugin.GRPCStdio", {"StreamStdio": grpc.unary_stream_rpc_method_handler(nothing)}
    )
    yield grpc.method_handlers_generic_handler(
        "plugin.GRPCBroker", {"StartStream": grpc.stream_stream_rpc_method_handler(nothing)}
    )


def _specifier(served: Served, dialect: Dialect) -> dict[str, Any]:
    specify = dialect.Specifier.Specify

    def answer(_: Any, __: grpc.ServicerContext) -> Any:
        return dialect.specify(served.specification)

    return {
        "Specify": grpc.unary_unary_rpc_method_handler(
            answer, specify.Request.FromString, specify.Response.SerializeToString
        )
    }


class _Role:
    """The calls of a source or of a destination, and the one plugin that they are for."""

    def __init__(
        self,
        make: Callable[[], Any] | None,
        dialect: Dialect,
        role: Any,
        run: Callable[[Any, Dialect, Iterator[bytes], grpc.ServicerContext], Iterator[bytes]],
    ) -> None:
        self._make, self._dialect, self._role, self._run_with = make, dialect, role, run
        self._plugin: Any = None
        self._running = False
        self._making = threading.Lock()

    def handlers(self) -> dict[str, Any]:
        made = {self._dialect.method("", call).rsplit("/", 1)[1]: self._unary(call) for call in UNARY}
        made["Run"] = grpc.stream_stream_rpc_method_handler(self._run)
        return made

    def _get(self) -> Any:
        with self._making:
            if self._plugin is None:
                if self._make is None:
                    raise PluginError("the connector does not have this role")
                self._plugin = self._make()
            return self._plugin

    def _begun(self) -> Any:
        """For its one stream."""
        with self._making:
            again, self._running = self._running, True
        if again:
            raise PluginError("its stream was opened before")
        return self._get()

    def _unary(self, call: str) -> Any:
        message = self._dialect.message(self._role, call)

        def answer(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                fields = _CALLS[call](self._get(), request)
            except Exception as e:
                context.abort(grpc.StatusCode.UNKNOWN, _text(e))
            return message.Response(**(fields or {}))

        return grpc.unary_unary_rpc_method_handler(
            answer, message.Request.FromString, message.Response.SerializeToString
        )

    def _run(self, requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        try:
            yield from self._run_with(self._begun(), self._dialect, requests, context)
        except EndOfStream:
            return
        except _Malformed as e:
            context.abort(grpc.StatusCode.INTERNAL, str(e))
        except Exception as e:
            context.abort(grpc.StatusCode.UNKNOWN, _text(e))


class _Malformed(Exception):
    """The host has sent what is no message."""


def _open(plugin: Any, request: Any) -> None:
    if isinstance(plugin, SourcePlugin):
        plugin.open(request.position)
    else:
        plugin.open()


def _stop(plugin: Any, request: Any) -> dict[str, Any] | None:
    if isinstance(plugin, SourcePlugin):
        return {"last_position": plugin.stop()}
    plugin.stop(request.last_position)
    return None


_CALLS: Mapping[str, Callable[[Any, Any], dict[str, Any] | None]] = {
    "Configure": lambda plugin, request: plugin.configure(dict(request.config)),
    "Open": _open,
    "Stop": _stop,
    "Teardown": lambda plugin, _: plugin.teardown(),
    "LifecycleOnCreated": lambda plugin, request: plugin.on_created(dict(request.config)),
    "LifecycleOnUpdated": lambda plugin, r: plugin.on_updated(dict(r.config_before), dict(r.config_after)),
    "LifecycleOnDeleted": lambda plugin, request: plugin.on_deleted(dict(request.config)),
}


def _source(
    plugin: SourcePlugin, dialect: Dialect, requests: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[bytes]:
    """Records out, and acks in by a thread of their own. A host that will send no more acks has no use for records either."""
    failed: list[Exception] = []
    closed = threading.Event()

    def take() -> None:
        try:
            for request in requests:
                try:
                    positions = dialect.acked(dialect.Source.Run.Request.FromString(request))
                except DecodeError as e:
                    raise _Malformed(str(e)) from e
                plugin.ack(positions)
        except grpc.RpcError:
            return  # the host is gone
        except _Malformed as e:
            failed.append(e)
        except Exception as e:
            failed.append(PluginError(f"ack plugin error: {_text(e)}"))
        finally:
            closed.set()

    if not context.add_callback(plugin.disconnected):
        return
    threading.Thread(target=take, name="acks", daemon=True).start()
    while context.is_active() and not closed.is_set():
        try:
            records = plugin.read(POLL)
        except EndOfStream:
            return
        except Exception as e:
            raise PluginError(f"read plugin error: {_text(e)}") from e
        if records.data:
            yield from dialect.record_messages(records, _NO_LIMIT)
    if failed:
        raise failed[0]


def _destination(
    plugin: DestinationPlugin, dialect: Dialect, requests: Iterator[bytes], context: grpc.ServicerContext
) -> Iterator[bytes]:
    """Records in by a thread of their own, and acks out. After the last record come the acks that are still missing."""
    failed: list[Exception] = []
    closed = threading.Event()
    open_records = [0]  # taken and not answered yet

    def take() -> None:
        try:
            for request in requests:
                records = Records(request)
                try:
                    count = len(list(records))
                except DecodeError as e:
                    raise _Malformed(str(e)) from e
                if count:  # one without records says nothing
                    with changing:
                        open_records[0] += count
                    plugin.write(records)
        except grpc.RpcError:
            return
        except _Malformed as e:
            failed.append(e)
        except Exception as e:
            failed.append(PluginError(f"write plugin error: {_text(e)}"))
        finally:
            closed.set()

    changing = threading.Lock()
    threading.Thread(target=take, name="records", daemon=True).start()
    while context.is_active() and not failed and not (closed.is_set() and not open_records[0]):
        acks = plugin.acks(POLL)
        with changing:
            open_records[0] -= len(acks)
        for response in dialect.ack_responses(acks):
            yield response.SerializeToString()
    if failed:
        raise failed[0]


_NO_LIMIT = 1 << 62


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
