"""From the start of the process to the first delivered record, against a plain PySpark script that does the same job.

`penstock run` on a folder that `penstock init` made, with and without the class archive; the scripts to the end of their only job.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROUNDS = 5
PENSTOCK = str(Path(sys.executable).with_name("penstock"))
SCRIPT = str(Path(__file__).with_name("handwritten_start.py"))


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        root = Path(name) / "orders"
        subprocess.run([PENSTOCK, "init", str(root)], check=True, capture_output=True)
        run = [PENSTOCK, "run", "pipeline.yaml", "--once"]
        source = str(root / "orders")
        jobs: dict[str, Callable[[], float]] = {
            "penstock": lambda: _until(run, root, {}),
            "without archive": lambda: _until(run, root, {"PENSTOCK_NO_ARCHIVE": "1"}),
            "script, sql": lambda: _until([sys.executable, SCRIPT, "sql", source, str(root / "out")], root, {}),
            "script, python": lambda: _until([sys.executable, SCRIPT, "python", source, str(root / "out")], root, {}),
        }
        rounds = []
        for n in range(ROUNDS):
            order = list(jobs) if n % 2 == 0 else list(jobs)[::-1]
            load = os.getloadavg()[0]
            seconds = {job: jobs[job]() for job in order}
            rounds.append(seconds)
            shown = ", ".join(f"{job} {seconds[job]:.2f} s" for job in jobs)
            print(f"  round {n + 1} of {ROUNDS}, load average {load:.2f}: {shown}", flush=True)
        for script in ("script, sql", "script, python"):
            ratios = [s["penstock"] / s[script] for s in rounds]
            print(
                f"  penstock / {script}: median {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )


def _until(command: list[str], root: Path, more: Mapping[str, str]) -> float:
    """Seconds until a whole output file is there."""
    for name in ("out", ".penstock"):
        shutil.rmtree(root / name, ignore_errors=True)
    started = time.monotonic()
    with (root / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=root, env={**os.environ, "PYSPARK_PYTHON": sys.executable, **more}, stdout=log, stderr=log
        )
        while not (found := _there(root / "out")) and process.poll() is None:
            time.sleep(0.01)
        taken = time.monotonic() - started
        if process.wait() or not (found or _there(root / "out")):
            raise SystemExit(f"{' '.join(command)} failed\n{(root / 'log.txt').read_text(errors='replace')[-4000:]}")
    return taken


def _there(out: Path) -> bool:
    return any(p.suffix == ".txt" for p in out.glob("*.txt"))


if __name__ == "__main__":
    main()
