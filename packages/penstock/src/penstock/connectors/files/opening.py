"""Opens a file for reading bytes, unpacked where its name says that it is packed. Plain Python, on the driver and in tasks."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

COMPRESSED = (".gz", ".zst")


def compressed(path: str) -> bool:
    return path.endswith(COMPRESSED)


def opened(path: str) -> Any:
    """A context with `read(n)`. What is cut off raises `EOFError` or `OSError`."""
    if path.endswith(".gz"):
        return gzip.open(path, "rb")
    if path.endswith(".zst"):
        import pyarrow as pa

        return pa.input_stream(path, compression="zstd")
    return Path(path).open("rb")
