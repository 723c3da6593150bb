"""`penstock reconcile`: what destinations have, by their own word, against the ledger. Changes nothing, also beside an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli.options import conf_option, json_option, spark_settings, state_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.cli.state import Engine
    from penstock.errors import PenstockError
    from penstock.native import Finding, NativeDestination
    from penstock.reconcile import Asked, LaneReport
    from penstock.secrets import Secrets

MANY = 20  # of one kind that are shown
_WIDTH = 10  # of the word before what is said


@click.command()
@click.argument("id", metavar="ID")
@state_option()
@conf_option()
@json_option("One JSON object on stdout.")
@click.pass_context
def reconcile(context: click.Context, id: str, state: Path, conf: tuple[str, ...], as_json: bool) -> None:
    """Ask a pipeline's destinations what they have, and compare.

    The numbers of the ledger, the ranges of each source, and what every destination says by its own receipts. Works on the state
    folder alone; variables that settings refer to have to be set as for `run`. Spark is started only for a Delta table that is no
    folder of this machine: --conf is for that. Exits with 1 when something does not agree. Safe while an engine runs; nothing is
    changed.
    """
    from penstock.cli.printer import out
    from penstock.cli.shown import json_line
    from penstock.cli.state import ask, engine, known_pipeline
    from penstock.engine.lock import StateFolder
    from penstock.reconcile import reconcile as reconciled
    from penstock.secrets import Secrets

    settings = spark_settings(conf)
    ask(state, lambda view: known_pipeline(id, view))
    with ExitStack() as stack:
        reports = reconciled(StateFolder(state).ledger, state, id, Secrets(), _spark(stack, settings))
    holder = engine(state)
    if as_json:
        json_line(_json(id, holder, reports))
    else:
        out("\n".join(_lines(id, holder, reports)))
    if any(report.wrong for report in reports):
        context.exit(1)


def _spark(stack: ExitStack, conf: dict[str, str]) -> Callable[[NativeDestination[Any], Secrets], SparkSession]:
    """Started for the first destination that needs it, ended with the stack. What it says goes nowhere that stays."""
    made: list[SparkSession] = []

    def session(destination: NativeDestination[Any], secrets: Secrets) -> SparkSession:
        import tempfile

        from penstock.engine import packages
        from penstock.engine.session import active, end, start

        if not made and (found := active()) is not None:
            made.append(found)
        if not made:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-reconcile-"))
            needed = packages.needed([destination.packages], packages.installed()) if destination.packages else []
            made.append(start("local[1]", conf, Path(folder) / "spark.log", secrets=secrets, packages=needed))
            stack.callback(end, made[0])
        return made[0]

    return session


# -- for people -----------------------------------------------------------------------------------------------------


def _lines(id: str, engine: Engine, reports: Sequence[LaneReport]) -> Iterator[str]:
    from penstock.cli.shown import count

    yield f"{id}: {engine}"
    for report in reports:
        yield ""
        yield from _lane(report)
    wrong = sum(report.wrong for report in reports)
    silent = sum(a.trouble is not None for report in reports for a in report.asked)
    rest = f"; {count(silent, 'destination')} could not be asked" if silent else ""
    yield ""
    yield f"{count(wrong, 'thing does', 'things do')} NOT agree{rest}" if wrong else f"nothing disagrees{rest}"


def _lane(report: LaneReport) -> Iterator[str]:
    from penstock.cli.shown import count

    lane = report.lane
    view, batches = lane.view, [b.batch for b in lane.batches]
    kept = f"{count(len(batches), 'batch', 'batches')} kept ({_numbers(batches)})" if batches else "no batch is kept"
    yield f"source {view.source}: {view.read:,} read, {view.acked:,} acked; {kept}"
    yield from _said([*report.account, *report.ranges, *report.numbers])
    for b in lane.unfinished[:MANY]:
        waits = f", not yet at {', '.join(b.waits_for)}" if b.waits_for else ""
        yield _line("unfinished", f"batch {b.batch} is {b.state.value}{waits}")
    if len(lane.unfinished) > MANY:
        yield f"  and {len(lane.unfinished) - MANY:,} more unfinished batches"
    for asked in report.asked:
        yield from _asked(asked)


def _asked(asked: Asked) -> Iterator[str]:
    from penstock.cli.shown import count

    yield f"  → {asked.destination} ({asked.plugin or 'a program'}), {count(asked.deliveries, 'delivery', 'deliveries')}"
    if asked.trouble is not None:
        yield _line("NOT ASKED", "\n".join(_words(asked.trouble)), "    ")
    yield from _said(asked.findings, "    ")
    if asked.relative and any(f.answer.wrong for f in asked.findings):
        yield f"    its path, {asked.relative}, is taken from the folder in which this was started: {Path.cwd()}"


def _said(findings: Sequence[Finding], indent: str = "  ") -> Iterator[str]:
    """What is the same of several batches in one line; what is wrong last, where it is seen."""
    same: dict[tuple[str, str], list[int]] = {}
    for f in sorted(findings, key=lambda f: f.answer.wrong):
        word = f.answer.upper() if f.answer.wrong else f.answer.value
        batches = same.setdefault((word, f.text), [])
        if f.batch is not None:
            batches.append(f.batch)
    shown: dict[str, int] = {}
    for (word, text), batches in same.items():
        shown[word] = shown.get(word, 0) + 1
        if shown[word] <= MANY:
            which = f"batch {_numbers(batches)}" if len(batches) == 1 else f"batches {_numbers(batches)}"
            yield _line(word, (f"{which}: {text}" if text else which) if batches else text, indent)
    for word, n in shown.items():
        if n > MANY:
            yield f"{indent}and {n - MANY:,} more: {word}"


def _line(word: str, text: str, indent: str = "  ") -> str:
    return f"{indent}{word:<{_WIDTH}} {text}".replace("\n", f"\n{indent}{' ' * (_WIDTH + 1)}")


def _numbers(batches: Sequence[int]) -> str:
    """1 to 4, 7, 9 to 12."""
    stretches: list[list[int]] = []
    for n in sorted(set(batches)):
        if stretches and stretches[-1][1] == n - 1:
            stretches[-1][1] = n
        else:
            stretches.append([n, n])
    return ", ".join(f"{low}" if low == high else f"{low} to {high}" for low, high in stretches)


def _words(error: PenstockError) -> Iterator[str]:
    """Several problems where settings have several."""
    for problem in getattr(error, "problems", None) or [error]:
        yield problem.what
        for label, text in (("why", getattr(problem, "why", "")), ("do", problem.hint)):
            if text:
                yield f"{label}: {text}"


# -- for programs ---------------------------------------------------------------------------------------------------


def _json(id: str, engine: Engine, reports: Sequence[LaneReport]) -> dict[str, Any]:
    return {
        "id": id,
        "running": engine.running,
        "wrong": sum(report.wrong for report in reports),
        "not_asked": sum(a.trouble is not None for report in reports for a in report.asked),
        "sources": [_lane_json(report) for report in reports],
    }


def _lane_json(report: LaneReport) -> dict[str, Any]:
    return {
        "source": report.lane.view.source,
        "read": report.lane.view.read,
        "acked": report.lane.view.acked,
        "batches": [b.batch for b in report.lane.batches],
        "unfinished": [b.batch for b in report.lane.unfinished],
        "account": [_finding_json(f) for f in report.account],
        "ranges": [_finding_json(f) for f in report.ranges],
        "numbers": [_finding_json(f) for f in report.numbers],
        "destinations": [
            {
                "destination": a.destination,
                "plugin": a.plugin,
                "kind": a.kind.value,
                "deliveries": a.deliveries,
                "findings": [_finding_json(f) for f in a.findings],
                "error": None if a.trouble is None else "\n".join(_words(a.trouble)),
            }
            for a in report.asked
        ],
    }


def _finding_json(f: Finding) -> dict[str, Any]:
    return {"answer": f.answer.value, "wrong": f.answer.wrong, "batch": f.batch, "text": f.text}
