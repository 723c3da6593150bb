"""The control socket: how commands talk to an engine that runs continuously. `control.sock` in its state folder.

A connection carries one request and one answer, each a JSON object on one line. Whoever may use the state folder may ask; nobody else can.
A client that hangs, sends nonsense or goes away costs one thread for a few seconds. The lock of the state folder decides whose socket it
is: one that a killed engine has left is replaced. All of it runs in daemon threads of the engine's process.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from penstock.errors import PenstockError, UsageError

NAME = "control.sock"
REQUEST = 64 << 10  # bytes of a request at most
ANSWER = 4 << 20  # and of an answer
PATIENCE = 5.0  # seconds in which a request has to be there, and an answer has to be taken
CLIENTS = 16  # that are served at the same time
_PLAIN = 100  # a longer path does not fit into a socket's address everywhere

Answering = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class Control:
    """Listens from `__enter__` to `__exit__`. `answer` is called from a thread per request; what it raises is the answer."""

    def __init__(
        self, folder: Path, answer: Answering, failed: Callable[[str], None] = lambda _: None, *, off: bool = False
    ) -> None:
        """An engine that can't listen runs all the same: `failed` is told why. With `off` it does not try."""
        self._folder, self._answer, self._failed, self._off = folder, answer, failed, off
        self._socket: socket.socket | None = None
        self._made: tuple[int, int] | None = None  # device and inode of the file
        self._free = threading.BoundedSemaphore(CLIENTS)

    def __enter__(self) -> Self:
        if not self._off:
            try:
                self._listen()
            except OSError as e:
                self._close()
                self._failed(str(e))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._close()

    def _listen(self) -> None:
        with _folder(self._folder) as fd:
            with suppress(FileNotFoundError):
                os.unlink(NAME, dir_fd=fd)  # of an engine that was killed: we have the lock
            listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket = listening
            os.fchmod(listening.fileno(), 0o600)  # before it has a name: no moment in which others could connect
            listening.bind(_address(self._folder, fd))
            os.chmod(NAME, 0o600, dir_fd=fd)
            found = os.stat(NAME, dir_fd=fd)
            self._made = (found.st_dev, found.st_ino)
        listening.listen(CLIENTS)
        threading.Thread(target=self._accept, args=[listening], name="control", daemon=True).start()

    def _close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            self._socket.close()
            self._socket = None
        if self._made is not None:
            made, self._made = self._made, None
            with suppress(OSError), _folder(self._folder) as fd:
                found = os.stat(NAME, dir_fd=fd, follow_symlinks=False)
                if (found.st_dev, found.st_ino) == made:
                    os.unlink(NAME, dir_fd=fd)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError as e:
                if e.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                    time.sleep(0.1)
                    continue
                return  # closed
            if not self._free.acquire(blocking=False):
                client.close()
                continue
            threading.Thread(target=self._serve, args=[client], name="control client", daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, suppress(OSError):
                if not _ours(client):
                    return
                try:
                    request = _object(_line(client, REQUEST, PATIENCE))
                except (ValueError, RecursionError) as e:
                    answer: Mapping[str, Any] = _told(
                        UsageError("The request was not understood", code="control.request", why=str(e)[:200])
                    )
                else:
                    answer = self._answered(request)
                client.settimeout(PATIENCE)
                client.sendall(_encoded(answer))
        finally:
            self._free.release()

    def _answered(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            return {"ok": True, **self._answer(request)}
        except PenstockError as e:
            return _told(e)
        except Exception as e:  # a client must not wait for an answer that never comes
            return _told(
                PenstockError(f"The engine could not do it: {type(e).__name__}", code="control.failed", why=str(e))
            )


def ask(folder: Path, request: Mapping[str, Any], timeout: float = PATIENCE) -> dict[str, Any]:
    """What the engine of a state folder answers. Raises `UsageError` (`control.no-engine`) where none listens, and what the engine
    says against the request."""
    try:
        with _folder(folder) as fd, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
            server.settimeout(PATIENCE)
            server.connect(_address(folder, fd))
            server.sendall(_encoded(request))
            answer = _object(_line(server, ANSWER, timeout))
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError) as e:
        raise UsageError(f"No engine listens on {folder}", code="control.no-engine", why=str(e)) from e
    except (OSError, ValueError, RecursionError) as e:
        raise UsageError(
            f"The engine on {folder} did not answer",
            code="control.silent",
            why=str(e),
            hint="it may be about to end, or be very busy: penstock pipelines list says whether it runs; then try again",
        ) from e
    if answer.get("ok") is True:
        return answer
    said = answer.get("error")
    texts = {k: v for k, v in said.items() if isinstance(v, str)} if isinstance(said, dict) else {}
    what = texts.pop("what", "The engine refused")
    raise UsageError(what, **{name: texts.get(name, "") for name in ("code", "where", "why", "hint")})


def _told(e: PenstockError) -> Mapping[str, Any]:
    said = {"what": e.what, "code": e.code, "where": e.where, "why": e.why, "hint": e.hint}
    return {"ok": False, "error": {name: text for name, text in said.items() if text}}


def _encoded(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _object(line: bytes) -> dict[str, Any]:
    value = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError("it is no JSON object")  # noqa: TRY004 - as other bad JSON
    return value


def _line(connection: socket.socket, most: int, timeout: float) -> bytes:
    """One line, all of it in time. Raises `ValueError` for one that is too long or does not end, `OSError` for one that is late."""
    until = time.monotonic() + timeout
    found = bytearray()
    while b"\n" not in found:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("it took too long")
        connection.settimeout(left)
        piece = connection.recv(1 << 16)
        if not piece:
            raise ValueError("it ended in the middle of a line") if found else ConnectionResetError("nothing came")
        found += piece
        if len(found) > most:
            raise ValueError(f"it is longer than {most:,} bytes")
    return bytes(found[: found.index(b"\n")])


def _ours(client: socket.socket) -> bool:
    """The folder keeps others out; this keeps them out where its mode was changed."""
    if not sys.platform.startswith("linux"):
        return True
    found = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, uid, _ = struct.unpack("3i", found)
    return uid in (0, os.geteuid())


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _address(folder: Path, fd: int) -> str:
    """An address holds about a hundred bytes. A folder that is open has a short name too, on Linux."""
    plain = str(folder / NAME)
    if len(os.fsencode(plain)) <= _PLAIN:
        return plain
    short = Path(f"/proc/self/fd/{fd}")
    if not (short.exists() and stat.S_ISDIR(short.stat().st_mode)):
        raise OSError(errno.ENAMETOOLONG, f"the path of the state folder is too long for a socket: {plain}")
    return str(short / NAME)
