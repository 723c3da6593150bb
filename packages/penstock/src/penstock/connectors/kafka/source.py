"""`kafka` as a source: stretches of partitions, read by Spark's own reader, never two tasks for one partition.

A partition is a strand. What a batch holds is fixed when it is taken, as offsets (`planning.py`), up to the last record that is
committed; Spark reads exactly these. Before and after every read Kafka is asked whether the topic is still the same one and still holds
all of it: what retention has taken, or what was deleted, is never passed over in silence. Where records end is asked for in one request
for all partitions (`cluster.py`).
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from penstock import fs, record
from penstock.connectors.kafka import jars, planning
from penstock.connectors.kafka.cluster import Cluster, Topic, counted
from penstock.connectors.kafka.connection import refuse_without_client
from penstock.connectors.kafka.planning import Stretch, strand_of, stretch_of
from penstock.connectors.kafka.source_settings import KafkaSourceSettings, Place, milliseconds
from penstock.errors import InputChanged, PenstockError, Retry, Stop
from penstock.native import Behind, Known, Limits, NativeSource, Range, Ranges, Surroundings, To
from penstock.packages import KAFKA, Needs
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BATCH = 1_000_000  # offsets, where nothing else limits a batch
FEW = 1000  # offsets that are taken without a look at how large records are
WIDTH = 1024  # bytes that a record is taken for until one was seen
REST = 5.0  # seconds without a record after which it is looked for less often
SLOWER = 2.5  # times as long as `poll`
SHORT = 5.0  # seconds for which a partition may say that it ends before what was read, after a start of its broker
LAST_COMMIT = 5.0  # seconds that the last commit of a group may take
FETCHED = 64 << 20  # bytes that all consumers of a batch may hold together
READ = 20.0  # seconds that a task waits for records
STARTS = "start.json"  # in the state folder: where each partition began
COLLECTION, CREATED, HEADER, HEADERS = "opencdc.collection", "opencdc.createdAt", "kafka.header.", "kafka.headers"
_BYTES, _UNNUMBERED = "_bytes", "_unnumbered"  # columns beside the record's

clock = time.monotonic  # tests have their own


class KafkaSource(NativeSource[KafkaSourceSettings]):
    rewinds: ClassVar[tuple[str, ...]] = ("offsets of partitions: topic/0=17,topic/1=4", "a time")
    packages: ClassVar[Needs] = KAFKA

    def __init__(self, settings: KafkaSourceSettings, source_id: str) -> None:
        super().__init__(settings, source_id)
        self._stop = threading.Event()
        self._cluster: Cluster | None = None
        self._id = ""  # of the cluster
        self._topics: dict[str, Topic] = {}
        self._places: list[Place] = []
        self._starts: dict[str, int] = {}  # by strand: where it began, for those of which nothing was taken yet
        self._begun = False
        self._discover_at = 0.0
        self._until: dict[Place, int] | None = None  # `--once`: what was there when it was first looked at
        self._waiting = 0  # offsets beyond what was taken
        self._width: int | None = None
        self._turn = 0
        self._short: float | None = None  # since when a partition is shorter than it was
        self._complete = False  # Spark has all of its package
        self._last_new = clock()
        self._group = ""
        self._acked: dict[Place, int] = {}  # to be written for the group
        self._commit: Future[Any] | None = None
        self._said = ""  # of the group, so that it is said once
        self._reader = f"{settings.client_id}-{uuid.uuid4().hex[:12]}"  # consumers in tasks are found again by it

    # -- beginning -----------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        refuse_without_client()
        cluster = Cluster(self.settings, self._stop)
        _, names = cluster.look()
        self._refuse_unknown(cluster.topics(self.settings.names), names)

    def start(self, around: Surroundings) -> None:
        self.around = around
        self._group = self.settings.group_id or f"penstock.{around.pipeline}.{self.source_id}"
        self._until, self._discover_at, self._begun = None, 0.0, False

    def _asked(self) -> Cluster:
        if self._cluster is None:
            self._cluster = Cluster(self.settings, self._stop)
        return self._cluster

    def _refuse_unknown(self, found: Mapping[str, Topic], names: Collection[str]) -> None:
        unknown = [name for name in self.settings.names if name not in found]
        if unknown:
            from difflib import get_close_matches

            near = get_close_matches(unknown[0], names, 1)
            raise Stop(
                f"Kafka at {self.settings.servers} has no topic {', '.join(map(repr, unknown))}",
                code="kafka.unknown-topic",
                hint=f"did you mean {near[0]!r}?" if near else "correct `topics`, or create the topic",
            )

    # -- what is there -------------------------------------------------------------------------------------------------------

    def available(self, known: Known, limits: Limits) -> Ranges | None:
        self._discover(known)
        ends = self._asked().ends(self._places)
        self._begin(known, ends)
        at = {p: self._at(known, p) for p in ends}
        for p, end in ends.items():
            if at[p] > end:
                raise self._ended_before(p, at[p], end, known=strand_of(p) in known.strands)
        self._short = None
        if self._until is None:
            self._until = dict(ends)
        if self.around is not None and self.around.once:
            ends = {p: min(end, self._until.get(p, 0)) for p, end in ends.items()}
        waiting = {p: end - at[p] for p, end in ends.items() if end > at[p]}
        self._waiting = sum(waiting.values())
        if not waiting:
            self._write_group()
            return None
        self._last_new = clock()
        self._refuse_lost(known, {p: at[p] for p in waiting})
        width = self._width_of({p: at[p] for p in waiting})
        most = min(limits.max_records or BATCH, max(1, limits.bytes // width))
        return self._ranges(known, at, waiting, planning.shared(waiting, most, self._turn), width)

    def _ranges(
        self,
        known: Known,
        at: Mapping[Place, int],
        waiting: Mapping[Place, int],
        given: Mapping[Place, int],
        width: int,
    ) -> Ranges:
        self._turn += len(given)
        number = planning.next_number(known.next_seq)
        made = []
        for p, n in sorted(given.items()):
            last = known.strands.get(strand_of(p))
            own = planning.number_of(last) if last is not None else number
            number += last is None
            made.append(planning.range_of(self._id, self._topics[p[0]].id, p, own, at[p], at[p] + n, width))
        if number > planning.NUMBERS:
            raise Stop(
                f"{self.source_id!r} has seen more than {planning.NUMBERS:,} partitions",
                code="kafka.partitions",
                hint="give the source another `id`",
            )
        taken = sum(given.values())
        self._waiting -= taken
        return Ranges(tuple(made), number << planning.SHIFT, full=taken < sum(waiting.values()))

    def _at(self, known: Known, place: Place) -> int:
        last = known.strands.get(strand_of(place))
        at: int = self._starts[strand_of(place)] if last is None else last.position["to"]
        return at

    def _width_of(self, at: Mapping[Place, int]) -> int:
        if self._width is None and self._waiting > FEW:
            self._width = self._asked().width(at)
        return self._width or WIDTH

    # -- partitions ----------------------------------------------------------------------------------------------------------

    def _discover(self, known: Known) -> None:
        """Which partitions there are: looked for from time to time."""
        if clock() < self._discover_at:
            return
        cluster = self._asked()
        if self.settings.pattern is not None or not self._begun:
            self._id, names = cluster.look()
            wanted = self._wanted(names, known)
        else:
            names, wanted = [], self.settings.names
        found = cluster.topics(wanted)
        gone = [r for r in known.strands.values() if r.position["topic"] in wanted and not _same(r, self._id, found)]
        if gone:
            raise _gone(gone, self._id, found)
        self._refuse_unknown(found, names)
        self._topics = found
        self._places = [(name, n) for name, topic in sorted(found.items()) for n in range(topic.partitions)]
        self._discover_at = clock() + self.settings.discover

    def _wanted(self, names: Collection[str], known: Known) -> tuple[str, ...]:
        if self.settings.pattern is None:
            return self.settings.names
        fits = re.compile(self.settings.pattern).fullmatch
        before = {r.position["topic"] for r in known.strands.values()} | set(self._topics)
        return tuple(sorted({name for name in {*names, *before} if fits(name)}))

    def _begin(self, known: Known, ends: dict[Place, int]) -> None:
        """Where partitions begin that nothing was read of. It is written down before anything is read, so that what comes between two
        starts is never left out; what appears after the first start is read from its first record."""
        if not self._begun:
            self._load(known)
        new = [p for p in ends if strand_of(p) not in known.strands and strand_of(p) not in self._starts]
        if new:
            begins = self._first(new, ends) if not self._starts and not known.strands else self._later(new, known)
            self._starts |= {strand_of(p): offset for p, offset in begins.items()}
            for p in set(new) - set(begins):
                del ends[p]  # it has no leader right now
            self._save()
        if not self._begun:
            self._begun = True
            self._acked = {_place(r): r.position["to"] for name, r in known.strands.items() if name in known.acked}

    def _later(self, places: list[Place], known: Known) -> dict[Place, int]:
        """A partition that was added to a topic begins with offset 0, whatever retention has left of it by now."""
        topics = {name.rpartition("/")[0] for name in {*self._starts, *known.strands}}
        others = [p for p in places if p[0] not in topics]
        return dict.fromkeys(set(places) - set(others), 0) | self._asked().begins(others)

    def _first(self, places: list[Place], ends: Mapping[Place, int]) -> dict[Place, int]:
        s = self.settings
        if s.begins == "latest":
            return {p: ends[p] for p in places}
        if s.begins == "earliest":
            return self._asked().begins(places)
        if s.begins == "timestamp":
            return self._asked().since(places, milliseconds(s.start_timestamp or ""))
        given = s.first_offsets
        if set(given) != set(places):
            unnamed, unknown = (
                ", ".join(sorted(map(strand_of, a))) for a in (set(places) - set(given), set(given) - set(places))
            )
            raise Stop(
                "`start-offsets` does not name the partitions that there are",
                code="kafka.start",
                why="; ".join(
                    text
                    for text, named in ((f"{unnamed} have no offset", unnamed), (f"there is no {unknown}", unknown))
                    if named
                ),
                hint="name every partition of every topic once",
            )
        return {p: given[p] for p in places}

    def _load(self, known: Known) -> None:
        """What the first start has written. After a rewind only `latest` goes back to where it was: what others begin with is looked for
        again, since retention may have gone on."""
        self._starts = {}
        rewound = not known.strands and known.next_seq > 0
        if rewound and self.settings.begins != "latest":
            return
        with suppress(FileNotFoundError):
            found = json.loads(self._file.read_bytes())
            self._starts = {str(name): int(offset) for name, offset in found["starts"].items()}

    def _save(self) -> None:
        fs.make_folder(self._file.parent)
        fs.replace(self._file, json.dumps({"version": 1, "starts": self._starts}).encode())

    @property
    def _file(self) -> Any:
        assert self.around is not None
        return self.around.folder / STARTS

    # -- what must not be ----------------------------------------------------------------------------------------------------

    def _refuse_lost(self, known: Known, at: Mapping[Place, int]) -> None:
        """Before anything is taken: is it all there, and in the topic that was read so far?"""
        if not faults.safeguard("unchanged"):
            return
        cluster = self._asked()
        found = cluster.topics({topic for topic, _ in at})
        for place, start in at.items():
            last = known.strands.get(strand_of(place))
            id_ = last.position["id"] if last is not None else self._topics[place[0]].id
            if place[0] not in found or found[place[0]].id != id_:
                raise _gone([_like(place, id_, self._id, start)], self._id, found)
        begins = cluster.begins(at)
        for place, begin in begins.items():
            if begin > at[place]:
                raise _lost(place, at[place], begin)

    def recheck(self, ranges: Ranges) -> None:
        """Whether Kafka still holds all of it: asked before and after the read, so nothing can have gone in between."""
        if not faults.safeguard("unchanged"):
            return
        cluster = self._asked()
        stretches = [s for s in map(stretch_of, ranges) if s.offsets]
        if not self._id:
            self._id = cluster.look()[0]
        found = cluster.topics({s.topic for s in stretches})
        gone = [r for r in ranges if not _same(r, self._id, found)]
        if gone:
            raise _gone(gone, self._id, found)
        begins = cluster.begins(s.place for s in stretches)
        ends = cluster.ends(s.place for s in stretches)
        for s in stretches:
            if s.place not in begins or s.place not in ends:
                raise Retry(
                    f"Kafka at {self.settings.servers} has no leader for {s.name}",
                    code="kafka.connection",
                    hint="it chooses one by itself; see that all of its brokers run",
                )
            if begins[s.place] > s.start:
                raise _lost(s.place, s.start, begins[s.place])
            if ends[s.place] < s.end:
                raise self._ended_before(s.place, s.end, ends[s.place], known=True)

    def _ended_before(self, place: Place, at: int, end: int, *, known: bool) -> PenstockError:
        """A broker that comes back says so for a moment of all that it has not yet looked through: only what stays is believed."""
        self._short = clock() if self._short is None else self._short
        if known and clock() - self._short < SHORT:
            return Retry(
                f"The partition {strand_of(place)} ends at {end}, and offset {at} is the next to be read",
                code="kafka.short",
                hint="it is looked at again: a broker that was just started does not know its own end at once",
            )
        return _ended_before(place, at, end, known=known)

    # -- going back ----------------------------------------------------------------------------------------------------------

    def rewound(self, known: Known, to: To) -> Known | None:
        """Partitions that nothing was read of begin where they would have begun."""
        if to.beginning or to.offset is not None:
            return super().rewound(known, to)
        places = {_place(r): r for r in known.strands.values()}
        if to.time is not None:
            found = self._asked().since(list(places), to.time // 1_000_000)
            wanted = {p: min(at, places[p].position["to"]) for p, at in found.items()}
        else:
            names = {strand_of(p): p for p in places}
            if unknown := [name for name in to.places if name not in names]:
                raise planning.not_read(unknown[0], sorted(names))
            wanted = {names[name]: at for name, at in to.places.items()}
        begins = self._asked().begins(wanted)
        for p, at in wanted.items():
            planning.refuse_rewind(p, at, begins.get(p, at), places[p].position["to"])
        return planning.rewound(known, {places[p].strand: at for p, at in wanted.items()})

    # -- waiting -------------------------------------------------------------------------------------------------------------

    def behind(self) -> Behind | None:
        return Behind(records=self._waiting)

    def wait(self, timeout: float) -> None:
        pause = self.settings.poll * (SLOWER if clock() - self._last_new > REST else 1.0)
        self._stop.wait(min(timeout, pause))

    def interrupt(self) -> None:
        self._stop.set()

    # -- reading -------------------------------------------------------------------------------------------------------------

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        """As SQL, in one call: for a batch of a few records each call into the JVM counts."""
        stretches = [stretch_of(r) for r in ranges]
        seq = _first_seq(stretches) + " + offset"
        made = {
            record.SEQ: seq,
            record.POSITION: "cast(concat(topic, '/', partition, '/', offset) AS binary)",
            record.NAMESPACE: "topic",
            record.TIMESTAMP: "if(unix_millis(timestamp) >= 0, timestamp, NULL)",
            record.METADATA: _METADATA,
            record.KEY: "key",
            record.AFTER: "cast(value AS string)",  # as all raw payloads in Spark: bytes, whatever they are
        }
        if self.settings.tombstones != "create":
            made[record.OPERATION] = f"if(value IS NULL, '{self.settings.tombstones}', 'create')"
        made = {name: text for name, text in made.items() if name in columns}
        made[_BYTES] = "bigint(coalesce(octet_length(value), 0) + coalesce(octet_length(key), 0))"
        made[_UNNUMBERED] = f"({seq}) IS NULL"
        rows = self._read(spark, stretches, headers=record.METADATA in columns)
        return rows.selectExpr(*(f"{text} AS {name}" for name, text in made.items()))

    def _read(self, spark: SparkSession, stretches: Collection[Stretch], *, headers: bool) -> DataFrame:
        by_topic: dict[str, dict[str, tuple[int, int]]] = {}
        for s in stretches:
            by_topic.setdefault(s.topic, {})[str(s.partition)] = (s.start, s.end)
        # Kafka's own 500 records and 1 MB at a time cost a quarter of the CPU time of a batch of small records. Consumers are kept, each
        # with what it has fetched: where there are many, each gets less.
        fetch = max(1 << 20, min(8 << 20, FETCHED // len(stretches)))
        client = {"max.poll.records": "5000", "max.partition.fetch.bytes": str(fetch), **self.settings.java()}
        # A consumer fetches ahead, and where nothing is left its request waits at the broker, with all others behind it: for 500 ms by
        # default, in each task of a small batch.
        client["fetch.max.wait.ms"] = "1"
        given = {f"kafka.{name}": value for name, value in client.items()}
        given |= {
            "kafka.isolation.level": "read_committed",
            "kafka.group.id": self._reader,
            "assign": json.dumps({topic: sorted(map(int, found)) for topic, found in by_topic.items()}),
            "startingOffsets": json.dumps({t: {p: a for p, (a, _) in found.items()} for t, found in by_topic.items()}),
            "endingOffsets": json.dumps({t: {p: b for p, (_, b) in found.items()} for t, found in by_topic.items()}),
            "failOnDataLoss": "true",
            "includeHeaders": "true" if headers else "false",
            "kafkaConsumer.pollTimeoutMs": str(int(READ * 1000)),
        }
        if not self._complete:
            jars.complete(spark)
            self._complete = True
        rows = spark.read.format("kafka").options(**given).load()
        n = planning.tasks(stretches)
        return rows.coalesce(n) if n < len(stretches) else rows  # in each the records of a partition stay in order

    def place(self, ranges: Ranges) -> Callable[[int], tuple[bytes, dict[str, str]]]:
        stretches = sorted(map(stretch_of, ranges), key=lambda s: s.first)

        def found(seq: int) -> tuple[bytes, dict[str, str]]:
            s = max((s for s in stretches if s.first <= seq), key=lambda s: s.first)
            return f"{s.name}/{seq - s.first}".encode(), {COLLECTION: s.topic}

        return found

    # -- account -------------------------------------------------------------------------------------------------------------

    def count(self, ranges: Ranges) -> int | None:
        return counted(self.settings, [stretch_of(r) for r in ranges])

    def evidence(self) -> Mapping[str, Column]:
        from pyspark.sql import functions as F

        return {
            "rows": F.count(F.lit(1)),
            "unnumbered": F.count_if(F.col(_UNNUMBERED)),
            "bytes": F.sum(_BYTES),
        }

    def verify(self, ranges: Ranges, records: int, evidence: Mapping[str, int]) -> None:
        """Offsets have gaps, so fewer records than offsets are no error; more are one."""
        del records
        rows, offsets = evidence["rows"], sum(stretch_of(r).offsets for r in ranges)
        if evidence["unnumbered"] or rows > offsets:
            raise Stop(
                "Spark gave other records than were asked for",
                code="kafka.changed",
                why=f"{rows} records of {offsets} offsets, {evidence['unnumbered']} of them of partitions that are not in the batch",
                hint="nothing of this batch was delivered; it is read again at the next start",
            )
        if rows:
            self._width = evidence["bytes"] // rows + 1

    # -- the group -----------------------------------------------------------------------------------------------------------

    def acked(self, ranges: Ranges) -> Collection[str]:
        for r in ranges:
            s = stretch_of(r)
            self._acked[s.place] = s.end
        self._write_group()
        return ()

    def _write_group(self, *, last: bool = False) -> None:
        """For tools that show lag. One at a time, and never awaited but at the end; what goes wrong is said, and changes nothing."""
        if self._commit is not None:
            if not self._commit.done() and not last:
                return
            self._look_at_commit()
        if not self._acked or self._cluster is None:
            return
        offsets, self._acked = self._acked, {}
        try:
            self._commit = self._cluster.commit(self._group, offsets)
        except Exception as e:
            self._say(str(e))
        if last and self._commit is not None:
            self._look_at_commit()

    def _look_at_commit(self) -> None:
        assert self._commit is not None
        assert self._cluster is not None
        commit, self._commit = self._commit, None
        if (why := self._cluster.refusal(commit, LAST_COMMIT)) is not None:
            self._say(why)
        else:
            self._said = ""

    def _say(self, why: str) -> None:
        if why != self._said and self.around is not None:
            self.around.log(
                "warn",
                f"the offsets of the group {self._group!r} can't be written; tools show more lag than there is: {why}",
            )
        self._said = why

    def close(self) -> None:
        if self._cluster is not None:
            with suppress(PenstockError):
                self._write_group(last=True)
        self._cluster = None


# -- records -----------------------------------------------------------------------------------------------------------------------------


def _first_seq(stretches: Collection[Stretch]) -> str:
    """The seq of offset 0 of the row's partition; NULL for one that is not in the batch. Names of topics need no escape."""
    made = []
    for topic, known in planning.bases(stretches).items():
        numbers = ", ".join("CAST(NULL AS bigint)" if n is None else f"{n}L" for n in known)
        made.append(f"WHEN topic = '{topic}' THEN get(array({numbers}), partition)")
    return f"(CASE {' '.join(made)} END)"


# As Conduit has it: collection, time, and each header as text. Where that does not say everything, since a name comes twice or a value is
# missing or no text, all headers are there once more, in their order, with values in Base64.
_TEXTS = "filter(headers, h -> h.value IS NOT NULL AND is_valid_utf8(string(h.value)))"
_LAST = f"filter({_TEXTS}, (h, i) -> size(filter({_TEXTS}, (o, j) -> j > i AND o.key = h.key)) = 0)"
_BASE = f"""if(unix_millis(timestamp) >= 0,
    map('{COLLECTION}', topic, '{CREATED}', string(unix_millis(timestamp) * 1000000)), map('{COLLECTION}', topic))"""
_SINGLE = f"map_concat({_BASE}, map_from_entries(transform({_LAST}, h -> struct(concat('{HEADER}', h.key), string(h.value)))))"
_ALL = """to_json(transform(headers, h -> struct(h.key AS key, base64(h.value) AS value)), map('ignoreNullFields', 'false'))"""
_METADATA = f"""CASE WHEN headers IS NULL THEN {_BASE} WHEN size({_LAST}) = size(headers) THEN {_SINGLE}
    ELSE map_concat({_SINGLE}, map('{HEADERS}', {_ALL})) END"""


# -- errors ------------------------------------------------------------------------------------------------------------------------------

_ANEW = "give the source another `id` to begin anew"


def _place(r: Range) -> Place:
    return r.position["topic"], r.position["partition"]


def _same(r: Range, cluster: str, found: Mapping[str, Topic]) -> bool:
    """Whether the range is of this cluster, and of the topic that has its name now."""
    topic = found.get(r.position["topic"])
    return r.position["cluster"] == cluster and topic is not None and topic.id == r.position["id"]


def _like(place: Place, id_: str, cluster: str, at: int) -> Range:
    return planning.range_of(cluster, id_, place, 0, at, at, 0)


def _gone(gone: Collection[Range], cluster: str, found: Mapping[str, Topic]) -> InputChanged:
    first = min(gone, key=lambda r: r.strand)
    topic, to = first.position["topic"], first.position["to"]
    where = f"{first.strand} was read up to offset {to}" + (
        f", and {len(gone) - 1} more partitions" if len(gone) > 1 else ""
    )
    if first.position["cluster"] != cluster:
        return InputChanged(
            f"Kafka is another cluster than the one that {topic!r} was read from",
            code="kafka.other-cluster",
            why=f"it was {first.position['cluster']}, and is {cluster}; {where}",
            hint=f"put `servers` back, or {_ANEW}",
            reread=False,
        )
    if topic not in found:
        return InputChanged(
            f"The topic {topic!r} is gone",
            code="kafka.gone",
            why=f"{where}; what came after that can't be read any more",
            hint=f"take it out of `topics`, or {_ANEW}",
            reread=False,
        )
    return InputChanged(
        f"The topic {topic!r} was deleted and made anew",
        code="kafka.recreated",
        why=f"{where}, of the topic with the id {first.position['id']}; its id is {found[topic].id} now",
        hint=f"what the old one held beyond that is gone; {_ANEW}",
        reread=False,
    )


def _lost(place: Place, at: int, begin: int) -> InputChanged:
    return InputChanged(
        f"Records of {strand_of(place)} were deleted before they were read",
        code="kafka.lost",
        why=f"offset {at} is the next to be read, and the first that is there is {begin}: {begin - at:,} offsets are gone, by retention or"
        " by hand",
        hint=f"keep records for longer (retention.ms, retention.bytes); to go on without them, {_ANEW} with `start: earliest`",
        reread=False,
    )


def _ended_before(place: Place, at: int, end: int, *, known: bool) -> InputChanged:
    return InputChanged(
        f"The partition {strand_of(place)} ends before what was read from it"
        if known
        else f"The partition {strand_of(place)} ends before the offset to begin with",
        code="kafka.backwards",
        why=f"offset {at} is the next to be read, and it ends at {end}",
        hint=f"Kafka has lost records, or was put back from an older copy: {_ANEW}"
        if known
        else "correct `start-offsets`",
        reread=False,
    )
