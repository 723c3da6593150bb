"""An engine in a child process, to be killed: `python -m penstock.testing.child SPEC`. Only tests start it.

SPEC is a JSON file (see `Spec`). The child switches safeguards off, kills itself or its process group at a named point, and
leaves in a small file, which survives SIGKILL, how often it reached which point. With `gateway` it attaches to a JVM that
is running already, so that a start costs one second instead of eight; its tasks then outlive it, which is the harder case.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.supervisor import Engine

TRACE_BYTES = 4096


@dataclass(frozen=True)
class Spec:
    arguments: tuple[str, ...]  # of the command line, e.g. ("run", "p.yaml", "--once")
    trace: str
    kill_at: str | None = None  # a point of faults.POINTS, or ledger:<transaction>
    kill_nth: int = 1  # which time it is reached
    kill_after: str | None = None  # only times after this point was reached count
    kill_group: bool = False  # the whole process group, or this process alone
    stop_at: str | None = None  # a point where the process stops itself (SIGSTOP) instead of dying
    off: tuple[str, ...] = ()
    gateway: tuple[int, str] | None = None  # port and secret of a JVM to attach to
    pipeline: str | None = None  # module:function that returns Pipelines, instead of files in `arguments`
    state: str | None = None  # with `gateway` or `pipeline`
    deadline: float = 30.0  # likewise
    finish: bool = False  # likewise, as --finish
    abandon: tuple[str, ...] = ()  # likewise, as --abandon
    master: str | None = None  # with `pipeline` and without `gateway`
    inside: str | None = None  # module:class of something that sees every point first, see `Inside`
    inside_given: dict[str, Any] = field(default_factory=dict)  # what it is made with

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path

    @classmethod
    def read(cls, path: str) -> Spec:
        value = json.loads(Path(path).read_text())
        for name in ("arguments", "off", "abandon"):
            value[name] = tuple(value[name])
        return cls(**{**value, "gateway": value["gateway"] and tuple(value["gateway"])})


class Inside:
    """What can be done to a process from inside it, besides killing it."""

    def reached(self, point: str, detail: str) -> None:
        """May raise, as the call that comes next might have."""

    def dying(self) -> None:
        """The process is about to kill itself."""


class Trace:
    """The last point and how often each was reached, in a mapped file: the kernel keeps it when the process is gone."""

    def __init__(self, path: str) -> None:
        with open(path, "w+b") as f:
            f.truncate(TRACE_BYTES)
            self._map = mmap.mmap(f.fileno(), TRACE_BYTES)
        self.counts: Counter[str] = Counter()

    def note(self, point: str) -> None:
        self.counts[point] += 1
        text = json.dumps({"last": point, "counts": self.counts}).encode()
        self._map[: len(text) + 1] = text + b"\0"


def read_trace(path: Path) -> dict[str, Any]:
    """For the parent: {"last": point, "counts": {point: n}}; empty before the first point."""
    text = path.read_bytes().partition(b"\0")[0] if path.exists() else b""
    try:
        value: dict[str, Any] = json.loads(text) if text else {"last": "", "counts": {}}
    except ValueError:  # read while it was being written
        return {"last": "", "counts": {}}
    return value


def attach(port: int, secret: str) -> SparkSession:
    """A session on a JVM that another process has started."""
    os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"] = str(port), secret
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)
    jvm = gateway.jvm
    jsc = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    context = SparkContext(gateway=gateway, jsc=jsc, conf=SparkConf(_jvm=jvm, _jconf=jsc.getConf()))
    return SparkSession(context)


def _inside(spec: Spec) -> Inside:
    if spec.inside is None:
        return Inside()
    module, _, name = spec.inside.partition(":")
    made: Inside = getattr(importlib.import_module(module), name)(**spec.inside_given)
    return made


def main(spec: Spec) -> None:
    trace = Trace(spec.trace)
    before: Counter[str] = Counter()  # what was reached before kill_after
    inside = _inside(spec)

    def hook(point: str, detail: str) -> None:
        inside.reached(point, detail)
        if point == "fsync":
            return
        if point == "ledger":
            point = f"ledger:{detail}"
        trace.note(point)
        if spec.kill_after is not None and not trace.counts[spec.kill_after]:
            before[point] += 1
        elif point == spec.kill_at and trace.counts[point] - before[point] == spec.kill_nth:
            inside.dying()
            if spec.kill_group:
                os.killpg(0, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(60)  # not one step further while the signal is on its way
        if point == spec.stop_at:
            os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(0.2)  # likewise

    faults.install(hook, spec.off)
    if spec.gateway is None and spec.pipeline is None:
        from penstock.cli.main import main as command

        sys.argv = ["penstock", *spec.arguments]
        command()
    from penstock.pipeline import Pipeline, run

    session = attach(*spec.gateway) if spec.gateway else None
    if spec.pipeline is not None:
        module, _, function = spec.pipeline.partition(":")
        pipelines = getattr(importlib.import_module(module), function)(*(a for a in spec.arguments if a != "--once"))
    else:
        pipelines = Pipeline.from_files([a for a in spec.arguments if a.endswith(".yaml")])

    def started(engine: Engine) -> None:
        signal.signal(signal.SIGTERM, lambda *_: engine.stop.request())

    once = "--once" in spec.arguments
    options: dict[str, Any] = {"deadline": spec.deadline, "finish": spec.finish, "abandon": spec.abandon}
    summary = run(pipelines, spark=session, once=once, state=spec.state, started=started, master=spec.master, **options)
    print(json.dumps(summary.to_json()), flush=True)
    os._exit(0 if summary.ok else 1)  # the JVM is not ours: no clean-up of it


if __name__ == "__main__":
    main(Spec.read(sys.argv[1]))
