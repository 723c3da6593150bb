"""`penstock reconcile`: the ledger against itself, against the ranges of the source, and against what destinations say they have.

`of_ledger` is pure. `reconcile` asks: it opens the ledger to read it, makes destinations again from what the ledger knows of them, and lets
them answer (`NativeDestination.witness`). Nothing is changed, and an engine may be running: before a destination is called wrong the ledger
is looked at once more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock import deadletters
from penstock.assembly import rebuild
from penstock.errors import PenstockError
from penstock.ledger import Kind, State, TargetRef
from penstock.ledger.kept import KeptBatch, KeptDelivery, KeptLane, kept
from penstock.ledger.look import Share, Verdict
from penstock.native import Answer, DeliveryId, Finding, NativeDestination, Receipt, Staged, Witnessed
from penstock.plugins import builtin
from penstock.ranges import Range
from penstock.secrets import Secrets

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIES = 5  # looks at the ledger while it changes under what a destination says
PLACES = "places"  # in the state folder: of destinations in Spark that have no other place
_SAME = ("size", "mtime", "cluster", "id")  # of a position: what is under the name of the strand
_AGAIN = "the same file was read twice: it was put back, or it is another one that looks the same"

Spark = Callable[[NativeDestination[Any], Secrets], "SparkSession"]


@dataclass(frozen=True)
class Asked:
    """What came of asking a destination."""

    destination: str
    plugin: str
    kind: Kind
    deliveries: int  # that it was asked for
    findings: Sequence[Finding] = ()
    trouble: PenstockError | None = None  # why it could not be asked
    relative: str = ""  # a path of its settings that depends on where the command is started


@dataclass(frozen=True)
class LaneReport:
    lane: KeptLane
    account: Sequence[Finding]
    ranges: Sequence[Finding]
    numbers: Sequence[Finding]
    asked: Sequence[Asked] = ()

    @property
    def findings(self) -> Iterator[Finding]:
        yield from (*self.account, *self.ranges, *self.numbers)
        for a in self.asked:
            yield from a.findings

    @property
    def wrong(self) -> int:
        return sum(f.answer.wrong for f in self.findings)


# -- the ledger alone -----------------------------------------------------------------------------------------------


def of_ledger(lane: KeptLane) -> LaneReport:
    return LaneReport(
        lane, tuple(_account(s) for s in lane.view.shares), tuple(_ranges(lane)), tuple(_numbers(lane.batches))
    )


def _account(s: Share) -> Finding:
    outcomes = {"delivered": s.delivered, "filtered": s.filtered}
    outcomes |= {what: n for what, n in (("dead-lettered", s.dead_lettered), ("discarded", s.discarded)) if n}
    came = f"{s.came:,} read" + (f" + {s.produced:,} produced" if s.produced else "")
    sums = " + ".join(f"{n:,} {what}" for what, n in outcomes.items())
    text = f"{s.destination}: {came} {'=' if s.verdict in (Verdict.ADDS_UP, Verdict.JOINED) else '≠'} {sums}"
    if s.verdict is Verdict.WRONG:
        return Finding(Answer.DIFFERS, text)
    if s.verdict is Verdict.UNKNOWN:
        return Finding(Answer.UNKNOWN, f"{text}; it may not have been a destination of batches that are no longer kept")
    return Finding(Answer.AGREES, text)


def _numbers(batches: Sequence[KeptBatch]) -> Iterator[Finding]:
    """Whether what each delivery says adds up to what its batch has read."""
    agree = wrong = 0
    for b in batches:
        for finding in (_number(b, d) for d in b.deliveries):
            if finding is not None and finding.answer.wrong:
                wrong += 1
                yield finding
            elif finding is not None:
                agree += 1
    if agree:
        yield Finding(Answer.AGREES, f"{_count(agree, 'delivery', 'deliveries')} with an outcome for every record")
    elif not wrong:
        yield Finding(Answer.UNKNOWN, "no delivery is done, or none is kept")


def _number(b: KeptBatch, d: KeptDelivery) -> Finding | None:
    """None: there is nothing to compare."""
    if d.receipt is None:
        open_ = f"the batch is done, and its delivery to {d.destination} is not"
        return Finding(Answer.DIFFERS, open_, b.batch) if b.state is State.DONE else None
    if d.kind is not Kind.DESTINATION or b.records is None:
        return None
    came, became = b.records + d.produced, d.written + d.filtered + d.nacked + d.refused + d.discarded
    if came == became:
        return Finding(Answer.AGREES, "", b.batch)
    return Finding(Answer.DIFFERS, f"{d.destination}: {came:,} records came, and {became:,} have an outcome", b.batch)


def _ranges(lane: KeptLane) -> Iterator[Finding]:
    """Whether the ranges of each strand follow each other: nothing between two of them, nothing twice."""
    chains: dict[tuple[int, str], list[list[tuple[int, Range]]]] = {}
    total = 0
    for b in lane.batches:
        for r in b.ranges if b.state is not State.SPLIT else ():
            found = chains.setdefault((b.epoch, r.strand), [[]])
            if b.state is State.DROPPED:  # given up, and taken anew from wherever the source said
                found.append([])
            else:
                total += 1
                found[-1].append((b.batch, r))
    findings = list(_goes_on(lane))
    for (_, strand), pieces in chains.items():
        for chain in pieces:
            findings += _follows(strand, chain)
        findings += _unended(strand, pieces[-1])
    yield from findings
    if total and not any(f.answer.wrong for f in findings):
        strands = len({strand for _, strand in chains})
        yield Finding(Answer.AGREES, f"{_count(total, 'range')} of {_count(strands, 'strand')}: no gap, no overlap")


def _follows(strand: str, chain: Sequence[tuple[int, Range]]) -> Iterator[Finding]:
    for (before, p), (batch, n) in pairwise(chain):
        if dict(p.position) == dict(n.position):
            if p.high is None:
                again = "size" in n.position and n.low is None
                answer = Answer.UNKNOWN if again else Answer.DIFFERS
                yield Finding(answer, f"{strand}: {_AGAIN if again else f'batch {before} has this range, too'}", batch)
            elif n.low != p.high:
                yield _apart(strand, before, batch, p.high, n.low or 0, "record")
            continue
        ends, begins = p.position.get("to"), n.position.get("from")
        if not isinstance(ends, int) or not isinstance(begins, int):
            continue
        if any(p.position.get(key) != n.position.get(key) for key in _SAME):
            continue  # something else has this name now
        if p.high is not None:
            yield Finding(
                Answer.DIFFERS, f"{strand}: the records from {p.high} on of batch {before} are in no batch", batch
            )
        elif begins == 0 and ends == p.position.get("size"):
            yield Finding(Answer.UNKNOWN, f"{strand}: {_AGAIN}", batch)
        elif begins != ends:
            yield _apart(strand, before, batch, ends, begins, "position")


def _apart(strand: str, before: int, batch: int, ended: int, begins: int, what: str) -> Finding:
    word = "gap" if begins > ended else "overlap"
    return Finding(
        Answer.DIFFERS,
        f"{strand}: {word}: batch {before} ends before {what} {ended}, and this one begins at {begins}",
        batch,
    )


def _unended(strand: str, chain: Sequence[tuple[int, Range]]) -> Iterator[Finding]:
    if chain and (high := chain[-1][1].high) is not None:
        yield Finding(Answer.DIFFERS, f"{strand}: the records from {high} on are in no batch", chain[-1][0])


def _goes_on(lane: KeptLane) -> Iterator[Finding]:
    """Where the source goes on is behind the last batch that took something of a strand."""
    last: dict[str, tuple[int, Range]] = {}
    for b in lane.batches:
        if b.state not in (State.SPLIT, State.DROPPED) and b.epoch == lane.epoch:
            last |= {r.strand: (b.batch, r) for r in b.ranges}
    for strand, (known, _) in lane.strands.items():
        if strand in last and dict(last[strand][1].position) != dict(known.position):
            text = f"{strand}: the source goes on behind another range than that of the last batch"
            yield Finding(Answer.DIFFERS, text, last[strand][0])


# -- destinations ---------------------------------------------------------------------------------------------------


@dataclass
class Group:
    """Deliveries of a lane that were prepared for a destination with the same settings."""

    ref: TargetRef
    kind: Kind
    deliveries: list[Witnessed] = field(default_factory=list)
    known: tuple[DeliveryId, ...] = ()

    @property
    def key(self) -> tuple[str, str, str]:
        return self.ref.destination, self.ref.plugin, json.dumps(dict(self.ref.settings), sort_keys=True)

    @property
    def state(self) -> tuple[Any, ...]:
        """What a destination's answer depends on."""
        return self.known, tuple((w.id.hash, w.done) for w in self.deliveries)


def groups(lane: KeptLane) -> list[Group]:
    """Without those that destinations have never heard of: dead letters in the state folder, deliveries that were given up, and those for
    which nothing was staged."""
    made: dict[tuple[str, str, str], Group] = {}
    known = []
    for b in lane.batches:
        for d in b.deliveries:
            name = DeliveryId(lane.view.pipeline, lane.view.source, d.destination, b.batch, d.hash, lane.fence, b.epoch)
            known.append(name)
            if d.kind is Kind.DEAD_LETTERS or d.discarded:
                continue
            group = Group(TargetRef(d.destination, d.plugin, d.settings), d.kind)
            group = made.setdefault(group.key, group)
            if (w := _witnessed(name, d)) is not None:
                group.deliveries.append(w)
    for group in made.values():
        group.known = tuple(known)
    return list(made.values())


def _witnessed(name: DeliveryId, d: KeptDelivery) -> Witnessed | None:
    staged = Staged.from_json(d.staged)
    if staged.rows == 0 and staged.manifest is None:
        return None
    return Witnessed(name, staged, None if d.receipt is None else Receipt.from_json(d.receipt))


def reconcile(ledger: Path, state: Path, pipeline: str, secrets: Secrets, spark: Spark) -> list[LaneReport]:
    """All lanes of a pipeline. What destinations say is without `secrets`, which learn the values of their settings."""
    made = []
    for lane in kept(ledger, pipeline):
        report = of_ledger(lane)
        asked = [_asked(group, ledger, state, secrets, spark) for group in groups(lane)]
        made.append(replace(report, asked=tuple(asked)))
    return made


def _asked(group: Group, ledger: Path, state: Path, secrets: Secrets, spark: Spark) -> Asked:
    asked = Asked(group.ref.destination, group.ref.plugin, group.kind, len(group.deliveries))
    if not builtin.known("destination", group.ref.plugin):
        hosted = "it runs in a process of its own, or was an object of a program, and can't be asked"
        return replace(asked, findings=(Finding(Answer.UNKNOWN, hosted),))
    try:
        destination = rebuild(group.ref, secrets)
        lane = group.known[0]
        name = group.ref.destination.partition(":")[0]  # dead letters that came late have a destination behind it
        destination.place = state / PLACES / deadletters.folder(lane.pipeline, name)
        if destination.asks_spark:
            destination.spark = spark(destination, secrets)
        findings = _confirmed(destination, group, ledger)
    except PenstockError as e:
        secrets.clean(e)
        return replace(asked, trouble=e)
    except Exception as e:
        text = secrets.hide(f"{type(e).__name__}: {(str(e).splitlines() or [''])[0]}")
        trouble = PenstockError("It could not be asked", code="reconcile.unexpected", why=text)
        return replace(asked, trouble=trouble)
    shown = tuple(replace(f, text=secrets.hide(f.text)) for f in findings)
    return replace(asked, findings=shown, relative=_relative(group))


def _confirmed(destination: NativeDestination[Any], group: Group, ledger: Path) -> list[Finding]:
    """What an engine has done since the ledger was read must not look like a disagreement: what is wrong counts where the ledger has not
    changed meanwhile, or where it is said again after it has."""
    before: set[tuple[Answer, int | None]] | None = None
    for _ in range(TRIES):
        findings = list(destination.witness(group.deliveries, group.known))
        wrong = {(f.answer, f.batch) for f in findings if f.answer.wrong}
        if not wrong or (before is not None and wrong <= before):
            return findings
        fresh = _fresh(group, ledger)
        if fresh is None or fresh.state == group.state:
            return findings
        before, group = wrong, fresh
    sure = before or set()
    return [f if not f.answer.wrong or (f.answer, f.batch) in sure else _doubtful(f) for f in findings]


def _fresh(group: Group, ledger: Path) -> Group | None:
    lane = group.known[0]
    for found in kept(ledger, lane.pipeline):
        if found.view.source == lane.lane:
            return next((g for g in groups(found) if g.key == group.key), None)
    return None


def _doubtful(f: Finding) -> Finding:
    return Finding(Answer.UNKNOWN, f"the engine was too quick to be sure: {f.text}", f.batch)


def _relative(group: Group) -> str:
    """Paths are relative to where `penstock` was started, which the ledger does not know."""
    path = group.ref.settings.get("path", "")
    return "" if not path or path.startswith(("/", "$")) or ":/" in path else path


def _count(n: int, what: str, several: str = "") -> str:
    return f"{n:,} {what if n == 1 else several or what + 's'}"
