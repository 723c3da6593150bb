"""One hosted source with its log: opened when the engine says so, read by a thread, acked, stopped, closed. What the host's server
calls."""

from __future__ import annotations

import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from penstock.errors import Stop
from penstock.host import trouble
from penstock.host.resends import Resends
from penstock.host.source_loop import SourceLoop
from penstock.host.spec import SourceSpec
from penstock.log import Lost, Reader, Writer
from penstock.plugins import registry
from penstock.plugins.dispensers import Log
from penstock_protocol.interfaces import PluginError, SourcePlugin


class SourceHost:
    """The log is there from the beginning: the engine delivers what is in it before the source is opened."""

    def __init__(self, spec: SourceSpec, log: Log) -> None:
        self._spec, self._log = spec, log
        self.folder = Path(spec.log)
        self.writer = Writer(self.folder, max_bytes=spec.max_bytes)
        self._source: SourcePlugin | None = None
        self._loop: SourceLoop | None = None
        self._error: dict[str, Any] = {}
        self._lock = threading.Lock()  # of opening and closing

    def open(self) -> None:
        """Right after the last record of the log. Raises what the connector says."""
        with self._lock:
            if self._source is not None:
                raise Stop(f"{self._spec.connector_id} is open already", code="host.open")
            with Reader(self.folder) as reader:
                resends = Resends.of(reader, self._spec.window)
                position = last_position(reader)
            self._source = self._made()
            try:
                self._source.configure(self._spec.settings)
                self._source.open(position)
            except BaseException:
                self._torn_down()
                raise
            self._loop = SourceLoop(self._source, self.writer, resends)
            threading.Thread(target=self._run, args=[self._loop], name="source", daemon=True).start()

    def _made(self) -> SourcePlugin:
        spec = self._spec
        found = registry.hosted("source", spec.plugin)
        if found is None:
            raise Stop(f"No source is called {spec.plugin!r}", code="host.plugin")
        service = {"utilities": spec.utilities, "token": spec.utilities_token} if spec.utilities else {}
        return found.source(spec.connector_id, self._log, **service)

    def _run(self, loop: SourceLoop) -> None:
        try:
            loop.run()
        except BaseException as e:
            self._error = trouble.to_json(e)

    def ack(self, end: int) -> None:
        if self._loop is not None:  # what was in the log before it was opened is acked by its position
            self._loop.acked(end)

    def stop(self, timeout: float) -> bool:
        """Whether everything that it will give is in the log."""
        if self._loop is None:
            return True
        self._loop.stop()
        return self._loop.wait_drained(timeout)

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = {"open": self._loop is not None, "end": self.writer.durable, "size": self.writer.size}
        if self._loop is not None:
            found |= asdict(self._loop.status())
        return {**found, "error": self._error}

    def close(self) -> None:
        """The connector, then the log. The last call; a second one does nothing."""
        with self._lock:
            self._torn_down()
            self.writer.close()

    def _torn_down(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            try:
                source.teardown()
            except PluginError as e:
                self._log("warn", f"its teardown failed: {e}")


def last_position(reader: Reader) -> bytes:
    """Of the last record in the log; empty where there is none."""
    if reader.end == reader.first:
        return b""
    *_, rows = reader.read(reader.end - 1)
    if isinstance(rows, Lost):
        raise Stop(
            f"The last record of the log {reader.folder} can't be read, so nobody knows where its source should go on",
            code="host.position",
            why=rows.why,
            hint="`penstock log verify` shows what is damaged",
        )
    return bytes(rows.records()[-1].position)
