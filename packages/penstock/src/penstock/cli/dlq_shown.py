"""One dead letter as `penstock dlq show` shows it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import UsageError
from penstock.ledger import NackState

if TYPE_CHECKING:
    from penstock.deadletters import Kept
    from penstock.ledger.look import LetterView

DOCS = "docs/how-to/dead-letters.md"


def shown(letter: LetterView, kept: Kept, full: bool, line: str) -> list[str]:
    from penstock.cli.shown import count, escaped, payload, record, when

    n = letter.nack
    held = n.state is NackState.HELD
    where = f"destination {n.destination!r}" if n.destination else "every destination"
    position = packed(n.position)
    lines = [
        f"{'held record' if held else 'dead letter'} {n.id} ({n.state.value})",
        "",
        "what happened",
        f"  {n.code or 'no code'} at {n.node!r}, for {where}, {when(n.at)}",
        *(f"  {escaped(text)}" for text in n.error.split("\n")),
        *([f"  in {escaped(line)}"] if line else []),
        *([f"  replayed in vain: {count(n.tries, 'time')}"] if n.tries else []),
        "",
        "where it came from",
        f"  {letter.lane}, batch {n.batch}, seq {n.seq}" + (f", part {n.part}" if n.part else ""),
    ]
    if position.get("text"):
        lines.append(f"  position: {escaped(position['text'])}")
    elif n.position:
        lines += payload("position", position, "  ", full=full)
    if kept.missing:
        lines += ["", "the record", f"  {escaped(kept.missing)}"]
    else:
        lines += ["", "as the source gave it", *(record(kept.given, "  ", full=full) if kept.given else [_UNREAD])]
        lines += ["", "as it was when it failed", *_failed(kept, full)]
    todo = {NackState.HELD: _HELD, NackState.OPEN: _OPEN, NackState.REPLAYED: _REPLAYED, NackState.DROPPED: _DROPPED}
    return [*lines, "", "what to do", *(f"  {text}" for text in todo[n.state])]


def line_of(state: Path, letter: LetterView) -> str:
    """The line of the pipeline's file that has what failed, as the file beside the state folder is now; "" where there is none."""
    from penstock.config import ConfigErrors, load

    try:
        files = [path for path in state.absolute().parent.iterdir() if path.suffix in (".yaml", ".yml")]
        found = load(files) if files else []
    except (ConfigErrors, UsageError, OSError):
        return ""
    n = letter.nack
    for loaded in found:
        for i, p in enumerate(loaded.pipelines):
            if p.id != letter.pipeline:
                continue
            paths: list[tuple[tuple[str | int, ...], str]] = [
                (("processors", k), x.id) for k, x in enumerate(p.processors)
            ]
            for c, connector in enumerate(p.connectors):
                paths += [(("connectors", c, "processors", k), x.id) for k, x in enumerate(connector.processors)]
                paths.append((("connectors", c), connector.id))
            for path, name in paths:
                if name == n.node:
                    return loaded.where("pipelines", i, *path)
    return ""


def _failed(kept: Kept, full: bool) -> list[str]:
    from penstock.cli.shown import record

    if not kept.form:
        return ["  not known"]
    names = ("key", "before", "after", "operation", "namespace")
    if isinstance(kept.given, dict) and "repr" not in kept.form:
        same = all(kept.given.get(name) == kept.form.get(name) for name in names)
        if same and kept.form.get("metadata") in (None, {}, kept.given.get("metadata")):
            return ["  the same"]
    return list(record(kept.form, "  ", full=full))


_UNREAD = "  not known: it could not be read"
_OPEN = (
    "The pipeline went on without it. Correct the cause, then let it go through",
    "again: penstock dlq replay ID. Or drop it: penstock dlq drop ID --reason TEXT",
    f"How: {DOCS}",
)
_REPLAYED = ("Nothing: it went through the pipeline again, and has reached its destinations.",)
_DROPPED = ("Nothing: somebody has decided that it is not wanted. penstock pipelines show says who.",)
_HELD = (
    "It closed the gate: it and what is behind it wait. Correct the cause and run",
    "the pipeline again: it goes on at this record; `pipelines step` tries it alone,",
    "`pipelines skip` leaves it out. To go on past bad records set",
    f"`dead-letter-queue: {{window-size: 0}}`. More: {DOCS}",
)


def packed(data: bytes) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
