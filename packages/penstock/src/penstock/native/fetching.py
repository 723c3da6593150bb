"""Java packages are fetched by one process at a time: Spark's resolver has one cache for everybody of a user, and two that fetch the same
for the first time disturb each other ("not found", though it is there). Called in engine processes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.filelock import FileLock, Held

STEP = 0.05  # seconds between two looks whether it is our turn
IVY = ".ivy2.5.2"  # in the user's home, of the Spark that we know; with another one it is our turn a moment later


@contextmanager
def alone(coordinates: Iterable[str], ivy: str = "", given_up: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Waits for whoever fetches, unless all of it is there or nobody wants it any more. `ivy`: another folder for the cache, as
    `spark.jars.ivy` names it."""
    jars = (Path(ivy) if ivy else Path.home() / IVY) / "jars"
    if all((jars / _file(name)).exists() for name in coordinates):
        yield
        return
    lock = _taken(given_up)
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def _file(coordinate: str) -> str:
    """As the resolver names it: org.x:name:1.0 → org.x_name-1.0.jar."""
    group, name, version = (*coordinate.split(":"), "", "")[:3]
    return f"{group}_{name}-{version}.jar"


def _taken(given_up: Callable[[], bool]) -> FileLock | None:
    """None where there is no place for it, or no use."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock"
    lock = FileLock(folder / "packages.lock")
    while not given_up():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.take()
        except Held:
            time.sleep(STEP)
        except OSError:
            return None
        else:
            return lock
    return None
