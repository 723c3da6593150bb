"""`penstock run --dry-run`: the first records of every source, through the real plan, and what would be delivered of them.

Nothing is delivered, acked or written outside a throw-away folder; the state folder is not even opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.cli.printer import err, out_json, print_error

if TYPE_CHECKING:
    from penstock.cli.face import Face
    from penstock.ledger import Nack
    from penstock.pipeline import Pipeline
    from penstock.trial import Outcome


@dataclass(frozen=True)
class Tried:
    pipeline: str
    outcome: Outcome


def tried(
    face: Face, pipelines: Sequence[Pipeline], limit: int, master: str | None, conf: dict[str, str]
) -> list[Tried]:
    """Sends the first records of every source through. `face` shows that time passes."""
    from penstock import trial

    plans = [trial.peeking(p.plan(), limit) for p in pipelines if p.assembly().config.status == "running"]
    face.doing(f"starting Spark, then trying up to {limit:,} records of each source")
    face.event("starting", "", "", {"what": f"Spark, to try up to {limit:,} records of each source"})
    outcomes = trial.run(plans, master=master or "local[*,4]", conf=conf)
    return [Tried(plan.id, outcome) for plan, outcome in zip(plans, outcomes, strict=True)]


def print_all(found: Sequence[Tried], limit: int) -> bool:
    """Prints one JSON line per record and destination on stdout, and a summary on stderr. False where a pipeline failed."""
    for t in found:
        _records(t.pipeline, t.outcome, limit)
        _summary(t.pipeline, t.outcome)
    if not found:
        err("Nothing to try: every pipeline has `status: stopped`.")
    return all(t.outcome.result.error is None for t in found)


def _records(pipeline: str, o: Outcome, limit: int) -> None:
    from penstock.trial import opened

    for name, records in o.delivered.items():
        for record in records[:limit]:
            shown = {k: opened(v) for k, v in record.items() if v is not None and k not in ("seq", "part")}
            out_json({"pipeline": pipeline, "destination": name, "outcome": "delivered", **shown})
    for n in o.nacks[:limit]:
        out_json({"pipeline": pipeline, "outcome": "dead-lettered", **_nack(n)})


def _nack(n: Nack) -> dict[str, Any]:
    position = n.position.decode(errors="replace")
    return {"position": position, "destination": n.destination, "node": n.node, "code": n.code, "error": n.error}


def _summary(pipeline: str, o: Outcome) -> None:
    counts = [f"{len(records):,} for {name}" for name, records in o.delivered.items()]
    dead = len({(n.seq, n.part) for n in o.nacks})
    err(f"\n{pipeline}: {o.read:,} read; {', '.join(counts)}; {dead:,} would be dead letters. Nothing was delivered.")
    if o.result.error is not None:
        print_error(o.result.error)
