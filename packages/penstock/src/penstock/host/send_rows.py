"""What a task of Spark's does with the rows of a delivery to a hosted destination: sends them to its host, and hands the host's answer on.

A task may run twice. It says which attempt it is, and the host serves the newest one alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from penstock import record
from penstock.host.kept_rows import KeptRows
from penstock.host.marks import Place
from penstock.native import Locate, LocatesMany
from penstock.record import Shape

_GONE = (pa.ArrowException, OSError)  # Flight's own errors are among the first
_MAP = pa.map_(pa.string(), pa.string())
DDL = "partition int, answer string"
_SCHEMA = pa.schema([("partition", pa.int32()), ("answer", pa.string())])


@dataclass(frozen=True)
class SendRows:
    """Sent to the tasks; the rows of each partition come in order."""

    address: str
    token: str
    order: dict[str, Any]  # which delivery it is, for the host
    locate: Locate | None = None  # position and metadata, where the rows do not have them
    encode: bool = False  # the destination is a program: raw records are made messages here

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        partition, attempt = context.partitionId(), context.taskAttemptId()
        answer = self.send(partition, attempt, batches)
        if answer is not None:
            yield _answer(partition, answer)

    def send(self, partition: int, attempt: int, batches: Iterator[pa.RecordBatch]) -> str | None:
        """The host's answer; None: there was nothing to send."""
        from pyarrow import flight

        from penstock.host.remote import bearer

        batches = map(self._made, batches)
        first = next(batches, None)
        if first is None:
            return None
        order = {**self.order, "partition": partition, "attempt": attempt}
        with closing(flight.connect(self.address)) as client:
            descriptor = flight.FlightDescriptor.for_command(json.dumps(order).encode())
            try:
                writer, reader = client.do_exchange(descriptor, bearer(self.token))
            except _GONE as e:
                return _gone(e, batches)
            try:
                writer.begin(first.schema)
                writer.write_batch(first)
                for batch in batches:
                    writer.write_batch(batch)
                writer.done_writing()
            except _GONE:
                pass  # it has its answer already, and takes no more
            try:
                answer: str = reader.read_chunk().data.column(0)[0].as_py()
            except (*_GONE, StopIteration) as e:
                return _gone(e, batches)
            for _ in batches:
                pass
            return answer

    def _made(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from penstock.host.messages import encoded, is_raw
        from penstock.host.outgoing import Lane

        if self.locate is not None:
            batch = _located(batch, self.locate)
        shape = Shape(self.order.get("shape", Shape.RAW))
        if not self.encode or not is_raw(batch, shape):
            return batch
        return encoded(batch, Lane(self.order["source"], shape, self.order["delivery"]))


@dataclass(frozen=True)
class SendKept:
    """Sent to one task, which has no rows: it reads them itself."""

    send: SendRows
    kept: KeptRows
    after: Place | None  # what is settled already

    def __call__(self, nothing: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in nothing:
            pass
        files = self.kept.in_order()
        if files is None:
            yield _answer(0, json.dumps({"unsorted": True}))
        else:
            yield from self.send(self.kept.batches(files, self.after))


def _answer(partition: int, answer: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([partition], pa.int32()), pa.array([answer])], schema=_SCHEMA)


def _gone(error: Exception, left: Iterator[pa.RecordBatch]) -> str:
    """An answer, too: a task that fails would be run again, and would not find the host either."""
    for _ in left:
        pass
    return json.dumps({"gone": str(error).partition("\n")[0]})


def _located(batch: pa.RecordBatch, locate: Locate) -> pa.RecordBatch:
    if isinstance(locate, LocatesMany):
        positions, told = locate.many(batch.column(record.SEQ).to_numpy())
    else:
        places = [locate(seq) for seq in batch.column(record.SEQ).to_pylist()]
        positions = pa.array([position for position, _ in places], pa.binary())
        told = [(len(list(same)), found) for found, same in groupby(found for _, found in places)]
    maps = pa.concat_arrays([_maps(found, n) for n, found in told]) if told else pa.array([], _MAP)
    return batch.append_column(record.POSITION, positions).append_column(record.METADATA, maps)


def _maps(found: dict[str, str], n: int) -> pa.Array:
    """The same for so many records."""
    width = len(found)
    each = pa.array(np.tile(np.arange(width), n))
    keys, values = (pa.array(list(part), pa.string()).take(each) for part in (found.keys(), found.values()))
    return pa.MapArray.from_arrays(pa.array(np.arange(n + 1) * width, pa.int32()), keys, values)
