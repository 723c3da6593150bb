"""The lock of a state folder and the processes that an engine starts: the JVM outlives a killed engine for a moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.engine.lock import StateFolder
from penstock.errors import UsageError

HOLDER = """
import subprocess, sys
from pathlib import Path
from penstock.engine.lock import StateFolder
folder = StateFolder(Path(sys.argv[1]))
folder.open()
print(subprocess.Popen(["sleep", "600"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.contract("X6", safeguard="lock")
def test_the_lock_is_not_handed_down_to_a_child_that_outlives_the_engine(tmp_path: Path) -> None:
    path = tmp_path / "state"
    command = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        orphan = int(engine.stdout.readline())
        try:
            with pytest.raises(UsageError):
                StateFolder(path).open()
            engine.kill()
            engine.wait()
            os.kill(orphan, 0)  # it is still there
            folder = StateFolder(path)
            folder.open()
            folder.close()
        finally:
            os.kill(orphan, signal.SIGKILL)
