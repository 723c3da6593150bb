"""`penstock dlq`: dead letters and held records. Reads the state folder, also while an engine runs; only `drop` changes something."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from penstock.cli.options import json_option, state_option
from penstock.errors import UsageError
from penstock.ledger import NackState

if TYPE_CHECKING:
    from penstock.ledger.look import LetterView, View, Wanted

F = TypeVar("F", bound=Callable[..., Any])
SHORT = 12  # digits of an id in a list, as long as they are enough
CANDIDATES = 10


@click.group()
def dlq() -> None:
    """Look at dead letters: bad records, why they are bad, and where they came from; replay them, take them out, or drop them.

    Safe while an engine runs.
    """


def _which(command: F) -> F:
    """Options by which dead letters are chosen."""
    for option in (
        click.option(
            "--where",
            metavar="SQL",
            help="Only those for which this holds, e.g. \"error LIKE '%date%' AND tries = 0\".",
        ),
        click.option("--code", metavar="CODE", help="Only those with this code, such as json.invalid."),
        click.option("--source", metavar="ID", help="Only those of this source."),
        click.option("--pipeline", metavar="ID", help="Only those of this pipeline."),
    ):
        command = option(command)
    return command


_status = click.option(
    "--status",
    type=click.Choice([*(s.value for s in NackState), "all"]),
    help="open: a dead letter. held: it closed the gate, and the pipeline waits. replayed: by `dlq replay`. dropped: by `dlq drop`."
    "  [default: open and held]",
)


@dlq.command("list")
@state_option()
@_which
@_status
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, help="At most so many.")
@json_option("One JSON object per dead letter and line on stdout.")
def list_(
    state: Path,
    pipeline: str | None,
    source: str | None,
    code: str | None,
    where: str | None,
    status: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List dead letters, source by source, in the order of the records."""
    from penstock.cli.printer import err, out
    from penstock.cli.shown import json_line
    from penstock.cli.state import ask, known_pipeline, known_source
    from penstock.ledger.look import Wanted

    wanted = Wanted(pipeline, source, code, _state(status), where=_waiting(status, checked(where)))

    def question(view: View) -> tuple[list[LetterView], dict[NackState, int], int, dict[str, int]]:
        known_pipeline(pipeline, view)
        known_source(source, view)
        letters = view.letters(wanted, limit)
        short = view.short([letter.nack.id for letter in letters], SHORT)
        return letters, view.states(wanted), short, view.codes(Wanted(pipeline, source))

    letters, states, short, codes = ask(state, question)
    total = sum(states.values())
    if as_json:
        for letter in letters:
            json_line(_fields(letter))
        if total > len(letters):
            err(f"{len(letters):,} of {total:,} dead letters; --limit shows more")
        return
    if not letters:
        err(_none(state, wanted, codes))
        return
    out(_table(letters, short))
    err(_after(len(letters), states, state))


@dlq.command()
@click.argument("id", metavar="ID")
@state_option()
@click.option("--full", is_flag=True, help="Records whole, however large.")
@json_option("One JSON object per dead letter and line on stdout.")
def show(id: str, state: Path, full: bool, as_json: bool) -> None:
    """Show a dead letter and its record.

    ID is what `penstock dlq list` shows; the first digits are enough. A record that is bad at several destinations has a dead
    letter for each, and all are shown.
    """
    from penstock.cli.dlq_shown import line_of, shown
    from penstock.cli.printer import out
    from penstock.cli.shown import json_line
    from penstock.cli.state import ask
    from penstock.deadletters import kept
    from penstock.ledger.look import Wanted

    def question(view: View) -> list[tuple[LetterView, list[str]]]:
        letters = view.letters(Wanted(id=_resolved(view, id)), limit=1000)
        return [(letter, view.staged(letter)) for letter in letters]

    for n, (letter, staged) in enumerate(ask(state, question)):
        record = kept(state, letter.pipeline, letter.source, letter.nack, staged)
        if as_json:
            missing = {"missing": record.missing} if record.missing else {}
            json_line({**_fields(letter), "given": record.given, "form": record.form, **missing})
        else:
            out("\n" * bool(n) + "\n".join(shown(letter, record, full, line_of(state, letter))))


@dlq.command()
@state_option()
@_which
@_status
@click.option(
    "--to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file, instead of stdout. It is there when it is whole.",
)
def export(
    state: Path,
    pipeline: str | None,
    source: str | None,
    code: str | None,
    where: str | None,
    status: str | None,
    to: Path | None,
) -> None:
    """Write dead letters with their records as JSON, one in a line.

    Each has what `dlq list --json` shows, `given` (as the source gave it) and `form` (as it was when it failed). Where a record is
    no longer there, `missing` says why.
    """
    from penstock.cli.printer import err
    from penstock.cli.shown import count, json_line, json_text
    from penstock.ledger.look import Wanted

    wanted = Wanted(pipeline, source, code, _state(status), where=_waiting(status, checked(where)))
    n = missing = 0
    with _Whole(to) if to is not None else nullcontext() as file:
        for fields in _exported(state, wanted):
            n, missing = n + 1, missing + ("missing" in fields)
            if file is None:
                json_line(fields)
            else:
                file.write(json_text(fields) + "\n")
    where = f" in {to}" if to is not None else ""
    err(f"{count(n, 'dead letter')}{where}" + (f", {missing:,} of them without their record" if missing else ""))


def _exported(state: Path, wanted: Wanted) -> Iterator[dict[str, Any]]:
    from penstock.cli.state import ask, known_pipeline, known_source
    from penstock.deadletters import all_kept

    def batches(view: View) -> list[Wanted]:
        known_pipeline(wanted.pipeline, view)
        known_source(wanted.source, view)
        return view.batches_of(wanted)

    def of(batch: Wanted) -> tuple[list[LetterView], list[str]]:
        def question(view: View) -> tuple[list[LetterView], list[str]]:
            letters = view.letters(batch, limit=1 << 62)
            return letters, view.staged(letters[0]) if letters else []

        return ask(state, question)

    for batch in ask(state, batches):
        letters, staged = of(batch)
        if not letters:
            continue  # decided meanwhile
        by_nack = {id(letter.nack): letter for letter in letters}
        first = letters[0]
        nacks = [letter.nack for letter in letters]
        for nack, record in all_kept(state, first.pipeline, first.source, nacks, staged):
            missing = {"missing": record.missing} if record.missing else {}
            yield {**_fields(by_nack[id(nack)]), "given": record.given, "form": record.form, **missing}


class _Whole:
    """A file that is there when all of it is."""

    def __init__(self, to: Path) -> None:
        self._to = to
        self._aside = to.with_name(f".{to.name}.{os.getpid()}")

    def __enter__(self) -> IO[str]:
        try:
            self._file = self._aside.open("w", encoding="utf-8")
        except OSError as e:
            raise UsageError(f"{self._to} can't be written", code="dlq.export", why=e.strerror or str(e)) from e
        return self._file

    def __exit__(self, kind: object, *_: object) -> None:
        self._file.close()
        if kind is None:
            self._aside.replace(self._to)
        else:
            self._aside.unlink(missing_ok=True)


@dlq.command()
@click.argument("ids", metavar="[ID]...", nargs=-1)
@state_option()
@click.option(
    "--all", "all_", is_flag=True, help="All that are open, of those that --pipeline, --source and --code name."
)
@_which
@click.option("--reason", required=True, metavar="TEXT", help="Why; it is kept with the decision.")
def drop(
    ids: tuple[str, ...],
    state: Path,
    all_: bool,
    pipeline: str | None,
    source: str | None,
    code: str | None,
    where: str | None,
    reason: str,
) -> None:
    """Drop dead letters: nobody is going to replay or correct them.

    They count as dead-lettered as before, stay in their files, and `dlq list --status dropped` shows them. Who dropped how many, when and
    why is kept, and shown by `penstock pipelines show`.
    """
    from penstock.cli.operate import who
    from penstock.cli.printer import err
    from penstock.cli.shown import count
    from penstock.engine.lock import StateFolder
    from penstock.ledger import decisions
    from penstock.ledger.look import Wanted

    chosen = Wanted(pipeline, source, code, NackState.OPEN, where=checked(where))
    if _unclear(ids, all_, chosen) or not reason.strip():
        raise UsageError(
            "Which dead letters are to be dropped?" if reason.strip() else "Why are they to be dropped?",
            code="dlq.which",
            hint="give ids, or --all with or without --pipeline, --source, --code and --where; and a --reason",
        )
    wanted = _chosen(state, ids, chosen, _refuse_to_drop)
    dropped = decisions.drop(StateFolder(state).ledger, wanted, {"reason": reason.strip(), "by": who()})
    for name, n in sorted(dropped.items()):
        err(f"{name}: {count(n, 'dead letter')} dropped")
    if not dropped:
        err("Nothing was dropped: there are no open dead letters like that.")


def _state(status: str | None) -> NackState | None:
    return NackState(status) if status not in (None, "all") else None


def _waiting(status: str | None, where: str | None) -> str | None:
    """Unless somebody says which, only those are meant that somebody has to do something about."""
    if status is not None:
        return where
    return "status IN ('open', 'held')" + (f" AND ({where})" if where else "")


def _unclear(ids: Sequence[str], all_: bool, chosen: Wanted) -> bool:
    """Ids, or all of some kind: one of both has to be said."""
    named = bool(chosen.pipeline or chosen.source or chosen.code or chosen.where)
    return bool(ids) == (all_ or named) or (not ids and not all_)


def _chosen(
    state: Path, ids: Sequence[str], chosen: Wanted, refuse: Callable[[Sequence[LetterView]], None]
) -> list[Wanted]:
    from penstock.cli.state import ask, known_pipeline, known_source
    from penstock.ledger.look import Wanted

    def question(view: View) -> list[Wanted]:
        known_pipeline(chosen.pipeline, view)
        known_source(chosen.source, view)
        if not ids:
            view.states(chosen)  # SQL that the ledger does not take is said now
            return [chosen]
        found = [Wanted(id=_resolved(view, given)) for given in ids]
        for w in found:
            refuse(view.letters(w, limit=1000))
        return found

    return ask(state, question)


def checked(where: str | None) -> str | None:
    """One condition and nothing else, as the ledger understands it."""
    if where is None:
        return None
    import sqlglot
    from sqlglot.errors import SqlglotError

    from penstock.ledger.look import COLUMNS, tried

    try:
        condition = sqlglot.condition(where, dialect="sqlite")
        names = {c.name.lower() for c in condition.find_all(sqlglot.exp.Column)}
    except SqlglotError as e:
        hint = "write a condition such as \"error LIKE '%date%' AND tries = 0\", and nothing behind it"
        raise UsageError(f"--where {where} is no SQL condition", code="dlq.where", why=_place(e), hint=hint) from e
    if unknown := sorted(names - set(COLUMNS)):
        raise UsageError(
            f"--where: there is no column {unknown[0]!r}", code="dlq.where", hint=f"there are {', '.join(COLUMNS)}"
        )
    sql = condition.sql("sqlite")
    tried(sql)
    return sql


def _place(e: Exception) -> str:
    """Where SQL is not understood. The parser's own words name its classes."""
    at = next(iter(getattr(e.__cause__ or e, "errors", None) or ()), None)
    return f"it is not understood from {at['highlight']!r} on" if at else ""


def _refuse_to_drop(letters: Sequence[LetterView]) -> None:
    for letter in letters:
        if letter.nack.state is NackState.HELD:
            raise UsageError(
                f"{letter.nack.id} is held: its pipeline waits there",
                code="dlq.held",
                hint="correct the cause and run the pipeline again, or let bad records become dead letters with"
                " `dead-letter-queue: {window-size: 0}`: then it can be dropped",
            )


def _register() -> None:
    from penstock.cli.dlq_replay import replay

    dlq.add_command(replay)


# -- which ----------------------------------------------------------------------------------------------------------


def _resolved(view: View, id: str) -> str:
    """The one id that begins so."""
    start = id.strip().removesuffix("…").lower()
    found = view.ids(start, CANDIDATES + 1) if start else []
    if start in found:
        return start
    if not found:
        raise UsageError(
            f"There is no dead letter {id!r}",
            code="dlq.unknown",
            hint="penstock dlq list shows the ids of those that are there; the first digits of one are enough",
        )
    if len(found) > 1:
        more = ", …" if len(found) > CANDIDATES else ""
        raise UsageError(
            f"Several dead letters begin with {id!r}",
            code="dlq.ambiguous",
            why="\n       ".join([*found[:CANDIDATES], *([f"and others{more}"] if more else [])]),
            hint="give more digits",
        )
    return found[0]


# -- lists ----------------------------------------------------------------------------------------------------------


def _table(letters: list[LetterView], short: int) -> str:
    from penstock.cli.shown import table

    states = any(letter.nack.state is not NackState.OPEN for letter in letters)
    header = ["ID", "SOURCE", *(["STATUS"] if states else []), "NODE", "CODE", "ERROR"]
    rows = []
    for letter in letters:
        n = letter.nack
        lane = f"{letter.lane} → {n.destination}" if n.destination else letter.lane
        rows.append([n.id[:short], lane, *([n.state.value] if states else []), n.node, n.code, n.error])
    return table(rows, header)


def _none(state: Path, wanted: Wanted, codes: dict[str, int]) -> str:
    if not codes:
        return f"No dead letters in {state}" + (
            " of that pipeline or source." if wanted.pipeline or wanted.source else "."
        )
    there = ", ".join(f"{code} ({n:,})" for code, n in codes.items())
    return f"No dead letters like that. There are others: {there}"


def _after(shown: int, states: dict[NackState, int], state: Path) -> str:
    from penstock.cli.shown import count
    from penstock.cli.state import option

    total, held = sum(states.values()), states.get(NackState.HELD, 0)
    counted = count(total, "dead letter") if shown == total else f"the first {shown:,} of {total:,} dead letters"
    waiting = f", {held:,} of them held: the pipeline waits there" if held else ""
    more = "" if shown == total else "\n  more:    --limit N, or --pipeline, --source, --code, --status"
    return f"\n{counted}{waiting}{more}\n  look at: penstock dlq show ID{option(state)}"


def _fields(letter: LetterView) -> dict[str, Any]:
    """All that the ledger knows, by the names of the dead letter file."""
    from penstock.cli.dlq_shown import packed

    n = letter.nack
    return {
        "id": n.id,
        "pipeline": letter.pipeline,
        "source": letter.source,
        "destination": n.destination,
        "status": n.state.value,
        "node": n.node,
        "code": n.code,
        "error": n.error,
        "at": n.at,
        "batch": n.batch,
        "seq": n.seq,
        "part": n.part,
        "position": packed(n.position),
        "tries": n.tries,
    }


_register()
