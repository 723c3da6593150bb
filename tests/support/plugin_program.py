"""A plugin program on the protocol layer alone, for tests: counts, or keeps what it is sent in a file. A child of `PluginProcess`."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock_protocol.interfaces import (
    Ack,
    DestinationPlugin,
    EndOfStream,
    Parameter,
    ParameterType,
    PluginError,
    SourcePlugin,
    Specification,
    Validation,
    ValidationType,
)
from penstock_protocol.pb.opencdc.v1.opencdc_pb2 import OPERATION_CREATE, Change, Data, Record
from penstock_protocol.records import Records
from penstock_protocol.server import Served, serve

SPECIFICATION = Specification(
    "counter",
    "v1.2.3",
    "Counts.",
    "Gives the numbers from 1 on.",
    "nobody",
    source={
        "count": Parameter("10", "how many", ParameterType.INT, (Validation(ValidationType.GREATER_THAN, "0"),)),
        "batch": Parameter("3", "records in a message", ParameterType.INT),
    },
    destination={
        "path": Parameter("", "where to", ParameterType.FILE, (Validation(ValidationType.REQUIRED),)),
        "refuse": Parameter("", "a position that is refused"),
    },
)


def _note(text: str) -> None:
    """What was called, in order, for a test that wants to know."""
    if folder := os.environ.get("COUNTER_CALLS"):
        with Path(folder).open("a") as file:
            file.write(text + "\n")


class Counter(SourcePlugin):
    def configure(self, config: Mapping[str, str]) -> None:
        _note("configure")
        self._count, self._batch = int(config.get("count", "10")), int(config.get("batch", "3"))
        if self._count < 0:
            raise PluginError(f"count: {self._count} is less than 0")
        self._stopped = threading.Event()
        self._unacked: list[bytes] = []

    def open(self, position: bytes) -> None:
        _note(f"open {position.decode()}")
        self._at = int(position or b"0")

    def read(self, timeout: float) -> Records:
        if self._at == 13:
            raise ValueError("thirteen")
        if self._at >= self._count or self._stopped.is_set():
            if self._stopped.wait(timeout) and not self._unacked:
                raise EndOfStream
            return Records(b"")
        made: list[Record] = []
        while self._at < self._count and len(made) < self._batch and self._at != 13:
            self._at += 1
            data = Data(raw_data=b"number %d" % self._at)
            made.append(
                Record(
                    position=b"%d" % self._at,
                    operation=OPERATION_CREATE,
                    payload=Change(after=data),
                    metadata={"a": "b"},
                )
            )
            self._unacked.append(made[-1].position)
        return Records.of(made)

    def ack(self, positions: Sequence[bytes]) -> None:
        for position in positions:
            if position != self._unacked.pop(0):
                raise ValueError(f"{position!r} is out of order")

    def stop(self) -> bytes:
        _note("stop")
        self._stopped.set()
        return b"%d" % self._at

    def teardown(self) -> None:
        _note("teardown")

    def on_created(self, config: Mapping[str, str]) -> None:
        _note(f"created {dict(sorted(config.items()))}")


class Keeper(DestinationPlugin):
    def configure(self, config: Mapping[str, str]) -> None:
        if not config.get("path"):
            raise PluginError("path: is required")
        self._path, self._refuse = Path(config["path"]), config.get("refuse", "").encode()
        self._acks: queue.Queue[Ack] = queue.Queue()
        self._done = threading.Event()

    def open(self) -> None:
        self._file = self._path.open("ab")

    def write(self, records: Records) -> None:
        for record in records:
            if record.position == self._refuse:
                self._acks.put(Ack(record.position, "refused"))
                continue
            self._file.write(record.payload.after.raw_data + b"\n")
            self._acks.put(Ack(record.position))
        self._file.flush()

    def acks(self, timeout: float) -> Sequence[Ack]:
        try:
            found = [self._acks.get(timeout=timeout)]
        except queue.Empty:
            if self._done.is_set():
                raise EndOfStream from None
            return []
        while not self._acks.empty():
            found.append(self._acks.get())
        return found

    def stop(self, position: bytes) -> None:
        self._done.set()

    def teardown(self) -> None:
        self._file.close()


def main() -> int:
    how = sys.argv[1] if len(sys.argv) > 1 else ""
    if how == "silent":
        time.sleep(600)
    if how == "garbage":
        print("hello", flush=True)
        time.sleep(600)
    if how == "dies":
        sys.stderr.write("no luck today\n")
        return 3
    if how == "newer":
        print("1|9|unix|/nowhere|grpc|", flush=True)
        time.sleep(600)
    sys.stderr.write('{"@level":"warn","@message":"here I am","@timestamp":"x","why":"test"}\n')
    return serve(Served(SPECIFICATION, Counter, Keeper))


if __name__ == "__main__":
    sys.exit(main())
