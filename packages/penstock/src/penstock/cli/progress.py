"""How far a run is, in words and numbers: rates, durations, and one line per source. Pure; times are `time.monotonic()`.

Used by the live table (`cli.frame`) and by the lines every few seconds (`cli.lines`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from penstock.engine.view import LaneView, View, human_size
from penstock.native import Behind

WINDOW = 10.0  # seconds a rate looks back; batches come every few seconds
IDLE = "waiting for input"
AT_WORK = ("processing", "delivering")
_KEPT = 32  # changes of a number


@dataclass
class Rates:
    """Records per second of numbers that grow by whole batches."""

    _changes: dict[tuple[str, ...], list[tuple[float, int]]] = field(default_factory=dict)

    def note(self, view: View, now: float) -> None:
        for pipeline, lane in lanes(view):
            at_work = lane.doing.what.startswith(AT_WORK)
            self._note((pipeline, lane.source), lane.read, now, at_work)
            for name, n in lane.delivered.items():
                self._note((pipeline, lane.source, name), n, now, at_work)

    def _note(self, key: tuple[str, ...], n: int, now: float, at_work: bool) -> None:
        changes = self._changes.setdefault(key, [(now, n)])
        if changes == [(changes[0][0], n)] and not at_work:
            changes[0] = (now, n)  # the first batch has not begun: what comes before it is no work, and not slow
        if changes[-1][1] != n:
            changes.append((now, n))
            del changes[:-_KEPT]

    def of(self, key: tuple[str, ...], now: float, *, idle: bool = False) -> float:
        """Since the last change that is older than the window. A batch that takes longer than the window lowers the rate of
        the one before slowly; what is idle is slow at once."""
        changes = self._changes.get(key, [])
        if len(changes) < 2:
            return 0.0
        old = max((i for i, (at, _) in enumerate(changes) if at <= now - WINDOW), default=0)
        if old == len(changes) - 1 and not idle:
            old -= 1
        at, n = changes[old]
        return (changes[-1][1] - n) / (now - at) if now > at else 0.0


def lanes(view: View) -> Iterator[tuple[str, LaneView]]:
    for p in view.pipelines:
        for lane in p.lanes:
            yield p.id, lane


def idle(lane: LaneView) -> bool:
    return lane.status == "running" and lane.doing.what == IDLE


def lasting(seconds: float) -> str:
    """How long something has taken: 0.4 s, 12.3 s, 3 min 05 s, 2 h 05 min, 3 d 4 h."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    if days:
        return f"{days} d {h} h"
    return f"{hours} h {m:02} min" if hours else f"{m} min {s:02} s"


def stamp(seconds: float) -> str:
    """The elapsed time in front of a line, always as wide: [  6.3 s], [ 1:05:12], [3d 04:05]."""
    if seconds < 600:
        return f"[{seconds:6.1f} s]"
    minutes, s = divmod(int(seconds), 60)
    hours, m = divmod(minutes, 60)
    days, h = divmod(hours, 24)
    return f"[{f'{days}d {h:02}:{m:02}' if days else f'{h}:{m:02}:{s:02}':>8}]"


def doing(lane: LaneView, now: float) -> str:
    """What the lane is at, and for how long."""
    if lane.status == "degraded":
        return "degraded"
    if lane.status == "stopped":
        return "done"
    taken = max(0.0, now - lane.doing.since)  # it may have begun after we looked at the clock
    return f"{lane.doing.what}, {taken:.0f} s" if taken < 60 else _long(lane, now)


def _long(lane: LaneView, now: float) -> str:
    return f"{lane.doing.what}, {lasting(now - lane.doing.since)}"


def waiting(behind: Behind | None) -> str:
    """What is known to wait at a source: "12 files (3.1 MB)", "3,000 records", "" for nothing."""
    if behind is None:
        return ""
    if behind.records is not None:
        return counted(behind.records, "record") if behind.records else ""
    size = f" ({human_size(behind.bytes)})" if behind.bytes is not None else ""
    return f"{counted(behind.files, 'file')}{size}" if behind.files else ""


def counted(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def lane_line(pipeline: str, lane: LaneView, rate: float, now: float) -> str:
    """orders/in: 12,000 read, 11,200 delivered, 3 dead-lettered, 3,400 records/s; processing batch 4, 2 s; 12 files wait"""
    parts = [_counts(lane, rate), IDLE if idle(lane) else doing(lane, now)]
    if left := waiting(lane.behind):
        parts.append(f"{left} wait")
    return f"{pipeline}/{lane.source}: {'; '.join(p for p in parts if p)}"


def _counts(lane: LaneView, rate: float) -> str:
    if not lane.read:
        return "nothing read yet"
    shown = [f"{lane.read:,} read"]
    several = len(lane.delivered) > 1
    for name, n in lane.delivered.items():
        dead = f"{lane.dead_lettered[name]:,} dead-lettered" if lane.dead_lettered.get(name) else ""
        if several:
            shown.append(f"{n:,} → {name}" + (f" ({dead})" if dead else ""))
        else:
            shown += [f"{n:,} delivered", dead]
    if rate >= 1:
        shown.append(f"{rate:,.0f} records/s")
    return ", ".join(part for part in shown if part)


def total_line(view: View, rates: Rates, now: float) -> str:
    """All sources in one line, where there are too many for a line each."""
    all_lanes = list(lanes(view))
    read = sum(lane.read for _, lane in all_lanes)
    delivered = sum(sum(lane.delivered.values()) for _, lane in all_lanes)
    dead = sum(sum(lane.dead_lettered.values()) for _, lane in all_lanes)
    rate = sum(rates.of((p, lane.source), now, idle=idle(lane)) for p, lane in all_lanes)
    shown = [f"{read:,} read, {delivered:,} delivered" + (f", {dead:,} dead-lettered" if dead else "")]
    if rate >= 1:
        shown[0] += f", {rate:,.0f} records/s"
    return f"{counted(len(all_lanes), 'source')}: {shown[0]}; {states([lane for _, lane in all_lanes])}"


def states(found: list[LaneView]) -> str:
    """How many are at what: "3 busy, 95 waiting for input, 2 degraded"."""
    kinds = dict.fromkeys(("busy", IDLE, "done", "degraded"), 0)
    for lane in found:
        ended = {"degraded": "degraded", "stopped": "done"}.get(lane.status)
        kinds[ended or (IDLE if idle(lane) else "busy")] += 1
    return ", ".join(f"{n} {kind}" for kind, n in kinds.items() if n)


def same_counts(lane: LaneView) -> tuple[object, ...]:
    """Equal while nothing has happened that is worth a new line."""
    return (lane.read, tuple(lane.delivered.values()), tuple(lane.dead_lettered.values()), lane.status)
