"""`file` as a destination: a line of OpenCDC JSON per record, appended. Runs in a connector host, or in a plugin program.

Durable when `write` returns. What a crash has left of a line is ended before the next one is written, so that it spoils no other.
"""

from __future__ import annotations

import errno
import os
import stat

from penstock.connectors.file.opencdc import line
from penstock.connectors.file.settings import FileDestinationSettings
from penstock_sdk import Batch, Destination, Record, Rejected, Retry, Stop

_BEGINNING = b'{"position":'  # of every line that is written here
_BLOCK = 1 << 16
_TRANSIENT = {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE}


class FileDestination(Destination[FileDestinationSettings]):
    _fd = -1

    def open(self) -> None:
        path = self.settings.path
        try:
            if path.exists() and not path.is_file():
                raise Stop(f"open {path}: it is no regular file", code="file.path")
            made = not path.exists()
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if made:
                _sync_folder(str(path.parent))
        except OSError as e:
            raise Stop(
                f"open {path}: {(e.strerror or str(e)).lower()}", code="file.path", hint="its folder has to be there"
            ) from e
        self._torn = True  # until it was looked at

    def write(self, batch: Batch) -> None:
        refused: dict[int, str] = {}
        lines: list[bytes] = []
        for i, record in enumerate(batch):
            try:
                self._refuse_encoded(record)
                lines.append(line(record))
            except ValueError as e:
                refused[i] = str(e)
        if lines:
            self._append(b"\n".join(lines) + b"\n")
        if refused:
            raise Rejected(refused, code="file.value")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, data: bytes) -> None:
        try:
            if self._torn and self._ends_torn():
                self.context.log.warn("the last line was cut off by a crash; it is ended", path=str(self.settings.path))
                data = b"\n" + data
            self._torn = True  # if anything goes wrong from here on
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(self._fd, rest) :]
            os.fsync(self._fd)
            self._torn = False
        except OSError as e:
            text = f"{self.settings.path} can't be written: {e.strerror}"
            raise (Retry if e.errno in _TRANSIENT else Stop)(text, code="file.write") from e

    def _ends_torn(self) -> bool:
        """Whether the file ends in the middle of a line of ours. Somebody else's is left as it is, as Conduit does."""
        info = os.fstat(self._fd)
        if not stat.S_ISREG(info.st_mode) or not info.st_size or os.pread(self._fd, 1, info.st_size - 1) == b"\n":
            return False
        at = info.st_size
        while at > 0:
            start = max(0, at - _BLOCK)
            if (found := os.pread(self._fd, at - start, start).rfind(b"\n")) >= 0:
                at = start + found + 1
                break
            at = start
        beginning = os.pread(self._fd, len(_BEGINNING), at)
        return _BEGINNING.startswith(beginning)

    def _refuse_encoded(self, record: Record) -> None:
        """Avro in a schema's place would be written as if it were the text."""
        for name, enabled, data in (
            ("key", self.settings.sdk_schema_extract_key_enabled, record.key),
            ("payload", self.settings.sdk_schema_extract_payload_enabled, record.after or record.before),
        ):
            start = f"opencdc.{name}.schema."
            if enabled and isinstance(data, bytes) and {start + "subject", start + "version"} <= record.metadata.keys():
                raise ValueError(
                    f"its {name} is encoded with a schema; sdk.schema.extract.{name}.enabled: false writes the bytes"
                )


def _sync_folder(folder: str) -> None:
    """The name has to last, too."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
