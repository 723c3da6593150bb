"""What people ask of a running engine: where its pipelines stand, to stop one, to start it again, to let one that stands go back.

`answer` is called by `control.py`, from a thread per request. Lanes are made by the engine's own thread (`once_more`), which also watches
over stops; here is only asked for, waited, and written down who asked.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Late
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.engine import anew
from penstock.engine.plans import PipelinePlan, check
from penstock.engine.running import Running
from penstock.errors import PenstockError, UsageError
from penstock.ledger import Ledger

MOST = 3600.0  # seconds that a request may wait at most
STARTING = 60.0  # and that making lanes may take

Asked = Mapping[str, Any]


class Operations:
    """`running` is the engine's own list: a pipeline that is started again takes the place of the one that ended."""

    def __init__(
        self,
        state: Path,
        running: Sequence[Running],
        ledger: Ledger,
        once_more: Callable[[PipelinePlan], Future[Running]],
        stopping: Callable[[], bool],
        report: Callable[[str, str, str, dict[str, Any]], None],
    ) -> None:
        self._state, self._running, self._ledger = state, running, ledger
        self._once_more, self._stopping, self._report = once_more, stopping, report
        self._turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # one at a time for each pipeline
        self._known = threading.Lock()

    def answer(self, asked: Asked) -> Mapping[str, Any]:
        todo = {
            "status": self._status,
            "stop": self._stop,
            "start": self._start,
            "step": self._step,
            "rewind": self._go_back,
            "reset": self._go_back,
        }.get(str(asked.get("do")))
        if todo is None:
            raise UsageError(
                f"This engine does not know {str(asked.get('do'))[:40]!r}",
                code="control.request",
                hint="use the penstock that runs it",
            )
        return todo(asked)

    # -- looking -------------------------------------------------------------------------------------------------------

    def _status(self, _: Asked) -> Mapping[str, Any]:
        return {"pid": os.getpid(), "pipelines": {r.plan.id: _standing(r) for r in list(self._running)}}

    def _of(self, asked: Asked) -> Running:
        name = _text(asked, "pipeline")
        found = next((r for r in self._running if r.plan.id == name), None)
        if found is None:
            raise UsageError(
                f"The running engine has no pipeline {name!r}",
                code="control.unknown-pipeline",
                hint=f"it has: {', '.join(r.plan.id for r in self._running)}",
            )
        return found

    def _turn(self, r: Running) -> threading.Lock:
        with self._known:
            return self._turns[r.plan.id]

    # -- stopping and starting -----------------------------------------------------------------------------------------

    def _stop(self, asked: Asked) -> Mapping[str, Any]:
        until = time.monotonic() + _seconds(asked)
        by = _text(asked, "by")
        with self._turn(self._of(asked)):
            r = self._of(asked)
            if not r.alive() and r.stopped_by is None:
                return {"already": True, **_standing(r)}  # it failed
            already = r.stopped_by is not None or r.stop.requested
            if not already:
                self._ledger.decided(r.plan.id, "stop", {"by": by})
                r.stopped_by = by  # first: the engine waits for one that was stopped, and ends when none is left
                r.stop.request()
                self._report("stopped", r.plan.id, "", {"by": by})
        r.ended.wait(max(0.0, until - time.monotonic()))
        return {"already": already, **_standing(r), "remaining": _remaining(r)}

    def _start(self, asked: Asked) -> Mapping[str, Any]:
        by = _text(asked, "by")
        with self._turn(self._of(asked)):
            r = self._of(asked)
            if r.alive() and not r.stop.requested:
                return {"already": True, **_standing(r)}
            self._refuse_busy(r)
            plan = self._checked(r)
            self._ledger.decided(r.plan.id, "start", {"by": by})
            future = self._once_more(plan)
            try:
                made = future.result(STARTING)
            except Late:
                future.cancel()
                raise self._ends(r) from None
            self._report("started", r.plan.id, "", {"by": by})
        return {"already": False, **_standing(made)}

    def _step(self, asked: Asked) -> Mapping[str, Any]:
        """While the pipeline stands: so many records of a source, one at a time; then it stands again."""
        by, source = _text(asked, "by"), _text(asked, "source")
        count = asked.get("count", 1)
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError("The request has no useful 'count'", code="control.request")
        with self._turn(self._of(asked)):
            r = self._of(asked)
            self._refuse_running(r)
            self._refuse_busy(r)
            plan = replace(self._checked(r), steps=(source, count))
            self._ledger.decided(r.plan.id, "step", {"source": source, "records": count, "by": by})
            key = self._ledger.lane(r.plan.id, source).key
            before = self._ledger.totals(key).read
            made = self._once_more(plan).result(STARTING)
            while made.alive() and not self._stopping():
                time.sleep(0.05)
            self._refuse_busy(made)
            read = self._ledger.totals(key).read - before
        return {"read": read, **_standing(made)}

    def _refuse_running(self, r: Running) -> None:
        if r.alive() and not r.stop.requested:
            raise UsageError(
                f"{r.plan.id} is running",
                code="control.running",
                hint=f"stop it first: penstock pipelines stop {r.plan.id}; start it again afterwards",
            )

    def _refuse_busy(self, r: Running) -> None:
        if self._stopping():
            raise self._ends(r)
        if r.alive():
            raise UsageError(
                f"{r.plan.id} is still stopping",
                code="control.stopping",
                why="; ".join(_busy(r)),
                hint="wait for it: penstock pipelines stop, once more, returns when it has stopped",
            )
        # What lanes shared is closed now, if nobody has done that yet: it may hold what the next ones need.
        r.end(lambda name, n: self._report("resent", r.plan.id, name, {"records": n}))

    def _ends(self, r: Running) -> UsageError:
        return UsageError(
            f"The engine is about to end and can't start {r.plan.id}",
            code="control.ending",
            hint="penstock run starts it",
        )

    def _checked(self, r: Running) -> PipelinePlan:
        """The same plan with new parts, fit to run."""
        if r.plan.again is None:
            raise UsageError(
                f"{r.plan.id} can't be started again in this engine",
                code="control.objects",
                why="its connectors are objects of a program, and each of them is used once",
                hint="end the program, and run it again",
            )
        plan = r.plan.again()
        if (bad := check(plan)) is not None and bad.error is not None:
            raise bad.error
        return plan

    # -- going back ----------------------------------------------------------------------------------------------------

    def _go_back(self, asked: Asked) -> Mapping[str, Any]:
        """While the pipeline stands: its lanes would go on from where they are."""
        why = {"by": _text(asked, "by"), "reason": _text(asked, "reason")}
        source = _text(asked, "source") if asked.get("source") is not None else None
        with self._turn(self._of(asked)):
            r = self._of(asked)
            self._refuse_running(r)
            self._refuse_busy(r)
            try:
                plan = (
                    r.plan if r.plan.again is None else r.plan.again()
                )  # a source that was closed may not answer any more
                place = anew.Place(self._state, self._ledger, plan.id, plan.rebuild, plan)
                reset = asked["do"] == "reset"
                to = None if reset else anew.parse(_text(asked, "to"))
                found = place.reset(source, why) if to is None else place.rewind(source, to, why)
            except PenstockError as e:
                r.plan.secrets.clean(e)
                raise
        return {"sources": [asdict(lane) for lane in found], **_standing(r)}


def _standing(r: Running) -> dict[str, Any]:
    """What can be said of a pipeline, for programs."""
    ending = r.stop.requested and (bool(r.alive()) or (r.stopped_by is not None and not r.ended.is_set()))
    error = r.error
    return {
        "status": "stopping" if ending else r.status.value,
        "stopped_by": r.stopped_by,
        "error": None if error is None else r.plan.secrets.hide(str(error)),
        "busy": _busy(r) if ending else [],
    }


def _busy(r: Running) -> list[str]:
    return [f"{lane.plan.name}: {lane.loop.doing.what}" for lane in r.lanes if lane.thread.is_alive()]


def _remaining(r: Running) -> dict[str, Any]:
    """What a stop has left, by source; only of lanes that have ended."""
    if not r.ended.is_set():
        return {}
    left = {lane.plan.name: lane.loop.remaining() for lane in r.lanes}
    return {name: asdict(n) for name, n in left.items() if n is not None}


def _text(asked: Asked, name: str) -> str:
    value = asked.get(name)
    if not isinstance(value, str) or not value.strip() or len(value) > 2000:
        raise UsageError(f"The request says nothing useful as {name!r}", code="control.request")
    return value


def _seconds(asked: Asked) -> float:
    value = asked.get("timeout", MOST)
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise UsageError("The request has no useful 'timeout'", code="control.request")
    return min(float(value), MOST)
