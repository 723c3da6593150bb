"""Stopping: graceful first, forceful when asked twice or when the deadline has passed. Shared by all lanes of a pipeline."""

from __future__ import annotations

import time

_SLICE = 0.1


class StopSignal:
    """`request` may be called from a signal handler, also one that interrupts another: nothing here takes a lock. All methods
    may be called from any thread."""

    def __init__(self) -> None:
        self._requests = 0
        self._requested_at: float | None = None
        self._forced_at: float | None = None

    def request(self) -> None:
        """The first call is graceful: sources are told, the batch in flight is finished. The second is forceful."""
        if self._requested_at is None:
            self._requested_at = time.monotonic()
        elif self._forced_at is None:
            self._forced_at = time.monotonic()
        self._requests += 1

    def force(self) -> None:
        while not self.forced:
            self.request()

    @property
    def requested(self) -> bool:
        return self._requests > 0

    @property
    def forced(self) -> bool:
        return self._requests > 1

    def overdue(self, deadline: float) -> bool:
        """True once a graceful stop has taken longer than `deadline` seconds."""
        return self._requested_at is not None and time.monotonic() - self._requested_at > deadline

    def forced_for(self, seconds: float) -> bool:
        """True once a forceful stop has taken longer than so many seconds."""
        return self._forced_at is not None and time.monotonic() - self._forced_at > seconds

    def sleep(self, seconds: float) -> None:
        """Returns early when a stop is requested."""
        until = time.monotonic() + seconds
        while not self.requested and (left := until - time.monotonic()) > 0:
            time.sleep(min(_SLICE, left))
