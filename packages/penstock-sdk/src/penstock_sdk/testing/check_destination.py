"""Checks of a destination that writes: what it answers, and whether what it answered is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock_protocol.interfaces import Ack
from penstock_sdk.record import Record
from penstock_sdk.testing.bench import Bench, shown
from penstock_sdk.testing.results import Failure, NotChecked, Refused, check
from penstock_sdk.testing.runs import DestinationRun
from penstock_sdk.testing.samples import creates, holds, made, structured, token


@check("destination.teardown-early", "settings.accepted")
def teardown_early(bench: Bench) -> str | None:
    """Teardown is answered before Open and before Configure, and twice."""
    settings = bench.destination_settings()
    bench.destination().teardown()
    run = bench.destination()
    run.configure(settings)
    run.teardown()
    run.teardown()
    return None


@check("destination.teardown", "settings.accepted", "specification.methods")
def teardown(bench: Bench) -> str | None:
    """Cut off in the middle, without Stop, it is torn down at once."""
    run = bench.open_destination()
    run.write(creates(3)[0])
    run.teardown(ready=False)
    return None


@check("destination.acks", "destination.teardown")
def acks(bench: Bench) -> str | None:
    """Every record is answered once, with its position, in the order in which they came, however they are grouped into messages."""
    run = bench.open_destination()
    records, _ = creates(bench.records)
    for part in _parts(records):
        run.write(part)
    run.collect()
    _answered(records, run.answers)
    run.finish()
    _answered(records, run.answers)  # nothing more has come
    return None


@check("destination.idle", "destination.teardown")
def idle(bench: Bench) -> str | None:
    """With nothing written Stop returns, and the stream ends."""
    bench.open_destination().finish()
    return None


@check("destination.flush", "destination.acks")
def flush(bench: Bench) -> str | None:
    """Stop makes it write what it holds back: every record that was sent before is answered."""
    run = bench.open_destination()
    records, _ = creates(3)
    run.write(records)
    run.stop()
    run.collect()
    _answered(records, run.answers)
    run.finish_stopped()
    return None


@check("destination.written", "destination.acks")
def written(bench: Bench) -> str | None:
    """What was acknowledged is there when it is read back, each record once."""
    run = bench.open_destination()
    records, texts = creates(bench.records)
    for part in _parts(records):
        run.write(part)
    run.collect()
    run.finish()
    _there(bench.read_back(texts), texts, "it was stopped")
    return None


@check("destination.durable", "destination.written")
def durable(bench: Bench) -> str | None:
    """What was acknowledged is there even if it is killed right after the ack."""
    bench.destination_settings()
    started = bench.start()
    run = bench.open_destination(started)
    records, texts = creates(bench.records)
    for part in _parts(records):
        run.write(part)
    run.collect()
    acked = {answer.position for answer in run.answers if not answer.error}
    started.kill()
    _there(
        bench.read_back(texts), [t for r, t in zip(records, texts, strict=True) if r.position in acked], "it was killed"
    )
    return (
        None
        if started.dialect is not None
        else "looked at right after the acks: what runs in this process can't be killed"
    )


@check("destination.operations", "destination.written")
def operations(bench: Bench) -> str | None:
    """Create, update, delete and snapshot are all answered, and each leaves its trace: as a record, or in what it changed."""
    one, two, new, copied, last = (token() for _ in range(5))
    records = [
        made(0, "create", one, structured(one)),
        made(1, "create", two, structured(two)),
        made(2, "update", one, structured(new), structured(one)),
        made(3, "delete", two, None, structured(two)),
        made(4, "snapshot", copied, structured(copied)),
        made(5, "create", last, structured(last)),
    ]
    run = bench.open_destination()
    for record in records:
        try:
            run.write([record])
            run.collect()
        except Refused as e:
            raise _dies(f"the operation {record.operation}", e) from e
    _answered(records, run.answers, refusals=True)
    run.finish()
    refused = {r.operation: a.error for r, a in zip(records, run.answers, strict=True) if a.error}
    if "create" in refused:
        raise Failure(f"create is refused: {refused['create']}", "it is written", "take at least create")
    if refused:
        raise NotChecked("it refuses " + ", ".join(f"{operation} ({error})" for operation, error in refused.items()))
    found = bench.read_back([last])
    for operation, text in (("create", last), ("update", new), ("snapshot", copied)):
        if not any(holds(each, text) for each in found):
            raise Failure(
                f"the operation {operation} was acknowledged and is nowhere to be found",
                "it is written, or refused",
                "write it, or answer with an error that says that it can't be done",
            )
    if sum(holds(each, two) for each in found) == 1:
        raise Failure(
            "the operation delete was acknowledged, and what it deletes is there as before",
            "the record is gone, or the delete is written down",
            "delete it, or answer with an error that says that it can't be done",
        )
    return None


@check("destination.payloads", "destination.written")
def payloads(bench: Bench) -> str | None:
    """Raw and structured payloads are answered, with a key and without, also empty ones."""
    raw, dictionary, keyed = token(), token(), token()
    records = [
        Record(raw.encode(), position=b"1"),
        Record(structured(dictionary), position=b"2"),
        Record(keyed.encode(), key=b"raw key", position=b"3", metadata={"ä": "ö"}),
        Record(b"", position=b"4"),
        Record({}, key={}, position=b"5"),
    ]
    run = bench.open_destination()
    for record in records:
        try:
            run.write([record])
            run.collect()
        except Refused as e:
            raise _dies(f"the payload {shown(record.after)} with the key {shown(record.key)}", e) from e
    _answered(records, run.answers, refusals=True)
    run.finish()
    good = {answer.position for answer in run.answers if not answer.error}
    if not good:
        raise Failure(
            f"it refuses every payload: {run.answers[0].error}", "raw or structured is taken", "take one of them"
        )
    texts = [text for text, record in zip((raw, dictionary, keyed), records, strict=False) if record.position in good]
    _there(bench.read_back(texts), texts, "it was stopped")
    refused = [f"{shown(r.after)} ({a.error})" for r, a in zip(records, run.answers, strict=True) if a.error]
    return f"it refuses {', '.join(refused)}" if refused else None


@check("destination.again", "destination.flush")
def again(bench: Bench) -> str | None:
    """The same batch once more, after a restart, is answered in full: a host may not know that it was written."""
    records, _ = creates(3)
    for _ in range(2):
        run = bench.open_destination()
        run.write(records)
        run.collect()
        _answered(records, run.answers)
        run.finish()
    return None


@check("destination.first-dialect", "destination.acks", "process.dialects")
def first_dialect(bench: Bench) -> str | None:
    """In dialect 1 it writes and answers as in dialect 2."""
    bench.program()
    bench.destination_settings()
    started = bench.start([1])
    if started.dialect != 1:
        raise NotChecked("it does not speak dialect 1")
    run: DestinationRun = bench.open_destination(started)
    records, _ = creates(3)
    run.write(records)
    run.collect()
    run.finish()
    _answered(records, run.answers)
    return None


def _parts(records: Sequence[Record]) -> list[Sequence[Record]]:
    """Messages of one, two, three and more."""
    parts, at, size = [], 0, 1
    while at < len(records):
        parts.append(records[at : at + size])
        at, size = at + size, size + 1
    return parts


def _answered(records: Sequence[Record], answers: Sequence[Ack], *, refusals: bool = False) -> None:
    sent, found = [record.position for record in records], [answer.position for answer in answers]
    do = "answer each record once, in the order in which they came, when it is durable"
    counts = Counter(found)
    for position in counts.keys() - set(sent):
        raise Failure(f"it acknowledged {shown(position)}, which nobody sent", "positions that were sent", do)
    for position in sent:
        if counts[position] > 1:
            raise Failure(f"it acknowledged {shown(position)} {counts[position]} times", "once", do)
    if lost := [position for position in sent if not counts[position]]:
        raise Failure(
            f"{len(lost)} of {len(sent)} records were never answered, the first at {shown(lost[0])}", "all", do
        )
    for expected, position in zip(sent, found, strict=True):
        if expected != position:
            raise Failure(f"it acknowledged {shown(position)} where {shown(expected)} is next", "the order sent", do)
    for answer in answers:
        if answer.error and not refusals:
            raise Failure(f"it refused the record at {shown(answer.position)}: {answer.error}", "it is written", do)


def _there(found: Sequence[str], texts: Sequence[str], when: str) -> None:
    for n, text in enumerate(texts):
        times = sum(holds(each, text) for each in found)
        if times == 0:
            raise Failure(
                f"record {n} of {len(texts)} was acknowledged and is not there after {when}",
                "what is acknowledged is durable",
                "acknowledge after the write has been made durable (flush and fsync, commit), not before",
            )
        if times > 1:
            raise Failure(f"record {n} is there {times} times", "once", "write each record once")


def _dies(what: str, error: Refused) -> Failure:
    return Failure(
        f"{what} ends it: {error.text}",
        "an answer, if need be an error for this one record",
        "refuse the record alone; an exception or a panic ends the whole destination",
    )
