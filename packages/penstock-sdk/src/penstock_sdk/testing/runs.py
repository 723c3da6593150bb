"""A source or a destination while it is tested: the calls of a host, each with a time limit, and what came of them so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as LateError
from typing import Any

from penstock_protocol import client
from penstock_protocol.interfaces import Ack, DestinationPlugin, EndOfStream, PluginError, SourcePlugin
from penstock_sdk.errors import Rejected
from penstock_sdk.record import Record
from penstock_sdk.testing.lanes import Lanes
from penstock_sdk.testing.results import Failure, Refused
from penstock_sdk.wire import from_records, to_records

POLL = 0.2  # seconds that a read waits, as in hosts
_NAMES = {"on_created": "LifecycleOnCreated", "on_updated": "LifecycleOnUpdated", "on_deleted": "LifecycleOnDeleted"}


class _Run:
    """What both have in common."""

    def __init__(self, plugin: SourcePlugin | DestinationPlugin, patience: float) -> None:
        self._plugin, self.patience = plugin, patience
        self._lanes = Lanes()
        self.ended = False  # its stream

    def configure(self, config: Mapping[str, str]) -> None:
        self.call("configure", config)

    def teardown(self, *, ready: bool = True) -> None:
        """`ready`: the stream may end by itself first; else it is cut off."""
        if isinstance(self._plugin, client.Source | client.Destination):
            self.call("teardown", POLL if ready else 0.0)
        else:
            self.call("teardown")

    def call(self, name: str, *arguments: Any) -> Any:
        return self._wait(name, self.begin(name, *arguments))

    def begin(self, name: str, *arguments: Any) -> Future[Any]:
        method = getattr(self._plugin, name)
        return self._lanes.begin(name, lambda: method(*arguments))

    def _wait(self, name: str, future: Future[Any]) -> Any:
        shown = _NAMES.get(name, name.capitalize())
        try:
            return future.result(self.patience)
        except (EndOfStream, Failure, Refused):
            raise
        except PluginError as e:
            raise Refused(shown, str(e), gone=e.gone, unimplemented=e.unimplemented) from e
        except LateError as e:
            if not future.done():
                raise late(shown, self.patience) from None
            raise Refused(shown, str(e) or "TimeoutError") from e
        except Exception as e:
            raise Refused(shown, str(e) or type(e).__name__) from e

    def _end_stream(self, what: str) -> None:
        """A client says that nothing more comes, and the plugin has to end its side."""
        plugin = self._plugin
        if isinstance(plugin, client.Source | client.Destination) and not plugin.finish(self.patience):
            raise self._no_end(what)
        deadline = time.monotonic() + self.patience
        while not self.ended:
            if time.monotonic() > deadline:
                raise self._no_end(what)
            self._look()

    def _no_end(self, what: str) -> Failure:
        return Failure(
            f"its stream did not end within {self.patience:g} seconds after {what}",
            "the stream ends",
            "end Run once everything is answered and the host's side is closed; look for a call that blocks",
        )

    def _look(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        self._lanes.end()


def late(what: str, seconds: float) -> Failure:
    return Failure(
        f"{what} did not return within {seconds:g} seconds",
        f"{what} returns",
        "wait for nothing without a limit, and for the stop signal besides whatever else is waited for",
    )


class SourceRun(_Run):
    def __init__(self, plugin: SourcePlugin, patience: float) -> None:
        super().__init__(plugin, patience)
        self.given: list[Record] = []
        self._acked = 0
        self._opened = b""

    def open(self, position: bytes = b"") -> None:
        self._opened = position
        self.call("open", position)

    def read(self) -> list[Record]:
        """What is there; none after the end."""
        try:
            found = from_records(self.call("read", POLL))
        except EndOfStream:
            self.ended = True
            return []
        except Rejected as e:
            raise Failure(str(e), "create, update, delete or snapshot", "give every record its operation") from e
        self.given += found
        return found

    def _look(self) -> None:
        self.read()

    def until(self, enough: Callable[[Sequence[Record]], bool]) -> bool:
        """Reads until there is enough; False when nothing new has come for a while."""
        start = quiet = time.monotonic()
        while not enough(self.given):
            if self.ended:
                raise Failure(
                    f"its stream ended after {len(self.given)} records, and nobody had stopped it",
                    "it goes on until it is stopped",
                    "wait for more where there is nothing to read, and give no records then",
                )
            now = time.monotonic()
            if self.read():
                quiet = now
            elif now - quiet > self.patience or now - start > 6 * self.patience:
                return False
        return True

    def take(self, count: int) -> list[Record]:
        if not self.until(lambda given: len(given) >= count):
            raise Failure(
                f"it gave {len(self.given)} records and then nothing for {self.patience:g} seconds",
                f"{count} records",
                "read everything that is there; if there is less, ask for less (`records`)",
            )
        return self.given

    def ack(self, count: int | None = None) -> None:
        """The next ones, or all that are left."""
        last = len(self.given) if count is None else self._acked + count
        if positions := [record.position for record in self.given[self._acked : last]]:
            self.call("ack", positions)
            self._acked = last

    def stop(self, *, awaited: bool = True) -> bytes:
        """Reads on meanwhile, and up to the position that it names if that is `awaited`."""
        future = self.begin("stop")
        deadline = time.monotonic() + self.patience
        while not future.done():
            if time.monotonic() > deadline:
                raise late("Stop", self.patience)
            if self.ended:
                time.sleep(0.01)
            else:
                self.read()
        last = bytes(self._wait("stop", future))
        deadline = time.monotonic() + self.patience
        while awaited and last not in (b"", self._opened) and all(record.position != last for record in self.given):
            if self.ended or time.monotonic() > deadline:
                raise Failure(
                    f"Stop said that the last record is the one at {last!r}, and that one never came",
                    "everything up to the position that Stop returns is sent",
                    "return the position of the last record that was or will be sent",
                )
            self.read()
        return last

    def finish(self) -> bytes:
        """To the very end, in the way of hosts: stop, the last acks, the end of the stream, teardown."""
        last = self.stop()
        self.ack()
        self._end_stream("Stop and the last ack")
        self.teardown()
        return last


class DestinationRun(_Run):
    def __init__(self, plugin: DestinationPlugin, patience: float) -> None:
        super().__init__(plugin, patience)
        self.sent: list[Record] = []
        self.answers: list[Ack] = []

    def open(self) -> None:
        self.call("open")

    def write(self, records: Sequence[Record]) -> None:
        self.sent += records
        self.call("write", to_records(records))

    def _look(self) -> None:
        try:
            self.answers += self.call("acks", POLL)
        except EndOfStream:
            self.ended = True

    def collect(self) -> None:
        """Answers, until every record has one, or none has come for a while."""
        quiet = time.monotonic()
        while len(self.answers) < len(self.sent) and not self.ended:
            before = len(self.answers)
            self._look()
            if len(self.answers) > before:
                quiet = time.monotonic()
            elif time.monotonic() - quiet > self.patience:
                return

    def stop(self) -> None:
        future = self.begin("stop", self.sent[-1].position if self.sent else b"")
        deadline = time.monotonic() + self.patience
        while not future.done():
            if time.monotonic() > deadline:
                raise late("Stop", self.patience)
            if self.ended:
                time.sleep(0.01)
            else:
                self._look()
        self._wait("stop", future)

    def finish(self) -> None:
        """Stop, what is still to be answered, the end of the stream, teardown."""
        self.stop()
        self.finish_stopped()

    def finish_stopped(self) -> None:
        self.collect()
        self._end_stream("Stop")
        self.teardown()
