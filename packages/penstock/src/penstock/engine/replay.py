"""A replay: dead letters as a source, in a lane of their own. They go through the pipeline as it is now, to the destinations that
lack them.

Runs in the engine. `ReplaySource` gives a lane's dead letters as records with the identity they had; `narrow` makes of a lane's work what
one batch needs: the destinations, and the processors from where it begins. What becomes of the dead letters is in
`ledger/replays.py`; everything between is the way of any other batch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import deadletters, record
from penstock.deadletters import About
from penstock.engine import aside
from penstock.engine.batch.context import Guarantee, Target, Work
from penstock.engine.gate import Window
from penstock.errors import InputChanged
from penstock.ledger import Ledger, Snapshot
from penstock.ledger.replays import Chosen, letters_in
from penstock.native import (
    Columns,
    Known,
    Limits,
    NativeSource,
    Processor,
    Range,
    Ranges,
    Shape,
    Step,
    Unsuitable,
    Where,
)
from penstock.plan.nodes import Node, shape_behind

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

START, FAILED = "start", "failed"
GIVEN, FORM = "given", "form"


_WHY = {
    GIVEN: "its record is not kept, or its file in the state folder is gone: it can't be replayed",
    FORM: "what it was when it failed is not kept: it can only be replayed from the start",
}


class ReplaySource(NativeSource[None]):
    """The dead letters of a source that are to be replayed. One batch at a time: what is next is known when the last one is done."""

    def __init__(
        self,
        original: NativeSource[Any],
        pipeline: str,
        state: Path,
        ledger: Ledger,
        destinations: Collection[str],
    ) -> None:
        super().__init__(None, original.source_id)
        self._original = original
        self._pipeline = pipeline
        self._state = state
        self._ledger = ledger
        self._destinations = destinations
        self._about = About()
        self.inside: Shape | None = None  # of the batch at hand, where it begins inside the pipeline; else None
        self.shape = original.shape
        self.processors = original.processors

    @cached_property
    def _lane(self) -> int:
        return self._ledger.lane(self._pipeline, self.source_id).key

    @property
    def _apart(self) -> bool:
        """What a payload is depends on its batch: dead letters of different batches can't be read together."""
        fixed = type(self._original).begin is NativeSource.begin or self._original.shapes() == (Shape.RAW,)
        return not fixed or Shape.TYPED in self._original.shapes()

    def empty(self) -> str | None:
        return None

    def available(self, known: Known, limits: Limits) -> Ranges | None:  # noqa: ARG002
        while (chosen := self._ledger.next_letters(self._lane, one_batch=self._apart)) is not None:
            if chosen.destination and chosen.destination not in self._destinations:
                why = f"{chosen.destination!r} is not in the pipeline any more: put it back and replay this again, or drop it"
                self._ledger.cannot_replay(
                    self._lane, chosen, chosen.letters, code="replay.destination-gone", error=why
                )
                continue
            good = self._readable(chosen)
            if good:
                return _ranges(replace(chosen, letters=good), tuple(known.strands))
        return None

    def _readable(self, chosen: Chosen) -> tuple[tuple[int, int, int], ...]:
        """Those whose records are there. Of the others the dead letter says why it could not be replayed."""
        good = chosen.letters
        for what in (GIVEN,) if chosen.start == START else (GIVEN, FORM):
            found = {(x.seq, x.part) for x in self._letters(good, chosen.destination, what) if x.record}
            if bad := [x for x in good if x[:2] not in found]:
                self._ledger.cannot_replay(self._lane, chosen, bad, code="replay.no-record", error=_WHY[what])
            good = tuple(x for x in good if x[:2] in found)
        return good

    def _letters(
        self, letters: Collection[tuple[int, int, int]], destination: str, what: str
    ) -> Iterator[deadletters.Found]:
        wanted: dict[int, list[tuple[int, int]]] = {}
        for seq, part, batch in letters:
            wanted.setdefault(batch, []).append((seq, part))
        for batch, keys in wanted.items():
            yield from deadletters.find(self._state, self._pipeline, self.source_id, batch, keys, destination, what)

    def taken_back(self, r: Range) -> bool:
        of = r.position
        letters = tuple(letters_in(r))
        chosen = Chosen(of["replay"], of["start"], of["destination"], of["node"], letters)
        return self._ledger.taken_back(self._lane, chosen)

    def begin(self, ranges: Ranges) -> None:
        """The payload's shape, and what decodes it, are those of the batch that the dead letters are of."""
        of = ranges[0].position
        self._about = deadletters.about(self._state, self._pipeline, self.source_id, of["letters"][0][2])
        if type(self._original).decoders is not NativeSource.decoders and self._about.ranges:
            if self.around is not None:
                folder = self.around.folder.with_name(deadletters.folder(self._pipeline, self.source_id))
                self._original.around = replace(self.around, folder=folder)
            self._original.begin(Ranges.from_json(self._about.ranges))
        self.shape = Shape(self._about.shape) if self._about.shape else self._original.shape
        if self.inside is not None:
            self.shape, self._about = self.inside, About()

    def decoders(self) -> tuple[Processor[Any], ...]:
        return self._original.decoders() if self.inside is None else ()

    def frame(self, spark: SparkSession, ranges: Ranges, columns: Collection[str]) -> DataFrame:
        (r,) = ranges
        what = GIVEN if self.inside is None else FORM
        rows: dict[int, Any] = {}
        for x in self._letters([(s, p, b) for s, p, b in r.position["letters"]], r.position["destination"], what):
            if x.record:
                rows.setdefault(x.seq, x)  # parts of a record are made anew of the whole
        return _frame(
            spark, self.source_id, [rows[seq] for seq in sorted(rows)], columns, self.shape, self._about.schema
        )

    def place(self, ranges: Ranges) -> Callable[[int], tuple[bytes, dict[str, str]]]:
        """As their files have it."""
        found: dict[int, tuple[bytes, dict[str, str]]] = {}

        def place(seq: int) -> tuple[bytes, dict[str, str]]:
            if not found:
                for r in ranges:
                    for x in self._letters(r.position["letters"], r.position["destination"], GIVEN):
                        found[x.seq] = x.position, dict((x.record or {}).get("metadata") or {})
            return found.get(seq, (b"", {}))

        return place

    def promised(self, ranges: Ranges) -> int | None:
        return len({seq for r in ranges for seq, _, _ in r.position["letters"]})

    def count(self, ranges: Ranges) -> int | None:
        return self.promised(ranges)

    def wait(self, timeout: float) -> None:
        time.sleep(min(timeout, 0.1))


def _ranges(chosen: Chosen, forget: tuple[str, ...]) -> Ranges:
    seqs = [seq for seq, _, _ in chosen.letters]
    position = {
        "replay": chosen.replay,
        "start": chosen.start,
        "destination": chosen.destination,
        "node": chosen.node,
        "letters": [list(x) for x in chosen.letters],
    }
    strand = f"replay {chosen.replay} from {min(seqs)}" + (f" to {chosen.destination}" if chosen.destination else "")
    return Ranges((Range(strand, position, min(seqs), 0),), max(seqs) + 1, forget=forget)


def _frame(
    spark: SparkSession, source: str, letters: list[Any], columns: Collection[str], shape: Shape, schema: str
) -> DataFrame:
    """In the engine: a batch has few of them."""
    import pyarrow as pa
    from pyspark.sql import functions as F
    from pyspark.sql.types import StructType

    types = {
        record.SOURCE: pa.string(),
        record.SEQ: pa.int64(),
        record.POSITION: pa.binary(),
        record.OPERATION: pa.string(),
        record.NAMESPACE: pa.string(),
        record.METADATA: pa.map_(pa.string(), pa.string()),
        record.KEY: pa.binary(),
        record.BEFORE: pa.binary(),
        record.AFTER: pa.binary(),
    }
    data: dict[str, list[Any]] = {name: [] for name in types}
    for x in letters:
        given = x.record
        data[record.SOURCE].append(source)
        data[record.SEQ].append(x.seq)
        data[record.POSITION].append(x.position)
        data[record.OPERATION].append(given.get("operation") or "create")
        data[record.NAMESPACE].append(given.get("namespace"))
        data[record.METADATA].append(list((given.get("metadata") or {}).items()))
        for name in (record.KEY, record.BEFORE, record.AFTER):
            data[name].append(_bytes(given.get(name)))
    names = [n for n in types if n in columns or n == record.SEQ or any(c.startswith(f"{n}.") for c in columns)]
    table = pa.table({n: pa.array(data[n], types[n]) for n in names})
    frame = spark.createDataFrame(table).coalesce(1)  # in order
    typed = {f.name: f.dataType for f in StructType.fromJson(json.loads(schema))} if schema else {}
    for name in (record.KEY, record.BEFORE, record.AFTER):
        if name not in names:
            continue
        if isinstance(type_ := typed.get(name), StructType):
            text = F.col(name).cast("string")
            frame = frame.withColumn(name, F.from_json(text, type_, {"mode": "FAILFAST"}))
        elif name == record.AFTER and shape is Shape.OPEN:
            frame = frame.withColumn(name, F.col(name).cast("string"))
    return frame


def _bytes(packed: Any) -> bytes | None:
    value = aside.unpack(packed)
    return value if value is None or isinstance(value, bytes) else aside.encode(value)


# -- the lane -----------------------------------------------------------------------------------------------------------


def as_replay(work: Work) -> Work:
    """The work of a lane that replays: no gate, no queue for what fails again, and what may be lost is tried again."""
    guarantee = Guarantee.AT_LEAST_ONCE if work.guarantee is Guarantee.AT_MOST_ONCE else work.guarantee
    return replace(work, window=Window(0), dlq=None, guarantee=guarantee, narrow=narrow)


def narrow(work: Work, s: Snapshot) -> Work:
    """What one batch needs: only the destinations that lack its records, and no processor that they have behind them. Where it can't
    begin at the one that failed, because that is gone, works on columns with types, or got parts of records, it begins at the start.

    A batch whose destination is gone, or of which something was dropped since it was begun, is given up: what is left of it comes anew."""
    of = s.ranges[0].position
    targets = dict(work.targets)
    nodes = work.nodes
    assert isinstance(work.source, ReplaySource)
    work.source.inside = None
    if any(work.source.taken_back(r) for r in s.ranges):
        raise InputChanged("some of its dead letters were dropped", reread=True)
    if of["destination"]:
        targets = {name: t for name, t in targets.items() if name == of["destination"]}
        if not targets:
            why = f"{of['destination']!r} is not in the pipeline any more"
            raise InputChanged(f"Dead letters are not replayed: {why}", reread=True)
    parts = {(seq, part) for seq, part, _ in of["letters"] if part}
    begins = _from(work, targets, of["destination"], of["node"]) if of["node"] and not parts else None
    if begins is not None:
        nodes, targets, work.source.inside = begins
    if parts:
        only = Node(_OnlyParts(frozenset(parts), frozenset(seq for seq, part, _ in of["letters"] if not part)))
        targets = {name: replace(t, nodes=(*t.nodes, only), _chains={}) for name, t in targets.items()}
    return replace(work, nodes=nodes, targets=targets)


def _from(
    work: Work, targets: dict[str, Target], destination: str, node: str
) -> tuple[tuple[Node, ...], dict[str, Target], Shape] | None:
    """The processors from this one on, and the shape of what reaches it."""
    ids = [n.id for n in work.nodes]
    own = targets[destination].nodes if destination else ()
    try:
        if node in ids:
            at = ids.index(node)
            shape, found = shape_behind(work.nodes[:at], work.source.shape), (work.nodes[at:], targets)
        elif destination and node in (*(n.id for n in own), destination):
            at = [*(n.id for n in own), destination].index(node)
            target = replace(targets[destination], nodes=own[at:], _chains={})
            shape = shape_behind((*work.nodes, *own[:at]), work.source.shape)
            found = (), {destination: target}
        else:
            return None
    except Unsuitable:
        return None
    return None if shape is Shape.TYPED else (*found, shape)


@dataclass(frozen=True)
class _Wanted:
    parts: frozenset[tuple[int, int]]
    whole: frozenset[int]


class _OnlyParts(Processor[_Wanted]):
    """A record that was split is split again: only those of its parts go on that were dead letters."""

    uses = frozenset({record.SEQ, record.PART})

    def __init__(self, parts: frozenset[tuple[int, int]], whole: frozenset[int]) -> None:
        super().__init__(_Wanted(parts, whole), "replay")

    def where(self, shape: Shape) -> Where:
        return Where.PYTHON if shape is Shape.OPEN else Where.SPARK

    def on_batch(self) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
        return self._marked

    def _marked(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        rows = zip(batch.column(record.SEQ).to_pylist(), batch.column(record.PART).to_pylist(), strict=True)
        drop = [seq not in self.settings.whole and (seq, part) not in self.settings.parts for seq, part in rows]
        return batch.append_column("drop", pa.array(drop, pa.bool_()))

    def compile(self, columns: Columns) -> Step:
        from pyspark.sql import functions as F

        del columns
        seq, part = F.col(record.SEQ), F.col(record.PART)
        named = F.concat_ws(":", seq.cast("string"), part.cast("string"))
        wanted = named.isin([f"{s}:{p}" for s, p in sorted(self.settings.parts)])
        return Step(drop=~(wanted | seq.isin(sorted(self.settings.whole))))
