"""Pipelines from files into destinations in processes of their own that misbehave. What a destination does is said by variables in the
environment, to which its settings refer: work that is prepared is delivered with the settings that it was prepared with.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.engine.backoff import Backoff
from penstock.errors import PenstockError
from penstock.host import sink
from penstock.pipeline import Pipeline
from penstock.plugins import dispensers
from penstock.plugins.standalone import Standalone
from penstock_protocol.process import PluginProcess
from tests.support.harness import age
from tests.support.hosted_pipelines import ROOT, Bench, installed, until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.supervisor import PipelineResult

CHAOS = "penstock.connectors.chaos.connector:connector"
MARK = "BAD_DESTINATIONS"  # in the environment of the hosts; what they start has the folder in its command line
METHODS = ("settings", "open", "write", "answer", "flush", "close")
PROGRAM = """#!{python}
import sys
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.support.bad_destination import main
sys.exit(main(Path({folder!r})))
"""


class Ward(Bench):
    """From the lines of `in` to the destination `out`, whose records are lines in the file `out`."""

    def __init__(self, root: Path, spark: SparkSession, patch: pytest.MonkeyPatch) -> None:
        super().__init__(root, spark)
        self._patch = patch
        patch.setenv("PENSTOCK_PLUGINS", str(root / "plugins"))
        patch.setenv(MARK, str(root))
        self.behave()
        self.said: list[str] = []

    # -- what there is -------------------------------------------------------------------------------------------------------

    def write(self, lines: Sequence[str], folder: str = "in") -> None:
        self.lines = list(lines)
        (self.root / folder).mkdir(exist_ok=True)
        (self.root / folder / "lines").write_text("".join(line + "\n" for line in lines))
        age(self.root / folder)

    def chaos_program(self) -> str:
        return installed(self.root, "chaotic", CHAOS)

    def bad_program(self) -> str:
        path = self.root / "bad-program"
        path.write_text(PROGRAM.format(python=sys.executable, root=str(ROOT), folder=str(self.root)))
        path.chmod(0o755)
        Standalone().add(path)
        return "standalone:bad"

    def behave(self, how: str = "", **methods: str) -> None:
        """What programs and methods do from now on; methods that are not named do what they should."""
        (self.root / "how").write_text(how)
        for method in METHODS:
            self._patch.setenv(f"CHAOS_{method.upper()}", methods.get(method, "succeed"))
        self._patch.setenv("CHAOS_SILENT", methods.get("silent", "0"))

    @contextmanager
    def impatient(self, seconds: float) -> Iterator[None]:
        """So long, and no longer, a connector may take for its handshake and for each call."""
        with self._patch.context() as patch:
            patch.setattr(sink, "PATIENCE", seconds)
            patch.setattr(dispensers, "CHECK", seconds)
            patch.setitem(PluginProcess.__init__.__kwdefaults__ or {}, "patience", seconds)
            yield

    def into(self, plugin: str, *sources: str, **settings: Any) -> Pipeline:
        p = Pipeline("p").guarantee("at-least-once")
        for source in sources or ("in",):
            p.source(source, "files", path=self.root / source)
        return p.destination("out", plugin, path=self.root / "out", **settings)

    def chaotic(self, plugin: str, *sources: str, **settings: Any) -> Pipeline:
        """Into `chaos`, the class or the program."""
        rules = {method: f"${{CHAOS_{method.upper()}}}" for method in METHODS}
        rules["silent"] = "${CHAOS_SILENT}"
        return self.into(plugin, *sources, calls=self.root / "out.calls", **rules, **settings)

    # -- what becomes of it --------------------------------------------------------------------------------------------------

    def fails(self, p: Pipeline) -> PenstockError:
        """At the first error it is not tried again. Nothing is left running, and nothing of it was acked."""
        result = self.run(p, backoff=Backoff(tries=0), report=self._report)
        assert result.status == "degraded", self.said
        assert result.error is not None
        assert [lane.acked for lane in result.lanes] == [0]
        assert not self.processes()
        return result.error

    def recovers(self, p: Pipeline) -> PipelineResult:
        """By itself, and everything arrives."""
        result = self.finish(p, report=self._report)
        assert set(self.arrived()) == set(self.lines)
        assert not self.processes()
        return result

    def _report(self, event: str, pipeline: str, source: str, details: dict[str, Any]) -> None:
        self.said.append(f"{event} {details}")

    def heard(self, text: str) -> bool:
        """Whether it was logged or reported."""
        return any(text in said for said in self.said)

    def arrived(self) -> Counter[Any]:
        """How often each line did, as it is in the file."""
        path = self.root / "out"
        lines = path.read_text().splitlines() if path.exists() else []
        return Counter(_hashable(json.loads(line)["after"]) for line in lines)

    def processes(self) -> dict[int, str]:
        """Everything that was started here and still runs."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                command = (folder / "cmdline").read_bytes()
                around = f"{MARK}={self.root}\0".encode() in (folder / "environ").read_bytes()
                if command and (around or str(self.root).encode() in command) and int(folder.name) != os.getpid():
                    found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()
        return found

    def until_nothing_runs(self) -> None:
        until(lambda: not self.processes(), f"the end of {self.processes()}")


def _hashable(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
