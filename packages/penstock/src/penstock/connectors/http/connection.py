"""One connection to a server: connecting to an address, TLS, one request and its answer at a time. Used by `session`, from one thread.

Every wait is bounded by the deadline of the whole request, however slowly a server drips, and ends soon after a stop.
"""

from __future__ import annotations

import errno
import io
import os
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from http.client import HTTPException, HTTPResponse
from typing import Any

from penstock.connectors.http.address import Origin

SLICE = 0.1  # seconds after which a wait looks whether it should end
GRACE = 1.0  # seconds that an answer has after a stop: it may be just about to come
MOST_BODY = 64 << 10  # bytes of an answer that are read; a connection with a longer one is not used again
MOST_HINTS = 10  # answers of the 100s before the real one
CHUNK = 256 << 10


class Trouble(Exception):
    """The network, or a server that does not speak HTTP: whether the request was handled is not known."""


class Deadline:
    def __init__(self, seconds: float, stopping: threading.Event) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._stopping = stopping
        self._stopped_at: float | None = None

    def capped(self, seconds: float) -> Deadline:
        """One that is over earlier."""
        left = self._end - time.monotonic()
        return self if left <= seconds else Deadline(seconds, self._stopping)

    def check(self) -> None:
        now = time.monotonic()
        if now >= self._end:
            raise Trouble(f"it took longer than {self._seconds:g} s")
        if self._stopping.is_set():
            self._stopped_at = now if self._stopped_at is None else self._stopped_at
            if now >= self._stopped_at + GRACE:
                raise Trouble("it was under way when the connector was stopped")

    def wait(self, done: Callable[[float], bool]) -> None:
        """Until `done`, which waits for so many seconds, says so."""
        while not done(SLICE):
            self.check()


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes  # the beginning of it


class Connection:
    def __init__(self, origin: Origin, address: str, tls: ssl.SSLContext | None, deadline: Deadline) -> None:
        """`address` and no other: it is the one that was looked at. `Trouble` if it can't be reached; ssl's own error if it is
        somebody else's."""
        self.address = address
        self._deadline = deadline
        self._ended = False  # the server has sent its last byte
        self._socket: socket.socket = _connected(address, origin.port, deadline)
        try:
            if tls is not None:
                self._socket = tls.wrap_socket(self._socket, server_hostname=origin.host, do_handshake_on_connect=False)
                self._waited(self._socket.do_handshake)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    def is_fresh(self) -> bool:
        """Whether the server has kept it open and silent since the last answer. Asked before each request: one on a connection that
        the server has closed would have to be sent again, without anybody knowing whether it was handled."""
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)  # the end, or something that nobody has asked for
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            self._socket.settimeout(SLICE)
            return True
        except OSError:
            pass
        return False

    def exchange(self, method: str, head: bytes, body: bytes, deadline: Deadline) -> tuple[Answer, bool]:
        """The answer, and whether the connection can be used again. `Trouble`: it can not."""
        self._deadline = deadline
        sent = self._send(head, body)
        try:
            response = HTTPResponse(self, method=method)  # type: ignore[arg-type]
            return self._answer(response, sent is None)
        except (HTTPException, ValueError) as error:
            raise sent or Trouble(f"the answer is not HTTP, or cut off ({type(error).__name__})") from error
        except Trouble as error:
            raise sent or error from error

    def _send(self, head: bytes, body: bytes) -> Trouble | None:
        """What went wrong: a server may answer before it has read everything, and hang up."""
        try:
            if len(body) < CHUNK:
                self._send_all(head + body)  # in one packet, if it fits
            else:
                self._send_all(head)
                self._send_all(body)
        except Trouble as error:
            return error
        return None

    def _send_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._waited(partial(self._socket.send, rest[:CHUNK])) :]

    def _answer(self, response: HTTPResponse, usable: bool) -> tuple[Answer, bool]:
        self._begin(response)
        hints = 0
        while 100 <= response.status < 200 and response.status != 101:
            if (hints := hints + 1) > MOST_HINTS:
                raise Trouble("the server hints and hints and does not answer")
            response.headers = response.msg = None  # type: ignore[assignment]
            self._begin(response)
        body = response.read(MOST_BODY)
        if response.length and not response.chunked and len(body) < MOST_BODY:
            raise Trouble("the answer was cut off")  # `read` with a size does not say so
        ended = response.isclosed() or not response.read(1)
        headers = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, body), usable and ended and not response.will_close

    def _begin(self, response: HTTPResponse) -> None:
        """Status and headers. `HTTPResponse` takes an end among the headers for the end of the headers."""
        response.begin()
        if self._ended:
            raise Trouble("the answer was cut off")

    def makefile(self, _: str) -> io.BufferedReader:
        """For `HTTPResponse`: it closes what it reads from, which is not the connection."""
        return io.BufferedReader(_Reader(self._receive), 16 << 10)

    def _receive(self, buffer: Any) -> int:
        count = int(self._waited(partial(self._socket.recv_into, buffer)))
        self._ended = self._ended or count == 0
        return count

    def _waited(self, step: Callable[[], Any]) -> Any:
        """A step that gives up after a slice of time, until it is done. `Trouble` for whatever the network does, but not for a
        certificate that is wrong."""
        while True:
            self._deadline.check()
            try:
                return step()
            except TimeoutError as error:
                if error.errno == errno.ETIMEDOUT:  # the connection's own end, not our slice
                    raise Trouble("the connection timed out") from error
            except ssl.SSLCertVerificationError:
                raise
            except OSError as error:
                raise Trouble(_words(error)) from error


class _Reader(io.RawIOBase):
    def __init__(self, receive: Callable[[Any], int]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._receive(buffer)


def _connected(address: str, port: int, deadline: Deadline) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        _connect(made, (address, port), deadline)
    except OSError as error:
        made.close()
        raise Trouble(_words(error)) from error
    except BaseException:
        made.close()
        raise
    return made


def _connect(made: socket.socket, address: tuple[str, int], deadline: Deadline) -> None:
    made.setblocking(False)
    state = made.connect_ex(address)
    if state in (errno.EINPROGRESS, errno.EWOULDBLOCK):
        with selectors.DefaultSelector() as selector:
            selector.register(made, selectors.EVENT_WRITE)
            deadline.wait(lambda seconds: bool(selector.select(seconds)))
        state = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if state:
        raise OSError(state, os.strerror(state))
    made.settimeout(SLICE)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # requests are written in one go


def _words(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
