"""Hosted sources to the end: a generator written with the SDK into `files`, a Go program into `blackhole`.

`python -m bench hosted`, or `python -m bench.hosted SHARE ROUNDS`; with LOG_COMPRESSION=zstd in the environment the log is compressed.
Counted from the moment at which the source is opened to the last ack in the ledger, with Spark started and its first batch still cold.
Every record goes source → host → commit log (fsync) → Spark → destination → ledger → ack.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOG = {"compression": os.environ.get("LOG_COMPRESSION", "none")}


@dataclass(frozen=True)
class Case:
    name: str
    plugin: str
    records: int
    settings: dict[str, int] = field(hash=False)
    destination: str


CASES = (
    Case("SDK,   25 bytes → files", "bench-generator", 6_000_000, {"size": 25}, "files"),
    Case("SDK, 1000 bytes → files", "bench-generator", 3_000_000, {"size": 1000}, "files"),
    Case(
        "Go, 25 bytes, 1,000 in a message → blackhole", "go-bench", 3_000_000, {"size": 25, "batch": 1000}, "blackhole"
    ),
    Case(
        "Go, 1000 bytes, 1,000 in a message → blackhole",
        "go-bench",
        600_000,
        {"size": 1000, "batch": 1000},
        "blackhole",
    ),
    Case("Go, 25 bytes, one in a message → blackhole", "go-bench", 150_000, {"size": 25, "batch": 1}, "blackhole"),
)


def main(share: float = 1.0, rounds: int = 3) -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as folder:
        go = prepared(Path(folder), "bench-generator", "bench.sdk_generator")
        cases = [case for case in CASES if go or case.plugin != "go-bench"]
        rates: dict[Case, list[float]] = {case: [] for case in cases}
        for n in range(rounds):
            print(f"  round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
            for case in cases if n % 2 == 0 else cases[::-1]:
                count = int(case.records * share)
                child = [sys.executable, "-m", "bench.hosted", "one", str(CASES.index(case)), str(count), folder]
                done = subprocess.run(child, capture_output=True, text=True, cwd=ROOT, check=False)
                if done.returncode:
                    raise SystemExit(done.stderr)
                rates[case].append(float(done.stdout.split()[-1]))
        for case, found in rates.items():
            shown = f"{statistics.median(found):9,.0f} ({min(found):,.0f}–{max(found):,.0f})"
            print(f"  {case.name}: {shown} records/s", flush=True)


def prepared(folder: Path, name: str, module: str) -> bool:
    """A connector as an installed package would offer it, and the Go program in a plugins folder. False: without Go."""
    offered = folder / "site"
    info = offered / f"{name.replace('-', '_')}-1.0.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0.0\n")
    (info / "entry_points.txt").write_text(f"[penstock.connectors]\n{name} = {module}:connector\n")
    os.environ["PYTHONPATH"] = f"{offered}{os.pathsep}{ROOT}"
    os.environ["PENSTOCK_PLUGINS"] = str(folder / "plugins")
    go = shutil.which("go") is not None
    if go:
        from tests.support.go import built

        command = [str(Path(sys.executable).with_name("penstock")), "plugins", "install", str(built("./bench"))]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    else:
        print("  go is missing: its cases are left out")
    return go


def one(case: Case, count: int, folder: Path) -> float:
    """Records a second."""
    from penstock.host.feed import HostedSource
    from penstock.pipeline import Pipeline, run

    opened: list[float] = []
    settled: list[float] = []
    open_, acked = HostedSource._open, HostedSource.acked

    def noted_open(self: HostedSource, settled: int = 0) -> None:
        opened.append(time.monotonic())
        open_(self, settled)

    def noted_acked(self: HostedSource, ranges: Any) -> Any:
        found = acked(self, ranges)
        settled.append(time.monotonic())
        return found

    HostedSource._open, HostedSource.acked = noted_open, noted_acked  # type: ignore[method-assign]
    work = Path(tempfile.mkdtemp(dir=folder))
    to = {"path": str(work / "out"), "format": "text"} if case.destination == "files" else {}
    given = {name: str(value) for name, value in {"count": count, **case.settings}.items()}
    pipeline = {
        "id": "p",
        "guarantee": "exactly-once" if to else "at-least-once",
        "connectors": [
            {"id": "in", "type": "source", "plugin": case.plugin, "settings": given, "log": LOG},
            {"id": "out", "type": "destination", "plugin": case.destination, "settings": to},
        ],
    }
    file = work / "p.yaml"
    file.write_text(json.dumps({"version": "2.2", "pipelines": [pipeline]}))
    summary = run(Pipeline.from_files([file]), once=True, state=work / "state")
    delivered = summary.pipelines[0].lanes[0].acked
    if delivered != count:
        raise SystemExit(f"{delivered} of {count} records were acked: {summary.pipelines[0].error}")
    shutil.rmtree(work)
    return count / (settled[-1] - opened[0])


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(one(CASES[int(sys.argv[2])], int(sys.argv[3]), Path(sys.argv[4])))
    else:
        main(*(kind(text) for kind, text in zip((float, int), sys.argv[1:], strict=False)))
