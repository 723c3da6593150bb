"""`penstock log`: looks into commit logs, checks and mends them. `list`, `show`, `offsets` and `verify` take no lock and change nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.options import json_option, state_option
from penstock.errors import PenstockError, UsageError

if TYPE_CHECKING:
    from penstock.cli.log_names import Named
    from penstock.log import Lost, Verified

_name = click.argument("name", metavar="NAME|PATH")


@click.group()
def log() -> None:
    """Look into commit logs, check and mend them.

    A log is named as `penstock log list` shows it, PIPELINE.SOURCE for a source in a process of its own, or by the path of its
    folder. To look is safe while a pipeline runs: list, show, offsets and verify take no lock and change nothing.
    """


@log.command("list")
@state_option()
@json_option("One JSON object per log and line on stdout.")
@click.pass_context
def list_(context: click.Context, state: Path, as_json: bool) -> None:
    """List the logs of a state folder.

    LAG is how many records the slowest reader has not acknowledged. The readers of a source's log are its destinations.
    """
    from penstock.cli.log_names import logs, readable
    from penstock.cli.log_tables import list_json, list_table, look, summary
    from penstock.cli.printer import err, out, print_error
    from penstock.cli.shown import json_line
    from penstock.cli.state import option

    with readable(state):
        views = [look(found) for found in logs(state)]
    if as_json:
        for view in views:
            json_line(list_json(view))
    elif not views:
        err(f"No logs in {state}.")
    else:
        out(list_table(views))
        err(f"\n{summary(views)}\n  look at: penstock log show LOG{option(state)}")
    for view in views:
        if view.error is not None:
            print_error(view.error)
    if any(view.error is not None for view in views):
        context.exit(1)


@log.command()
@_name
@state_option()
@click.option("--from", "start", type=int, metavar="OFFSET", help="The first one; -10: the last ten.")
@click.option("--to", type=click.IntRange(min=0), metavar="OFFSET", help="The last one.")
@click.option("--namespace", metavar="REGEX", help="Only those of namespaces that this is found in.")
@click.option("--full", is_flag=True, help="Everything of each record, however large.")
@click.option("--follow", "-f", is_flag=True, help="Go on with what is appended, until Ctrl-C or --to.")
@json_option("One JSON object per record and line on stdout.")
def show(
    name: str,
    state: Path,
    start: int | None,
    to: int | None,
    namespace: str | None,
    full: bool,
    follow: bool,
    as_json: bool,
) -> None:
    """Show records: offset, time, namespace, operation and payload.

    By default the last 20; with --from alone, everything from there on. Records that are lost are shown as such; if the log is
    damaged, the good ones are shown and the exit code is 1.
    """
    from penstock.cli.log_names import named, readable
    from penstock.cli.log_show import Show, wanted
    from penstock.log import Reader

    found = named(state, name)
    matches = wanted(namespace)
    if to is not None and start is not None and start > to:
        raise UsageError(
            f"--from {start} is after --to {to}", code="usage.range", hint="both are offsets, and --to is shown, too"
        )
    with readable(found.folder), Reader(found.folder, on_damage="skip") as reader:
        shown = Show(reader, to, matches, full=full, as_json=as_json)
        shown.run(start, follow=follow)
        if not follow:
            shown.hint(start)
        shown.fail()


@log.command()
@_name
@state_option()
@json_option("One JSON object on stdout.")
def offsets(name: str, state: Path, as_json: bool) -> None:
    """Show how far each reader is, and which one holds compaction. The readers of a source's log are its destinations.

    EFFECTIVE: everything of the namespace at or below is acknowledged. PENDING FROM: the first one that is not.
    """
    from penstock.cli.log_names import named, readable
    from penstock.cli.log_tables import followers, holding, offsets_json, offsets_table
    from penstock.cli.printer import out
    from penstock.cli.shown import json_line

    found = named(state, name)
    with readable(found.folder):
        readers = followers(found.folder)
    if as_json:
        json_line(offsets_json(name, readers))
    else:
        out("\n\n".join([*([offsets_table(readers)] if readers.readers else []), holding(readers)]))
    if readers.damage is not None:
        raise readers.damage


@log.command()
@click.argument("names", metavar="[NAME|PATH]...", nargs=-1)
@state_option()
@json_option("One JSON object per log and line on stdout.")
@click.pass_context
def verify(context: click.Context, names: tuple[str, ...], state: Path, as_json: bool) -> None:
    """Read every byte of logs and say what is wrong. Exit code 1 if anything is.

    Without a name all logs of the state folder. Beside a running pipeline it looks at what is durable.
    """
    from penstock.cli.log_names import is_log, logs, named
    from penstock.cli.printer import err
    from penstock.cli.state import option

    found = [named(state, name) for name in names] if names else [one for one in logs(state) if is_log(one.folder)]
    if not found:
        err(f"No logs in {state}.")
    verdicts = [_verify(one, as_json) for one in found]
    if False in verdicts:
        bad = shlex.quote(found[verdicts.index(False)].name)
        err(f"\n  to mend it: stop what writes to it, then penstock log repair {bad}{option(state)}")
    if not all(verdicts):
        context.exit(1)


@log.command()
@_name
@state_option()
def repair(name: str, state: Path) -> None:
    """Make a damaged log readable again: mark what is lost.

    Damaged files are kept beside it. Refused while the log is being written.
    """
    from penstock.cli.log_names import named, readable
    from penstock.cli.printer import out
    from penstock.log import repair as repaired

    found = named(state, name)
    with readable(found.folder):
        done = repaired(found.folder)
    lines = [_lost(lost) for lost in done.lost]
    if done.cut:
        lines.append(f"cut off: {done.cut:,} bytes at the end that were never said to be durable")
    if done.offsets_reset:
        lines.append("the readers' offsets were damaged: every reader gets everything again")
    lines += [f"kept: {path}" for path in done.kept]
    out("\n".join([f"{name}: repaired", *(f"  {line}" for line in lines)] if lines else [f"{name}: nothing to repair"]))


@log.command()
@_name
@state_option()
def compact(name: str, state: Path) -> None:
    """Take away what every reader has acknowledged.

    Of each namespace the last record stays. Only closed segments are touched; safe while a pipeline runs.
    """
    from penstock.cli.log_names import named, readable
    from penstock.cli.printer import out
    from penstock.cli.shown import count
    from penstock.engine.view import human_size
    from penstock.log import Reader
    from penstock.log import compact as compacted

    found = named(state, name)
    with readable(found.folder):
        Reader(found.folder).close()  # a newer version is refused before anything is touched
        done = compacted(found.folder)
    if done.point is None:
        out(f"{name}: nothing was taken away: no reader is known, so everything is kept")
    elif done.removed == 0 and done.segments == 0:
        out(f"{name}: nothing to take away in closed segments below offset {done.point}")
    else:
        fewer = f", {count(done.segments, 'segment')} fewer" if done.segments else ""
        out(
            f"{name}: {count(done.removed, 'record')} below offset {done.point} taken away, "
            f"{human_size(max(0, done.freed))} freed{fewer}"
        )


@log.command()
@_name
@click.argument("reader", metavar="READER")
@state_option()
def forget(name: str, reader: str, state: Path) -> None:
    """Forget a reader that is gone, so that it holds nothing any more.

    If it comes back, it begins anew with all that is still there.
    """
    from penstock.cli.log_names import named, nearest, readable
    from penstock.cli.log_tables import followers, holding
    from penstock.cli.printer import out
    from penstock.cli.shown import count
    from penstock.log.offsets import forget as forgotten

    found = named(state, name)
    with readable(found.folder):
        before = followers(found.folder)
        held = next((r for r in before.readers if r.name == reader), None)
        if held is None or not forgotten(found.folder, reader):
            raise UsageError(
                f"The log {name} has no reader {reader!r}",
                code="log.unknown-reader",
                hint=nearest(reader, [r.name for r in before.readers]),
            )
        after = followers(found.folder)
    what = (
        "nothing"
        if held.pending is None
        else f"everything from offset {held.pending} on: {count(held.lag, 'record')} not acknowledged"
    )
    out(f"{name}: forgot {reader}. It held {what}.\n{holding(after)}")


# -- verify and repair --------------------------------------------------------------------------------------------------------


def _verify(log: Named, as_json: bool) -> bool | None:
    """True if all is well; None for a log that can't be opened, which must not keep the others from being checked."""
    from penstock.cli.log_names import readable
    from penstock.cli.printer import out, print_error
    from penstock.cli.shown import json_line
    from penstock.log import verify as verified

    try:
        with readable(log.folder):
            result = verified(log.folder)
    except PenstockError as error:
        print_error(error)
        if as_json:
            json_line({"log": log.name, "good": False, "error": {"code": error.code, "what": error.what}})
        return None
    if as_json:
        json_line(_verified_json(log.name, result))
    else:
        out("\n".join(_verified(log.name, result)))
    return not result.problems


def _verified(name: str, found: Verified) -> Iterator[str]:
    from penstock.cli.log_lines import offsets as offsets_of
    from penstock.cli.shown import count
    from penstock.engine.view import human_size

    checked = (
        f"{count(found.records, 'record')} in {count(found.entries, 'entry', 'entries')}, "
        f"{count(found.segments, 'segment')}, {human_size(found.bytes)}"
    )
    lost = f"; {count(found.lost, 'record')} marked as lost by an earlier repair" if found.lost else ""
    if not found.problems:
        yield f"{name}: good. {checked}{lost}"
        return
    yield f"{name}: {count(len(found.problems), 'problem')}; {checked} can be read{lost}"
    for p in found.problems:
        which = "" if p.offset is None else f" {offsets_of(p.offset, p.count)} ({count(p.count, 'record')}):"
        yield f"  {p.file.name}, byte {p.position}:{which} {p.what}"


def _verified_json(name: str, found: Verified) -> dict[str, object]:
    return {
        "log": name,
        "good": not found.problems,
        "records": found.records,
        "entries": found.entries,
        "segments": found.segments,
        "bytes": found.bytes,
        "lost": found.lost,
        "problems": [
            {"file": str(p.file), "byte": p.position, "offset": p.offset, "count": p.count, "what": p.what}
            for p in found.problems
        ],
    }


def _lost(lost: Lost) -> str:
    from penstock.cli.log_lines import offsets as offsets_of
    from penstock.cli.shown import count

    return f"lost: {offsets_of(lost.offset, lost.count)} ({count(lost.count, 'record')}): {lost.why}"
