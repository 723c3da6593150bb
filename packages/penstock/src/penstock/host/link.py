"""A destination's connector as its host writes to it: records in, an answer for each of them out. Whatever it is: the SDK's class in this
process, or a program. Calls come from several threads: lanes, and partitions of one.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from penstock.errors import Stop
from penstock.host.outgoing import Messages, Outgoing
from penstock_protocol.client import Destination
from penstock_protocol.interfaces import Ack, EndOfStream, PluginError
from penstock_protocol.records import Records, spans
from penstock_sdk import Batch
from penstock_sdk.destination_plugin import DestinationAdapter

POLL = 0.5  # seconds that a look for answers waits at most
LINGER = 0.05  # seconds after which a connector that has not answered is told that nothing more comes for now


class Link(ABC):
    """One connector that is open."""

    exact: bool  # what it refuses is bad, and nothing else is refused with it

    @abstractmethod
    def send(self, found: Outgoing, delivery: str) -> Sequence[str]:
        """Waits for the answers, in the order of the records. An empty one: it is durable there; else why it is refused."""

    @abstractmethod
    def finish(self) -> None:
        """Nothing more comes: what the connector holds back is written."""


class DirectLink(Link):
    """The author's class is called here, one call at a time."""

    exact = True

    def __init__(self, adapter: DestinationAdapter) -> None:
        self._adapter = adapter
        self._lock = threading.Lock()

    def send(self, found: Outgoing, delivery: str) -> Sequence[str]:
        with self._lock:
            acks = self._adapter.deliver(Batch(found.items, delivery, columns=found.columns))
            if not self._adapter.wait(acks, LINGER):
                self._adapter.flush()
            while not self._adapter.wait(acks, POLL):
                pass  # one that never answers is what the watchdog is for
            return [acks.answered(i) or "" for i in range(len(found))]

    def finish(self) -> None:
        with self._lock:
            self._adapter.flush()


@dataclass
class _Sent:
    """What waits for its answers."""

    positions: Sequence[bytes]
    wanted: bytes  # the answers as messages, if all of it is written
    answers: list[str | None] = field(init=False)
    heard: int = 0  # bytes of `wanted` that have come
    next: int = 0  # everything before it is answered
    done: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.answers = [None] * len(self.positions)

    def take_all(self, data: bytes) -> bool:
        """Whether these are the next answers, and all of them good: nearly always, and nobody need look into them."""
        if self.next or not self.wanted.startswith(data, self.heard):
            return False
        self.heard += len(data)
        if self.heard == len(self.wanted):
            self.answers = [""] * len(self.answers)
            self.next = len(self.answers)
            self.done.set()
        return True

    def take(self, ack: Ack) -> bool:
        """Whether the answer is for one of these."""
        if self.heard and not self.next:
            self.next = sum(1 for _ in spans(self.wanted[: self.heard]))
            self.answers[: self.next] = [""] * self.next
        at = self.next
        if at >= len(self.answers):
            return False
        if self.positions[at] != ack.position:
            open_ = (i for i in range(at, len(self.answers)) if self.answers[i] is None)
            at = next((i for i in open_ if self.positions[i] == ack.position), -1)
            if at < 0:
                return False
        self.answers[at] = ack.error
        while self.next < len(self.answers) and self.answers[self.next] is not None:
            self.next += 1
        if self.next == len(self.answers):
            self.done.set()
        return True


class ProgramLink(Link):
    """Answers come by positions, in the order of the records. Another order is borne; positions need not be unique: those that are equal
    are answered in the order in which they were sent."""

    exact = False

    def __init__(self, plugin: Destination, name: str = "") -> None:
        self._plugin, self._name = plugin, name
        self._sending = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: deque[_Sent] = deque()
        self._last = b""
        self._error: Exception | None = None
        threading.Thread(target=self._receive, name="answers", daemon=True).start()

    def send(self, found: Outgoing, delivery: str) -> Sequence[str]:  # noqa: ARG002 - it is in every record's metadata
        assert isinstance(found, Messages)
        sent = _Sent(found.positions, found.acks)
        with self._sending:
            with self._lock:
                if self._error is not None:
                    raise self._error
                self._waiting.append(sent)
            self._plugin.write(Records(found.data))
            self._last = found.positions[-1]
        sent.done.wait()
        with self._lock:
            if sent in self._waiting:
                self._waiting.remove(sent)
            if None in sent.answers:
                assert self._error is not None
                raise self._error
        return sent.answers  # type: ignore[return-value] # none of them is None

    def _receive(self) -> None:
        error: Exception
        try:
            while True:
                for data in self._plugin.received(POLL):
                    self._answer(data)
        except EndOfStream:
            error = PluginError("it has ended its stream", gone=True)
        except Exception as e:
            error = e
        with self._lock:
            self._error = error
            for sent in self._waiting:
                sent.done.set()

    def _answer(self, data: bytes) -> None:
        with self._lock:
            if not self._waiting or not self._waiting[0].take_all(data):
                for ack in self._plugin.acks_in(data):
                    self._take(ack)
            while self._waiting and self._waiting[0].done.is_set():
                self._waiting.popleft()

    def _take(self, ack: Ack) -> None:
        if not any(sent.take(ack) for sent in self._waiting):
            raise Stop(
                f"The connector {self._name} has answered a record twice, or one that it was never sent",
                code="host.acks",
                why=f"the answer is for position {ack.position[:80]!r}",
                hint="it is a fault of the connector; whatever it has not answered yet counts as not written",
            )

    def finish(self) -> None:
        if self._error is None:
            with suppress(PluginError):
                self._plugin.stop(self._last)
