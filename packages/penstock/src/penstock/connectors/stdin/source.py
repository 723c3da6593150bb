"""`stdin` as a source. Runs in the process whose standard input it is; a plugin program has none, and is told so."""

from __future__ import annotations

import os
import secrets
import select
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import ClassVar

from penstock.connectors.stdin.settings import StdinSettings
from penstock_protocol.handshake import COOKIE
from penstock_sdk import Record, Source, Stop

BLOCK = 1 << 16
POLL = 0.2  # seconds after which a stop is noticed
PIECE = "stdin.piece"


class StdinSource(Source[StdinSettings]):
    resumes = False
    fd: ClassVar[int] = 0  # tests have another one

    def open(self, position: bytes | None, last: Mapping[str, Record]) -> None:  # noqa: ARG002
        if COOKIE in os.environ:
            raise Stop(
                "a plugin program has no standard input: its host has taken it",
                code="stdin.standalone",
                hint="use it built in (`builtin:stdin`), or `lines` on a file",
            )
        if position:
            self.context.log.warn("standard input can't be read again: what came after the position before is gone")
        self._run = secrets.token_hex(8).encode()
        self._number = 0
        self._lines: deque[tuple[bytes, str]] = deque()
        self._partial = b""
        self._inside = self._ended = False
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN | select.POLLHUP)

    def read(self, max_records: int, timeout: float) -> Sequence[Record]:
        deadline = time.monotonic() + timeout
        while not self._lines:
            left = deadline - time.monotonic()
            if self._ended:  # it stays open: records may still be on their way
                self.context.stopping.wait(max(0.0, left))
                return ()
            if self._poll.poll(max(0.0, min(left, POLL)) * 1000):
                self._receive(os.read(self.fd, BLOCK))
            elif left <= 0 or self.context.stopping.is_set():
                return ()
        return [self._record(*self._lines.popleft()) for _ in range(min(max_records, len(self._lines)))]

    def drain(self) -> Sequence[Record]:
        """What was taken out of the pipe is nowhere else: it is given."""
        made = [self._record(*each) for each in self._lines]
        self._lines.clear()
        return made

    def _record(self, data: bytes, piece: str) -> Record:
        self._number += 1
        metadata = {"opencdc.readAt": str(time.time_ns())} | ({PIECE: piece} if piece else {})
        return Record(data, position=b"%b:%d" % (self._run, self._number), metadata=metadata)

    def _receive(self, data: bytes) -> None:
        if not data:
            self._ended = True
            if self._partial:  # nothing can come any more that would end it
                self._line(self._partial)
                self._partial = b""
            return
        *whole, self._partial = (self._partial + data).split(b"\n")
        for line in whole:
            self._line(line)
        longest = self.settings.max_line_bytes
        while len(self._partial) > longest:
            self._piece(self._partial[:longest])
            self._partial = self._partial[longest:]

    def _line(self, line: bytes) -> None:
        longest = self.settings.max_line_bytes
        while len(line) > longest:
            self._piece(line[:longest])
            line = line[longest:]
        self._lines.append((line, "last" if self._inside else ""))
        self._inside = False

    def _piece(self, data: bytes) -> None:
        self._lines.append((data, "middle" if self._inside else "first"))
        self._inside = True
