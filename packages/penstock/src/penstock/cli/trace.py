"""`penstock trace`: what became of one record. Reads the state folder, also beside an engine, and changes nothing."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from penstock.cli.options import json_option, state_option
from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.cli.trace_find import Answer, Found, Missing
    from penstock.cli.trace_log import Hit, SourceLog
    from penstock.ledger import Nack
    from penstock.ledger.life import LaneAt
    from penstock.ledger.look import View

SECONDS = 5.0
LIMIT = 10
ID = 32  # digits
CANDIDATES = 10


@click.command()
@state_option()
@click.option("--pipeline", metavar="ID", help="Only records of this pipeline.")
@click.option("--source", metavar="ID", help="Only records of this source.")
@click.option("--id", "id_", metavar="ID", help="The record's id; of a dead letter the first digits are enough.")
@click.option("--position", metavar="P", help="The source's own position, as text, or `hex:…` or `base64:…`.")
@click.option(
    "--offset",
    metavar="N",
    type=click.IntRange(min=0),
    help="Its offset in the commit log of its source, or in a queue.",
)
@click.option("--key", metavar="K", help="The record's key, as text or JSON, or `hex:…` or `base64:…`.")
@click.option(
    "--log",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder of the queue that is read: --key looks for it there.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=LIMIT,
    show_default=True,
    help="With --key: so many, the newest first.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=SECONDS,
    show_default=True,
    help="How long is looked where there is no index: --id of a record that is no dead letter, and --key.",
)
@json_option("One JSON object per line on stdout.")
@click.pass_context
def trace(
    context: click.Context,
    state: Path,
    pipeline: str | None,
    source: str | None,
    id_: str | None,
    position: str | None,
    offset: int | None,
    key: str | None,
    folder: Path | None,
    limit: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Show what became of one record: its batch, every destination, dead letters, the ack.

    Name it by one of --id, --position, --offset and --key. Safe while an engine runs; nothing is changed. Exits with 1 when no batch that
    is kept has it, and says why: it is older than retention, it was not read yet, or nothing is known of it.
    """
    from penstock.cli.printer import err, out
    from penstock.cli.shown import json_line
    from penstock.cli.trace_shown import found_json, lines, missing_json, missing_lines

    if [id_, position, offset, key].count(None) != 3:
        raise UsageError(
            "Which record is to be traced?",
            code="trace.which",
            hint="name it by one of --id, --position, --offset and --key",
        )
    asked = Asked(state, pipeline, source, folder, limit, time.monotonic() + seconds)
    if id_ is not None:
        answers = asked.id(id_)
    elif offset is not None:
        answers = asked.offset(offset)
    elif position is not None:
        answers = asked.position(as_position(position))
    else:
        answers = asked.key(as_bytes(key or "", "--key"))
    found = [one for answer in answers if isinstance(answer, list) for one in answer]
    missing = [answer for answer in answers if not isinstance(answer, list)]
    if as_json:
        for line in [found_json(one) for one in found] or [missing_json(one) for one in missing]:
            json_line(line)
    elif found:
        out("\n\n".join("\n".join(lines(one, state)) for one in found))
    else:
        out("\n".join(missing_lines(missing)))
    if asked.gave_up:
        err(
            "The time was up before all logs and dead letters were looked at: there may be more. --seconds gives more time."
        )
    context.exit(0 if found else 1)


def as_bytes(text: str, option: str) -> bytes:
    try:
        if text.startswith("hex:"):
            return bytes.fromhex(text.removeprefix("hex:"))
        if text.startswith("base64:"):
            return base64.b64decode(text.removeprefix("base64:"), validate=True)
        return text.encode()
    except (ValueError, binascii.Error) as e:
        raise UsageError(
            f"{option} can't be read",
            code="trace.bytes",
            why=str(e),
            hint="hex: is followed by pairs of hexadecimal digits, base64: by Base64; anything else is text",
        ) from None


def as_position(text: str) -> bytes:
    """A place in a file may be named from here: what `files` gives its records has the whole path."""
    path, sign, place = text.rpartition("#")
    if sign and place.isdigit() and not Path(path).is_absolute() and Path(path).is_file():
        text = f"{Path(path).absolute()}#{place}"
    return as_bytes(text, "--position")


class Asked:
    """One question. Logs are read before the ledger: it is never ahead of them, and is not held up meanwhile."""

    def __init__(
        self, state: Path, pipeline: str | None, source: str | None, folder: Path | None, limit: int, until: float
    ) -> None:
        self._state, self._pipeline, self._source = state, pipeline, source
        self._folder, self._limit, self._until = folder, limit, until
        self.gave_up = False  # the time was up before everything with a key was looked at

    def _lanes(self, view: View) -> list[LaneAt]:
        from penstock.cli.state import known_pipeline, known_source

        known_pipeline(self._pipeline, view)
        known_source(self._source, view)
        return view.trace.lanes(self._pipeline, self._source)

    def _logs(self) -> dict[int, SourceLog]:
        """By lane: what can be looked at of the logs of sources."""
        from penstock import deadletters
        from penstock.cli.log_names import LOGS, is_log
        from penstock.cli.state import ask

        def question(view: View) -> list[tuple[LaneAt, str]]:
            samples = ((lane, view.trace.sample(lane.key)) for lane in self._lanes(view))
            return [(lane, "" if r is None else r.strand) for lane, r in samples]

        found: dict[int, SourceLog] = {}
        given = self._given()
        for lane, strand in ask(self._state, question):
            folder = self._state / LOGS / deadletters.folder(lane.pipeline, lane.source)
            if is_log(folder):
                from penstock.cli.trace_log import SourceLog

                found[lane.key] = SourceLog(folder.name, folder, numbered=False)
            elif given is not None and given.log_id == strand:
                found[lane.key] = given
        return found

    def _given(self) -> SourceLog | None:
        """The queue that was named."""
        from penstock.cli.log_names import is_log

        if self._folder is None:
            return None
        if not is_log(self._folder):
            raise UsageError(
                f"There is no log in {self._folder}",
                code="log.missing",
                hint="name the folder that `path` of the queue has",
            )
        from penstock.cli.trace_log import SourceLog

        return SourceLog(str(self._folder), self._folder, numbered=True)

    # -- the ways in ----------------------------------------------------------------------------------------------------

    def position(self, position: bytes) -> list[Answer]:
        from penstock.cli.state import ask
        from penstock.cli.trace_find import Finder

        logs = self._logs()
        hits: dict[int, list[Hit]] = {}
        for lane, log in logs.items():
            if not log.numbered:
                from penstock.cli.trace_log import by_position

                hits[lane] = log.search(by_position(position), 1, float("inf"))

        def question(view: View) -> list[Answer]:
            return [
                Finder(view.trace, lane, logs.get(lane.key)).position(position, hits.get(lane.key, ()))
                for lane in self._lanes(view)
            ]

        return ask(self._state, question)

    def offset(self, offset: int) -> list[Answer]:
        from penstock.cli.state import ask
        from penstock.cli.trace_find import Finder

        logs = self._logs()

        def question(view: View) -> list[Answer]:
            made = (Finder(view.trace, lane, logs.get(lane.key)).offset(offset) for lane in self._lanes(view))
            return [answer for answer in made if answer is not None]

        answers = ask(self._state, question)
        if not answers:
            raise UsageError(
                "No source here has a commit log",
                code="trace.no-log",
                why="offsets are those of a log: of a source in a process of its own, or of a queue",
                hint="name the record by its --position",
            )
        return answers

    def key(self, key: bytes) -> list[Answer]:
        from penstock.cli.state import ask
        from penstock.cli.trace_find import Finder

        logs = self._logs()
        hits: dict[int, list[Hit]] = {}
        for lane, log in logs.items():
            from penstock.cli.trace_log import by_key

            hits[lane] = log.search(by_key(key), self._limit, self._until)
            self.gave_up = self.gave_up or log.gave_up
        dead = self._dead_with(key)

        def question(view: View) -> list[Answer]:
            return [
                Finder(view.trace, lane, logs.get(lane.key)).key(hits.get(lane.key, ()), dead.get(lane.key, ()))
                for lane in self._lanes(view)
            ]

        return ask(self._state, question)

    def _dead_with(self, key: bytes) -> dict[int, list[Nack]]:
        """Dead letters whose record had this key, by lane; the newest first, until the time is up."""
        from penstock.cli.state import ask
        from penstock.cli.trace_keys import has_key
        from penstock.deadletters import all_kept
        from penstock.ledger.look import Wanted

        found: dict[int, list[Nack]] = {}
        for batch in reversed(ask(self._state, lambda view: view.batches_of(Wanted(self._pipeline, self._source)))):
            if sum(map(len, found.values())) >= self._limit:
                break
            if time.monotonic() > self._until:
                self.gave_up = True
                break

            def of(view: View, batch: Wanted = batch) -> tuple[list[Nack], list[str], tuple[str, str]]:
                letters = view.letters(batch, limit=1 << 62)
                lane = (letters[0].pipeline, letters[0].source) if letters else ("", "")
                return [letter.nack for letter in letters], view.staged(letters[0]) if letters else [], lane

            nacks, staged, (pipeline, source) = ask(self._state, of)
            seen = {n.seq for n in found.get(batch.lane or 0, ())}
            for nack, record in all_kept(self._state, pipeline, source, nacks, staged):
                if nack.seq not in seen and has_key(record.given, key):
                    seen.add(nack.seq)
                    found.setdefault(batch.lane or 0, []).append(nack)
        return found

    def id(self, id_: str) -> list[Answer]:
        """Dead letters have an index. For anything else every position that is kept has to be tried."""
        from penstock.cli.state import ask
        from penstock.cli.trace_find import Finder

        wanted = id_.strip().removesuffix("…").lower()
        if not wanted or set(wanted) - set("0123456789abcdef") or len(wanted) > ID:
            raise UsageError(
                f"{id_!r} is no id of a record", code="trace.id", hint=f"an id has {ID} hexadecimal digits"
            )

        def dead(view: View) -> tuple[list[str], list[Found]]:
            ids = view.trace.ids(wanted, CANDIDATES + 1)
            if len(ids) != 1:
                return ids, []
            lanes = self._lanes(view)
            return ids, [one for lane in lanes for one in Finder(view.trace, lane).dead_letter(ids[0])]

        ids, found = ask(self._state, dead)
        if found:
            return [found]
        if len(ids) > 1:
            raise UsageError(
                f"Several dead letters begin with {wanted!r}",
                code="dlq.ambiguous",
                why="\n       ".join([*ids[:CANDIDATES], *(["and others"] if len(ids) > CANDIDATES else [])]),
                hint="give more digits",
            )
        return self._id_of_any(wanted)

    def _id_of_any(self, wanted: str) -> list[Answer]:
        from penstock.cli.state import ask
        from penstock.cli.trace_find import Finder

        logs = self._logs() if len(wanted) == ID else {}
        lanes = ask(self._state, self._lanes)
        hits: dict[int, list[Hit]] = {}
        for lane in lanes:
            log = logs.get(lane.key)
            if log is not None and not log.numbered:
                from penstock.cli.trace_log import by_id

                hits[lane.key] = log.search(by_id(lane.source, wanted, numbered=False), 1, self._until)

        def question(view: View) -> Iterator[Answer]:
            for lane in self._lanes(view):
                if len(wanted) < ID:
                    yield _short(lane)
                    continue
                answer = Finder(view.trace, lane, logs.get(lane.key)).id(wanted, hits.get(lane.key, ()), self._until)
                yield answer
                if isinstance(answer, list):
                    return

        return ask(self._state, lambda view: list(question(view)))


def _short(lane: LaneAt) -> Missing:
    from penstock.cli.trace_find import Missing, Verdict

    why = f"no dead letter has an id that begins so; of a record that is none all {ID} digits are needed"
    return Missing(lane, Verdict.UNKNOWN, why)
