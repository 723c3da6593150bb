"""One hosted destination: opened when something is to be delivered, written to by Spark's tasks, stopped, closed. What the host's server
calls.

A delivery is begun by the engine, its rows come from tasks, one exchange per partition, and the engine says when it is over. What the
connector has answered is written down (`marks.py`), and only what it has not is sent again.
"""

from __future__ import annotations

import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock import fs
from penstock.errors import Retry, Stop
from penstock.filelock import FileLock, Held
from penstock.host import memory, trouble
from penstock.host.link import DirectLink, Link, ProgramLink
from penstock.host.marks import Marks
from penstock.host.memory import Memory
from penstock.host.messages import Wire
from penstock.host.outgoing import Lane, Outgoing, records_of
from penstock.host.sending import Pace, Send, Stopped, Superseded, Turn
from penstock.host.spec import DestinationSpec, Question, Sending
from penstock.native import Refusal
from penstock.plugins import registry
from penstock.plugins.dispensers import Log
from penstock.plugins.names import PluginName
from penstock.record import Shape
from penstock_protocol.client import Destination
from penstock_protocol.handshake import DEFAULT_MAX_MESSAGE
from penstock_protocol.interfaces import DestinationPlugin, PluginError
from penstock_protocol.schemas import SchemaService, StoredSchemas
from penstock_sdk import avro
from penstock_sdk.destination_plugin import DestinationAdapter

SCHEMAS = "schemas.jsonl"
LOCK = "lock"
HUNG = 4  # the exit code of a host whose connector does not come back from a call
OVERHEAD = 1 << 10  # of a message, beside its records
REPORT = 0.1  # seconds between two reports


@dataclass
class _Delivery:
    """One that is under way."""

    marks: Marks
    delivery: str
    run: str  # of the engine's calls of `begin` the last: tasks of an earlier one are turned away
    runs: int = 0  # how many there were
    turns: dict[int, Turn] = field(default_factory=dict)
    stopped: Refusal | None = None  # the record that is not to be passed


class DestinationHost:
    """`tell` is given each change of where it stands, and each question."""

    def __init__(
        self, spec: DestinationSpec, log: Log, tell: Callable[[Sending | Question], None] = lambda _: None
    ) -> None:
        self._spec, self._log, self._tell = spec, log, tell
        self.folder = Path(spec.folder)
        fs.make_folder(self.folder, 0o700)
        self._held = FileLock(self.folder / LOCK)
        try:
            self._held.take()
        except Held as e:
            raise Retry(f"{spec.connector_id} has a host already: {e}", code="host.locked") from None
        self._memory = memory.load(self.folder)
        self._before = 0 if self._memory is None else self._memory.resent  # sent again before this start
        self._lock = threading.RLock()  # of opening and closing
        self._plugin: DestinationPlugin | None = None
        self._program = 0  # its process, also before it is a plugin
        self._link: Link | None = None
        self._progress = False  # since it was opened
        self._pace = Pace(spec.records)
        self._starter = ThreadPoolExecutor(1, "starter")  # a program ends with the thread that started it
        self._schemas: StoredSchemas | None = None
        self._service: SchemaService | None = None
        self._wire: Wire | None = None
        self._deliveries: dict[str, _Delivery] = {}
        self._questions: dict[int, Callable[[bool], None]] = {}
        self._asked = 0
        self._sent = self._resent = self._starts = 0
        self._error: dict[str, Any] = {}
        self._calls: dict[int, tuple[str, float]] = {}  # of the connector, which thread is in it since when
        self._closed = threading.Event()
        for body in (self._watch, self._report):
            threading.Thread(target=body, name=body.__name__, daemon=True).start()

    # -- the connector -------------------------------------------------------------------------------------------------------

    def _opened(self) -> Link:
        """Raises what the connector says."""
        with self._lock:
            if self._link is not None:
                return self._link
            try:
                with self._named("start"):  # a program that prints no handshake is ended where it is started
                    plugin = self._plugin = self._made()
                with self._in("configure"):
                    plugin.configure(self._spec.settings)
                with self._in("open"):
                    self._live(plugin)
                    plugin.open()
            except BaseException as e:
                if isinstance(e, PluginError) and e.gone:
                    self.abort()  # there is nobody to tear down, but maybe what it has started
                self._torn_down()
                raise
            self._starts += 1
            self._progress = False
            if isinstance(plugin, DestinationAdapter):
                self._link = DirectLink(plugin)
            else:
                assert isinstance(plugin, Destination)
                self._link = ProgramLink(plugin, self._spec.connector_id)
            return self._link

    def _made(self) -> DestinationPlugin:
        spec = self._spec
        found = registry.hosted("destination", spec.plugin)
        if found is None:
            raise Stop(f"No destination is called {spec.plugin!r}", code="host.plugin")
        if found.registry == "builtin":
            return found.destination(spec.connector_id, self._log)
        token = secrets.token_hex(16)
        if self._schemas is None:
            self._schemas = StoredSchemas(self.folder / SCHEMAS, avro.check)
        if self._service is not None:
            self._service.close(0)
        self._service = SchemaService(self._schemas, {token})
        if self._wire is None:
            self._wire = Wire(self._schemas, spec.connector_id, DEFAULT_MAX_MESSAGE - OVERHEAD)
        more = {"utilities": self._service.address, "token": token, "patience": spec.patience, "started": self._started}
        return self._starter.submit(found.destination, spec.connector_id, self._log, **more).result()

    def _started(self, pid: int) -> None:
        """The engine hears at once which program there is: if this process is killed, it ends what the program has started."""
        self._program = pid
        self._tell(self.status())

    def _live(self, plugin: DestinationPlugin) -> None:
        """The connector hears once that it is new, or that its settings are."""
        spec = self._spec
        if not spec.lifecycle:
            return
        if self._memory is None or PluginName.parse(self._memory.plugin).name != PluginName.parse(spec.plugin).name:
            plugin.on_created(spec.settings)
        elif dict(spec.before or {}) != dict(spec.settings):
            plugin.on_updated(spec.before or {}, spec.settings)
        pipeline, _, connector = spec.connector_id.partition(":")
        self._remember(Memory(pipeline, connector, spec.plugin, spec.references, self._before))

    def _remember(self, found: Memory) -> None:
        if found != self._memory:
            found.save(self.folder)
            self._memory = found

    def delete(self) -> None:
        """It was taken out of its pipeline."""
        with self._lock, self._in("delete"):
            plugin = self._made()
            try:
                plugin.on_deleted(self._spec.settings)
            finally:
                plugin.teardown()
                self._program = 0
            memory.forget(self.folder)

    def _lost(self, link: Link) -> bool:
        """The connector is gone. Whether it is worth another start at once: it has come further since the last one."""
        with self._lock:
            if self._link is not link:
                return True  # another thread has found out before
            self._link = None
            if self._plugin is not None:
                self._plugin.abort()
            self._torn_down()
            self._pace.lost()
            return self._progress

    def _torn_down(self) -> None:
        plugin, self._plugin = self._plugin, None
        if plugin is not None:
            try:
                with self._in("teardown"):
                    plugin.teardown()
            except Exception as e:
                self._log("warn", f"its teardown failed: {e}")
        self._program = 0

    # -- deliveries ----------------------------------------------------------------------------------------------------------

    def begin(self, name: str, delivery: str, run: str) -> dict[str, Any]:
        """What of this delivery is done already. The connector is open when this returns, unless there is nothing to do."""
        with self._lock:
            known = self._deliveries.get(name)
            if known is None or known.delivery != delivery:
                if known is not None:
                    known.marks.close()
                known = self._deliveries[name] = _Delivery(Marks(self.folder, name, delivery), delivery, run)
            known.run, known.runs, known.stopped = run, known.runs + 1, None
            if not known.marks.done:
                self._opened()
            return self._standing(known)

    def _standing(self, found: _Delivery) -> dict[str, Any]:
        marks = found.marks
        refused = [r for mark in marks.partitions.values() for r in mark.refused]
        return {
            "done": marks.done,
            "written": sum(mark.written for mark in marks.partitions.values()),
            "refused": [[r.seq, r.part, r.reason, r.code] for r in sorted(refused, key=lambda r: (r.seq, r.part))],
            "marks": {str(n): list(mark.at) for n, mark in marks.partitions.items()},
            "stopped": found.stopped.seq if found.stopped is not None else None,
        }

    def look(self, name: str) -> dict[str, Any]:
        """The same later."""
        with self._lock:
            return self._standing(self._deliveries[name])

    def finish(self, name: str) -> None:
        """Every row of it was sent, and has its answer."""
        with self._lock:
            self._deliveries[name].marks.finish()

    def exchange(self, order: Mapping[str, Any], chunks: Iterable[pa.RecordBatch]) -> dict[str, Any]:
        """The rows of one partition, in order. Whatever becomes of them is an answer: a task that fails would be run again."""
        with self._lock:
            found = self._deliveries.get(order["name"])
            if found is None or found.run != order["run"]:
                return {"superseded": True}
            attempt = found.runs, order["attempt"]
            turn = found.turns.setdefault(order["partition"], Turn())
        lane = Lane(order["source"], Shape(order["shape"]), order["delivery"])
        try:
            with turn.taken(attempt):
                send = Send(found.marks, order["partition"], self._pace, lambda r: self._ask(found, r))
                for chunk in chunks:
                    self._send_chunk(order, send, self._check(found, order, turn, attempt), chunk, lane)
        except Superseded:
            return {"superseded": True}
        except Stopped:
            return {"stopped": True}
        except Exception as e:
            return {"error": trouble.to_json(e)}
        return {}

    def _send_chunk(
        self, order: Mapping[str, Any], send: Send, check: Callable[[], None], chunk: pa.RecordBatch, lane: Lane
    ) -> None:
        """A connector that goes away in the middle is started again, as long as that brings something."""
        made: Outgoing | None = None
        while True:
            link = self._opened()
            if made is None:
                made = records_of(chunk, lane) if self._wire is None else self._wire(chunk, lane)
            try:
                write = partial(self._write, link, order)
                send(made, write, exact=link.exact, check=check)
            except PluginError as e:
                self._resent += send.unanswered
                if not e.gone:
                    self._lost(link)
                    raise
                if not self._lost(link):
                    raise
                self._log("warn", f"the connector is gone and started again: {e}")
            else:
                return

    def _write(self, link: Link, order: Mapping[str, Any], part: Outgoing) -> Sequence[str]:
        with self._in("write"):
            answers = link.send(part, order["delivery"])
        self._progress = True
        self._sent += len(answers)
        return answers

    def _check(
        self, found: _Delivery, order: Mapping[str, Any], turn: Turn, attempt: tuple[int, int]
    ) -> Callable[[], None]:
        def check() -> None:
            turn.check(attempt)
            if found.run != order["run"]:
                raise Superseded
            if found.stopped is not None:
                raise Stopped

        return check

    # -- questions to the engine ---------------------------------------------------------------------------------------------

    def _ask(self, found: _Delivery, refusal: Refusal) -> bool:
        """Whether the delivery may go on behind this record."""
        answered: list[bool] = []
        done = threading.Event()

        def answer(go: bool) -> None:
            answered.append(go)
            done.set()

        with self._lock:
            self._asked += 1
            number = self._asked
            self._questions[number] = answer
        r = refusal
        self._tell(Question(number, found.delivery, r.seq, r.part, r.reason, r.code))
        done.wait()
        if not answered[0]:
            found.stopped = refusal
        return answered[0]

    def decide(self, number: int, go: bool) -> None:
        with self._lock:
            answer = self._questions.pop(number, None)
        if answer is not None:
            answer(go)

    # -- the end -------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """What the connector holds back is written, then it is torn down. The last call."""
        with self._lock:
            if self._link is not None:
                try:
                    with self._in("flush"):
                        self._link.finish()
                except Exception as e:
                    self._log("warn", f"its flush failed: {e}")
            self._link = None
            self._torn_down()
            self._closed.set()
            self._count()
            for found in self._deliveries.values():
                with suppress(OSError):
                    found.marks.close()
            self._deliveries = {}
            if self._service is not None:
                self._service.close(0)
            self._held.release()

    def abort(self) -> None:
        """Nobody is there any more: the program ends, with everything that it has started."""
        plugin = self._plugin
        if plugin is not None:
            plugin.abort()
        elif self._program:  # it is being started
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._program, signal.SIGKILL)

    # -- beside the connector ------------------------------------------------------------------------------------------------

    def status(self) -> Sending:
        return Sending(self._link is not None, self._sent, self._resent, self._starts, self._error, self._program)

    @contextmanager
    def _in(self, call: str) -> Iterator[None]:
        """The calling thread is in a call of the connector. Calls within calls count as the first."""
        me = threading.get_ident()
        if me in self._calls:
            yield
            return
        self._calls[me] = (call, time.monotonic())
        try:
            with self._named(call):
                yield
        finally:
            self._calls.pop(me, None)

    @contextmanager
    def _named(self, call: str) -> Iterator[None]:
        """What the connector says gets its name and the call; of a program that is gone, how it ended."""
        process = getattr(self._plugin, "process", None)  # what runs in this one has none
        try:
            yield
        except PluginError as e:
            if self._error:  # it was ended, and this is what it says to that
                raise trouble.from_json(self._error) from e
            how = process.last_words() if e.gone and process is not None else ""
            text = f"{self._spec.connector_id}, {call}: {how or e}"
            raise PluginError(text, gone=e.gone, unimplemented=e.unimplemented) from e

    def _watch(self) -> None:
        """A call that does not come back can't be ended from outside, but the process can: the engine starts another one."""
        while not self._closed.wait(min(1.0, self._spec.patience / 4)):
            now = time.monotonic()
            for call, since in list(self._calls.values()):
                if now - since > self._spec.patience:
                    self._error = trouble.to_json(
                        Retry(
                            f"The connector {self._spec.connector_id} did not come back from {call!r}"
                            f" within {self._spec.patience:g} s",
                            code="host.hangs",
                            hint="its process was ended; it is started again",
                        )
                    )
                    self._tell(self.status())
                    self.abort()
                    os._exit(HUNG)

    def _count(self) -> None:
        """What was sent again is added to what was before."""
        if self._memory is not None:
            with suppress(OSError):
                self._remember(replace(self._memory, resent=self._before + self._resent))

    def _report(self) -> None:
        told = Sending()
        while not self._closed.wait(REPORT):
            now = self.status()
            if now != told:
                if now.resent != told.resent:
                    self._count()
                told = now
                self._tell(now)
