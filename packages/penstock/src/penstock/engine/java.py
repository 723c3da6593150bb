"""Which Java Spark would start: the one of JAVA_HOME, else the first on the PATH, as Spark's own scripts choose.

Asked before Spark is started, and by `penstock doctor`. The version is read from the file `release` that a Java has beside
its `bin`; only where that is missing is Java itself asked, which takes a while.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from penstock.errors import UsageError

OLDEST = 17
GET = (
    f"install Java {OLDEST} or newer (Debian, Ubuntu: apt install openjdk-{OLDEST}-jre-headless, or 21 where there is no"
    f" {OLDEST}; macOS: brew install --cask temurin@{OLDEST}), or set JAVA_HOME to one that is there"
)
PATIENCE = 20.0  # seconds for `java -version`; a cold start on a busy machine takes a few
_RELEASE = re.compile(r'^JAVA_VERSION="?([^"\s]+)"?', re.MULTILINE)
_SAID = re.compile(r'version "?(\d[^"\s]*)"?')


@dataclass(frozen=True)
class Java:
    path: Path
    version: int  # the feature version: 8, 17, 21; 0 where it did not tell
    text: str  # in full: 17.0.15
    origin: Literal["JAVA_HOME", "PATH"]


class _Silent(Exception):
    """A Java that does not run, and why."""


def find() -> Java | None:
    """The Java that Spark would start, whatever its version; None where there is none, or it does not run."""
    found = executable()
    if found is None:
        return None
    try:
        return _asked(*found)
    except _Silent:
        return None


def require() -> Java:
    """The same, and a clear error where it is missing or too old."""
    found = executable()
    if found is None:
        raise _missing()
    path, origin = found
    try:
        java = _asked(path, origin)
    except _Silent as e:
        what = f"The Java at {path} (from {origin}) does not run"
        raise UsageError(what, code="java.missing", why=str(e), hint=GET) from None
    if java.version < OLDEST:
        known = f"The Java at {path} (from {origin}) is version {java.text}"
        raise UsageError(
            known if java.version else f"The Java at {path} (from {origin}) does not say which version it is",
            code="java.version",
            why=f"Spark needs Java {OLDEST} or newer",
            hint=GET,
        )
    return java


def executable() -> tuple[Path, Literal["JAVA_HOME", "PATH"]] | None:
    """JAVA_HOME has the last word: Spark does not look at the PATH where it is set, even if it is wrong."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = shutil.which(str(Path(home) / "bin" / "java"))
        return (Path(path), "JAVA_HOME") if path else None
    path = shutil.which("java")
    return (Path(path), "PATH") if path else None


def _missing() -> UsageError:
    home = os.environ.get("JAVA_HOME")
    if not home:
        return UsageError(
            "There is no Java",
            code="java.missing",
            why="Spark runs on it; JAVA_HOME is not set, and no folder of the PATH has a java",
            hint=GET,
        )
    file = Path(home) / "bin" / "java"
    if not Path(home).exists():
        why = "there is no such folder"
    elif file.exists():
        why = f"{file} may not be executed"
    else:
        why = "it has no bin/java"
    what = f"JAVA_HOME is {home}, and there is no Java"
    return UsageError(what, code="java.missing", why=why, hint=_better(Path(home)))


def _better(home: Path) -> str:
    """What to make of a JAVA_HOME that points nowhere: a folder above, or none at all where the PATH has a good one."""
    for above in (home.parent, home.parent.parent):
        if home.name in ("bin", "java") and shutil.which(str(above / "bin" / "java")):
            return f"JAVA_HOME is the folder that has bin in it: set it to {above}"
    path = shutil.which("java")
    if path:
        try:
            java = _asked(Path(path), "PATH")
        except _Silent:
            return GET
        if java.version >= OLDEST:
            return f"unset JAVA_HOME, and {path} (Java {java.text}) is used; or set it to the folder of a Java"
    return GET


def _asked(path: Path, origin: Literal["JAVA_HOME", "PATH"]) -> Java:
    text = _of_release(path) or _of_itself(path)
    return Java(path, _feature(text), text, origin)


def _of_release(path: Path) -> str:
    try:
        found = _RELEASE.search((path.resolve().parents[1] / "release").read_text(errors="replace"))
    except (OSError, IndexError):
        return ""
    return found[1] if found else ""


def _of_itself(path: Path) -> str:
    """What `java -version` says, which goes to stderr."""
    try:
        ended = subprocess.run(
            [str(path), "-version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE,
            text=True,
            errors="replace",
        )
    except subprocess.TimeoutExpired:
        raise _Silent(f"it did not answer `java -version` within {PATIENCE:.0f} s") from None
    except OSError as e:
        raise _Silent(e.strerror or str(e)) from None
    # Options taken from the environment come first ("Picked up JAVA_TOOL_OPTIONS: …"), and may say anything.
    lines = [line.strip() for line in ended.stdout.splitlines() if line.strip() and not line.startswith("Picked up ")]
    if ended.returncode:
        raise _Silent(lines[0] if lines else f"`java -version` ended with {ended.returncode}")
    return next((found[1] for line in lines if (found := _SAID.search(line))), "")


def _feature(text: str) -> int:
    """17.0.15 → 17, 21-ea → 21, 1.8.0_412 → 8; 0 where there is no number."""
    numbers = [int(n) for n in re.findall(r"\d+", text)]
    if len(numbers) > 1 and numbers[0] == 1:
        return numbers[1]
    return numbers[0] if numbers else 0
