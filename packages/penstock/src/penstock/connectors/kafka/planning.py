"""What goes into a batch of `kafka`: which offsets of which partitions, and which numbers their records have. Pure.

A partition has a number in the ledger, and its records the seq number · 2^44 + offset: it grows along the partition and is the same
whatever else is in the batch. Offsets have gaps where a transaction ended or was aborted, and where a topic was compacted; so has seq.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.connectors.kafka.source_settings import Place
from penstock.errors import Stop
from penstock.ranges import Known, Range

SHIFT = 44  # bits of an offset in a seq: a partition with a million records a second fills them in half a year
PER_TASK = 10_000  # offsets that are worth a task of their own
IN_TURN = 8  # partitions that one task may have
NUMBERS = 1 << (63 - SHIFT)  # partitions that one source can ever see


@dataclass(frozen=True)
class Stretch:
    """Of one partition, what counts of a range: from an offset up to another."""

    topic: str
    id: str  # of the topic: one that is made anew under the same name has another
    partition: int
    start: int
    end: int
    first: int  # the seq of offset 0

    @property
    def place(self) -> Place:
        return self.topic, self.partition

    @property
    def name(self) -> str:
        return strand_of(self.place)

    @property
    def offsets(self) -> int:
        return self.end - self.start


def strand_of(place: Place) -> str:
    return f"{place[0]}/{place[1]}"


def stretch_of(r: Range) -> Stretch:
    p = r.position
    first = r.base - p["from"]
    start, end = p["from"], p["to"]
    if r.low is not None:
        start = min(max(start, r.low - first), end)
    if r.high is not None:
        end = max(min(end, r.high - first), start)
    return Stretch(p["topic"], p["id"], p["partition"], start, end, first)


def number_of(r: Range) -> int:
    return r.base >> SHIFT


def range_of(cluster: str, topic_id: str, place: Place, number: int, start: int, end: int, width: int) -> Range:
    topic, partition = place
    position: dict[str, Any] = {"cluster": cluster, "topic": topic, "id": topic_id, "partition": partition}
    position |= {"from": start, "to": end}
    return Range(strand_of(place), position, (number << SHIFT) + start, (end - start) * width)


def next_number(next_seq: int) -> int:
    """The first number that no partition of the source has had."""
    return -(-next_seq >> SHIFT)


def shared(waiting: Mapping[Place, int], most: int, turn: int) -> dict[Place, int]:
    """How many offsets of each partition a batch of `most` has: all, or of every one the same, what a short one leaves going to the
    others. Where there are more partitions than offsets to give, `turn` says who is first."""
    places = sorted(waiting)
    if sum(waiting.values()) <= most:
        return {p: waiting[p] for p in places if waiting[p] > 0}
    places = [p for p in places if waiting[p] > 0]
    if most < len(places):
        at = turn % len(places)
        return dict.fromkeys((places[at:] + places[:at])[: max(1, most)], 1)
    given: dict[Place, int] = {}
    left = most
    for i, p in enumerate(sorted(places, key=lambda p: waiting[p])):
        given[p] = min(waiting[p], left // (len(places) - i))
        left -= given[p]
    return given


def tasks(stretches: Collection[Stretch]) -> int:
    """How many tasks read them. One for each partition, but for small batches: a task costs more than a few records, and makes a file of
    its own. Each partition is asked in turn, so that a task has not too many of them either."""
    records = sum(s.offsets for s in stretches)
    return min(len(stretches), max(1, -(-records // PER_TASK), -(-len(stretches) // IN_TURN)))


def bases(stretches: Iterable[Stretch]) -> dict[str, Sequence[int | None]]:
    """Per topic, by partition: the seq of offset 0; None for partitions that are not in the batch."""
    made: dict[str, list[int | None]] = {}
    for s in stretches:
        known = made.setdefault(s.topic, [])
        known.extend([None] * (s.partition + 1 - len(known)))
        known[s.partition] = s.first
    return {topic: tuple(known) for topic, known in made.items()}


# -- going back -------------------------------------------------------------------------------------------------------


def rewound(known: Known, wanted: Mapping[str, int]) -> Known:
    """These partitions go back to these offsets. They get new numbers: what is read again has another seq than before."""
    number = next_number(known.next_seq)
    strands = dict(known.strands)
    for name, at in sorted(wanted.items()):
        position = {**strands[name].position, "from": at, "to": at}
        strands[name] = Range(name, position, (number << SHIFT) + at)
        number += 1
    return Known(strands, number << SHIFT, set(strands))


def refuse_rewind(place: Place, at: int, begin: int, taken: int) -> None:
    if at < begin:
        raise Stop(
            f"{strand_of(place)} can't go back to offset {at}",
            code="rewind.gone",
            why=f"the oldest that Kafka still has is {begin}: those before it were deleted, by retention or by hand",
            hint=f"--to {strand_of(place)}={begin} is as far as it goes",
        )
    if at > taken:
        raise Stop(
            f"{strand_of(place)} has not come to offset {at} yet",
            code="rewind.ahead",
            why=f"the next one to be read is {taken}: what is between would never be delivered",
            hint=f"go back to an offset up to {taken}",
        )


def not_read(name: str, names: Sequence[str]) -> Stop:
    return Stop(
        f"Nothing was read of {name!r}",
        code="rewind.ahead",
        hint=f"partitions that were read: {', '.join(names) or 'none'}",
    )
