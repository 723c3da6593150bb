"""How an engine kills itself where no point of the seam is: see `Spec.inside`."""

from __future__ import annotations

import os
import signal
import time

from penstock.testing.child import Inside


class DiesWriting(Inside):
    """At the `nth` fsync of a file with such an ending, half of which is written then."""

    def __init__(self, ending: str, nth: int = 1) -> None:
        self._ending, self._left = ending, nth

    def reached(self, point: str, detail: str) -> None:
        if point == "fsync" and detail.endswith(self._ending):
            self._left -= 1
            if not self._left:
                os.truncate(detail, os.path.getsize(detail) // 2)
                die()


class DiesWaiting(Inside):
    """A lane waits for the `nth` time before it tries again."""

    def __init__(self, nth: int = 1) -> None:
        from penstock.engine.stop import StopSignal

        left = nth
        wait = StopSignal.sleep

        def sleep(signal: StopSignal, seconds: float) -> None:
            nonlocal left
            left -= 1
            if not left:
                die()
            wait(signal, seconds)

        StopSignal.sleep = sleep  # type: ignore[method-assign, assignment]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)  # not one step further while the signal is on its way
