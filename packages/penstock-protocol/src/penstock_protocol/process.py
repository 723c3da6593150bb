"""A plugin program, started and watched: its handshake, what it prints, and its end. Runs in a host.

It gets a clean environment, a socket folder that nobody else can open, and a session of its own, so that what it starts ends with it;
and it ends with us, also when we are killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import IO, Self

import grpc

from penstock_protocol import client
from penstock_protocol.handshake import DEFAULT_MAX_MESSAGE, Handshake, Invitation
from penstock_protocol.interfaces import PluginError, Specification

PATIENCE = 60.0  # seconds until the handshake
OPEN_FILES = 4096  # that a program may have at a time
GRACE = 2.0  # seconds between being told to end and being ended
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SYSTEMROOT", "SSL_CERT_FILE", "SSL_CERT_DIR")
NO_UTILITIES = "127.0.0.1:1"  # where nobody listens: for plugins that need no schemas
_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG

Log = Callable[[str, str], None]  # level and text


def _quiet(_: str, __: str) -> None:
    pass


class PluginProcess:
    """One plugin program, for one role. Start it from a thread that lives as long as it is needed: it ends with that thread."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        connector_id: str,
        utilities: str = NO_UTILITIES,
        token: str = "",
        log: Log = _quiet,
        log_level: str = "info",
        max_message: int = DEFAULT_MAX_MESSAGE,
        environment: Mapping[str, str] | None = None,
        patience: float = PATIENCE,
        dialects: Sequence[int] = (),
        started: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`environment`: what it gets besides what every program needs. `dialects`: which it is offered, all of them by default.
        `started` is called with its process id, which is that of its group, before anything is heard of it. PluginError if there is no
        handshake."""
        self._log = log
        self._max_message = max_message
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-plugin-")  # mode 0700
        invitation = Invitation(
            connector_id,
            utilities,
            token or secrets.token_hex(16),
            log_level,
            max_message,
            self._folder.name,
            dialects,
        )
        base = {name: os.environ[name] for name in KEPT if name in os.environ}
        try:
            self.process = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**base, **(environment or {}), **invitation.environment()},
                start_new_session=True,
                preexec_fn=_prepare,
            )
        except OSError as e:
            self._folder.cleanup()
            raise PluginError(f"{command[0]} can't be started: {e.strerror}", gone=True) from e
        started(self.process.pid)
        self._last: list[str] = []  # the last lines on stderr, for an error that says why
        self.plain: list[str] = []  # the first ones that have no level
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._err = threading.Thread(target=self._errors, args=(self.process.stderr,), daemon=True)
        self._err.start()
        try:
            self.handshake = self._shaken(self.process.stdout, patience)
        except BaseException:
            self.kill()
            raise
        self.channel: grpc.Channel = client.connect(self.handshake)
        threading.Thread(target=self._prints, name="plugin prints", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- what it serves -----------------------------------------------------------------------------------------------------

    def specify(self, timeout: float | None = None) -> Specification:
        return client.Specifier(self.channel, self.handshake.dialect, timeout).specify()

    def source(self, timeout: float | None = None) -> client.Source:
        return client.Source(self.channel, self.handshake.dialect, timeout=timeout)

    def destination(self, timeout: float | None = None) -> client.Destination:
        return client.Destination(self.channel, self.handshake.dialect, timeout=timeout, max_message=self._max_message)

    # -- its end ------------------------------------------------------------------------------------------------------------

    def last_words(self) -> str:
        """How it has ended, and what it said before that. Empty: it has not."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(0.5)  # its socket ends a moment before it does
        if self.process.returncode is None:
            return ""
        self._err.join(1.0)
        said = "; ".join(self._last[-3:])
        return f"it ended with {self.process.returncode}{': ' + said if said else ''}"

    def close(self, grace: float = GRACE) -> int | None:
        """Asks it to end, and ends it. The exit code; negative: by a signal."""
        if self.process.poll() is None:
            client.shut_down(self.channel, grace)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
        self.kill()
        return self.process.returncode

    def kill(self) -> None:
        """It, and everything that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if (channel := getattr(self, "channel", None)) is not None:
            channel.close()
        self._err.join(1.0)
        self._folder.cleanup()

    # -- what it prints -----------------------------------------------------------------------------------------------------

    def _shaken(self, out: IO[bytes], patience: float) -> Handshake:
        lines: queue.Queue[bytes] = queue.Queue(1)
        threading.Thread(target=self._outputs, args=(out, lines), daemon=True).start()
        try:
            line = lines.get(timeout=patience)
        except queue.Empty:
            raise PluginError(f"it printed no handshake within {patience:g} seconds", gone=True) from None
        if not line:
            self.process.wait()
            self._err.join(1.0)
            said = "; ".join(self._last[-3:])
            raise PluginError(
                f"it ended with {self.process.returncode} before the handshake{': ' + said if said else ''}", gone=True
            )
        try:
            return Handshake.parse(line.decode(errors="replace"))
        except ValueError as e:
            raise PluginError(str(e), gone=True) from None

    def _outputs(self, out: IO[bytes], first: queue.Queue[bytes]) -> None:
        first.put(out.readline(10_000))
        for line in out:  # it must never wait for us
            self._log("info", line.decode(errors="replace").rstrip())

    def _prints(self) -> None:
        for data in client.printed(self.channel):
            for line in data.decode(errors="replace").splitlines():
                self._log("info", line)

    def _errors(self, err: IO[bytes]) -> None:
        for line in err:
            level, text = _parsed(line.decode(errors="replace").rstrip())
            if not level:
                self.plain = [*self.plain[:9], text]
                level = "error" if text.startswith("panic:") else "debug"
            self._last = [*self._last[-9:], text]
            self._log(level, text)


def _parsed(line: str) -> tuple[str, str]:
    """JSON lines as plugins write them. Other text has no level: it is for those who debug, unless it is a panic."""
    try:
        found = json.loads(line)
        level, text = found.pop("@level"), found.pop("@message")
    except (ValueError, KeyError, AttributeError, TypeError):
        return "", line
    more = " ".join(f"{name}={value}" for name, value in found.items() if not name.startswith("@"))
    return str(level), f"{text} {more}".rstrip()


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def _prepare() -> None:
    """In the child, before the program is there. Nothing is imported or allocated here that could hold a lock."""
    if _libc is not None:
        _libc.prctl(_DEATH_SIGNAL, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core would hold records and secrets
    hardest = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = OPEN_FILES if hardest == resource.RLIM_INFINITY else min(OPEN_FILES, hardest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
