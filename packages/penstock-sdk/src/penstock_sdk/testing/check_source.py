"""Checks of a source that reads. The first one is about the records themselves; without it the others would say nothing."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import wait

from penstock_sdk.record import Record
from penstock_sdk.testing.bench import Bench, Filled, shown
from penstock_sdk.testing.results import Failure, NotChecked, Refused, check
from penstock_sdk.testing.runs import POLL
from penstock_sdk.testing.samples import content, matches, payload

BAD_POSITION = b"\xff\x00 this is no position"


@check("source.teardown-early", "settings.accepted")
def teardown_early(bench: Bench) -> str | None:
    """Teardown is answered before Open and before Configure, and twice."""
    settings = bench.source_settings()
    bench.source().teardown()
    run = bench.source()
    run.configure(settings)
    run.teardown()
    run.teardown()
    return None


@check("source.order", "settings.accepted")
def order(bench: Bench) -> str | None:
    """Open before Configure is an error."""
    bench.source_settings()
    run = bench.source()
    try:
        run.open()
    except Refused as e:
        if e.gone:
            raise Failure(f"opened before it is configured it is gone: {e.text}", "an error", "return one") from e
        return None
    raise Failure("it opens though it was never configured", "an error", "refuse Open before Configure")


@check("source.records", "settings.accepted", "specification.methods")
def records(bench: Bench) -> str | None:
    """Every record has an operation and a position that is not empty, and no two have the same position."""
    found = bench.read_all().given
    seen: dict[bytes, int] = {}
    for n, record in enumerate(found):
        if not record.position:
            raise Failure(
                f"record {n} has no position", "a position for each", "without it nothing can be acknowledged"
            )
        if record.position in seen:
            raise Failure(
                f"records {seen[record.position]} and {n} have the same position {shown(record.position)}",
                "each has one of its own",
                "put whatever tells them apart into the position, such as a counter",
            )
        seen[record.position] = n
    return None


@check("source.teardown", "source.records")
def teardown(bench: Bench) -> str | None:
    """Cut off in the middle, without Stop and with acks missing, it is torn down at once."""
    run = bench.read_all()
    run.teardown(ready=False)
    return None


@check("source.idle", "source.teardown")
def idle(bench: Bench) -> str | None:
    """While there is nothing to read it waits, and Stop returns all the same."""
    run = bench.read_all()
    run.teardown(ready=False)
    run = bench.open_source(run.given[-1].position)
    run.read()
    run.stop(awaited=False)
    run.teardown(ready=False)
    return None


@check("source.stop", "source.idle")
def stop(bench: Bench) -> str | None:
    """Stop returns, with the position of the last record; everything up to it comes, and nothing after it."""
    run = bench.read_all()
    last = run.stop()
    if last != run.given[-1].position:
        raise Failure(
            f"Stop said that the last record is the one at {shown(last)}, and the last that came is at {shown(run.given[-1].position)}",
            "the same one",
            "return the position of the last record that was or will be sent",
        )
    run.teardown(ready=False)
    return None


@check("source.acks", "source.stop")
def acks(bench: Bench) -> str | None:
    """Acks are taken one by one and many at once, while it reads, and the last of them lets the stream end."""
    filled = bench.prepare()
    run = bench.open_source()
    run.take(1)
    run.ack(1)
    bench.read(run, filled)
    for count in (1, 2, 1):
        run.ack(min(count, len(run.given) - 4))
        run.read()
    run.finish()
    return None


@check("source.snapshot", "source.acks")
def snapshot(bench: Bench) -> str | None:
    """What is there when it is opened comes, all of it, each record once, in its order."""
    filled = bench.prepare()
    if filled.expected is None:
        raise NotChecked("what should come is not known: override fill and return what to expect")
    run = bench.open_source()
    bench.read(run, filled)
    run.finish()
    _as_expected(run.given, filled)
    return None


@check("source.changes", "source.acks")
def changes(bench: Bench) -> str | None:
    """What is added while it runs comes as well."""
    run = bench.read_all()
    more = bench.fill(3)
    before = len(run.given)
    if more.expected is None:
        run.take(before + 3)
    else:
        bench.read(run, more)
    run.finish()
    if more.expected is not None:
        _as_expected(run.given[before:], more)
    return None


@check("source.replay", "source.teardown")
def replay(bench: Bench) -> str | None:
    """What was not acked can be read again after a crash, with the same positions and the same content."""
    bench.must_resume()
    filled = bench.prepare()
    started = bench.start()
    run = bench.open_source(started=started)
    first = list(bench.read(run, filled))
    if started.dialect is not None:
        started.kill()
    else:
        run.teardown(ready=False)
    second = bench.read(bench.open_source(), filled)
    for n, (before, after) in enumerate(zip(first, second, strict=False)):
        if before.position != after.position:
            raise Failure(
                f"record {n} was at {shown(before.position)} and is at {shown(after.position)} when it is read again",
                "the same position every time",
                "make positions from the data, not from time, chance or a counter of this run",
            )
        if content(before) != content(after):
            raise Failure(
                f"record {n}, at {shown(before.position)}, has another content when it is read again",
                "the same record at the same position",
                "what differs from run to run belongs into the metadata",
            )
    return None


@check("source.resume", "source.replay", "source.acks")
def resume(bench: Bench) -> str | None:
    """Opened at a position it goes on right after it: nothing is lost and nothing comes again (within a snapshot it may begin anew)."""
    bench.must_resume()
    run = bench.read_all()
    found = list(run.given)
    half = max(1, len(found) // 2)
    run.ack(half)
    run.teardown(ready=False)
    acked, rest = found[:half], found[half:]
    again = bench.open_source(acked[-1].position)
    again.take(min(len(rest), 1))
    if acked[-1].operation == "snapshot" and payload(again.given[0]) == payload(found[0]):
        rest = found
    again.until(lambda given: len(given) >= len(rest))
    _resumed(again.given, acked, rest)
    return None


@check("source.resume-at-end", "source.resume")
def resume_at_end(bench: Bench) -> str | None:
    """Opened at the position of the last record it gives what was added since, and nothing else."""
    run = bench.read_all()
    found = list(run.given)
    run.ack()
    run.teardown(ready=False)
    more = bench.fill(3)
    again = bench.open_source(found[-1].position)
    bench.read(again, more)
    again.finish()
    old = {record.position for record in found}
    if twice := [record for record in again.given if record.position in old]:
        raise _again(twice[0])
    if more.expected is not None:
        _as_expected(again.given, more)
    return None


@check("source.defaults", "source.replay", "settings.defaults")
def defaults(bench: Bench) -> str | None:
    """It reads the same whether its defaults are written out or left out."""
    settings = bench.source_settings()
    bench.must_resume()
    written_out = {n: p.default for n, p in bench.parameters("source").items() if p.default and "*" not in n}
    if not written_out.keys() - settings.keys():
        raise NotChecked("no parameter has a default that is used")
    filled = bench.prepare()
    plain = list(bench.read(bench.open_source(), filled))
    run = bench.source()
    run.configure({**written_out, **settings})
    run.open()
    told = run.take(len(plain))
    for n, (one, other) in enumerate(zip(plain, told, strict=False)):
        if content(one) != content(other) or one.position != other.position:
            raise Failure(
                f"record {n} is another one when {', '.join(sorted(written_out))} are set to their defaults",
                "a default is what happens without the setting",
                "use the declared default, in one place only",
            )
    return None


@check("source.cancelled", "source.idle")
def cancelled(bench: Bench) -> str | None:
    """A read that waits for records returns when the source is torn down."""
    run = bench.read_all()
    reading = run.begin("read", POLL)
    run.teardown(ready=False)
    if not wait([reading], bench.patience).done:
        raise Failure("Read goes on after Teardown", "it returns", "end it when the context is stopping")
    return None


@check("source.bad-position", "source.teardown", "source.teardown-early")
def bad_position(bench: Bench) -> str | None:
    """A position that it can't have given is an error or a start, never a hang or a crash, and Teardown follows."""
    bench.prepare()
    run = bench.source()
    run.configure(bench.source_settings())
    try:
        run.open(BAD_POSITION)
        run.read()
    except Refused as e:
        if e.gone:
            raise Failure(f"given a bad position it is gone: {e.text}", "an error", "return one from Open") from e
    run.teardown(ready=False)
    return None


@check("source.first-dialect", "source.acks", "process.dialects")
def first_dialect(bench: Bench) -> str | None:
    """In dialect 1 it reads, is acked and stops as in dialect 2."""
    bench.program()
    filled = bench.prepare()
    started = bench.start([1])
    if started.dialect != 1:
        raise NotChecked("it does not speak dialect 1")
    run = bench.open_source(started=started)
    bench.read(run, filled)
    run.finish()
    return None


def _as_expected(given: Sequence[Record], filled: Filled) -> None:
    """Everything once and in order. Others may be among it where the system held some before."""
    places = []
    for item in filled.expected or ():
        found = [n for n, record in enumerate(given) if matches(record, item)]
        if not found:
            raise Failure(f"{shown(item)} never came", "every record that is there", "look at where reading begins")
        if len(found) > (filled.expected or ()).count(item):
            raise Failure(
                f"{shown(item)} came {len(found)} times", "each record once", "do not read it again in one run"
            )
        places.append(found[0])
    if places != sorted(places):
        raise Failure("the records came in another order", "the order in which they are there", "keep the order")


def _again(record: Record) -> Failure:
    return Failure(
        f"the record at {shown(record.position)} was acked and came again",
        "the first record after the position that it is opened at",
        "a position is that of the last record that is done: begin behind it",
    )


def _resumed(given: Sequence[Record], acked: Sequence[Record], rest: Sequence[Record]) -> None:
    positions = {record.position for record in given}
    if rest[0] is not acked[0]:
        done = {record.position for record in acked}
        if twice := [record for record in given if record.position in done]:
            raise _again(twice[0])
    if lost := [record for record in rest if record.position not in positions]:
        raise Failure(
            f"the record at {shown(lost[0].position)} was never acked and did not come again: it is lost",
            "every record after the position that it is opened at",
            "a position is that of the last record that is done: begin right behind it",
        )
    for one, other in zip(rest, given, strict=False):
        if payload(one) != payload(other):
            raise Failure(
                f"the record at {shown(other.position)} came where the one at {shown(one.position)} should be, or has another content",
                "the same records in the same order",
                "go on in the same order as before",
            )
