"""Stopping: graceful first, forceful when asked twice or when the deadline has passed. Shared by all lanes of an engine."""

from __future__ import annotations

import threading
import time


class StopSignal:
    """`request` may be called from a signal handler; everything else from any thread."""

    def __init__(self) -> None:
        self._graceful = threading.Event()
        self._forceful = threading.Event()
        self._requested_at: float | None = None

    def request(self) -> None:
        """The first call is graceful: sources are told, the batch in flight is finished. The second is forceful."""
        if self._graceful.is_set():
            self._forceful.set()
        else:
            self._requested_at = time.monotonic()
            self._graceful.set()

    def force(self) -> None:
        if self._requested_at is None:
            self._requested_at = time.monotonic()
        self._graceful.set()
        self._forceful.set()

    @property
    def requested(self) -> bool:
        return self._graceful.is_set()

    @property
    def forced(self) -> bool:
        return self._forceful.is_set()

    def overdue(self, deadline: float) -> bool:
        """True once a graceful stop has taken longer than `deadline` seconds."""
        return self._requested_at is not None and time.monotonic() - self._requested_at > deadline

    def sleep(self, seconds: float) -> None:
        """Returns early when a stop is requested."""
        self._graceful.wait(seconds)
