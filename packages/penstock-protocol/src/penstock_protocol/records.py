"""Records on their way. What a source sends and what a destination is sent are the same bytes, in both dialects, and many messages
joined are one: so they are passed on, and joined, without being looked into. They are decoded for whoever does look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from penstock_protocol.pb.connector.v2.source_pb2 import Source
from penstock_protocol.pb.opencdc.v1.opencdc_pb2 import Record

_TAG = 0x0A  # field 1, of a known length


class Records:
    """One message's worth, or several joined."""

    __slots__ = ("_data", "_decoded")

    def __init__(self, data: bytes) -> None:
        self._data: bytes | None = data
        self._decoded: Sequence[Record] | None = None

    @classmethod
    def of(cls, records: Iterable[Record]) -> Records:
        made = cls.__new__(cls)
        made._data, made._decoded = None, list(records)
        return made

    @classmethod
    def joined(cls, several: Iterable[Records]) -> Records:
        """In this order."""
        return cls(b"".join(records.data for records in several))

    @property
    def data(self) -> bytes:
        if self._data is None:
            self._data = Source.Run.Response(records=self._decoded).SerializeToString()
        return self._data

    def _records(self) -> Sequence[Record]:
        if self._decoded is None:
            self._decoded = Source.Run.Response.FromString(self._data or b"").records
        return self._decoded

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records())

    def __getitem__(self, index: int) -> Record:
        return self._records()[index]

    def __len__(self) -> int:
        return len(self._decoded) if self._decoded is not None else sum(1 for _ in spans(self.data))

    def parts(self, most: int) -> Iterator[Records]:
        """In pieces of at most so many bytes, as far as a single record is not larger: a plugin refuses a message that is too large."""
        data = self.data
        if len(data) <= most:
            yield self
            return
        start = end = 0
        for first, last in spans(data):
            if last - start > most and end > start:
                yield Records(data[start:end])
                start = first
            end = last
        if end > start:
            yield Records(data[start:end])

    def single(self) -> Iterator[Records]:
        """One by one, for the first dialect."""
        data = self.data
        for first, last in spans(data):
            yield Records(data[first:last])


def spans(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each record begins and ends, with its tag. ValueError for what is not a message of records."""
    at, size = 0, len(data)
    while at < size:
        first = at
        if data[at] != _TAG:
            raise ValueError("these bytes are no records")
        at += 1
        length = shift = 0
        while True:
            if at >= size or shift > 28:
                raise ValueError("these bytes are no records")
            byte = data[at]
            at += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        at += length
        if at > size:
            raise ValueError("a record is cut off")
        yield first, at
