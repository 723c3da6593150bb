"""One hosted source with its log: opened when the engine says so, read by a thread, acked, stopped, closed. What the host's server
calls."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError, Stop
from penstock.host import memory, trouble
from penstock.host.memory import Memory
from penstock.host.resends import Resends
from penstock.host.source_loop import SourceLoop
from penstock.host.spec import SourceSpec, Status
from penstock.log import Lost, Reader, Writer, compact
from penstock.plugins import registry
from penstock.plugins.dispensers import Direct, Log
from penstock_protocol.interfaces import PluginError, SourcePlugin
from penstock_protocol.schemas import SchemaService, StoredSchemas
from penstock_sdk import Record, avro
from penstock_sdk.source import Source
from penstock_sdk.source_plugin import SourceAdapter

SCHEMAS = "schemas.jsonl"  # beside the log: what its records were written with
PAUSE = 0.01  # seconds between two reports, so that many small changes are told as one
TIDY = 5.0  # seconds between two looks at what can be compacted
LAST_ACKS = 5.0  # seconds that a source may take for its last acks
REMEMBER = 1.0  # seconds between two writes of the numbers that survive


class SourceHost:
    """The log is there from the beginning: the engine delivers what is in it before the source is opened. `tell` is given each change of
    where it stands."""

    def __init__(self, spec: SourceSpec, log: Log, tell: Callable[[Status], None] = lambda _: None) -> None:
        self._spec, self._log = spec, log
        self.folder = Path(spec.log)
        self.writer = Writer(
            self.folder,
            max_bytes=spec.max_bytes,
            segment_bytes=spec.segment_bytes,
            compression=spec.compression,
        )
        self._schemas: StoredSchemas | None = None
        self._service: SchemaService | None = None
        self._source: SourcePlugin | None = None
        self._loop: SourceLoop | None = None
        self._drained = self._ended = False
        self._error: dict[str, Any] = {}
        self._lock = threading.Lock()  # of opening and closing
        self._starter = ThreadPoolExecutor(1, "starter")  # a program ends with the thread that started it
        self._tell = tell
        self._changed = threading.Event()
        self._closed = threading.Event()
        self._memory = memory.load(self.folder)
        self._resent = 0 if self._memory is None else self._memory.resent  # before this start
        for body in (self._follow_log, self._report, self._tidy):
            threading.Thread(target=body, name=body.__name__, daemon=True).start()

    def open(self, settled: int = 0) -> None:
        """Right after the last record of the log. Raises what the connector says."""
        with self._lock:
            if self._source is not None:
                raise Stop(f"{self._spec.connector_id} is open already", code="host.open")
            with Reader(self.folder) as reader:
                resends = Resends.of(reader, self._spec.window)
                position, last = last_position(reader), last_records(reader)
            self._source = self._made()
            try:
                self._source.configure(self._spec.settings)
                self._live(self._source)
                if isinstance(self._source, SourceAdapter):
                    self._source.open(position, last)
                else:
                    self._source.open(position)
            except BaseException:
                self._torn_down()
                raise
            self._loop = SourceLoop(self._source, self.writer, resends, self._changed.set, settled)
            threading.Thread(target=self._run, args=[self._loop], name="source", daemon=True).start()
            self._acks = threading.Thread(target=self._ack, args=[self._loop], name="acks", daemon=True)
            self._acks.start()
        self._changed.set()

    def _made(self) -> SourcePlugin:
        spec = self._spec
        found = registry.hosted("source", spec.plugin)
        if found is None:
            raise Stop(f"No source is called {spec.plugin!r}", code="host.plugin")
        if found.registry == "builtin":
            return found.source(spec.connector_id, self._log)
        token = secrets.token_hex(16)
        if self._schemas is None:
            self._schemas = StoredSchemas(self.folder / SCHEMAS, avro.check)
        if self._service is not None:
            self._service.close(0)
        self._service = SchemaService(self._schemas, {token})
        more = {"utilities": self._service.address, "token": token}
        return self._starter.submit(found.source, spec.connector_id, self._log, **more).result()

    def _live(self, source: SourcePlugin) -> None:
        """The connector hears once that it is new, or that its settings are; and what it was told is remembered."""
        spec = self._spec
        if not spec.lifecycle:
            return
        if self._memory is None:
            source.on_created(spec.settings)
        elif dict(spec.before or {}) != dict(spec.settings):
            source.on_updated(spec.before or {}, spec.settings)
        pipeline, _, connector = spec.connector_id.partition(":")
        self._remember(Memory(pipeline, connector, spec.plugin, spec.references, self._resent))

    def _remember(self, found: Memory) -> None:
        if found != self._memory:
            found.save(self.folder)
            self._memory = found

    def delete(self) -> None:
        """It was taken out of its pipeline: the connector hears of it, and nothing of it is remembered."""
        with self._lock:
            source = self._made()
            try:
                source.on_deleted(self._spec.settings)
            finally:
                source.teardown()
            memory.forget(self.folder)

    def _run(self, loop: SourceLoop) -> None:
        try:
            loop.run()
            error: dict[str, Any] = {}
        except BaseException as e:
            error = trouble.to_json(e)
        with suppress(PenstockError):  # what it gave is delivered before anybody hears of its end
            self.writer.commit()
        self._error = self._error or error
        self._ended = True  # who sees the end sees why
        self._changed.set()

    def _ack(self, loop: SourceLoop) -> None:
        try:
            loop.send_acks()
        except BaseException as e:
            self._error = self._error or trouble.to_json(e)
            self._changed.set()

    def ack(self, end: int, refused: Mapping[int, str] | None = None) -> None:
        if self._loop is not None:  # what was in the log before it was opened is acked by its position
            self._loop.acked(end, refused or {})

    def stop(self) -> None:
        """Returns at once: a log that is full lets nothing in before the engine has taken something out."""
        threading.Thread(target=self._stop, name="stop", daemon=True).start()

    def _stop(self) -> None:
        try:
            if self._loop is not None:
                self._loop.stop()
                self._loop.wait_drained(None)
        except BaseException as e:
            self._error = self._error or trouble.to_json(e)
        self._drained = True
        self._changed.set()

    def status(self) -> Status:
        drained = self._drained  # before the end is looked at, which is final then
        loop = {} if self._loop is None else asdict(self._loop.counts()) | {"ended": self._ended}
        opened = self._loop is not None
        pid = 0 if self._source is None else self._source.pid
        return Status(
            self.writer.durable, self.writer.size, opened, **loop, drained=drained, error=self._error, plugin=pid
        )

    def abort(self) -> None:
        """Nobody is there any more: the program ends, with everything that it has started."""
        source = self._source
        if source is not None:
            source.abort()

    def nature(self) -> tuple[bool, bool]:
        """Whether the connector can go on after a position; and whether it wants to hear of records that were refused. A program is
        not asked: the protocol has no words for it."""
        try:
            found = registry.hosted("source", self._spec.plugin)
        except Exception:
            return True, False  # said when it is opened
        kind = found.connector.source if isinstance(found, Direct) else None
        return (True, False) if kind is None else (kind.resumes, kind.settle is not Source.settle)

    def close(self) -> None:
        """The connector, then the log. The last call; a second one does nothing."""
        with self._lock:
            self._closed.set()
            self._changed.set()
            if self._loop is not None:
                self._loop.end_acks()
                self._acks.join(LAST_ACKS)
            self._torn_down()
            self._count()
            if self._service is not None:
                self._service.close(0)
            self.writer.close()

    def _torn_down(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            try:
                source.teardown()
            except PluginError as e:
                self._log("warn", f"its teardown failed: {e}")

    # -- beside the source --------------------------------------------------------------------------------------------------

    def _follow_log(self) -> None:
        """What became durable is worth a report."""
        try:
            end = self.writer.durable
            while not self._closed.is_set():
                if self.writer.wait(end + 1, 5.0):
                    end = self.writer.durable
                    self._changed.set()
        except PenstockError as e:  # the disk is full, or broken; the source's thread may not be there to say so
            if not self._closed.is_set():
                self._error = self._error or trouble.to_json(e)
                self._changed.set()

    def _report(self) -> None:
        told, remembered = Status(), 0.0
        while not self._closed.is_set():
            self._changed.wait()
            self._changed.clear()
            now = self.status()
            if now != told:
                told = now
                self._tell(now)
            if time.monotonic() - remembered >= REMEMBER:
                remembered = time.monotonic()
                self._count()
            self._closed.wait(PAUSE)

    def _count(self) -> None:
        if self._memory is not None and self._loop is not None and self._spec.lifecycle:
            self._remember(replace(self._memory, resent=self._resent + self._loop.counts().resent))

    def _tidy(self) -> None:
        """Segments that everybody has acked are taken away while the log is used, not only when it is full."""
        while not self._closed.wait(TIDY):
            try:
                with Reader(self.folder) as reader:
                    closed = len(reader.bases()) > 1
                if closed:
                    compact(self.folder, min_gain=0.5)
            except (PenstockError, OSError) as e:
                self._log("warn", f"its log could not be compacted: {e}")


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


def last_records(reader: Reader) -> dict[str, Record]:
    """The last record of each namespace."""
    return {name: rows.records()[-1] for name, rows in reader.last().items()}
