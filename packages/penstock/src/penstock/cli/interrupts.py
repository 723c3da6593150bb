"""Ctrl-C and SIGTERM during `penstock run`: the first stops gracefully, the second at once.

A handler runs in the main thread between any two steps, also in the middle of a write. So it only counts and hands on; what
there is to say is said by the thread of the face (`cli.face`).
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.engine.supervisor import Engine

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Raises `KeyboardInterrupt` where there is nothing to finish: before the engine is there, at the second signal while it
    starts, and at the third one ever."""

    def __init__(self) -> None:
        self.count = 0
        self._engine: Engine | None = None
        self._begun = False
        self._before: dict[int, Any] = {}

    def catch(self) -> None:
        """Only the main thread may; elsewhere there is nothing to catch."""
        if threading.current_thread() is threading.main_thread():
            self._before = {s: signal.signal(s, self._come) for s in _SIGNALS}

    def restore(self) -> None:
        for s, handler in self._before.items():
            signal.signal(s, handler)
        self._before = {}

    def stops(self, engine: Engine) -> None:
        """From now on there is an engine to be stopped."""
        self._engine = engine

    @property
    def begun(self) -> bool:
        """True once lanes were there: before, nothing was read. Asked all the time: they are gone before Spark is."""
        if not self._begun and self._engine is not None:
            self._begun = bool(self._engine.view().pipelines)
        return self._begun

    def _come(self, *_: object) -> None:
        self.count += 1
        if self._engine is None:
            raise KeyboardInterrupt
        self._engine.stop.request()
        if self.count > 2 or (self.count > 1 and not self.begun):
            raise KeyboardInterrupt
