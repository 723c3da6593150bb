"""`python -m penstock.host FD`: a connector host. The engine starts it with a socket that both keep open; when the engine is gone the
socket ends, and so does the host, with its connector."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time

from penstock.host import trouble
from penstock.host.flight import HostServer
from penstock.host.source_host import SourceHost
from penstock.host.spec import Ready, SourceSpec

ORPHANED = 3  # the exit code


def main(arguments: list[str]) -> int:
    engine = socket.socket(fileno=int(arguments[0]))
    stream = engine.makefile("rb")
    spec = SourceSpec.parse(stream.readline())
    try:
        host = SourceHost(spec, _log)
    except Exception as e:
        engine.sendall(Ready(error=trouble.to_json(e)).line())
        return 1
    server = HostServer(host, spec.tokens)
    threading.Thread(target=_watch, args=[stream], name="engine", daemon=True).start()
    engine.sendall(Ready(server.port, host.writer.log_id, host.writer.durable).line())
    server.serve()
    return 0


def _watch(stream: socket.SocketIO) -> None:
    """Nobody is there who would ack or read: everything that is not durable comes again."""
    stream.read()
    os._exit(ORPHANED)


def _log(level: str, text: str) -> None:
    line = {"@level": level, "@message": text, "@timestamp": time.time()}
    print(json.dumps(line), file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
