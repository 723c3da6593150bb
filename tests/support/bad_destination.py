"""A destination program on the protocol layer alone that does what the file `how` beside it says, for tests of hosts. It has to behave
while it is installed: then it is only asked what it is.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock_protocol.handshake import CONNECTOR_ID
from penstock_protocol.interfaces import (
    Ack,
    DestinationPlugin,
    EndOfStream,
    Parameter,
    ParameterType,
    PluginError,
    Specification,
)
from penstock_protocol.records import Records
from penstock_protocol.server import Served, serve

SPECIFICATION = Specification(
    "bad", "1.0.0", "Breaks rules.", destination={"path": Parameter("", "where to", ParameterType.FILE)}
)
LINES = {"garbage": "hello, I am a plugin", "core": "2|2|unix|/nowhere|grpc|", "dialect": "1|9|unix|/nowhere|grpc|"}
CHILD = "import sys, time; time.sleep(600)"


class Bad(DestinationPlugin):
    """Keeps every record in a file before it answers. Answers late, so that whole batches are answered at once."""

    def __init__(self, folder: Path, how: str) -> None:
        self._folder, self._how = folder, how
        self._taken: queue.Queue[list[Ack]] = queue.Queue()
        self._stopped = threading.Event()
        self._ended = False

    def configure(self, config: Mapping[str, str]) -> None:
        self._path = Path(config["path"])

    def open(self) -> None:
        if self._how == "prints":
            os.write(1, b"\xff\x00 this is no handshake\n" * 1000)

    def write(self, records: Records) -> None:
        found = list(records)
        with self._path.open("a") as file:
            for record in found:
                text = record.payload.after.raw_data.decode()
                file.write(json.dumps({"after": text, "source": record.metadata["penstock.source"]}) + "\n")
        if "stuck" in self._how:
            time.sleep(600)
        if "panics" in self._how:
            os._exit(2)
        self._taken.put([Ack(record.position) for record in found])

    def acks(self, timeout: float) -> Sequence[Ack]:
        if self._ended:
            raise EndOfStream
        try:
            found = self._taken.get(timeout=timeout)
        except queue.Empty:
            if self._stopped.is_set():
                raise EndOfStream from None
            return []
        match self._how:
            case "backwards":
                return found[::-1]
            case "twice":
                return [ack for ack in found for _ in range(2)]
            case "strangers":
                return [*found[:-1], Ack(b"never sent")]
            case "fewer once" if len(found) > 3 and not (mark := self._folder / "fewer").exists():
                mark.touch()
                self._ended = True
                return found[:3]
            case "raises":
                raise PluginError("it has had enough")
        return found

    def stop(self, position: bytes) -> None:
        self._stopped.set()

    def teardown(self) -> None: ...


def main(folder: Path) -> int:
    path = folder / "how"
    how = path.read_text() if path.exists() and os.environ.get(CONNECTOR_ID) != "load-specifications" else ""
    if "child" in how:
        subprocess.Popen([sys.executable, "-c", CHILD, str(folder)])
    if how == "dies":
        sys.stderr.write("no luck today\n")
        return 3
    if how in ("silent", "silent child"):
        time.sleep(600)
    if how in LINES:
        print(LINES[how], flush=True)
        time.sleep(600)
    return serve(Served(SPECIFICATION, destination=lambda: Bad(folder, how)))
