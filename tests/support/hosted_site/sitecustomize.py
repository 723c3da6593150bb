"""Python runs this at the start of each process that has this folder in its path: how a test reaches into connector hosts.

The seam has no way in from outside, on purpose. A test that starts an engine puts this folder into PYTHONPATH, and what it wants into
the file that HOSTED_ARMED names (`Armed` in `tests/support/hosted.py`). Hosts die at a point; hosts and Python workers have safeguards off.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

HOST, WORKERS = "penstock.host", "penstock.engine.python.daemon"


def arm(asked: dict[str, Any], deaths: Path) -> None:
    """`deaths` gets a line for each host that died: so many as asked, over all starts."""
    from penstock.testing import faults

    reached: dict[str, int] = {}
    sizes: dict[str, list[int]] = {}  # of a segment, when each of its fsyncs began

    def die(segment: str) -> None:
        if asked["torn"] and asked["kill_at"] == "fsync":
            os.truncate(segment, os.stat(segment).st_size // 2)
        elif asked["torn"]:  # a part of an entry; its checksum is of another place
            with open(segment, "r+b") as file:
                part = file.read(164)[64:]
                file.seek(0, os.SEEK_END)
                file.write(part)
        if asked["power"]:  # everything since the last fsync that has returned
            os.truncate(segment, sizes[segment][-2])
        with deaths.open("a") as file:
            file.write(f"{os.getpid()}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)  # not one step further while the signal is on its way

    def hook(point: str, detail: str) -> None:
        if point == "K13":
            sizes.setdefault(detail, []).append(os.stat(detail).st_size)
        if point != asked["kill_at"] or not detail.endswith(asked["kill_detail"]):
            return
        reached[detail] = reached.get(detail, 0) + 1
        if reached[detail] == asked["kill_nth"] and died(deaths) < asked["times"]:
            time.sleep(asked["stall"])
            die(detail)

    faults.install(hook if HOST in sys.orig_argv else None, asked["off"])


def died(deaths: Path) -> int:
    return len(deaths.read_text().splitlines()) if deaths.exists() else 0


if (path := os.environ.get("HOSTED_ARMED")) and {HOST, WORKERS} & set(sys.orig_argv):
    arm(json.loads(Path(path).read_text()), Path(path).with_name("deaths"))
