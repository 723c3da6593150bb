"""A hosted destination as the engine sees it: at least once, with what it has answered kept, so that only the rest is sent again.

All lanes of a pipeline share one connector, and so one host (`Sink`); each has a `HostedDestination` of its own. The rows of a delivery
are sent by Spark's tasks: in the order of the source by one of them, by key or without order by several.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import record
from penstock.errors import PenstockError, Retry
from penstock.host import memory, trouble
from penstock.host.feed import expanded
from penstock.host.kept_rows import KeptRows
from penstock.host.marks import reached
from penstock.host.remote import CALL, OPEN, Log, Remote
from penstock.host.send_rows import DDL, SendKept, SendRows
from penstock.host.spec import DestinationSpec, Question, Sending, parse_told
from penstock.native import Delivery, DeliveryId, NativeDestination, Ordering, Receipt, Refusal, Refuse, Surroundings
from penstock.plugins import registry
from penstock.plugins.names import PluginName
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CLOSE = 15.0  # seconds that a connector may take to write what it holds back, and to close
LOCKED = 5.0  # that the host of an engine which was killed may take to notice
PATIENCE = 120.0  # that a connector may take for one call: one that waits for another system may wait long
RECORDS = 1000  # that it is sent at once


class _Asking:
    """Questions of several partitions come side by side, and are answered one by one."""

    def __init__(self, refuse: Refuse) -> None:
        self._refuse = refuse
        self._lock = threading.Lock()
        self.error: Exception | None = None

    def answer(self, refusal: Refusal) -> bool:
        with self._lock:
            try:
                return self.error is None and self._refuse(refusal)
            except Exception as e:
                self.error = e
                return False


class DestinationRemote(Remote[Sending]):
    """The host of a destination. Calls come from any thread."""

    def __init__(self, spec: Callable[[dict[str, str]], DestinationSpec], log: Log) -> None:
        self._asking: dict[str, _Asking] = {}  # by delivery
        super().__init__(spec, lambda _: Sending(), log)

    def _heard(self, line: bytes) -> None:
        said = parse_told(line)
        if isinstance(said, Sending):
            self._set(said)
        else:  # the answer may take a while, and others have questions, too
            threading.Thread(target=self._answer, args=[said], name="refusal", daemon=True).start()

    def _answer(self, q: Question) -> None:
        asking = self._asking.get(q.delivery)
        go = asking is not None and asking.answer(Refusal(q.seq, q.part, q.reason, q.code))
        with suppress(PenstockError):
            self._act("decide", CALL, number=q.number, go=go)

    @contextmanager
    def asking(self, delivery: str, refuse: Refuse) -> Iterator[None]:
        """Questions of this delivery are answered meanwhile. Raises what an answer has raised."""
        asking = self._asking[delivery] = _Asking(refuse)
        try:
            yield
        finally:
            self._asking.pop(delivery, None)
            if asking.error is not None:
                raise asking.error

    def begin(self, name: str, delivery: str, run: str) -> dict[str, Any]:
        found: dict[str, Any] = self._act("begin", OPEN, name=name, delivery=delivery, run=run)
        return found

    def look(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self._act("look", CALL, name=name)
        return found

    def finish(self, name: str) -> None:
        self._act("finish", CALL, name=name)

    def alive(self) -> bool:
        with self._changed:
            return not self._over

    def why_gone(self) -> PenstockError:
        return self._gone("it has ended")


@dataclass(frozen=True)
class Options:
    """Of a destination in a process of its own."""

    ordering: Ordering = Ordering.SOURCE
    max_records: int = RECORDS


class Sink:
    """The one host of a connector, whoever needs it. Started when it is first needed, and again when it is gone."""

    def __init__(self, destination_id: str, *, lifecycle: bool = True) -> None:
        self._id, self._lifecycle = destination_id, lifecycle
        self._host: DestinationRemote | None = None
        self._made_for: tuple[str, dict[str, str]] | None = None
        self._users = 0
        self._changed = threading.Condition()
        self.around: Surroundings | None = None
        self.interrupted = False  # nobody starts a host again: everything is to end
        self._resent = 0  # by hosts that are gone

    @property
    def resent(self) -> int:
        """Records that were sent again in this run."""
        host = self._host
        return self._resent + (host.known.resent if host is not None else 0)

    def start(self, around: Surroundings) -> None:
        self.around = around

    @contextmanager
    def using(self, d: HostedDestination) -> Iterator[DestinationRemote]:
        """A host with the plugin and settings of this destination. One with others is closed first, when nobody uses it."""
        wanted = (d.plugin, dict(d.settings))
        with self._changed:
            while True:
                if self._host is not None and not self._host.alive():
                    self._forget()
                if self._host is None or self._made_for == wanted or self._users == 0:
                    break
                self._changed.wait(0.1)
            if self._host is not None and self._made_for != wanted:
                self._host.close(CLOSE)
                self._forget()
            if self._host is None:
                self._host, self._made_for = self._started(d), wanted
            host = self._host
            self._users += 1
        try:
            yield host
        finally:
            with self._changed:
                self._users -= 1
                self._changed.notify_all()

    def _forget(self) -> None:
        host, self._host = self._host, None
        if host is not None:
            self._resent += host.known.resent
            host.kill()

    def _started(self, d: HostedDestination) -> DestinationRemote:
        """The host of an engine that was killed a moment ago may still be there: it is about to end."""
        around = self.around
        assert around is not None
        before = self._before(d, around)
        until = time.monotonic() + LOCKED
        while True:
            try:
                return DestinationRemote(lambda tokens: self._spec(d, around, tokens, before), around.log)
            except PenstockError as e:
                if e.code != "host.locked" or time.monotonic() > until:
                    raise
                time.sleep(0.1)

    def _spec(
        self, d: HostedDestination, around: Surroundings, tokens: dict[str, str], before: Mapping[str, str] | None
    ) -> DestinationSpec:
        return DestinationSpec(
            f"{around.pipeline}:{self._id}",
            d.plugin,
            d.settings,
            str(around.folder),
            tokens,
            d.options.max_records,
            PATIENCE,
            d.references,
            before,
            around.lifecycle and self._lifecycle,
        )

    def _before(self, d: HostedDestination, around: Surroundings) -> Mapping[str, str] | None:
        found = memory.load(around.folder)
        if found is None or PluginName.parse(found.plugin).name != PluginName.parse(d.plugin).name:
            return None
        return expanded(found.settings)

    def close(self) -> None:
        with self._changed:
            host, self._host = self._host, None
        self.interrupted = False  # the pipeline may be started again
        if host is not None:
            self._resent += host.known.resent
            host.close(CLOSE)

    def interrupt(self) -> None:
        self.interrupted = True
        host = self._host
        if host is not None:
            host.kill()


class Sinks:
    """Of a pipeline: a connector that all its lanes write to has one host."""

    def __init__(self) -> None:
        self._sinks: dict[str, Sink] = {}

    def of(self, destination_id: str, *, lifecycle: bool = True) -> Sink:
        return self._sinks.setdefault(destination_id, Sink(destination_id, lifecycle=lifecycle))

    def resent(self) -> dict[str, int]:
        return {name: n for name, sink in self._sinks.items() if (n := sink.resent)}

    def close(self) -> None:
        """When no lane writes any more."""
        for sink in self._sinks.values():
            sink.close()

    def interrupt(self) -> None:
        """At a forceful stop: whatever a call waits for is ended."""
        for sink in self._sinks.values():
            sink.interrupt()


class HostedDestination(NativeDestination[Mapping[str, str]]):
    """`settings` have values; `references` are the same as the file has them."""

    may_refuse: ClassVar[bool] = True
    locates: ClassVar[bool] = True
    reads_kept: ClassVar[bool] = True

    def __init__(
        self,
        plugin: str,
        settings: Mapping[str, str],
        references: Mapping[str, str],
        destination_id: str,
        sink: Sink,
        options: Options | None = None,
    ) -> None:
        super().__init__(settings, destination_id)
        self.plugin, self.references, self.options = plugin, dict(references), options or Options()
        self.sink = sink

    @property
    def ordering(self) -> Ordering:
        return self.options.ordering

    def start(self, around: Surroundings) -> None:
        self.sink.start(around)

    def begun(self, d: DeliveryId) -> bool:
        around = self.sink.around
        return around is None or reached(around.folder, _name(d), d.hash) is not None

    def write(self, d: Delivery, refuse: Refuse) -> Receipt:
        """A host that goes away in the middle is started again at once, as long as each life brings something."""
        name = _name(d)
        before: Any = None
        while True:
            try:
                with self.sink.using(self) as host, host.asking(d.hash, refuse):
                    return self._write(host, d, name)
            except Retry as e:
                now = self._reached(d, name)
                if now is None or now == before or self.sink.around is None or self.sink.interrupted:
                    raise
                before = now
                self.sink.around.log("warn", f"{e.what}; it goes on where it stood")

    def _reached(self, d: Delivery, name: str) -> Any:
        """How far the connector had come, from what its host has written down."""
        around = self.sink.around
        return None if around is None else reached(around.folder, name, d.hash)

    def _write(self, host: DestinationRemote, d: Delivery, name: str) -> Receipt:
        run = secrets.token_hex(8)
        standing = host.begin(name, d.hash, run)
        if standing["done"]:
            return _receipt(standing, d.partitions)
        order = {
            "name": name,
            "delivery": d.hash,
            "run": run,
            "source": d.lane,
            "shape": d.shape.value,
        }
        faults.reach("send")
        send = SendRows(host.address, host.token("write"), order, d.locate, self._is_program())
        answers = self._sent(d, standing["marks"], send)
        faults.reach("sent")
        for answer in answers:
            if "error" in answer:
                raise trouble.from_json(answer["error"])
            if "gone" in answer:
                raise host.why_gone()
            if "superseded" in answer:
                raise Retry("Rows were sent by a task that was not the newest any more", code="host.superseded")
        standing = host.look(name)
        if standing["stopped"] is None:
            host.finish(name)
        return _receipt(standing, d.partitions)

    def _sent(self, d: Delivery, marks: Mapping[str, list[int]], send: SendRows) -> list[dict[str, Any]]:
        """What the host has answered to each partition."""
        assert d.kept is not None
        at_once = d.ordering is Ordering.SOURCE or d.partitions == 1
        kept = KeptRows.of(d.kept.folder, d.kept.columns, d.kept.defaults) if at_once else None
        if kept is not None and kept.few:
            answer = send.send(0, 0, iter(kept))
            return [] if answer is None else [json.loads(answer)]
        if kept is not None:
            task = SendKept(send, kept, (marks["0"][0], marks["0"][1]) if "0" in marks else None)
            found = _answers(d.kept.spark.range(0, 1, 1, 1).mapInArrow(task, DDL))
            if not any("unsorted" in answer for answer in found):
                return found
        return _answers(self._arranged(d, d.kept.frame(), marks).mapInArrow(send, DDL))

    def _is_program(self) -> bool:
        found = registry.hosted("destination", self.plugin)
        return found is not None and found.registry == "standalone"

    def _arranged(self, d: Delivery, rows: DataFrame, marks: Mapping[str, list[int]]) -> DataFrame:
        """Partitions that are sent by a task each, in the order of their records. At every try they have the same records."""
        from pyspark.sql import functions as F

        rows = rows.drop(record.ORDER)
        n = d.partitions
        if d.ordering is Ordering.SOURCE or n == 1:
            if (at := marks.get("0")) is not None:
                seq, part = F.col(record.SEQ), F.col(record.PART)
                rows = rows.where((seq > at[0]) | ((seq == at[0]) & (part > at[1])))
            rows = rows.coalesce(1)
        else:
            rows = rows.repartition(n, record.KEY if d.ordering is Ordering.KEY else record.SEQ)
        return rows.sortWithinPartitions(record.SEQ, record.PART)


def _answers(found: DataFrame) -> list[dict[str, Any]]:
    return [json.loads(row["answer"]) for row in found.collect()]


def _name(d: DeliveryId) -> str:
    return f"{d.lane}/{d.destination}"


def _receipt(standing: Mapping[str, Any], partitions: int) -> Receipt:
    refused = tuple(Refusal(*r) for r in standing["refused"])
    stopped, marks = standing["stopped"], standing["marks"]
    settled_to = stopped
    if stopped is not None and partitions > 1:  # the others may not have come that far
        settled_to = min([0] * (len(marks) < partitions) + [stopped, *(at[0] + 1 for at in marks.values())])
    return Receipt(standing["written"], refused=refused, stopped_at=stopped, settled_to=settled_to)
