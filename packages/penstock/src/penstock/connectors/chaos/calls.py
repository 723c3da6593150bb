"""Writes down what happened, so that a test can look at it from another process: a JSON line each, there before the call goes on."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from pathlib import Path
from typing import Any

from penstock_sdk import Record

SHOWN = 1000  # bytes of a payload that are written as they are
_LOCK = threading.Lock()  # read and ack run at the same time


def record_call(path: Path | None, method: str, **more: Any) -> None:
    if path is not None:
        append(path, [{"method": method, "time": time.time(), "pid": os.getpid(), **more}])


def append(path: Path, lines: list[dict[str, Any]]) -> None:
    """Durable when it returns."""
    data = "".join(json.dumps(line, default=str) + "\n" for line in lines).encode()
    with _LOCK, path.open("ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def described(record: Record) -> dict[str, Any]:
    return {
        "position": text(record.position),
        "operation": record.operation,
        "namespace": record.namespace,
        "key": _payload(record.key),
        "after": _payload(record.after),
    }


def text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _payload(payload: Any) -> Any:
    """Large ones by size and digest: a test of 50 MB need not write them."""
    if not isinstance(payload, bytes):
        return payload
    if len(payload) <= SHOWN:
        return text(payload)
    return {"size": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
