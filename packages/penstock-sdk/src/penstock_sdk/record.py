"""The record as user code sees it: in processors, and later in connectors. No engine, no pyspark.

Payloads (`key`, `before`, `after`) are `bytes` when nobody has looked inside (raw), a `dict` when their structure is known,
and None when absent. What is rarely looked at, position and metadata, is made only when it is asked for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

Payload = bytes | dict[str, Any] | None
COLLECTION: Final = "opencdc.collection"  # the metadata key that is the namespace
Place = tuple[bytes, dict[str, str]]  # position and metadata


def record_id(source: str, position: bytes, part: int = 0) -> str:
    """What idempotent code uses: equal on every replay, whatever batch the record is in. 32 hex digits."""
    digest = hashlib.blake2b(digest_size=16)
    for item in (source.encode(), position):
        digest.update(len(item).to_bytes(8, "big"))
        digest.update(item)
    digest.update(part.to_bytes(8, "big"))
    return digest.hexdigest()


class Record:
    """One record. User code may change any field in place, or return another record made by `derive`.

    `source`, `seq` and `part` are its identity and are not for changing.
    """

    __slots__ = (
        "_locate",
        "_metadata",
        "_namespace",
        "_position",
        "_shared",
        "after",
        "before",
        "key",
        "operation",
        "part",
        "phase",
        "seq",
        "source",
        "timestamp",
    )

    def __init__(
        self,
        after: Payload = None,
        *,
        before: Payload = None,
        key: Payload = None,
        position: bytes = b"",
        operation: str = "create",
        namespace: str | None = None,
        phase: str = "sync",
        metadata: dict[str, str] | None = None,
        timestamp: datetime | None = None,
        source: str = "",
        seq: int = 0,
        part: int = 0,
        locate: Callable[[int], Place] | None = None,
    ) -> None:
        """`locate` gives position and metadata of a seq, for records whose own were left where they are."""
        self.after = after
        self.before = before
        self.key = key
        self.operation = operation
        self._namespace = namespace
        self.phase = phase
        self.timestamp = timestamp
        self.source = source
        self.seq = seq
        self.part = part
        self._locate = locate
        if locate is None:
            self._position = position
            self._metadata = {} if metadata is None else metadata
            if namespace is not None:
                self._named()
        else:
            self._position = None
            self._metadata = None

    _position: bytes | None
    _metadata: dict[str, str] | None  # once it is there, its `opencdc.collection` is the namespace
    _namespace: str | None  # until then
    _shared: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        """Only for a field that is not set: one that an engine has left to what all records of a batch share."""
        if name not in _LAZY:
            raise AttributeError(f"a record has no {name!r}")
        value = object.__getattribute__(self, "_shared")[name]
        setattr(self, name, value)
        return value

    @property
    def position(self) -> bytes:
        """The source's own, opaque; equal on every replay."""
        if self._position is None:
            self._fill()
        return self._position or b""

    @property
    def metadata(self) -> dict[str, str]:
        if self._metadata is None:
            self._fill()
        assert self._metadata is not None
        return self._metadata

    @metadata.setter
    def metadata(self, value: dict[str, str]) -> None:
        if self._position is None:
            self._fill()
        self._metadata = value

    @property
    def namespace(self) -> str | None:
        """The collection, table or topic it belongs to: the metadata key `opencdc.collection`, whichever of both is set."""
        return self._namespace if type(self._metadata) is not dict else self._metadata.get(COLLECTION)

    @namespace.setter
    def namespace(self, value: str | None) -> None:
        self._namespace = value
        if type(self._metadata) is dict:
            if value is None:
                self._metadata.pop(COLLECTION, None)
            else:
                self._metadata[COLLECTION] = value

    def _fill(self) -> None:
        if self._locate is None:
            name = "position" if self._position is None else "metadata"
            raise ValueError(f"a record has no {name}: it was made with None for it")
        self._position, metadata = self._locate(self.seq)
        if self._metadata is None:
            self._metadata = metadata
            self._named()

    def _named(self) -> None:
        if self._namespace is not None and self._metadata is not None:
            self._metadata = {**self._metadata, COLLECTION: self._namespace}

    @property
    def id(self) -> str:
        return record_id(self.source, self.position, self.part)

    def derive(self, **changes: Any) -> Record:
        """A copy with some fields changed. Payloads are shared unless they are replaced."""
        made = Record.__new__(Record)
        for name in Record.__slots__:
            try:
                setattr(made, name, object.__getattribute__(self, name))
            except AttributeError:
                continue  # left to what is shared
        if made._metadata is not None:
            made._metadata = dict(made._metadata)
        for name, value in changes.items():
            setattr(made, name, value)
        return made

    def __repr__(self) -> str:
        return f"Record({self.source!r}, seq={self.seq}, part={self.part}, after={self.after!r})"


_LAZY = frozenset(Record.__slots__) - {"after", "seq", "_shared"}


def shared_fields(source: str, timestamp: datetime | None, locate: Callable[[int], Place] | None) -> dict[str, Any]:
    """For engines: what records have that were made without saying so (`Record.__new__`, then `after`, `seq`, `_shared`)."""
    return {
        "before": None,
        "key": None,
        "operation": "create",
        "_namespace": None,
        "phase": "sync",
        "timestamp": timestamp,
        "source": source,
        "part": 0,
        "_locate": locate,
        "_position": None,
        "_metadata": None,
    }


class Drop:
    """Returned by a processor: filtered on purpose. It counts as processed."""

    def __repr__(self) -> str:
        return "DROP"

    def __reduce__(self) -> str:
        return "DROP"  # one object in every process


DROP: Final = Drop()


class Reject:
    """Returned by a processor: this record is bad. The same as raising `Rejected`."""

    __slots__ = ("code", "reason")

    def __init__(self, reason: str, code: str = "processor.rejected") -> None:
        self.reason = reason
        self.code = code
