"""`penstock run --dry-run`: the first records of every source, through the real plan, and what would be delivered of them.

Nothing is delivered, acked or written outside a throw-away folder; the state folder is not even opened.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.cli.printer import printable

if TYPE_CHECKING:
    from penstock.ledger import Nack
    from penstock.pipeline import Pipeline
    from penstock.trial import Outcome


def dry_run(pipelines: Sequence[Pipeline], limit: int, master: str | None, conf: dict[str, str]) -> bool:
    """Prints one JSON line per record and destination on stdout, and a summary on stderr. False where a pipeline failed."""
    from penstock import trial

    plans = [trial.peeking(p.plan(), limit) for p in pipelines if p.assembly().config.status == "running"]
    ok = True
    for plan, outcome in zip(plans, trial.run(plans, master=master or "local[*,4]", conf=conf), strict=True):
        _records(plan.id, outcome, limit)
        ok = _summary(plan.id, outcome) and ok
    return ok


def _records(pipeline: str, o: Outcome, limit: int) -> None:
    from penstock.trial import opened

    for name, records in o.delivered.items():
        for record in records[:limit]:
            shown = {k: opened(v) for k, v in record.items() if v is not None and k not in ("seq", "part")}
            _line({"pipeline": pipeline, "destination": name, "outcome": "delivered", **shown})
    for n in o.nacks[:limit]:
        _line({"pipeline": pipeline, "outcome": "dead-lettered", **_nack(n)})


def _nack(n: Nack) -> dict[str, Any]:
    position = n.position.decode(errors="replace")
    return {"position": position, "destination": n.destination, "node": n.node, "code": n.code, "error": n.error}


def _line(value: dict[str, Any]) -> None:
    print(printable(json.dumps(value, ensure_ascii=False, default=str)))


def _summary(pipeline: str, o: Outcome) -> bool:
    counts = [f"{len(records):,} for {name}" for name, records in o.delivered.items()]
    dead = len({(n.seq, n.part) for n in o.nacks})
    print(
        printable(
            f"\n{pipeline}: {o.read:,} read; {', '.join(counts)}; {dead:,} would be dead letters. Nothing was delivered."
        ),
        file=sys.stderr,
    )
    if o.result.error is not None:
        print(printable(str(o.result.error)), file=sys.stderr)
    return o.result.error is None
