"""`stdout` as a destination. Runs in the process whose standard output it is; a plugin program's belongs to its host, and it says so."""

from __future__ import annotations

import os
import select
import sys
from typing import ClassVar

from penstock.connectors.file import opencdc
from penstock.connectors.stdout.settings import StdoutSettings
from penstock_protocol.handshake import COOKIE
from penstock_sdk import Batch, Destination, Record, Rejected, Stop


class StdoutDestination(Destination[StdoutSettings]):
    fd: ClassVar[int] = 1  # tests have another one

    def open(self) -> None:
        if COOKIE in os.environ:
            raise Stop(
                "a plugin program has no standard output: it carries the handshake to its host",
                code="stdout.standalone",
                hint="use it built in (`builtin:stdout`), or `file`",
            )

    def write(self, batch: Batch) -> None:
        lines: list[bytes] = []
        refused: dict[int, str] = {}
        for i, record in enumerate(batch):
            try:
                lines.append(self._line(record))
            except ValueError as e:
                refused[i] = str(e)
        if lines:
            self._out(b"\n".join(lines) + b"\n")
        if refused:
            raise Rejected(refused, code="stdout.value")

    def _line(self, record: Record) -> bytes:
        if self.settings.format == "opencdc":
            return opencdc.line(record)
        return record.after if isinstance(record.after, bytes) else opencdc.value(record.after, "after").encode()

    def _out(self, data: bytes) -> None:
        """All of it, however slow the reader is; a stop ends the wait, and the batch does not count as written then."""
        if self.fd == 1:
            sys.stdout.flush()  # what others have printed before
        rest = memoryview(data)
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        try:
            while rest:
                if poll.poll(200):
                    rest = rest[os.write(self.fd, rest[: select.PIPE_BUF]) :]
                elif self.context.stopping.is_set():
                    raise Stop("nobody reads standard output, and it is to end", code="stdout.blocked")
        except BrokenPipeError as e:
            raise Stop(
                "nobody reads standard output any more",
                code="stdout.closed",
                hint="the program behind the pipe has ended",
            ) from e
        except OSError as e:
            raise Stop(f"standard output can't be written: {e.strerror}", code="stdout.write") from e
