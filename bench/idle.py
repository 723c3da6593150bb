"""Engines that wait: twenty lanes for files, five pipelines for hosted sources. CPU time of all their processes, as a share of one core."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

LANES = 20
PIPELINES = 5
SECONDS = 60


def main() -> None:
    measured(f"{LANES} waiting lanes", _files)
    measured(f"{PIPELINES} waiting pipelines with hosted sources", _hosted)


def _files(root: Path) -> list[dict[str, Any]]:
    connectors = []
    for n in range(LANES):
        (root / f"in{n}").mkdir()
        (root / f"in{n}" / "a.txt").write_text("one line\n")
        connectors.append(_connector(f"in{n}", "source", "files", root / f"in{n}"))
    return [{"id": "idle", "connectors": [*connectors, _connector("out", "destination", "files", root / "out")]}]


def _hosted(root: Path) -> list[dict[str, Any]]:
    """Each waits for a file to grow."""
    made = []
    for n in range(PIPELINES):
        (root / f"{n}.txt").write_text("one line\n")
        source = _connector("in", "source", "lines", root / f"{n}.txt")
        made.append(
            {"id": f"p{n}", "connectors": [source, _connector("out", "destination", "files", root / f"out{n}")]}
        )
    return made


def _connector(id: str, kind: str, plugin: str, path: Path) -> dict[str, Any]:
    return {"id": id, "type": kind, "plugin": plugin, "settings": {"path": str(path)}}


def measured(name: str, made: Callable[[Path], list[dict[str, Any]]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        pipelines = made(root)
        sources = sum(c["type"] == "source" for p in pipelines for c in p["connectors"])
        (root / "p.yaml").write_text(json.dumps({"version": "2.2", "pipelines": pipelines}))
        command = [str(Path(sys.executable).parent / "penstock"), "run", str(root / "p.yaml")]
        engine = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            while len(list(root.glob("out*/*.txt"))) < sources:
                time.sleep(0.5)
            time.sleep(20)  # the JIT compiler is done with what just ran
            before = cpu_seconds(engine.pid)
            time.sleep(SECONDS)
            after = cpu_seconds(engine.pid)
            used = sum(after[pid] - before[pid] for pid in after if pid in before)  # workers that ended did not work
        finally:
            engine.send_signal(signal.SIGTERM)
            engine.wait(60)
    print(f"  {name}: {100 * used / SECONDS:.2f} % of one core over {SECONDS} s", flush=True)


def cpu_seconds(root: int) -> dict[int, float]:
    """User and system time of a process and of each below it: hosts are sessions of their own."""
    found = {}
    for pid in (root, *below(root)):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return found


def below(root: int) -> Iterator[int]:
    for entry in Path(f"/proc/{root}/task").glob("*/children"):
        try:
            pids = entry.read_text().split()
        except OSError:
            continue
        for pid in map(int, pids):
            yield pid
            yield from below(pid)


if __name__ == "__main__":
    main()
