"""Publishes staged records, as one transaction for each writer. Runs in Spark's tasks, and in the engine where records are few.

1. Kafka gives the writer its transactional id: whoever had it before is fenced, and what they left open is aborted.
2. The book is asked whether this try is still the newest, and a mark is made that the writer has begun.
3. Where it is not certain that nobody has written these records before, the ends of the topics are read back.
4. What is not there is produced, and committed. Where Kafka refuses records the transaction is aborted and they are named: nothing of
   this writer is visible then, and it is for the engine to say how to go on.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.connectors.kafka.book import Book, Place
from penstock.connectors.kafka.messages import Form, Id, Messages, read
from penstock.connectors.kafka.tail import HASH, ID, Doubt, Starts, partitions, there
from penstock.connectors.kafka.trouble import Failed, Why, WriterFailedError, is_about_topic, never, refusal, told
from penstock.native import Refusal
from penstock.testing import faults

if TYPE_CHECKING:
    import pyarrow as pa
    from confluent_kafka import Producer

SCHEMA = "outcome string"
_SILENT = logging.getLogger("penstock.kafka.client")  # what matters is raised, or said to `error_cb`
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False
_ROOM = 0.05  # seconds to wait for room in the producer
_AROUND = 160  # bytes of a record beside key and value: our headers, and what is around a batch of one


@dataclass(frozen=True)
class Outcome:
    """What became of the records of one writer."""

    writer: int
    there: int = 0  # how many of them are visible now
    at: Place | None = None  # of one that was written last
    refused: tuple[Refusal, ...] = ()  # then nothing was written
    failed: Failed | None = None  # nothing was written, or that is not known

    def to_json(self) -> str:
        refused = [[r.seq, r.part, r.reason, r.code] for r in self.refused]
        return json.dumps([self.writer, self.there, self.at, refused, self.failed and self.failed.to_json()])

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        writer, n, at, refused, failed = json.loads(text)
        made = tuple(Refusal(*r) for r in refused)
        return cls(writer, n, tuple(at) if at else None, made, None if failed is None else Failed(*failed))


@dataclass(frozen=True)
class Limits:
    """Of a topic, as far as they are known."""

    bytes: int | None = None  # of a record, and of records that are sent together
    keyed: bool = False  # it takes no record without a key


_NO_LIMITS = Limits()


@dataclass(frozen=True)
class Publish:
    """One try at a delivery. Sent to Spark's tasks."""

    config: Mapping[str, Any]  # of every client
    producing: Mapping[str, Any]  # of producers, beside it
    ids: str  # the transactional ids, without the writer's number
    book: Path
    token: str  # the name of this try
    hash: str
    folder: Path  # of the attempt, where marks are made
    rows: Path  # what is to be written
    files: tuple[tuple[str, ...], ...]  # of each writer
    form: Form
    topics: Mapping[str, Limits]
    starts: Starts  # the ends of the topics before anything was written
    timeout: float  # seconds
    again: bool  # somebody may have written some of it
    refused: frozenset[Id] = frozenset()  # not to be written
    stop: Id | None = None  # nothing from this record on

    def __call__(self, given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        task = replace(self, again=self.again or context.attemptNumber() > 0)
        for batch in given:
            for n in batch.column(0).to_pylist():
                yield pa.RecordBatch.from_pydict({"outcome": [task.write(n).to_json()]})

    def without(self, refused: Collection[Id], stop: Id | None) -> Publish:
        """The same again, for writers that have found what Kafka refuses."""
        return replace(self, refused=frozenset(refused), stop=stop, again=True)

    def write(self, n: int) -> Outcome:
        from confluent_kafka import KafkaException

        try:
            return _Writer(self, n).outcome()
        except KafkaException as e:
            return Outcome(n, failed=told(e))
        except SystemError as e:  # an error that came while a callback ran
            if not isinstance(e.__cause__, KafkaException):
                raise
            return Outcome(n, failed=told(e.__cause__))
        except WriterFailedError as e:
            return Outcome(n, failed=e.failed)


class _Writer:
    """One transactional id, and the records that are written under it."""

    def __init__(self, publish: Publish, n: int) -> None:
        from confluent_kafka import KafkaException

        self._p, self._n, self._error = publish, n, KafkaException
        self._said = ""  # by the client, about its connections
        self._producer = self._opened()
        self._hash = (HASH, publish.hash.encode())
        self._partitions: dict[str, int] = {}
        self._turn = n
        self._doubt = Doubt()
        self._there = 0
        self._at: Place | None = None
        self._refused: dict[Id, Refusal] = {}

    def outcome(self) -> Outcome:
        p = self._p
        faults.reach("K6a", "fenced")
        skip: set[bytes] = set()
        if (self._begun() or p.again) and faults.safeguard("kafka-tail"):
            skip = there(p.config, p.starts, tuple(p.topics), p.hash)
        faults.reach("K6a", "read")
        rows = self._attempt(skip)
        if rows is None:
            self._isolate(skip)
            return Outcome(self._n, refused=self._in_order())
        faults.reach("K6a", "committed")
        return Outcome(self._n, self._there + rows, self._at)

    def _begun(self) -> bool:
        """Whether another writer has begun with these records under this id: it may have come to its end."""
        p = self._p
        if not Book(p.book).is_newest(p.token):
            raise WriterFailedError(Failed("fenced", "another try has taken over"))
        try:
            (p.folder / f"begun-{self._n}").touch(exist_ok=False)
        except FileExistsError:
            return True
        except FileNotFoundError:
            gone = Failed("fenced", "what was staged is gone: the delivery is done, or was given up")
            raise WriterFailedError(gone) from None
        return False

    # -- the records ---------------------------------------------------------------------------------------------------------

    def _attempt(self, skip: set[bytes]) -> int | None:
        """Writes and commits all that is to be written, and says how many that is. None: some are refused, and nothing was written."""
        from confluent_kafka import KafkaException

        rows = 0
        self._producer.begin_transaction()
        try:
            for m in self._wanted(skip):
                rows += len(m)
                self._produce(m)
            if not self._refused:
                self._producer.flush(self._p.timeout)
                faults.reach("K6a", "written")
                self._patiently(self._producer.commit_transaction)
                return rows
        except KafkaException as e:
            if not _ends_transaction(e.args[0]) or never(e.args[0]):
                raise
            self._said = e.args[0].str()
        return None

    def _wanted(self, skip: set[bytes]) -> Iterator[Messages]:
        """Without those that are there, those that are not to be written, and those that can't be."""
        p = self._p
        self._there = 0
        for m in read(p.rows, p.files[self._n], p.form):
            if skip or p.refused or self._refused or p.stop is not None:
                chosen = []
                for i, place in enumerate(zip(m.seqs, m.parts, strict=True)):
                    if m.ids[i] in skip:
                        self._there += 1
                    elif place not in p.refused and place not in self._refused and (p.stop is None or place < p.stop):
                        chosen.append(i)
                m = m.only(chosen)
            if bad := self._unfit(m):
                for i, why in bad.items():
                    self._refuse(m, i, why)
                m = m.only([i for i in range(len(m)) if i not in bad])
            if len(m):
                yield m

    def _unfit(self, m: Messages) -> dict[int, Why]:
        """What need not be tried."""
        bad: dict[int, Why] = {}
        known = {topic: self._limits(topic) for topic in ({m.topics} if isinstance(m.topics, str) else set(m.topics))}
        if self._p.form.opencdc:
            bad |= {i: Why(str(v), code="kafka.value") for i, v in enumerate(m.values) if isinstance(v, ValueError)}
        if all(found == _NO_LIMITS for found in known.values()):
            return bad
        for i in range(len(m)):
            topic, key, value = m.topic(i), None if m.keys is None else m.keys[i], m.values[i]
            limits = known[topic]
            if limits is None:
                bad[i] = Why(f"there is no topic {topic!r}", code="kafka.topic")
            elif limits.keyed and key is None:
                bad[i] = Why(f"it has no key, and the topic {topic!r} is compacted by keys", code="kafka.refused")
            elif limits.bytes is not None and i not in bad:
                size = len(value or b"") + len(key or b"") + _AROUND
                if size > limits.bytes:
                    text = f"it has {size:,} bytes, and the topic {topic!r} takes {limits.bytes:,}"
                    bad[i] = Why(text, code="kafka.too-large")
        return bad

    def _limits(self, topic: str) -> Limits | None:
        """None: there is no such topic."""
        if topic not in self._partitions:
            wanted = len(self._p.starts.get(topic, ()))
            self._partitions[topic] = partitions(self._producer, topic, wanted, self._doubt)
        return self._p.topics.get(topic, _NO_LIMITS) if self._partitions[topic] else None

    def _produce(self, m: Messages, hear: Callable[[int, Any, Any], None] | None = None) -> None:
        """`hear` is told what became of each; without it only the last one says where it is."""
        topics = repeat(m.topics) if isinstance(m.topics, str) else m.topics
        keys = repeat(None) if m.keys is None else m.keys
        more = repeat(()) if m.headers is None else m.headers
        last, hash_, produce = len(m) - 1, self._hash, self._producer.produce
        rows = zip(range(len(m)), topics, m.values, keys, self._spread(m), m.ids, more, strict=False)
        for i, topic, value, key, partition, id_, own in rows:
            on = partial(hear, i) if hear is not None else self._placed if i == last else None
            while True:
                try:
                    produce(topic, value, key, partition, headers=[hash_, (ID, id_), *own], on_delivery=on)
                except BufferError:
                    self._wait()
                    continue
                except self._error as e:
                    found = refusal(e.args[0], topic)
                    if found is None:
                        raise
                    self._refuse(m, i, found)
                break
        self._producer.poll(0)

    def _spread(self, m: Messages) -> Iterable[int]:
        """The partition of each; -1: its key says it. Those without a key go to one partition for a while, then to the next."""
        self._turn += 1
        if isinstance(m.topics, str):
            one = self._turn % self._partitions[m.topics]
            return repeat(one) if m.keys is None else [one if key is None else -1 for key in m.keys]
        keys = repeat(None) if m.keys is None else m.keys
        return [
            self._turn % self._partitions[topic] if key is None else -1
            for topic, key in zip(m.topics, keys, strict=False)
        ]

    def _placed(self, error: Any, message: Any) -> None:
        if error is None:
            self._at = message.topic(), message.partition(), message.offset()

    def _refuse(self, m: Messages, i: int, why: Why) -> None:
        self._refused[m.seqs[i], m.parts[i]] = Refusal(m.seqs[i], m.parts[i], why.text, why.code)

    # -- which of them -------------------------------------------------------------------------------------------------------

    def _isolate(self, skip: set[bytes]) -> None:
        """Finds all that Kafka refuses. Nothing that is tried here is committed."""
        while (suspects := self._suspects(skip)) is not None:
            before = len(self._refused)
            self._halve(suspects)
            if len(self._refused) == before:
                raise WriterFailedError(Failed("retry", f"records were not taken, and each of them is: {self._said}"))

    def _suspects(self, skip: set[bytes]) -> Messages | None:
        """Records that failed together; None: all go through."""
        for m in self._wanted(skip):
            if (failed := self._try(m)) is not None:
                return failed
        return None

    def _halve(self, m: Messages) -> None:
        if (failed := self._try(m)) is None:
            return
        if len(failed) == 1 and len(m) == 1:
            return  # `_try` has said why
        half = max(1, len(failed) // 2)
        self._halve(failed.only(range(half)))
        self._halve(failed.only(range(half, len(failed))))

    def _try(self, m: Messages) -> Messages | None:
        """Those of them that failed. One that fails alone is refused, and so is whatever its topic does not take."""
        if not len(m):
            return None
        failed: dict[int, Any] = {}

        def hear(i: int, error: Any, message: Any) -> None:
            del message
            if error is not None:
                failed[i] = error

        before = len(self._refused)
        self._producer = self._opened()
        self._producer.begin_transaction()
        try:
            self._produce(m, hear)
        except self._error as e:
            if not _ends_transaction(e.args[0]):
                raise
        self._producer.flush(self._p.timeout)
        known = {i: found for i, error in failed.items() if (found := refusal(error, m.topic(i))) is not None}
        if failed and not known and len(self._refused) == before:
            raise WriterFailedError(Failed("retry", next(iter(failed.values())).str()))
        sure = [i for i in known if len(m) == 1 or is_about_topic(failed[i])]
        for i in sure:
            self._refuse(m, i, known[i])
        rest = [i for i in sorted(known) if i not in sure]
        if sure and not rest:
            return m.only(sorted(sure)) if len(m) == 1 else None
        return m.only(rest) if rest else None

    def _in_order(self) -> tuple[Refusal, ...]:
        return tuple(self._refused[place] for place in sorted(self._refused))

    # -- the client ----------------------------------------------------------------------------------------------------------

    def _listen(self, error: Any) -> None:
        self._said = error.str()

    def _wait(self) -> None:
        until = time.monotonic() + self._p.timeout
        while not self._producer.poll(_ROOM):
            if time.monotonic() > until:
                raise WriterFailedError(Failed("retry", self._said or "the servers take no more records"))

    def _patiently(self, step: Callable[[float], Any]) -> None:
        """Steps of a transaction may be called again while there is time: they go on where they were."""
        until = time.monotonic() + self._p.timeout
        while True:
            try:
                step(max(1.0, until - time.monotonic()))
            except self._error as e:
                if not e.args[0].retriable() or time.monotonic() > until:
                    if e.args[0].retriable() and self._said:
                        raise WriterFailedError(Failed("retry", self._said)) from e
                    raise
            else:
                return

    def _opened(self) -> Producer:
        """One that has the id. What the one before has left open is aborted by that: a producer that has failed once is of no more use."""
        from confluent_kafka import Producer

        p = self._p
        ids = {"transactional.id": f"{p.ids}.{self._n}", "error_cb": self._listen}
        made = Producer({**p.config, **p.producing, **ids}, logger=_SILENT)
        self._patiently(made.init_transactions)
        return made


def _ends_transaction(error: Any) -> bool:
    """Whether nothing but an abort is left."""
    return bool(error.txn_requires_abort()) or error.name() == "_STATE"
