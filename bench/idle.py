"""Twenty lanes that wait for files: the CPU time of the engine, its JVM and every worker, as a share of one core."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LANES = 20
SECONDS = 60


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        connectors = []
        for n in range(LANES):
            (root / f"in{n}").mkdir()
            (root / f"in{n}" / "a.txt").write_text("one line\n")
            connectors.append(f"      - {{id: in{n}, type: source, plugin: files, settings: {{path: {root}/in{n}}}}}")
        connectors.append(f"      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}")
        text = 'version: "2.2"\npipelines:\n  - id: idle\n    connectors:\n' + "\n".join(connectors) + "\n"
        (root / "p.yaml").write_text(text)
        command = [str(Path(sys.executable).parent / "penstock"), "run", str(root / "p.yaml")]
        engine = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            while len(list((root / "out").glob("*.txt"))) < LANES:
                time.sleep(0.5)
            time.sleep(20)  # the JIT compiler is done with what just ran
            before = cpu_seconds(engine.pid)
            time.sleep(SECONDS)
            used = cpu_seconds(engine.pid) - before
        finally:
            engine.send_signal(signal.SIGTERM)
            engine.wait(60)
    print(f"  {LANES} waiting lanes: {100 * used / SECONDS:.2f} % of one core over {SECONDS} s", flush=True)


def cpu_seconds(session: int) -> float:
    """User and system time of every process of a session, from /proc."""
    total = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
