"""Calls a connector's methods, be they plain or `async def`: which of both is found out once, when the connector is made. The latter run on
one event loop, in a thread of their own, so that `read` and `ack` can run at the same time either way."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from typing import Any


class Calls:
    """The methods of one object."""

    def __init__(self, target: Any) -> None:
        self._target = target
        self._methods: dict[str, Callable[..., Any]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __call__(self, name: str, *arguments: Any) -> Any:
        method = self._methods.get(name)
        if method is None:
            method = getattr(self._target, name)
            if inspect.iscoroutinefunction(method):
                method = self._awaited(method)
            self._methods[name] = method
        return method(*arguments)

    def _awaited(self, method: Callable[..., Any]) -> Callable[..., Any]:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="connector loop", daemon=True)
            self._thread.start()
        loop = self._loop
        return lambda *arguments: asyncio.run_coroutine_threadsafe(method(*arguments), loop).result()

    def end(self) -> None:
        """After the last call."""
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None
