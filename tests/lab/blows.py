"""What is done to one life of an engine. A blow is drawn before the life begins, so that the records it needs can be issued."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.lab.scenes import Scene
from tests.support.harness import Ended, Running

# Every step that a batch goes through, with the names of the contract. `K6a` is inside a commit: each destination has its own steps.
POINTS = (
    *("K1", "K2", "stage", "K6", "prepare", "ledger:prepare", "K7", "commit", "K8", "ledger:done", "done", "ack"),
    *("acked", "ledger:snapshot", "ledger:attempt"),
)
INSIDE_COMMIT = {"files": 3, "lines": 4, "postgres": 3, "queue": 4, "delta": 3, "kafka": 6}
SEVERAL = ("materialise",)  # where there is more than one destination, or a function
LOG = ("K12", "K13", "K14")  # the engine appends to a log
REFUSED = ("K9",)  # the batch has bad records
EMPTY = ("K10", "K10a")  # nothing of the batch is left
CUT = ("K3", "ledger:split", "K4")  # the batch has a file that can't be read
BEGUN = ("K2", "K11")  # what a life has reached when a kill counts: it has taken a batch, or is about to end one


@dataclass
class Blow:
    """`what` is the line of the report. `prepare` issues what is needed, `options` are of the child, `strike` is done from outside."""

    what: str
    prepare: Callable[[Scene], None]
    options: dict[str, Any] = field(default_factory=dict)
    strike: Callable[[Scene, Running], Ended] | None = None
    alone: bool = False  # Spark is the engine's own
    kills: bool = True  # it ends by a signal
    clock: bool = False  # its clock steps, too
    may_fail: bool = False  # it may end with an error


@dataclass(frozen=True)
class Struck:
    """What has come of it."""

    what: str
    counted: bool
    step: str  # where it died
    ended: Ended
    seconds: float


def deal(scene: Scene, blow: Blow) -> Struck:
    began = time.monotonic()
    blow.prepare(scene)
    gateway, scene.gateway = scene.gateway, None if blow.alone else scene.gateway
    try:
        running = scene.start(**blow.options)
    finally:
        scene.gateway = gateway
    ended = blow.strike(scene, running) if blow.strike else running.wait()
    begun = any(ended.counts.get(point) for point in BEGUN)
    counted = begun and ended.killed == blow.kills
    return Struck(blow.what, counted, ended.last, ended, time.monotonic() - began)


# -- drawing -------------------------------------------------------------------------------------------------------------------------------


def plenty(scene: Scene) -> None:
    scene.issue(scene.chance.randrange(2, 6))


def points(scene: Scene) -> list[tuple[str, int]]:
    """What can be hit in this scene, and which time."""
    found = [(point, n) for point in POINTS for n in (1, 2)]
    for kind in set(scene.kinds):
        found += [("K6a", n) for n in range(1, INSIDE_COMMIT[kind] + 1)]
    if scene.queues:
        found += [(point, n) for point in LOG for n in (1, 2)]
    if scene.chained:
        found += [("K15", n) for n in (1, 2, 3, 4)] * 4
    if len(scene.kinds) > 1 or scene.python:
        found += [(point, n) for point in SEVERAL for n in (1, 2)]
    return [*found, *((point, 1) for point in (*REFUSED, *EMPTY, *CUT, "K11"))]


def draw(scene: Scene) -> Blow:
    """One blow. Kills of Java cost seconds each, so they are few."""
    chance = scene.chance
    kinds: list[tuple[float, Callable[[Scene], Blow]]] = [
        (50, at_point),
        (12, at_moment),
        (3, with_java),
        (1, java_alone),
        (9, power_cut),
        (5, disk_full),
        (4, while_draining),
        (3, torn_ledger),
        (2, changed_input),
    ]
    if scene.python:
        kinds += [(6, in_user_code), (1, lost_executor)]
    if "postgres" in scene.kinds:
        kinds.append((8, database))
    if "kafka" in scene.kinds:
        kinds.append((6, broker))
    [made] = chance.choices([make for _, make in kinds], [weight for weight, _ in kinds])
    blow = made(scene)
    if chance.random() < 0.1 and "inside_given" not in blow.options:
        blow.options |= inside(scene, clock=chance.choice([1.0, 3600.0, 86400.0 * 400]))
        blow.clock = True
    return blow


def inside(scene: Scene, **given: Any) -> dict[str, Any]:
    return {"inside_given": {"seed": scene.chance.randrange(1 << 30), **given}}


def named(point: str, nth: int, chance: random.Random) -> Blow:
    """At a point, once a batch was taken; or in four of ten also in what is done for an earlier one."""
    later = point not in (*CUT, *EMPTY, "K11") and chance.random() < 0.6
    options: dict[str, Any] = {"kill_at": point, "kill_nth": nth, "kill_after": "K2" if later else None}
    return Blow(point, needed(point), options)


def needed(point: str) -> Callable[[Scene], None]:
    """The records that lead there."""

    def prepare(scene: Scene) -> None:
        if point in CUT:
            scene.issue(1)
            scene.write([], cut=True)
        elif point in EMPTY:
            scene.write(["drop"] * 3)
            scene.write(["drop"] * 2)
        elif point in REFUSED:
            scene.write(["go", "bad", "go", "drop"])
        elif point == "K11" and not _prepared(scene):
            scene.issue(2)
            scene.run(kill_at="K7")
        if point not in EMPTY:
            plenty(scene)

    return prepare


def _prepared(scene: Scene) -> bool:
    path = scene.state / "ledger.db"
    return path.exists() and bool(scene.rows("SELECT 1 FROM snapshot WHERE state = 'prepared'"))


def at_point(scene: Scene) -> Blow:
    point, nth = scene.chance.choice(points(scene))
    return named(point, nth, scene.chance)


def at_moment(scene: Scene) -> Blow:
    delay = scene.chance.random() * 0.6

    def strike(_: Scene, running: Running) -> Ended:
        if running.await_point("K2"):
            _wait(running, delay)
        return running.kill(group=False)

    return Blow("any moment", plenty, {}, strike)


def with_java(scene: Scene) -> Blow:
    """The process group, on another number of cores each time (K25)."""
    chance = scene.chance
    options: dict[str, Any] = {"cores": chance.choice([1, 2, 3, 4])}
    if chance.random() < 0.5:
        point, nth = chance.choice(points(scene))
        blow = named(point, nth, chance)
        return Blow(
            "with Java, K25 other cores",
            blow.prepare,
            {**blow.options, **options, "kill_group": True},
            alone=True,
        )
    delay = chance.random()

    def strike(_: Scene, running: Running) -> Ended:
        if running.await_point("K2"):
            _wait(running, delay)
        return running.kill(group=True)

    return Blow("with Java, K25 other cores", plenty, options, strike, alone=True)


def java_alone(scene: Scene) -> Blow:
    """Spark is gone, and the engine is there to say so."""
    delay = scene.chance.random() * 0.5

    def strike(_: Scene, running: Running) -> Ended:
        if running.await_point("K2"):
            _wait(running, delay)
            for pid in _children(running.process.pid, "java"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        return running.wait()

    return Blow("Java alone", plenty, {}, strike, alone=True, kills=False)


def power_cut(scene: Scene) -> Blow:
    """What was not fsynced is gone, or half of it is; most times after some batches, whose work has to stay."""
    chance = scene.chance
    if chance.random() < 0.3:
        point, nth = chance.choice(points(scene))
        blow = named(point, nth, chance)
    else:
        options = {"kill_at": chance.choice(["K1", "K2", "K6", "K7", "K8", "ack"]), "kill_nth": chance.choice([2, 3])}
        blow = Blow("", lambda scene: scene.issue(chance.randrange(6, 9)), options)
    folders = [str(scene.state), *(str(sink.place) for sink in scene.sinks if sink.kind in ("files", "queue"))]
    if scene.chained:
        folders.append(str(scene.queue))
    blow.options |= inside(scene, power=folders)
    blow.what = "power cut"
    return blow


def disk_full(scene: Scene) -> Blow:
    """Some write of the engine is refused. It ends, or tries again: nobody kills it."""
    return Blow("K21 disk full", plenty, inside(scene, full=scene.chance.randrange(1, 40)), kills=False, may_fail=True)


def while_draining(scene: Scene) -> Blow:
    """It was asked to stop, and is killed before it has."""
    delay = scene.chance.random() * 0.3

    def strike(_: Scene, running: Running) -> Ended:
        if running.await_point("K2"):
            running.signal(signal.SIGTERM)
            _wait(running, delay)
        return running.kill(group=False)

    return Blow("K19 while draining", plenty, {"arguments": ()}, strike)


def torn_ledger(scene: Scene) -> Blow:
    """Behind what SQLite has committed stands the beginning of what it was about to."""
    point, nth = scene.chance.choice(
        [(p, n) for p in ("ledger:prepare", "ledger:done", "ledger:snapshot") for n in (1, 2)]
    )
    rubbish, size = scene.chance.randbytes(4096), scene.chance.randrange(1, 4096)

    def strike(scene: Scene, running: Running) -> Ended:
        ended = running.wait()
        wal = scene.state / "ledger.db-wal"
        if ended.killed and wal.exists():
            content = wal.read_bytes()
            frame = content[-4120:] if len(content) > 4120 and size % 2 else rubbish  # the last one once more, cut off
            with wal.open("ab") as f:
                f.write(frame[:size])
        return ended

    options = {"kill_at": point, "kill_nth": nth}
    return Blow("K16 ledger write torn", plenty, options, strike)


def changed_input(scene: Scene) -> Blow:
    """A file is another one when it is read than it was when it was taken. The engine says so, and the file comes back."""
    way = scene.chance.choice(["grown", "cut", "gone", "another"])

    def strike(scene: Scene, running: Running) -> Ended:
        ended = running.wait()
        path = sorted(scene.inp.glob("*.txt"))[-1]
        stat, content = path.stat(), path.read_bytes()
        if way == "gone":
            path.unlink()
        else:
            ways = {"grown": content + b"more\n", "cut": content[:-5], "another": content.replace(b"x", b"y")}
            path.write_bytes(ways[way])
        second = scene.run()
        assert second.returncode != 0 or not ended.killed, f"a file that was {way} was read"
        aside = scene.root / "aside"
        aside.write_bytes(content)
        os.utime(aside, ns=(stat.st_mtime_ns,) * 2)
        aside.rename(path)
        return ended

    def one(scene: Scene) -> None:
        scene.finish()  # so that the file is in the batch that is taken
        scene.write(["go"] * 9)

    return Blow("K23 input changed", one, {"kill_at": "K2"}, strike)


def in_user_code(scene: Scene) -> Blow:
    """A function of the user's ends the engine, or the worker that it runs in."""
    whom = scene.chance.choice(["engine", "worker"])
    order = scene.root / "kill"

    def strike(_: Scene, running: Running) -> Ended:
        aside = order.with_name("order")
        aside.write_text(str(running.process.pid) if whom == "engine" else "")
        aside.rename(order)
        ended = running.wait()
        order.unlink(missing_ok=True)
        return ended

    return Blow(f"K5 user code kills the {whom}", plenty, {}, strike, kills=whom == "engine")


def lost_executor(scene: Scene) -> Blow:
    """Spark is a cluster of two, and one of them is gone. What its tasks refused by chance they may refuse otherwise the second time."""
    delay = scene.chance.random() * 3

    def strike(_: Scene, running: Running) -> Ended:
        if running.await_point(scene.chance.choice(["materialise", "stage"])):
            _wait(running, delay)
            executors = _children(running.process.pid, "java", "CoarseGrainedExecutorBackend")
            if not executors:
                return running.kill(group=True)  # that does not count
            os.kill(scene.chance.choice(sorted(executors)), signal.SIGKILL)
        return running.wait()

    options = {"master": "local-cluster[2,1,1024]"}
    return Blow("K24 executor lost", lambda scene: scene.issue(8, 200), options, strike, alone=True, kills=False)


def database(scene: Scene) -> Blow:
    server = scene.servers.database
    return _server(scene, "database", lambda: server.kill(), lambda: server.start())


def broker(scene: Scene) -> Blow:
    server = scene.servers.broker
    return _server(scene, "broker", lambda: server.kill(), lambda: server.start())


def _server(scene: Scene, what: str, kill: Callable[[], None], start: Callable[[], None]) -> Blow:
    """It is gone for a moment; half of the time the engine with it."""
    chance = scene.chance
    both, delay, down = chance.random() < 0.5, chance.random() * 0.5, chance.random()

    def strike(_: Scene, running: Running) -> Ended:
        if running.await_point("K2"):
            _wait(running, delay)
        kill()
        try:
            if both:
                running.kill(group=False)
            time.sleep(down)
        finally:
            start()
        return running.wait()

    return Blow(f"{what}{' and engine' if both else ''}", plenty, {}, strike, kills=both)


def _wait(running: Running, seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        running.process.wait(seconds)


def _children(pid: int, name: str, command: str = "") -> list[int]:
    """All processes below one, by their name and what is in their command line."""
    found: list[int] = []
    waiting: Sequence[int] = [pid]
    while waiting:
        parent, *waiting = waiting
        with suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                waiting = [*waiting, *map(int, (task / "children").read_text().split())]
            process = Path(f"/proc/{parent}")
            if (process / "comm").read_text().strip() == name and command in (process / "cmdline").read_text():
                found.append(parent)
    return found
