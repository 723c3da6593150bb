"""`python`: a function of yours, record by record, or over whole Arrow batches.

    @processor
    def clean(r: Record) -> Record | Sequence[Record] | Drop | Reject: …

    @processor(batch=True)
    def clean(batch: pa.RecordBatch) -> pa.RecordBatch: …

In a file it is named `module:function`; the module is looked for beside the file too, and is imported in Spark's tasks, not
by `validate`.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, overload

from pydantic import Field

from penstock import record
from penstock.config import Settings
from penstock.native import Processor, Record, Result, Shape, Where


class PythonSettings(Settings):
    function: str = Field(pattern=r"^[\w.]+:[\w.]+$", description="`module:function`.")
    batch: bool = Field(False, description="The function takes and gives whole Arrow batches, row for row.")
    path: str = Field("", description="A folder to look for the module in, besides Python's own.")


class Python(Processor[PythonSettings]):
    uses = frozenset(record.COLUMNS)

    def __init__(self, settings: PythonSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self._folder = str(Path(settings.path).absolute()) if settings.path else ""  # tasks may run in another folder
        self._function: Callable[[Any], Any] | None = None

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.OPEN  # bytes or an object: both are fine behind it

    def open(self) -> None:
        self._load()

    def _load(self) -> Callable[[Any], Any]:
        if self._function is None:
            module, _, name = self.settings.function.partition(":")
            found: Any = _module(module, self._folder)
            for part in name.split("."):
                found = getattr(found, part)
            if isinstance(found, Marked):
                if found.batch != self.settings.batch:
                    given = "true" if found.batch else "false"
                    raise TypeError(f"{self.settings.function} needs the setting `batch: {given}`")
                found = found.function
            self._function = found
        return self._function

    def apply(self, r: Record) -> Result:
        result: Result = self._load()(r)
        return result

    def on_batch(self) -> Callable[[Any], Any] | None:
        return self._call if self.settings.batch else None

    def _call(self, batch: Any) -> Any:
        return self._load()(batch)


def _module(name: str, folder: str) -> Any:
    """The folder's own module, also where one of the same name was loaded from another folder: pipelines share workers."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    top = name.partition(".")[0]
    own = importlib.machinery.PathFinder.find_spec(top, [folder]) if folder else None
    loaded = sys.modules.get(top)
    if own is None or loaded is None or getattr(loaded.__spec__, "origin", None) == own.origin:
        return importlib.import_module(name)
    others = {m: sys.modules.pop(m) for m in list(sys.modules) if m == top or m.startswith(top + ".")}
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)
        for m in [m for m in sys.modules if m == top or m.startswith(top + ".")]:
            del sys.modules[m]
        sys.modules.update(others)


class FunctionProcessor(Processor[None]):
    """A function given from Python. It is sent to Spark's tasks with what it refers to."""

    uses = frozenset(record.COLUMNS)

    def __init__(self, function: Callable[[Any], Any], processor_id: str, *, batch: bool = False) -> None:
        super().__init__(None, processor_id)
        self.function = function
        self.batch = batch

    def where(self, shape: Shape) -> Where:  # noqa: ARG002
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.OPEN

    def apply(self, r: Record) -> Result:
        result: Result = self.function(r)
        return result

    def on_batch(self) -> Callable[[Any], Any] | None:
        return self.function if self.batch else None


class Marked:
    """A function that `@processor` was put on: still callable, and known to take batches or not."""

    def __init__(self, function: Callable[[Any], Any], *, batch: bool) -> None:
        self.function = function
        self.batch = batch

    def __call__(self, value: Any) -> Any:
        return self.function(value)


@overload
def processor(function: Callable[[Any], Any]) -> Marked: ...
@overload
def processor(*, batch: bool) -> Callable[[Callable[[Any], Any]], Marked]: ...
def processor(function: Callable[[Any], Any] | None = None, *, batch: bool = False) -> Any:
    """Makes a function a processor: `Pipeline.processor("id", f)`."""
    if function is None:
        return lambda f: Marked(f, batch=batch)
    return Marked(function, batch=batch)
