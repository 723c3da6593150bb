"""Calls into a connector that may hang: each runs in a thread that nobody has to wait for. Calls of one name share a thread, as they do
in a host, where `read` and `ack` are each called from one thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any


class Lane:
    """One thread, one call after the other."""

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=f"kit {name}", daemon=True).start()

    def begin(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._work.put((future, call))
        return future

    def end(self) -> None:
        """When it is through with what it has; one that hangs is left behind."""
        self._work.put(None)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            future, call = work
            try:
                future.set_result(call())
            except BaseException as e:  # whoever waits for it decides
                future.set_exception(e)


class Lanes:
    """By name."""

    def __init__(self) -> None:
        self._lanes: dict[str, Lane] = {}

    def begin(self, name: str, call: Callable[[], Any]) -> Future[Any]:
        if name not in self._lanes:
            self._lanes[name] = Lane(name)
        return self._lanes[name].begin(call)

    def end(self) -> None:
        for lane in self._lanes.values():
            lane.end()
        self._lanes.clear()
