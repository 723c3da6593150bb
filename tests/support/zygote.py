"""Children that are forked from a process which has imported everything: a start costs hundredths of a second instead of one and a half.

Hundreds of engines are started to be killed, and what they import took a third of all the time of the tests. A child is as real as one
that was started anew: a process with a session and pipes of its own. It has the environment of its parent, so one that needs another
environment is started the plain way.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn, Protocol

ROOT = Path(__file__).parents[2]
EARLY = (
    "penstock.testing.child",
    "penstock.cli.main",
    "penstock.pipeline",
    "penstock.engine.supervisor",
    "penstock.engine.lane",
    "penstock.engine.session",
    "penstock.connectors.files.source",
    "penstock.connectors.files.destination",
    "penstock.connectors.lines.destination",
    "penstock.connectors.queue.destination",
    "pyspark.sql",
    "pyspark.sql.functions",
    "pyspark.sql.classic.dataframe",
    "pyspark.sql.pandas.map_ops",
    "pyspark.java_gateway",
    "pandas",
    "pyarrow",
    "pyarrow.parquet",
    "penstock.processors.json_decode",
    "penstock.processors.json_encode",
    "tests.support.outcomes",
)


class Child(Protocol):
    """What a started process is to those who wait for it and kill it: `subprocess.Popen`, or the same of a fork."""

    pid: int
    returncode: int

    def poll(self) -> int | None: ...
    def wait(self, timeout: float | None = None) -> int: ...
    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]: ...
    def kill(self) -> None: ...
    def send_signal(self, number: int) -> None: ...


# -- the tests' side ---------------------------------------------------------------------------------------------------------------------


class Zygote:
    """One for a test process; it ends with it."""

    def __init__(self) -> None:
        self.environment = _environment()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.zygote", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            cwd=ROOT,
        )
        theirs.close()
        self._ended: dict[int, int] = {}
        atexit.register(self.close)

    def close(self) -> None:
        self._channel.close()
        self._process.wait(10)

    def start(self, spec: Path) -> Forked:
        pipes = [os.pipe() for _ in range(2)]
        socket.send_fds(self._channel, [str(spec).encode()], [there for _, there in pipes])
        for _, there in pipes:
            os.close(there)
        while (pid := self._hear()) is None:
            pass
        self._ended.pop(pid, None)  # of an earlier one with the same number
        return Forked(self, pid, *(here for here, _ in pipes))

    def status(self, pid: int, timeout: float | None) -> int | None:
        """How a child ended; None when it has not, after so many seconds."""
        until = None if timeout is None else time.monotonic() + timeout
        while pid not in self._ended:
            left = None if until is None else until - time.monotonic()
            if left is not None and left < 0 and not self._ready(0):
                return None
            if self._ready(left if left is None else max(left, 0)):
                self._hear()
        return self._ended[pid]

    def _ready(self, timeout: float | None) -> bool:
        return bool(select.select([self._channel], [], [], timeout)[0])

    def _hear(self) -> int | None:
        """One message: of a child that was started its number, of one that ended nothing."""
        data = self._channel.recv(4096)
        if not data:
            raise RuntimeError("the process that children are forked from has ended")
        message = json.loads(data)
        if "status" not in message:
            return int(message["pid"])
        self._ended[message["pid"]] = message["status"]
        return None


class Forked:
    """As much of `subprocess.Popen` as is used."""

    def __init__(self, zygote: Zygote, pid: int, out: int, err: int) -> None:
        self.pid = pid
        self.returncode: Any = None  # as Popen has it
        self._zygote = zygote
        self._said = {out: bytearray(), err: bytearray()}
        self._open = {out, err}

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._zygote.status(self.pid, 0)
        found: int | None = self.returncode
        return found

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self.returncode = self._zygote.status(self.pid, timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("a fork", timeout or 0)
        return int(self.returncode)

    def communicate(self, input: None = None, timeout: float | None = None) -> tuple[str, str]:
        assert input is None
        until = None if timeout is None else time.monotonic() + timeout
        while self._open:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired("a fork", timeout or 0)
            for pipe in select.select(list(self._open), [], [], left)[0]:
                data = os.read(pipe, 1 << 16)
                self._said[pipe] += data
                if not data:
                    os.close(pipe)
                    self._open.discard(pipe)
        self.wait(None if until is None else max(0.0, until - time.monotonic()))
        out, err = (data.decode() for data in self._said.values())
        return out, err

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, number: int) -> None:
        """Its parent tells of an end before it is ours to see, so the number may belong to nobody by then."""
        if self.poll() is None:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return


_zygote: list[Zygote] = []


def begin() -> None:
    """Where nothing is in the environment that belongs to a single test."""
    if not _zygote:
        _zygote.append(Zygote())


def started(spec: Path) -> Child:
    if _zygote and _zygote[0].environment == _environment():
        return _zygote[0].start(spec)
    return subprocess.Popen(
        [sys.executable, "-m", "penstock.testing.child", str(spec)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=ROOT,
    )


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


# -- its own side ------------------------------------------------------------------------------------------------------------------------


def serve(channel: socket.socket) -> str:
    """Forks for everyone who asks, and says how they ended. Returns in the children alone: with the file that says what to do."""
    here, there = os.pipe()
    os.set_blocking(there, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(there)
    while True:
        ready = select.select([channel.fileno(), here], [], [])[0]
        if here in ready:
            os.read(here, 4096)
            _reap(channel)
        if channel.fileno() in ready:
            data, fds, _, _ = socket.recv_fds(channel, 65536, 2)
            if not data:
                _end()
            if (pid := os.fork()) == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.setsid()
                for number, fd in enumerate(fds, 1):
                    os.dup2(fd, number)
                for fd in (*fds, here, there, channel.detach()):
                    os.close(fd)
                return data.decode()
            for fd in fds:
                os.close(fd)
            channel.send(json.dumps({"pid": pid}).encode())


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        channel.send(json.dumps({"pid": pid, "status": os.waitstatus_to_exitcode(status)}).encode())


def _end() -> NoReturn:
    os._exit(0)


if __name__ == "__main__":
    for module in EARLY:
        import_module(module)
    gc.collect()
    gc.freeze()
    wanted = serve(socket.socket(fileno=int(sys.argv[1])))
    from penstock.testing import child

    child.main(child.Spec.read(wanted))
