"""The engine's side of a connector host: starts it, talks to it, ends it. Every call raises what the connector said, or `Retry` where the
host is gone: recovery starts another one."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import IO, Any

import pyarrow as pa
from pyarrow import flight

from penstock.errors import Retry
from penstock.host import trouble
from penstock.host.spec import RIGHTS, Ready, SourceSpec
from penstock.log import Mode, Rows, arrow

START = 60.0  # seconds that a host may take to listen
GRACE = 5.0  # seconds between being told to end and being ended
Log = Callable[[str, str], None]  # level and text


class Host:
    """One process, one connector. Start it from a thread that lives as long as the engine."""

    def __init__(self, spec: Callable[[dict[str, str]], SourceSpec], log: Log) -> None:
        """`spec` gets the tokens, which are new with each start."""
        self._tokens = {right: secrets.token_hex(16) for right in RIGHTS}
        made = spec(self._tokens)
        self._name, self._log = made.connector_id, log
        ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.host", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket = ours
        assert self._process.stderr is not None
        self._said: list[str] = []
        self._err = threading.Thread(target=self._listen, args=[self._process.stderr], daemon=True)
        self._err.start()
        try:
            self.ready = self._started(made)
        except BaseException:
            self.kill()
            raise
        self._client = flight.connect(f"grpc://127.0.0.1:{self.ready.port}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def _started(self, spec: SourceSpec) -> Ready:
        self._socket.settimeout(START)
        try:
            self._socket.sendall(spec.line())
            line = self._socket.makefile("rb").readline()
        except OSError as e:
            raise self._gone(f"it did not answer: {e}") from e
        if not line:
            raise self._gone("it ended before it listened")
        ready = Ready.parse(line)
        if ready.error:
            raise trouble.from_json(dict(ready.error))
        self._socket.settimeout(None)
        return ready

    # -- calls --------------------------------------------------------------------------------------------------------------

    def open(self) -> None:
        self._act("open")

    def ack(self, end: int) -> None:
        self._act("ack", end=end)

    def stop(self, timeout: float) -> bool:
        return bool(self._act("stop", timeout=timeout)["drained"])

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self._act("status")
        return found

    def check(self) -> None:
        """Raises what has ended the source, if something has."""
        if error := self.status()["error"]:
            raise trouble.from_json(error)

    def rows(self, start: int, end: int) -> Iterator[Rows]:
        """A range of the log, as its own reader gives it."""
        ticket = flight.Ticket(json.dumps({"start": start, "end": end}).encode())
        try:
            for chunk in self._client.do_get(ticket, self._as("read")):
                for row in chunk.data.to_pylist():
                    batch = arrow.read(pa.py_buffer(row["rows"]))
                    yield Rows(row["offset"], row["namespace"], Mode(row["mode"]), row["timestamp"], batch)
        except flight.FlightUnavailableError as e:
            raise self._gone(str(e)) from e

    def _act(self, name: str, **body: Any) -> Any:
        try:
            (result,) = self._client.do_action((name, json.dumps(body).encode()), self._as("control"))
        except (flight.FlightUnavailableError, flight.FlightInternalError, OSError) as e:
            raise self._gone(str(e).splitlines()[0]) from e
        found = json.loads(result.body.to_pybytes())
        if "error" in found:
            raise trouble.from_json(found["error"])
        return found["ok"]

    def _as(self, right: str) -> flight.FlightCallOptions:
        return flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {self._tokens[right]}".encode())])

    def _gone(self, why: str) -> Retry:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._err.join(1.0)
        code = self._process.returncode
        said = "; ".join(self._said[-3:])
        return Retry(
            f"The host of {self._name} is gone" + (f" (exit code {code})" if code is not None else ""),
            code="host.gone",
            why=said or why,
            hint="it is started again",
        )

    # -- the end ------------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """The connector is torn down, the log is closed, and the process has ended when this returns."""
        if self._process.poll() is None:
            with suppress(Retry):
                self._act("close")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._socket.close()
        self._err.join(1.0)

    def _listen(self, err: IO[bytes]) -> None:
        for line in err:
            text = line.decode(errors="replace").rstrip()
            try:
                found = json.loads(text)
                level, text = found["@level"], found["@message"]
            except (ValueError, KeyError, TypeError):
                level = "debug"
            self._said = [*self._said[-9:], text]
            self._log(level, text)
