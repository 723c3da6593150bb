"""The class archive: what the JVM has loaded and checked once, mapped into memory at the next start.

Never needed for correctness: without it, or with one that does not fit, the JVM starts as ever, about three seconds later.
Made by `make setup` (`cli/archive.py`), or beside what the user does next after a first run without one; kept in the user's cache
folder by Java and Spark version.
Seen on 2 cores: start to first snapshot 5.0 s without, 3.3 s with; the first plan 1.2 s and 0.5 s.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from penstock.engine import java

OFF = "PENSTOCK_NO_ARCHIVE"  # set to anything: neither used nor made
QUIET = ("-Xshare:auto", "-Xlog:disable", "-Xlog:all=error:stderr")  # a mismatch is not worth a line


def use() -> list[str]:
    """JVM options for a start: the archive, if there is one for this Java and this Spark."""
    path = location() if not os.environ.get(OFF) else None
    return [f"-XX:SharedArchiveFile={path}", *QUIET] if path is not None and path.exists() else []


def location() -> Path | None:
    """Where the archive for this Java and this Spark belongs; None when there is no Java or no Spark."""
    found = java.executable()
    if found is None:
        return None
    path, _ = found
    try:
        spark = metadata.version("pyspark")
    except metadata.PackageNotFoundError:
        return None
    home = path.resolve().parents[1]
    release = home / "release"
    facts = [
        str(home),
        release.read_text() if release.exists() else str(path.stat().st_mtime_ns),
        spark,
        sys.prefix,
    ]
    name = hashlib.blake2b("\n".join(facts).encode(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "penstock" / f"spark-{spark}-{name}.jsa"


def make_later() -> bool:
    """Where there is none yet it is made by a process of its own, with what the machine has to spare. True if one was started."""
    path = location() if not os.environ.get(OFF) else None
    if path is None or path.exists():
        return False
    try:
        subprocess.Popen(
            [sys.executable, "-m", "penstock.cli.archive", "--quietly"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    return True
