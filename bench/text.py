"""Text to text, whole process from start to exit: Penstock (exactly once) against hand-written Structured Streaming.

`python -m bench text`, or `python -m bench.text LINES ROUNDS`.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
FILES = 4
PIPELINE = """\
version: "2.2"
pipelines:
  - id: bench
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
"""


def main() -> None:
    for lines, rounds in ((2_000_000, 5), (8_000_000, 5)):
        compare(lines, rounds)


def compare(lines: int, rounds: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_lines(root / "in", lines)
        (root / "p.yaml").write_text(PIPELINE.format(root=root))
        bin_ = Path(sys.executable).parent
        commands = {
            "hand-written": [sys.executable, str(HERE / "handwritten_text.py"), str(root / "in"), str(root / "out")],
            "penstock": [str(bin_ / "penstock"), "run", str(root / "p.yaml"), "--once", "--json"],
        }
        ratios = []
        for n in range(rounds):
            seconds = {name: timed(command, root, lines) for name, command in _alternate(commands, n)}
            ratios.append(seconds["hand-written"] / seconds["penstock"])
            print(f"  {lines:,} lines: {_show(seconds)}, speed ratio {ratios[-1]:.2f}", flush=True)
        print(f"  {lines:,} lines: median ratio {statistics.median(ratios):.2f} ({rounds} rounds)", flush=True)


def _alternate(commands: dict[str, list[str]], n: int) -> list[tuple[str, list[str]]]:
    items = list(commands.items())
    return items if n % 2 == 0 else items[::-1]


def _show(seconds: dict[str, float]) -> str:
    return ", ".join(f"{name} {s:.2f} s" for name, s in seconds.items())


def timed(command: list[str], root: Path, lines: int) -> float:
    """Runs a command on an empty output folder and checks that it delivered every line."""
    for name in ("out", "out.checkpoint", ".penstock"):
        shutil.rmtree(root / name, ignore_errors=True)
    os.sync()
    started = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    taken = time.monotonic() - started
    found = sum(count_lines(p) for p in (root / "out").glob("*.txt"))
    if found != lines:
        raise SystemExit(f"{command}: {found} lines instead of {lines}")
    return taken


def count_lines(path: Path) -> int:
    with path.open("rb") as f:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: f.read(1 << 20), b""))


def write_lines(folder: Path, lines: int) -> None:
    """About 150 bytes each, in four files."""
    folder.mkdir(parents=True)
    pad = "x" * 90
    for n in range(FILES):
        path = folder / f"in-{n}.txt"
        with path.open("w") as f:
            for i in range(lines // FILES):
                f.write(f'{{"id": "{n}-{i:08d}", "amount": {i % 100}, "region": "eu", "pad": "{pad}"}}\n')
        os.utime(path, (time.time() - 60,) * 2)


if __name__ == "__main__":
    compare(int(sys.argv[1]), int(sys.argv[2]))
