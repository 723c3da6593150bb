"""Our own connectors pass the conformance kit, in this process and, where they can be programs, as programs."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from penstock.connectors.chaos.connector import connector as chaos
from penstock.connectors.file.connector import connector as file
from penstock.connectors.http.connector import connector as http
from penstock.connectors.lines.connector import connector as lines
from penstock.connectors.stdin.connector import connector as stdin
from penstock.connectors.stdin.source import StdinSource
from penstock.connectors.stdout.connector import connector as stdout
from penstock.connectors.stdout.destination import StdoutDestination
from penstock_sdk.testing import ConnectorTests, Expected
from tests.support import go


def _program(name: str) -> tuple[str, ...]:
    return (sys.executable, "-m", f"penstock.connectors.{name}.connector")


class _OneFile(ConnectorTests):
    """The destination writes what the source reads."""

    def source_settings(self) -> Mapping[str, str]:
        return {"path": str(self.folder / "data")}

    def destination_settings(self) -> Mapping[str, str]:
        return self.source_settings()


class TestFile(_OneFile):
    connector = file
    command = _program("file")


@go.needs_go
class TestGo(_OneFile):
    """The example in another language."""

    @classmethod
    def setup_class(cls) -> None:
        cls.command = (str(go.built()),)

    command = ("built before it is used",)


class TestLines(ConnectorTests):
    connector = lines
    command = _program("lines")

    def source_settings(self) -> Mapping[str, str]:
        return {"path": str(self.folder / "data")}

    def fill(self, count: int) -> Sequence[Expected] | None:
        path = self.folder / "data"
        first = len(path.read_bytes().splitlines()) if path.exists() else 0
        made = [b"line %04d" % n for n in range(first, first + count)]
        with path.open("ab") as out:
            out.writelines(line + b"\n" for line in made)
        return [str(line, "ascii") for line in made]


class _Piped(StdinSource):
    """Reads a pipe in the place of standard input."""


class TestStdin(ConnectorTests):
    connector = replace(stdin, source=_Piped)

    @pytest.fixture(autouse=True)
    def _pipe(self) -> Iterator[None]:
        self._filled = 0
        _Piped.fd, self._end = os.pipe()
        yield
        os.close(self._end)
        os.close(_Piped.fd)

    def source_settings(self) -> Mapping[str, str]:
        return {}

    def fill(self, count: int) -> Sequence[Expected] | None:
        made = [b"line %04d" % n for n in range(self._filled, self._filled + count)]
        self._filled += count
        os.write(self._end, b"".join(line + b"\n" for line in made))
        return [str(line, "ascii") for line in made]


class _Caught(StdoutDestination):
    """Writes into a file in the place of standard output."""


class TestStdout(ConnectorTests):
    connector = replace(stdout, destination=_Caught)

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
        self._path = tmp_path_factory.mktemp("out") / "out"
        _Caught.fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        yield
        os.close(_Caught.fd)

    def destination_settings(self) -> Mapping[str, str]:
        return {"format": "opencdc"}

    def written(self) -> Sequence[Expected]:
        return self._path.read_text().splitlines()


class TestHttp(ConnectorTests):
    connector = http
    command = _program("http")
    server: ClassVar[ThreadingHTTPServer]
    got: ClassVar[list[str]]

    @pytest.fixture(autouse=True)
    def _server(self) -> Iterator[None]:
        got: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                got.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        type(self).got = got
        type(self).server = server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield
        server.shutdown()
        server.server_close()
        thread.join()

    def destination_settings(self) -> Mapping[str, str]:
        return {"url": f"http://127.0.0.1:{self.server.server_port}/", "body": "record"}

    def written(self) -> Sequence[Expected]:
        return self.got


class TestChaos(ConnectorTests):
    """What it does when it is told nothing."""

    connector = chaos
    command = _program("chaos")

    def source_settings(self) -> Mapping[str, str]:
        return {"records": "20"}

    def destination_settings(self) -> Mapping[str, str]:
        return {"path": str(self.folder / "written")}

    def written(self) -> Sequence[Expected]:
        path = self.folder / "written"
        return [json.dumps(json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
