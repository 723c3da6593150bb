"""Connectors that break one rule each, for the tests of the conformance kit. Run as a program with the name of one, or used in
this process."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from penstock_protocol import server
from penstock_protocol.interfaces import Ack, Parameter
from penstock_protocol.records import Records
from penstock_protocol.server import Served
from penstock_sdk import Batch, Connector, Record, serve
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.testing.subjects import served
from tests.support.good_connector import GOOD, Reader, ShelfSource, Writer, line


@dataclass(frozen=True)
class Bad:
    """Which check has to fail, and with what reason (a pattern). `program`: only a program can show it."""

    made: Connector | Served
    check: str
    reason: str
    program: bool = False


def _source(kind: type[Reader]) -> Connector:
    return replace(GOOD, source=kind)


def _destination(kind: type[Writer]) -> Connector:
    return replace(GOOD, destination=kind)


def _plugins(source: Callable[[], Any] | None = None, destination: Callable[[], Any] | None = None) -> Served:
    good = served(GOOD)
    return replace(good, source=source or good.source, destination=destination or good.destination)


def _said(**changes: Any) -> Served:
    good = served(GOOD)
    return replace(good, specification=replace(good.specification, **changes))


def _parameter(name: str, **changes: Any) -> dict[str, Parameter]:
    source = dict(GOOD.specification().source)
    return {**source, name: replace(source[name], **changes)}


# -- settings ------------------------------------------------------------------------------------------------------------------


class AnySettings(ShelfSource):
    """Takes what comes."""

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> Any:
        return super().parse({"path": "/nowhere", **config})


class NotRequired(Reader):
    settings_type = AnySettings


class LenientSettings(ShelfSource):
    @classmethod
    def parse(cls, config: Mapping[str, str]) -> Any:
        return super().parse({n: t for n, t in config.items() if n == "path" or n not in cls.parameters()})


class NotValidated(Reader):
    settings_type = LenientSettings


class Mumbles(SourceAdapter):
    """Refuses, and does not say what."""

    def configure(self, config: Mapping[str, str]) -> None:
        try:
            super().configure(config)
        except Exception as e:
            raise ValueError("bad settings" if "path" not in config else str(e)) from None


# -- sources -------------------------------------------------------------------------------------------------------------------


class SamePosition(Reader):
    def record(self, line: bytes, position: bytes) -> Record:
        return super().record(line, b"%d" % (int(position) // 100))


class NoPosition(Reader):
    def record(self, line: bytes, position: bytes) -> Record:
        return super().record(line, b"")


class TooLate(Reader):
    """Loses the record after the position."""

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        super().open(position, last)
        if position is not None:
            with self.settings.path.open("rb") as file:
                file.seek(self.at)
                self.at += len(file.readline())


class TooEarly(Reader):
    """Gives the record at the position again."""

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        super().open(position, last)
        data = self.settings.path.read_bytes()[: max(self.at - 1, 0)] if position else b""
        self.at = data.rfind(b"\n") + 1


class OtherPositions(Reader):
    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        super().open((position or b"0").partition(b"@")[0], last)
        self.run = secrets.token_hex(4).encode()

    def record(self, line: bytes, position: bytes) -> Record:
        return super().record(line, position + b"@" + self.run)


class OtherContent(Reader):
    def record(self, line: bytes, position: bytes) -> Record:
        return super().record(line, position).derive(key=secrets.token_bytes(4))


class Loses(Reader):
    """Every tenth."""

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        return [record for record in super().read(max_records, timeout) if not record.after.endswith(b"0")]  # type: ignore[union-attr]


class Twice(Reader):
    """Gives the first record again, under another position."""

    given = False

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        found = list(super().read(max_records, timeout))
        if found and not self.given:
            self.given = True
            found.insert(1, found[0].derive(_position=found[0].position + b" "))
        return found

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        super().open(position, last)
        self.given = position is not None


class NoChanges(Reader):
    """Looks at the file once."""

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        super().open(position, last)
        self.end = self.settings.path.stat().st_size if self.settings.path.exists() else 0

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        if self.at >= self.end:
            self.context.stopping.wait(timeout)
            return []
        return super().read(max_records, timeout)


class HangsIdle(Reader):
    """Waits for records, and for nothing else."""

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        if not (found := super().read(max_records, timeout)):
            threading.Event().wait()
        return found


class HangsInTeardown(Reader):
    def close(self) -> None:
        threading.Event().wait()


class HangsInAck(Reader):
    def ack(self, positions: Sequence[bytes]) -> None:
        threading.Event().wait()


class WrongLast(SourceAdapter):
    def stop(self) -> bytes:
        super().stop()
        return b"99999999"


class HangsOnBadPosition(Reader):
    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:
        try:
            super().open(position, last)
        except ValueError:
            threading.Event().wait()


class NeedsOpen(SourceAdapter):
    def teardown(self) -> None:
        self._check_open()
        super().teardown()


class OpensAnyhow(SourceAdapter):
    def open(self, position: bytes, last: Mapping[str, Record] | None = None) -> None:
        if self._settings is not None:
            super().open(position, last)


# -- destinations --------------------------------------------------------------------------------------------------------------


class Backwards(DestinationAdapter):
    def acks(self, timeout: float) -> Sequence[Ack]:
        return super().acks(timeout)[::-1]

    def write(self, records: Records) -> None:
        with self._changed:  # so that several come at once
            super().write(records)


class AcksTwice(DestinationAdapter):
    def acks(self, timeout: float) -> Sequence[Ack]:
        return [ack for ack in super().acks(timeout) for _ in range(2)]


class MissesOne(DestinationAdapter):
    def acks(self, timeout: float) -> Sequence[Ack]:
        return [ack for ack in super().acks(timeout) if not ack.position.endswith(b"7")]


class AcksStrangers(DestinationAdapter):
    def acks(self, timeout: float) -> Sequence[Ack]:
        return [Ack(ack.position + b"?", ack.error) for ack in super().acks(timeout)]


class Forgets(Writer):
    """Keeps what it has acknowledged in memory until it is closed."""

    def write(self, batch: Batch) -> None:
        for record in batch:
            self.file.write(line(record))


class NeverWrites(Writer):
    def write(self, batch: Batch) -> None:
        pass


class DropsDeletes(Writer):
    def write(self, batch: Batch) -> None:
        super().write(Batch([record for record in batch if record.operation != "delete"]))


class PanicsOnUpdate(Writer):
    def write(self, batch: Batch) -> None:
        if any(record.operation == "update" for record in batch):
            raise KeyError("update")
        super().write(batch)


class PanicsOnRaw(Writer):
    def write(self, batch: Batch) -> None:
        if any(not isinstance(record.after, dict) and record.after is not None for record in batch):
            raise TypeError("raw bytes")
        super().write(batch)


class HoldsBack(DestinationAdapter):
    """Writes when there are many, and not when it is told to stop."""

    def write(self, records: Records) -> None:
        if len(records) == 3 and records[0].position.endswith(b"000"):
            with self._changed:
                self._written = records[2].position
                self._changed.notify_all()
        else:
            super().write(records)


class Once(Writer):
    """Refuses what it has seen before."""

    def write(self, batch: Batch) -> None:
        for record in batch:
            if self.settings.path.exists() and line(record) in self.settings.path.read_text():
                raise ValueError("it is there already")
        super().write(batch)


class StopsNever(DestinationAdapter):
    def stop(self, position: bytes) -> None:
        if not position:
            threading.Event().wait()
        super().stop(position)


# -- programs ------------------------------------------------------------------------------------------------------------------


class StartsAChild(SourceAdapter):
    def configure(self, config: Mapping[str, str]) -> None:
        super().configure(config)
        subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)


BAD: dict[str, Bad] = {
    "no summary": Bad(_said(summary=" "), "specification.texts", "its summary is empty"),
    "odd version": Bad(_said(version="2024-01"), "specification.version", "its version is '2024-01'"),
    "no description": Bad(
        _said(source=_parameter("prefix", description="")),
        "specification.parameters",
        "'prefix' of the source has no desc",
    ),
    "bad default": Bad(
        _said(source=_parameter("at-once", default="0")), "specification.defaults", "at-once: '0' is not greater than 0"
    ),
    "claims a role": Bad(
        replace(served(GOOD), destination=None), "specification.roles", "parameters of a destination, and Configure"
    ),
    "no read": Bad(
        replace(GOOD, source=type("NoRead", (Reader.__mro__[1],), {"settings_type": ShelfSource})),
        "specification.methods",
        "NoRead has no read",
    ),
    "not required": Bad(_source(NotRequired), "settings.required", "accepted settings without path"),
    "not validated": Bad(_source(NotValidated), "settings.violated", "accepted at-once='many'"),
    "mumbles": Bad(_plugins(partial(Mumbles, Reader)), "settings.required", "says: bad settings"),
    "refuses its default": Bad(
        _said(source=_parameter("prefix", default="Q", validations=())),
        "settings.defaults",
        "refuses what it names as defaults",
    ),
    "ignores its default": Bad(
        _said(source=_parameter("prefix", default="x ")), "source.defaults", "record 0 is another one"
    ),
    "same position": Bad(_source(SamePosition), "source.records", "have the same position"),
    "no position": Bad(_source(NoPosition), "source.records", "has no position"),
    "loses": Bad(_source(Loses), "source.records", "records never came, the first of them"),
    "twice": Bad(_source(Twice), "source.snapshot", "came 2 times"),
    "too late": Bad(_source(TooLate), "source.resume", "was never acked and did not come again: it is lost"),
    "too early": Bad(_source(TooEarly), "source.resume", "was acked and came again"),
    "other positions": Bad(
        _source(OtherPositions), "source.replay", "record 0 was at .* and is at .* when it is read again"
    ),
    "other content": Bad(_source(OtherContent), "source.replay", "has another content when it is read again"),
    "no changes": Bad(_source(NoChanges), "source.changes", "3 of 3 records never came"),
    "hangs when idle": Bad(_source(HangsIdle), "source.idle", "(Read|Stop) did not return within"),
    "hangs in teardown": Bad(_source(HangsInTeardown), "source.teardown", "Teardown did not return within"),
    "hangs in ack": Bad(_source(HangsInAck), "source.acks", "(Ack did not return|its stream did not end) within"),
    "wrong last": Bad(_plugins(partial(WrongLast, Reader)), "source.stop", "and that one never came"),
    "bad position": Bad(_source(HangsOnBadPosition), "source.bad-position", "Open did not return within"),
    "teardown needs open": Bad(
        _plugins(partial(NeedsOpen, Reader)), "source.teardown-early", "Teardown failed: it is not open"
    ),
    "opens anyhow": Bad(_plugins(partial(OpensAnyhow, Reader)), "source.order", "opens though it was never configured"),
    "backwards": Bad(
        _plugins(None, partial(Backwards, Writer)), "destination.acks", "it acknowledged .* where .* is next"
    ),
    "acks twice": Bad(
        _plugins(None, partial(AcksTwice, Writer)), "destination.acks", "acknowledged b'kit-000000' 2 times"
    ),
    "misses one": Bad(
        _plugins(None, partial(MissesOne, Writer)), "destination.acks", "2 of 20 records were never answered"
    ),
    "acks strangers": Bad(_plugins(None, partial(AcksStrangers, Writer)), "destination.acks", "which nobody sent"),
    "forgets": Bad(_destination(Forgets), "destination.durable", "acknowledged and is not there"),
    "never writes": Bad(_destination(NeverWrites), "destination.written", "acknowledged and is not there"),
    "drops deletes": Bad(_destination(DropsDeletes), "destination.operations", "what it deletes is there as before"),
    "panics on update": Bad(_destination(PanicsOnUpdate), "destination.operations", "the operation update ends it"),
    "panics on raw": Bad(_destination(PanicsOnRaw), "destination.payloads", "the payload b'kit.* ends it"),
    "holds back": Bad(
        _plugins(None, partial(HoldsBack, Writer)), "destination.flush", "3 of 3 records were never answered"
    ),
    "once": Bad(_destination(Once), "destination.again", "it is there already"),
    "stops never": Bad(_plugins(None, partial(StopsNever, Writer)), "destination.idle", "Stop did not return within"),
    "prints first": Bad(GOOD, "process.handshake", "it printed 'hello' where the handshake should be", True),
    "needs no cookie": Bad(GOOD, "process.cookie", "it ended with 0 and printed", True),
    "ctrl-c ends it": Bad(GOOD, "process.interrupted", "after SIGINT it is gone", True),
    "ignores sigterm": Bad(GOOD, "process.terminated", "seconds after SIGTERM it is still there", True),
    "leaves a child": Bad(_plugins(partial(StartsAChild, Reader)), "process.ends", "left 1 process", True),
    "stays": Bad(GOOD, "process.ends", "seconds after Shutdown it is still there", True),
    "two tongues": Bad(GOOD, "process.dialects", "in dialect 1 is another one than in dialect 2", True),
}


def main(name: str) -> int:
    import signal

    from penstock_protocol import handshake

    made = BAD[name].made
    if name == "prints first":
        print("hello", flush=True)
    if name == "needs no cookie" and handshake.COOKIE not in os.environ:
        print("1|1|unix|/nowhere|grpc|")
        return 0
    if name == "ignores sigterm":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if name == "ctrl-c ends it":
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # who runs in the background inherits that it is ignored
        signal.signal = lambda *_: None
    if name == "two tongues" and handshake.dialect(os.environ) == 1:
        made = _said(summary="something else")
    code = serve(made) if isinstance(made, Connector) else server.serve(made)
    if name == "stays" and code == 0:  # it was started by a host
        threading.Event().wait()
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
