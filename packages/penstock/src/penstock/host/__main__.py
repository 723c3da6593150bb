"""`python -m penstock.host FD`: a connector host. The engine starts it with a socket that both keep open; when the engine is gone the
socket ends, and so does the host, with its connector."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.host import trouble
from penstock.host.flight import HostServer, destination_server, source_server
from penstock.host.spec import DestinationSpec, Question, Ready, Sending, SourceSpec, Status
from penstock_sdk.logs import to_host

ORPHANED = 3  # the exit code
SWITCH = 0.0005  # seconds: a record goes through several threads, and each would wait for up to 5 ms


def main(arguments: list[str]) -> int:
    sys.setswitchinterval(SWITCH)
    engine = socket.socket(fileno=int(arguments[0]))
    stream = engine.makefile("rb")
    given = json.loads(stream.readline())
    to_host("info")
    ready, telling = threading.Event(), threading.Lock()

    def tell(said: Status | Sending | Question) -> None:
        ready.wait()
        with telling, suppress(OSError):  # nobody is there any more; `_watch` knows
            engine.sendall(said.line())

    try:
        server, first = _made(given, tell)
    except Exception as e:
        engine.sendall(Ready(error=trouble.to_json(e)).line())
        return 1
    threading.Thread(target=_watch, args=[stream, server], name="engine", daemon=True).start()
    engine.sendall(first.line())
    ready.set()
    server.serve()
    return 0


def _made(given: dict[str, Any], tell: Callable[[Any], None]) -> tuple[HostServer, Ready]:
    if given["role"] == "destination":
        from penstock.host.destination_host import DestinationHost

        spec = DestinationSpec(**given)
        server = destination_server(DestinationHost(spec, _log, tell), spec.tokens)
        return server, Ready(server.port)
    from penstock.host.source_host import SourceHost

    source = SourceSpec(**given)
    host = SourceHost(source, _log, tell)
    server = source_server(host, source.tokens)
    return server, Ready(server.port, host.writer.log_id, host.writer.durable, *host.nature())


def _watch(stream: socket.SocketIO, server: HostServer) -> None:
    """Nobody is there who would ack, read or write: everything that is not durable comes again."""
    with suppress(OSError):  # it may have ended before it has read what it was told
        stream.read()
    server.abort()
    os._exit(ORPHANED)


def _log(level: str, text: str) -> None:
    line = {"@level": level, "@message": text, "@timestamp": time.time()}
    print(json.dumps(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
