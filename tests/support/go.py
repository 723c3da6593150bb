"""Builds the Go programs of the examples for tests and benchmarks: once for each state of their sources, outside the repository."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "go-connector"
needs_go = pytest.mark.skipif(shutil.which("go") is None, reason="go is missing: https://go.dev/dl")


def built(package: str = ".", module: Path = EXAMPLE) -> Path:
    """The program of a package in a module. The name says what it was built from, so a stale one is never taken."""
    kept = Path(tempfile.gettempdir()) / f"penstock-go-{os.getuid()}"
    kept.mkdir(mode=0o700, exist_ok=True)
    if kept.stat().st_uid != os.getuid():
        raise RuntimeError(f"{kept} is somebody else's")
    program = kept / f"{module.name}-{_fingerprint(module, package)}"
    if not program.exists():
        aside = program.with_name(f"{program.name}.{os.getpid()}")
        environment = {**os.environ, "CGO_ENABLED": "0"}
        subprocess.run(["go", "build", "-o", aside, package], cwd=module, check=True, env=environment)
        aside.rename(program)  # two that build at once make the same
    return program


def _fingerprint(module: Path, package: str) -> str:
    made = hashlib.sha256(package.encode())
    for path in sorted(path for path in module.rglob("*") if path.suffix in (".go", ".mod", ".sum")):
        made.update(f"{path.relative_to(module)}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return made.hexdigest()[:16]
