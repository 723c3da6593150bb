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
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import IO, Any, Generic, TypeVar

import pyarrow as pa
from pyarrow import flight

from penstock.errors import PenstockError, Retry
from penstock.host import trouble
from penstock.host.spec import RIGHTS, DestinationSpec, Ready, Sending, SourceSpec, Status
from penstock.log import Mode, Rows, arrow
from penstock.plugins.names import PluginName

START = 60.0  # seconds that a host may take to listen
OPEN = 120.0  # that a connector may take to open: it may have to connect to something
CALL = 30.0  # and for every other call
STDIN, STDOUT = (
    "stdin",
    "stdout",
)  # the connectors that read what is piped into the engine, and write what is piped out of it
GRACE = 5.0  # seconds between being told to end and being ended
Log = Callable[[str, str], None]  # level and text
S = TypeVar("S", Status, Sending)


class Remote(Generic[S]):
    """One process, one connector. `kill` may come from any thread."""

    def __init__(
        self, spec: Callable[[dict[str, str]], SourceSpec | DestinationSpec], first: Callable[[Ready], S], log: Log
    ) -> None:
        """`spec` gets the tokens, which are new with each start."""
        self._tokens = {right: secrets.token_hex(16) for right in RIGHTS}
        made = spec(self._tokens)
        self._name, self._log = made.connector_id, log
        self._status: S = first(Ready())
        ours, theirs = socket.socketpair()
        with theirs:
            os.set_inheritable(theirs.fileno(), True)
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.host", str(theirs.fileno())],
                stdin=None if PluginName.parse(made.plugin).name == STDIN else subprocess.DEVNULL,
                stdout=None if PluginName.parse(made.plugin).name == STDOUT else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._socket = ours
        self._lines = ours.makefile("rb")
        assert self._process.stderr is not None
        self._said: list[str] = []
        self._err = threading.Thread(target=self._listen, args=[self._process.stderr], daemon=True)
        self._err.start()
        try:
            self.ready = self._started(made)
        except BaseException:
            self.kill()
            raise
        self.address = f"grpc://127.0.0.1:{self.ready.port}"
        self._client = flight.connect(self.address)
        self._status = first(self.ready)
        self._changed = threading.Condition()
        self._over = False  # the socket has ended: the process is gone
        self._follower = threading.Thread(target=self._follow, name=f"host {self._name}", daemon=True)
        self._follower.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def token(self, right: str) -> str:
        """For tasks: with it they can do this, and nothing else."""
        return self._tokens[right]

    def _started(self, spec: SourceSpec | DestinationSpec) -> Ready:
        self._socket.settimeout(START)
        try:
            self._socket.sendall(spec.line())
            line = self._lines.readline()
        except OSError as e:
            raise self._gone(f"it did not answer: {e}") from e
        if not line:
            raise self._gone("it ended before it listened")
        ready = Ready.parse(line)
        if ready.error:
            raise trouble.from_json(dict(ready.error))
        self._socket.settimeout(None)
        return ready

    def _follow(self) -> None:
        """The host says each change of where it stands: nobody has to ask, and its end is noticed at once."""
        with suppress(OSError, ValueError):
            while line := self._lines.readline():
                self._heard(line)
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _heard(self, line: bytes) -> None:
        raise NotImplementedError

    def _set(self, status: S) -> None:
        with self._changed:
            self._status = status
            self._changed.notify_all()

    @property
    def known(self) -> S:
        """What it has last said, also if it is gone."""
        return self._status

    # -- where it stands ----------------------------------------------------------------------------------------------------

    def status(self) -> S:
        """As it has last said. Raises if it is gone."""
        with self._changed:
            if self._over:
                raise self._gone("it has ended")
            return self._status

    # -- calls --------------------------------------------------------------------------------------------------------------

    def delete(self) -> None:
        self._act("delete", OPEN)

    def _act(self, action: str, timeout: float, **body: Any) -> Any:
        options = bearer(self._tokens["control"], timeout)
        try:
            (result,) = self._client.do_action((action, json.dumps(body).encode()), options)
        except flight.FlightTimedOutError as e:
            self.kill()
            raise Retry(
                f"The connector {self._name} did not answer {action!r} within {timeout:.0f} s",
                code="host.hangs",
                hint="its process was ended; it is started again",
            ) from e
        except (flight.FlightUnavailableError, flight.FlightInternalError, OSError) as e:
            raise self._gone(str(e).splitlines()[0]) from e
        found = json.loads(result.body.to_pybytes())
        if "error" in found:
            raise trouble.from_json(found["error"])
        return found["ok"]

    def _gone(self, why: str) -> PenstockError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        self._err.join(1.0)
        if (follower := getattr(self, "_follower", None)) is not None:
            follower.join(1.0)  # it may have said why, and nobody has read it yet
        code = self._process.returncode
        said = "; ".join(self._said[-3:])
        if self._status.error:  # it has said why
            return trouble.from_json(dict(self._status.error))
        return Retry(
            f"The host of {self._name} is gone" + (f" (exit code {code})" if code is not None else ""),
            code="host.gone",
            why=said or why,
            hint="it is started again",
        )

    # -- the end ------------------------------------------------------------------------------------------------------------

    def close(self, timeout: float = CALL) -> None:
        """The connector is torn down, the log is closed, and the process has ended when this returns."""
        if self._process.poll() is None:
            try:
                self._act("close", timeout)
            except PenstockError as e:  # everything that counts was answered before
                self._log("warn", f"{self._name} did not come to a good end: {e.what}")
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)
        self.kill()

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._status.plugin:  # what it has started may have outlived it
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._status.plugin, signal.SIGKILL)
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._err.join(1.0)

    def _listen(self, err: IO[bytes]) -> None:
        for line in err:
            text = line.decode(errors="replace").rstrip()
            try:
                found = json.loads(text)
                level, text = found["@level"], _worded(found)
            except (ValueError, KeyError, TypeError):
                level = "debug"
            self._said = [*self._said[-9:], text]
            self._log(level, text)


class Host(Remote[Status]):
    """Of a source. Calls come from one thread at a time."""

    def __init__(self, spec: Callable[[dict[str, str]], SourceSpec], log: Log) -> None:
        super().__init__(spec, lambda ready: Status(end=ready.end), log)

    def _heard(self, line: bytes) -> None:
        self._set(Status.parse(line))

    def wait(self, timeout: float, known: Status) -> None:
        """Until something is other than what is known, or it is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._status != known, timeout)

    def trouble(self) -> PenstockError | None:
        """What has ended the source, if something has."""
        error = self.status().error
        return trouble.from_json(dict(error)) if error else None

    def open(self, settled: int = 0) -> None:
        """`settled`: every offset below it is. What the source sends again of that is acked at once."""
        self._act("open", OPEN, settled=settled)

    def ack(self, end: int, refused: Mapping[int, str] | None = None) -> None:
        self._act("ack", CALL, end=end, refused=dict(refused or {}))

    def stop(self) -> None:
        """Returns at once; `status().drained` says when everything that it will give is in the log."""
        self._act("stop", CALL)

    def rows(self, start: int, end: int) -> Iterator[Rows]:
        """A range of the log, as its own reader gives it."""
        try:
            yield from rows_of(self._client, self.token("read"), start, end)
        except flight.FlightUnavailableError as e:
            raise self._gone(str(e)) from e


def _worded(found: Mapping[str, Any]) -> str:
    """A line of a log with its fields."""
    fields = " ".join(f"{name}={value}" for name, value in found.items() if not name.startswith("@"))
    return f"{found['@message']} {fields}".strip()


def bearer(token: str, timeout: float | None = None) -> flight.FlightCallOptions:
    headers = [(b"authorization", f"Bearer {token}".encode())]
    return flight.FlightCallOptions(timeout=timeout, headers=headers)


def rows_of(client: flight.FlightClient, token: str, start: int, end: int) -> Iterator[Rows]:
    ticket = flight.Ticket(json.dumps({"start": start, "end": end}).encode())
    for chunk in client.do_get(ticket, bearer(token)):
        for row in chunk.data.to_pylist():
            batch = arrow.read(pa.py_buffer(row["rows"]))
            yield Rows(row["offset"], row["namespace"], Mode(row["mode"]), row["timestamp"], batch)
