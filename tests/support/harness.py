"""Runs engines in child processes and kills them. Grown by later suites: one case = a folder with input, output and state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.testing.child import Spec, read_trace
from tests.support import oracle
from tests.support.zygote import Child, started

PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in{source}}}, batch: {{max-files: {max_files}}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
{processors}"""

# A processor that keeps every record and takes milliseconds for each, so that a job can be caught at work.
SLOW = "    processors: [{id: slow, plugin: filter, condition: \"sha2(repeat(after, 20000), 512) = ''\"}]"

Gateway = tuple[int, str]


@dataclass
class Ended:
    """How a child ended."""

    returncode: int
    last: str  # the last point it reached
    counts: dict[str, int]
    out: str
    err: str

    @property
    def killed(self) -> bool:
        return self.returncode == -signal.SIGKILL

    @property
    def summary(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out.strip().splitlines()[-1])
        pipeline: dict[str, Any] = value["pipelines"][0]
        return pipeline


@dataclass
class Case:
    """A pipeline from files to files in a folder of its own. With a gateway its children attach to the tests' own JVM."""

    root: Path
    gateway: Gateway | None = None
    max_files: int = 1
    source: str = ""  # further settings of the source, e.g. ", settle: 0s"
    processors: str = ""
    issued: list[str] = field(default_factory=list)
    runs: int = 0

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        self.inp.mkdir(exist_ok=True)
        self.configure()

    @property
    def inp(self) -> Path:
        return self.root / "in"

    @property
    def out(self) -> Path:
        return self.root / "out"

    @property
    def state(self) -> Path:
        return self.root / "state"

    def configure(self) -> None:
        text = PIPELINE.format(root=self.root, source=self.source, max_files=self.max_files, processors=self.processors)
        (self.root / "p.yaml").write_text(text)

    def issue(self, files: int, lines: int = 20) -> None:
        self.issued += oracle.write_inputs(self.inp, files, lines, first=len(list(self.inp.iterdir())))
        age(self.inp)

    def start(self, *, cores: int = 2, arguments: Sequence[str] = ("--once",), **spec: Any) -> Running:
        self.runs += 1
        trace = self.root / f"trace-{self.runs}"
        master = spec.pop("master", f"local[{cores},4]")
        own = ("--state", str(self.state), "--json", "--master", master)
        made = Spec(
            arguments=(str(self.root), *arguments)
            if "pipeline" in spec
            else ("run", str(self.root / "p.yaml"), *arguments, *(() if self.gateway else own)),
            trace=str(trace),
            gateway=self.gateway,
            state=str(self.state),
            master=master,
            **spec,
        )
        path = made.write(self.root / f"spec-{self.runs}.json")
        return Running(start_child(path), trace)

    def run(self, **options: Any) -> Ended:
        return self.start(**options).wait()

    def finish(self, **options: Any) -> Ended:
        """Runs to the end, which must succeed."""
        ended = self.run(**options)
        assert ended.returncode == 0, f"{ended.returncode}\n{ended.out}\n{ended.err[-3000:]}"
        return ended

    def verdict(self) -> oracle.Verdict:
        return oracle.judge(self.issued, self.out)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return oracle.rows(self.state, sql)


@dataclass
class Running:
    process: Child
    trace: Path
    ended: Ended | None = None

    def reached(self, point: str) -> int:
        n: int = read_trace(self.trace)["counts"].get(point, 0)
        return n

    def await_point(self, point: str, *, times: int = 1, timeout: float = 90) -> bool:
        """True once the child reached the point; False when it ended before."""
        until = time.monotonic() + timeout
        while time.monotonic() < until:
            if self.reached(point) >= times:
                return True
            if self.process.poll() is not None:
                return self.reached(point) >= times
            time.sleep(0.005)
        raise TimeoutError(f"{point} was not reached in {timeout} s: {read_trace(self.trace)}")

    def kill(self, *, group: bool) -> Ended:
        """Also when it has ended already."""
        if self.process.poll() is None:
            if group:
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        return self.wait()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, timeout: float = 180) -> Ended:
        if self.ended is not None:
            return self.ended
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            out, err = self.process.communicate()
            raise TimeoutError(f"the child did not end in {timeout} s\n{out}\n{err}") from None
        trace = read_trace(self.trace)
        self.ended = Ended(self.process.returncode, trace["last"], trace["counts"], out, err)
        return self.ended


_children: list[Child] = []


def end_children() -> None:
    """Nothing outlives the test that started it, not even a child that was stopped and forgotten."""
    while _children:
        child = _children.pop()
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def start_child(spec: Path) -> Child:
    child = started(spec)
    _children.append(child)
    return child


def age(folder: Path, seconds: float = 60) -> None:
    """Makes files older than the settle time, so that tests need not wait for it."""
    then = time.time() - seconds
    for path in folder.iterdir():
        stat = path.stat()
        if stat.st_mtime > then:
            os.utime(path, (then, then))
