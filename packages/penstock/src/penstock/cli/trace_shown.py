"""What `penstock trace` shows: the life of a record, or why there is nothing to show. For people, and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from penstock.cli.shown import count, escaped, when
from penstock.cli.state import option
from penstock.cli.trace_find import Found, Missing, Verdict
from penstock.ledger import Kind, Nack, NackState, State
from penstock.ledger.life import Again, Arrival, BatchRow, DeliveryRow, Fate, Life
from penstock_sdk.record import record_id

_FATES = {
    Fate.DELIVERED: "delivered",
    Fate.FILTERED: "filtered, as every record of its batch that is no dead letter",
    Fate.DEAD_LETTERED: "dead-lettered",
    Fate.HELD: "held: it closed the gate, and what is behind it waits",
    Fate.REPLAYED: "dead-lettered, then replayed",
    Fate.DROPPED: "dead-lettered, then dropped by somebody",
    Fate.DISCARDED: "discarded",
    Fate.PENDING: "pending",
    Fate.NOT_KEPT: "not known any more: its batch is older than retention",
}
_WORDS = {
    Verdict.OLDER: "older than retention",
    Verdict.NOT_READ: "not read yet",
    Verdict.UNKNOWN: "unknown",
}
_BATCHES = {
    State.OPEN: "open: being read, or to be read again",
    State.PREPARED: "prepared: read, and not yet at every destination",
    State.DONE: "done",
    State.SPLIT: "split",
    State.TAKEN: "taken: acked first, and in flight (at most once)",
    State.DROPPED: "dropped unread",
}


def lines(found: Found, state: Path) -> Iterator[str]:
    """One record, for people."""
    life = found.life
    yield f"record {_id(found) or '(its id is not known)'} of {life.lane.name}"
    if found.position is not None:
        yield f"  position  {_position(found.position)}"
    yield f"  seq       {_seqs(life)}"
    if found.offset is not None:
        log = f" of {found.log}" if found.log else ""
        since = f", appended {when(found.hit.appended)}" if found.hit is not None else ""
        yield f"  offset    {found.offset}{log}{since}"
    for batch in life.batches:
        yield f"  batch     {_batch(batch, life)}"
    if not life.batches:
        yield f"  batch     {_gone(life)}"
    for arrival in life.arrivals:
        yield from _arrival(arrival)
    for letter in life.letters:
        yield f"  letter    {_letter(letter)}"
    for again in life.replays:
        yield from _again(again)
    if life.skipped is not None:
        done = "" if life.skipped.state == "done" else "to be "
        yield f"  skipped   {done}settled without being sent, {when(life.skipped.at)}: {escaped(life.skipped.reason)}"
    yield f"  ack       {_ack(life)}"
    if not found.sure:
        yield "  note      the ledger keeps ranges: that its source had a record exactly there, it can't say"
    if life.nacks:
        yield f"  look at   penstock dlq show {life.nacks[0].id[:12]}{option(state)}"


def missing_lines(missing: Sequence[Missing]) -> Iterator[str]:
    """Where nobody knows anything, those that know at least something come first."""
    if not missing:
        yield "unknown: there is no source here that has read anything"
    order = [Verdict.OLDER, Verdict.NOT_READ, Verdict.UNKNOWN]
    for one in sorted(missing, key=lambda m: order.index(m.verdict)):
        yield f"{one.lane.name}: {_WORDS[one.verdict]}: {escaped(one.why)}"
        if one.verdict is Verdict.OLDER:
            yield "  what is before the batches that are kept is settled and acked; it has no dead letter, so it was delivered or filtered"


# -- parts ------------------------------------------------------------------------------------------------------------


def _id(found: Found) -> str:
    if found.life.nacks:
        return found.life.nacks[0].id
    return "" if found.position is None else record_id(found.life.lane.source, found.position)


def _position(position: bytes) -> str:
    try:
        return escaped(position.decode())
    except UnicodeDecodeError:
        return f"hex:{position.hex()}"


def _seqs(life: Life) -> str:
    low, high = life.seqs
    return str(low) if life.exact else f"one of {low} to {high - 1}: the source does not say which"


def _batch(b: BatchRow, life: Life) -> str:
    parts = [f"{b.batch}, {_BATCHES[b.state]}"]
    if b.records is not None:
        parts.append(count(b.records, "record"))
    parts.append(f"taken {when(b.time)}")
    if b.parent is not None:
        parts.append(f"split from batch {b.parent} ({b.reason})")
    if b is life.batches[-1]:
        parts.append(count(life.tries.count, "try", "tries"))
        if life.tries.error and b.state in (State.OPEN, State.PREPARED):
            parts.append(f"the last error: {escaped(life.tries.error.splitlines()[0])}")
    return ", ".join(parts)


def _gone(life: Life) -> str:
    number = life.nacks[0].batch if life.nacks else "?"
    return f"{number}, older than retention: what the ledger had of it besides the dead letter is gone"


def _arrival(a: Arrival) -> Iterator[str]:
    yield f"  → {a.destination or 'everywhere'}: {_fate(a)}"
    for n in a.nacks:
        part = f"part {n.part}: " if n.part else ""
        yield f"      {part}{n.code or 'no code'} at {n.node!r}, {when(n.at)}: {escaped((n.error.splitlines() or [''])[0])}"
    if a.delivery is not None:
        yield f"      delivery {a.delivery.hash}"


def _fate(a: Arrival) -> str:
    d = a.delivery
    at = f", {when(d.at)}" if d is not None and d.at is not None else ""
    if a.fate is Fate.EITHER and a.among is not None:
        return (
            f"delivered, or one of the {a.among[0]:,} filtered of {count(a.among[1], 'record')}{at};"
            " the ledger keeps numbers, not names"
        )
    if a.nacks:
        parts = d is not None and d.produced and len({n.part for n in a.nacks}) == 1
        return _FATES[a.fate] + ("; it may have been split, and other parts delivered" if parts else "")
    return _FATES[a.fate] + at


def _letter(d: DeliveryRow) -> str:
    what = "in the state folder" if d.kind is Kind.DEAD_LETTERS else f"sent to {d.destination} ({d.plugin})"
    if d.state != "done":
        return f"to be {'written' if d.kind is Kind.DEAD_LETTERS else 'sent to ' + d.destination}: pending"
    return f"{what}{f', {when(d.at)}' if d.at is not None else ''}"


def _again(again: Again) -> Iterator[str]:
    yield f"  replay    batch {again.batch.batch} of the replays, {again.batch.state.value}, taken {when(again.batch.time)}"
    for a in again.arrivals:
        yield f"    → {a.destination or 'everywhere'}: {_fate(a)}"
        if a.delivery is not None:
            yield f"        delivery {a.delivery.hash}"


def _ack(life: Life) -> str:
    if life.acked is None:
        return "its batch is acked in part, and on which side it is nobody knows"
    if life.acked:
        return "acked: settled at every destination that decides, and the source was told"
    return f"not yet: the source is acked up to batch {life.lane.acked_batch}"


# -- for programs -----------------------------------------------------------------------------------------------------


def found_json(found: Found) -> dict[str, Any]:
    life = found.life
    return {
        "found": True,
        "id": _id(found) or None,
        "pipeline": life.lane.pipeline,
        "source": life.lane.source,
        "position": None if found.position is None else packed(found.position),
        "seq": life.seqs[0] if life.exact else None,
        "seqs": [life.seqs[0], life.seqs[1] - 1],
        "sure": found.sure,
        "log": found.log,
        "offset": found.offset,
        "appended": None if found.hit is None else found.hit.appended,
        "batches": [_batch_json(b) for b in life.batches],
        "tries": life.tries.count,
        "error": life.tries.error,
        "destinations": [_arrival_json(a) for a in life.arrivals],
        "letters": [_delivery_json(d) for d in life.letters],
        "replays": [
            {**_batch_json(again.batch), "destinations": [_arrival_json(a) for a in again.arrivals]}
            for again in life.replays
        ],
        "skipped": None if life.skipped is None else vars(life.skipped),
        "acked": life.acked,
    }


def missing_json(missing: Missing) -> dict[str, Any]:
    return {
        "found": False,
        "pipeline": missing.lane.pipeline,
        "source": missing.lane.source,
        "verdict": missing.verdict.value,
        "why": missing.why,
        "log": missing.log,
        "offset": None if missing.hit is None else missing.hit.offset,
        "oldest_batch": missing.lane.oldest,
        "oldest_time": missing.lane.oldest_time,
    }


def packed(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _batch_json(b: BatchRow) -> dict[str, Any]:
    return {
        "batch": b.batch,
        "state": b.state.value,
        "time": b.time,
        "records": b.records,
        "parent": b.parent,
        "reason": b.reason or None,
    }


def _delivery_json(d: DeliveryRow) -> dict[str, Any]:
    return {"destination": d.destination, "kind": d.kind.value, "state": d.state, "hash": d.hash, "at": d.at}


def _arrival_json(a: Arrival) -> dict[str, Any]:
    return {
        "destination": a.destination,
        "outcome": a.fate.value,
        "hash": None if a.delivery is None else a.delivery.hash,
        "at": None if a.delivery is None else a.delivery.at,
        "filtered": 0 if a.delivery is None else a.delivery.filtered,
        "dead_letters": [_nack_json(n) for n in a.nacks],
    }


def _nack_json(n: Nack) -> dict[str, Any]:
    return {
        "id": n.id,
        "part": n.part,
        "status": (NackState(n.state)).value,
        "node": n.node,
        "code": n.code,
        "error": n.error,
        "at": n.at,
    }
