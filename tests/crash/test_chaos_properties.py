"""The chaos properties that Conduit's own suite names, as far as they do not need change capture; and which tests show each.

A source goes on after the last record in its log, and what is acked is in there: that is the position that others persist after the ack.
Each source has a program of its own here; what several lanes share is the program of a destination, and its stream of answers.

1.  A kill after the source was told, with an upstream that deletes what is acked:
    `test_an_upstream_that_forgets_what_is_acked_is_never_asked_for_it_again`; with a power cut:
    `test_what_an_upstream_has_forgotten_survives_a_power_cut`.
2.  The same with an upstream that retains: `test_what_an_upstream_retains_arrives_once`; over many kills:
    `test_hosted_crash.py::test_no_position_is_acked_twice_and_acks_come_in_order` and `::test_what_a_source_sends_again_arrives_once`.
3.  A kill in the middle of writing a position: `test_a_kill_in_the_middle_of_writing_a_position_costs_nothing`; the ledger torn at any
    frame: `unit/test_ledger_torn.py`; the log's tail: `test_hosted_crash.py::test_a_host_that_dies_while_it_logs_costs_nothing`.
4.  Acks by key in the order of the calls: `test_acks_by_key_stay_in_order_over_flushes_and_a_kill_in_one`; with destinations that end in
    another order: `contract/test_hosted_sources.py::test_acks_come_in_the_order_of_the_records_whatever_the_destinations_do`.
5.  A poison record, and a queue that takes it: `test_a_poison_record_is_one_dead_letter_whatever_is_killed`; refused by a destination:
    `contract/test_hosted_destinations.py::test_with_room_refused_records_are_dead_letters_of_that_destination_alone`.
6.  A queue that refuses: `test_a_refused_dead_letter_freezes_the_position_before_it_and_a_restart_goes_on_there`; no room for it:
    `contract/test_hosted_sources.py::test_nothing_from_an_unhandled_nack_on_is_acked_in_this_run_or_the_next`.
7.  SIGTERM sends the ack that was put off: `test_a_sigterm_sends_the_ack_that_was_put_off`; under load:
    `contract/test_hosted_sources.py::test_a_stop_under_load_leaves_nothing_in_the_log_and_a_restart_redelivers_nothing`.
8.  A kill while a failed source waits to be tried again: `test_a_kill_while_a_source_waits_to_be_tried_again_costs_nothing`.
9.  A kill in the middle of a fan-out: `test_a_kill_while_one_of_two_destinations_is_slow_costs_nothing`.
10. Two sources with the same positions: `test_two_sources_with_the_same_positions_hear_of_their_own`; without kills:
    `contract/test_bad_destinations.py::test_three_sources_with_the_same_positions_share_a_program_and_each_hears_of_its_own`.
11. A fault on what lanes share: `test_a_fault_on_the_stream_that_two_sources_share_crosses_no_acks`; one of two sources dies:
    `contract/test_hosted_sources.py::test_a_source_that_dies_again_and_again_is_restarted_alone`.
12. A stop under load with a destination that is stuck: `test_a_stop_with_a_stuck_destination_ends_at_its_deadline_and_says_what_is_left`;
    with one that is slow: `contract/test_hosted_sources.py::test_what_a_deadline_has_left_in_the_log_is_the_number_delivered_later`.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support import oracle
from tests.support.harness import Ended, Gateway, Running
from tests.support.hosted import Armed, Hosted, until
from tests.support.hosted_oracle import Heard
from tests.support.hosted_pipelines import installed

pytestmark = [pytest.mark.spark, pytest.mark.crash]

CHAOS = "penstock.connectors.chaos.connector:connector"
PRUNING = "standalone:pruning"


ENDLESS = 1_000_000  # records; more than any of these cases comes to before it is killed


def upto(n: int) -> list[int]:
    return list(range(1, n + 1))


@dataclass
class Chaotic(Hosted):
    """From `sources` of numbers to folders of text, and to a `chaos` for each of `hosted`, which gets a line for each record."""

    records: int = ENDLESS
    rate: int = 200
    most: int = 100
    sources: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: {"in": {}})  # what each is told besides
    plugin: str = "builtin:chaos"  # of the sources
    hosted: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # what each is told besides
    hosted_plugin: str = "builtin:chaos"
    more: Mapping[str, Any] = field(default_factory=dict)  # what the pipeline has besides

    def configure(self) -> None:
        connectors = [self._source(name, given) for name, given in self.sources.items()]
        for name in self.destinations:
            settings = {"path": str(self.root / name), "format": "text"}
            connectors.append({"id": name, "type": "destination", "plugin": "files", "settings": settings})
        for name, given in self.hosted.items():
            settings = {"path": str(self.root / f"{name}.jsonl"), "calls": str(self.told(name)), **given}
            made = {"id": name, "type": "destination", "plugin": self.hosted_plugin, "settings": settings}
            connectors.append({**made, "batch": {"max-records": 100}})
        pipeline = {"id": "p", "connectors": connectors, **self.more}
        (self.root / "p.yaml").write_text(json.dumps({"version": "2.2", "pipelines": [pipeline]}))

    def _source(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        settings = {"records": self.records, "rate": self.rate, "batch": 50, "calls": self.told(name), **given}
        if self.plugin != PRUNING:
            settings = {"size": 12, "resend": self.resend, **settings}
        texts = {key: str(value) for key, value in settings.items()}
        made = {"id": name, "type": "source", "plugin": self.plugin, "settings": texts}
        return {**made, "batch": {"max-records": self.most}}

    def told(self, name: str) -> Path:
        """What a connector was told."""
        return self.root / ("calls" if name == "in" else f"{name}.calls")

    def calls_of(self, name: str, method: str) -> list[dict[str, Any]]:
        path = self.told(name)
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [call for line in lines if line.endswith("\n") and (call := json.loads(line))["method"] == method]

    def hears(self, name: str) -> Heard:
        return Heard.of(self.told(name))

    def lines(self, name: str) -> list[str]:
        """At a hosted destination."""
        path = self.root / f"{name}.jsonl"
        found = path.read_text().splitlines(keepends=True) if path.exists() else []
        return [json.loads(line)["after"] for line in found if line.endswith("\n")]

    def ends(self, **options: Any) -> Ended:
        """Runs until every source was told of everything, and is stopped then; it must end well, with all that it has started. Of sources
        without an end 200 records more than have come."""
        if self.records == ENDLESS:
            self.records = 200 + max(
                n for name in self.sources for n in [*self.logged_of(name), *self.hears(name).settled]
            )
        self.rate, self.most = 0, 100_000
        self.configure()
        every = set(upto(self.records))
        running = self.start(arguments=(), **options)
        until(lambda: over(running) or now_and_then(self._told_of, every), "the last ack")
        running.signal(signal.SIGTERM)
        ended = running.wait()
        assert ended.returncode == 0, f"{ended.out}\n{ended.err[-3000:]}"
        self.nothing_runs()
        for name in self.sources:  # a host that was killed had logged more than it could say was durable
            self.records = max(self.records, *self.logged_of(name))
        return ended

    def _told_of(self, every: set[int]) -> bool:
        return all(self.hears(name).settled >= every for name in self.sources)

    def logged_of(self, name: str) -> list[int]:
        self.log = self.state / "logs" / f"p.{name}"
        return [0, *self.logged()]

    def nothing_runs(self) -> None:
        until(lambda: not self.processes(), "everything to end", lambda: str(self.processes()))


def over(running: Running) -> bool:
    return running.process.poll() is not None


def now_and_then(look: Callable[..., bool], *given: Any) -> bool:
    """For what reads whole files: whoever waits for it should not take the time of those who work."""
    time.sleep(0.1)
    return look(*given)


def kill(*processes: int) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


# -- 1 and 2: it was told, and nobody has remembered that ------------------------------------------------------------------------


def pruning(root: Path, gateway: Gateway, hold: int = 0, **options: Any) -> Chaotic:
    given = {"upstream": str(root / "upstream"), "hold": hold}
    case = Chaotic(root, gateway, plugin=PRUNING, sources={"in": given}, **options)
    with case.environment():
        assert installed(root, "pruning", "tests.support.pruning_source:connector") == PRUNING
    return case


@pytest.mark.contract(
    "S6", "S8", "S9", reason="the upstream has written down who asked for what is gone; the control is a power cut"
)
def test_an_upstream_that_forgets_what_is_acked_is_never_asked_for_it_again(tmp_path: Path, gateway: Gateway) -> None:
    """An ack that does not come back, with what was acked gone already: then the program dies, its host, the engine, and all of them."""
    case = pruning(tmp_path / "case", gateway, hold=4)
    running = case.start(arguments=())
    for n, victim in enumerate(("program", "host", "engine"), 1):
        _kill_in_window(case, running, n, victim)
    assert running.wait().killed
    case.nothing_runs()
    running = case.start(arguments=())
    _kill_in_window(case, running, 4, "all")
    assert running.wait().killed
    case.ends()
    assert case.calls_of("in", "gone") == []
    assert not case.faults(), case.faults()


def _kill_in_window(case: Chaotic, running: Running, n: int, victim: str) -> None:
    held = case.root / "upstream" / "held"
    until(lambda: over(running) or len(lines_of(held)) == n, f"an ack that does not come back, {n}")
    assert not over(running), running.wait()
    assert not case.audit(), case.audit()
    found = case.processes()
    gone = {pid for pid, kind in found.items() if victim in (kind, "all")}
    assert gone, (victim, found)
    kill(*gone)
    until(lambda: not gone & case.processes().keys(), f"{victim} to be gone", lambda: str(case.processes()))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.contract("S6", "T7", "X1", safeguard="ack-after-commit")
@pytest.mark.parametrize("off", [(), ("ack-after-commit",)], ids=["kept", "control"])
def test_what_an_upstream_has_forgotten_survives_a_power_cut(
    tmp_path: Path, gateway: Gateway, off: tuple[str, ...]
) -> None:
    """The log loses what was not fsynced. Without the safeguard the upstream has forgotten that, too, and nobody has it any more."""
    armed = Armed("K13", kill_nth=10, power=True, stall=1.0, off=off)
    case = pruning(tmp_path / "case", gateway, armed=armed)
    running = case.start(arguments=())
    until(lambda: over(running) or case.deaths, "the power cut")
    if off:
        ended = running.wait()
        assert ended.returncode == 1, ended.err
        assert "is gone: it was acked" in ended.summary["error"], ended.summary
        assert case.calls_of("in", "gone")
        assert case.audit()
        return
    assert running.kill(group=False).killed
    case.ends()
    assert case.calls_of("in", "gone") == []
    assert not case.faults(), case.faults()


@pytest.mark.contract("P13", "S6", safeguard="resend")
@pytest.mark.parametrize("off", [(), ("resend",)], ids=["kept", "control"])
def test_what_an_upstream_retains_arrives_once(tmp_path: Path, gateway: Gateway, off: tuple[str, ...]) -> None:
    """It dies in its ack, and its host with it; then the engine does while an ack has not come back. Each time 150 records come again."""
    case = Chaotic(tmp_path / "case", gateway, resend=150, sources={"in": {"ack": "kill at 2"}}, armed=Armed(off=off))
    running = case.start(arguments=())
    until(lambda: over(running) or len(case.heard().lives) > 1, "a second life")
    assert running.kill(group=False).killed
    case.nothing_runs()
    case.sources = {"in": {"ack": "block at 2"}}
    case.configure()
    before = len(case.calls_of("in", "open"))
    running = case.start(arguments=())
    until(lambda: over(running) or stuck(case, before), "an ack that does not come back")
    assert running.kill(group=False).killed
    case.nothing_runs()
    case.sources = {"in": {}}
    case.ends()
    if off:
        assert any("duplicated" in fault for fault in case.faults()), case.faults()
        return
    assert case.resent > 0
    assert not case.faults(), case.faults()


def stuck(case: Chaotic, lives: int) -> bool:
    """The life after so many has its second ack."""
    found = case.hears("in").lives
    return len(found) > lives and sum(call["pid"] == found[-1].pid for call in case.calls_of("in", "ack")) == 2


# -- 3 and 4: positions ----------------------------------------------------------------------------------------------------------

OFFSETS = {"inside": "tests.support.dying:DiesWriting"}


@pytest.mark.contract("S6", "S9", "T11", reason="half of the file is there, or of its last transaction")
@pytest.mark.parametrize("what", ["offsets", "connector.json", "ledger"])
def test_a_kill_in_the_middle_of_writing_a_position_costs_nothing(tmp_path: Path, gateway: Gateway, what: str) -> None:
    case = Chaotic(tmp_path / "case", gateway, resend=20)
    if what == "offsets":  # how far each destination has come: the second flush after it was registered
        given = {"ending": "/.offsets.tmp", "nth": 3}
        assert case.run(arguments=(), inside_given=given, **OFFSETS).killed
    elif what == "connector.json":  # how many records came again, and what the source was opened with
        case.armed = Armed("fsync", kill_detail="/.connector.json.tmp", torn=True)
        running = case.start(arguments=())
        until(lambda: over(running) or case.deaths, "the death of the host")
        until(lambda: over(running) or case.heard().acks, "acks of the next one")
        assert running.kill(group=False).killed
        assert case.deaths == 1
    else:  # up to where everything is settled
        assert case.run(arguments=(), kill_at="done", kill_nth=2).killed
        wal = case.state / "ledger.db-wal"
        os.truncate(wal, wal.stat().st_size - 1000)  # a part of its last page
    assert not case.audit(), case.audit()
    case.nothing_runs()
    case.ends()
    assert not case.faults(), case.faults()


@pytest.mark.contract("S8", "T8", "T11", reason="the source has written its acks down; the flushes are counted")
def test_acks_by_key_stay_in_order_over_flushes_and_a_kill_in_one(tmp_path: Path, gateway: Gateway) -> None:
    case = Chaotic(tmp_path / "case", gateway, destinations=("out", "two"))
    killed = case.run(arguments=(), inside_given={"ending": "/.offsets.tmp", "nth": 5}, **OFFSETS)  # two are registered
    assert killed.killed
    before = case.heard()
    assert before.acks
    case.ends()
    acks = case.heard().acks
    assert acks[: len(before.acks)] == before.acks
    for key in range(7):
        of_key = [n for n in acks if n % 7 == key]
        assert all(a < b for a, b in pairwise(of_key)), key
    assert not case.faults(), case.faults()


# -- 5 and 6: poison -------------------------------------------------------------------------------------------------------------


def poison(number: int, queue: Mapping[str, Any]) -> dict[str, Any]:
    refuses = {
        "id": "bad",
        "plugin": "error",
        "condition": f"after = '{number:012}'",
        "settings": {"message": "poison"},
    }
    return {"processors": [refuses], "dead-letter-queue": {"window-size": 0, **queue}}


@pytest.mark.contract("S2", "S3", "S6", reason="what arrived and what the queue has are counted after two kills")
def test_a_poison_record_is_one_dead_letter_whatever_is_killed(tmp_path: Path, gateway: Gateway) -> None:
    root = tmp_path / "case"
    more = poison(147, {"plugin": "files", "settings": {"path": str(root / "queue")}})
    case = Chaotic(root, gateway, more=more)
    for point in ("K9", "K8"):
        assert case.run(arguments=(), kill_at=point, kill_nth=2 if point == "K9" else 1).killed
        assert not early(case, 147)
    case.ends()
    assert delivered(case) == [n for n in upto(case.records) if n != 147]
    [letter] = oracle.delivered(root / "queue")
    assert json.loads(letter)["error"] == "poison"
    assert case.rows("SELECT state, count(*) FROM nack") == [("open", 1)]
    assert not list(case.heard().faults())


def delivered(case: Chaotic) -> list[int]:
    return [int(line) for line in oracle.delivered(case.root / "out")]


def early(case: Chaotic, poison: int) -> set[int]:
    """What the source was told of, and is not there."""
    return case.heard().settled - set(delivered(case)) - {poison}


@pytest.mark.contract("S3", "S9", safeguard="dlq-decides")
def test_a_refused_dead_letter_freezes_the_position_before_it_and_a_restart_goes_on_there(
    tmp_path: Path, gateway: Gateway
) -> None:
    """Batches of one record: the position is frozen right before it, in any run, also in one that is killed while the queue refuses."""
    root = tmp_path / "case"
    refuse = root / "refuse"
    settings = {"path": str(root / "queue.jsonl"), "refuse": str(refuse), "all": "true"}
    more = poison(3, {"plugin": "standalone:picky", "settings": settings}) | {"guarantee": "at-least-once"}
    case = Chaotic(root, gateway, records=5, rate=0, most=1, more=more)
    with case.environment():
        installed(root, "picky", "tests.support.picky_destination:connector")
    refuse.write_text("everything\n")
    ended = case.run(arguments=())
    assert ended.returncode == 1, ended.out
    assert "dlq.refused" in ended.summary["error"]
    assert case.run(arguments=(), kill_at="sent").killed
    assert case.heard().acks == upto(2)
    assert [life.position for life in case.heard().lives] == [0]
    assert delivered(case) == upto(2)
    assert lines_of(root / "queue.jsonl") == []
    refuse.unlink()
    case.ends()
    assert delivered(case) == [1, 2, 4, 5]
    assert len(lines_of(root / "queue.jsonl")) == 1
    assert [life.position for life in case.heard().lives] == [0, 5]
    assert case.heard().acks == upto(2)


def test_without_its_word_a_queue_that_refuses_freezes_nothing(tmp_path: Path, gateway: Gateway) -> None:
    """The control of `dlq-decides`."""
    more = poison(3, {"plugin": "chaos", "settings": {"reject": "1"}}) | {"guarantee": "at-least-once"}
    case = Chaotic(tmp_path / "case", gateway, records=5, rate=0, most=1, more=more)
    case.ends(off=("dlq-decides",))
    assert case.heard().acks == upto(5)


# -- 7: a stop -------------------------------------------------------------------------------------------------------------------


@pytest.mark.contract(
    "S8", "S12", reason="the engine is held right before the ack; the source has written down what it was told"
)
def test_a_sigterm_sends_the_ack_that_was_put_off(tmp_path: Path, gateway: Gateway) -> None:
    case = Chaotic(tmp_path / "case", gateway, records=60, rate=0)
    running = case.start(arguments=(), stop_at="done")
    until(lambda: over(running) or stopped(running), "the first ack to be due")
    assert len(delivered(case)) > 0
    assert case.heard().acks == []
    running.signal(signal.SIGTERM)
    until(lambda: over(running) or go_on(running), "the end")  # it stops itself before each ack
    ended = running.wait()
    assert ended.returncode == 0, ended.err
    given = case.hears("in").lives[0].given
    assert delivered(case) == case.heard().acks == upto(given)
    assert [call["method"] for call in map(json.loads, lines_of(case.calls))][-1] == "close"
    assert "remaining" not in ended.summary["sources"]["in"]


def stopped(running: Running) -> bool:
    return Path(f"/proc/{running.process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def go_on(running: Running) -> bool:
    with suppress(FileNotFoundError):
        if stopped(running):
            running.signal(signal.SIGCONT)
    return False


# -- 8: between two tries --------------------------------------------------------------------------------------------------------


@pytest.mark.contract(
    "S6", "S13", "C16", reason="the engine is killed in the pause itself; what arrived and the acks are counted"
)
def test_a_kill_while_a_source_waits_to_be_tried_again_costs_nothing(tmp_path: Path, gateway: Gateway) -> None:
    case = Chaotic(tmp_path / "case", gateway, rate=200)
    case.sources = {"in": {"read": "kill after 60 records", "resend": "10"}}
    case.configure()
    for nth in (1, 2):  # the second time it was opened again in between
        ended = case.run(arguments=(), inside="tests.support.dying:DiesWaiting", inside_given={"nth": nth})
        assert ended.killed
        case.nothing_runs()
        assert not case.audit(), case.audit()
    assert len(case.heard().lives) == 3
    case.sources, case.resend = {"in": {"resend": "10"}}, 10
    case.ends()
    assert not case.faults(), case.faults()


# -- 9: several destinations -----------------------------------------------------------------------------------------------------


@pytest.mark.contract("S6", "C5", "V3", safeguard="receipt")
@pytest.mark.parametrize("off", [(), ("one-snapshot", "receipt")], ids=["kept", "control"])
def test_a_kill_while_one_of_two_destinations_is_slow_costs_nothing(
    tmp_path: Path, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, off: tuple[str, ...]
) -> None:
    """One has all of a batch, the other has written it and not answered. The source has heard of nothing of it."""
    more = {"guarantee": "at-least-once"}
    case = Chaotic(tmp_path / "case", gateway, more=more, hosted={"slow": {"answer": "${SLOW}"}})
    monkeypatch.setenv(
        "SLOW", "block at 3"
    )  # work that is prepared is delivered with its own settings, but for what they refer to
    running = case.start(arguments=())
    until(lambda: over(running) or len(case.calls_of("slow", "write")) == 3, "a write that is not answered")
    until(lambda: over(running) or set(delivered(case)) - case.heard().settled, "the other one")
    assert running.kill(group=False).killed
    case.nothing_runs()
    written, told = [int(n) for n in case.lines("slow")], case.heard().settled
    unanswered = written[sum(call["count"] for call in case.calls_of("slow", "write")[:2]) :]
    assert unanswered
    assert told <= set(written) - set(unanswered)
    assert told < set(delivered(case))
    monkeypatch.setenv("SLOW", "succeed")
    if off:
        running = case.start(arguments=(), off=off)
        until(lambda: over(running) or len(set(delivered(case))) < len(delivered(case)), "what comes twice")
        assert running.kill(group=False).killed
        return
    case.ends()
    assert not case.faults(), case.faults()
    assert Counter(int(n) for n in case.lines("slow")) == Counter(upto(case.records)) + Counter(unanswered)


# -- 10 and 11: several sources --------------------------------------------------------------------------------------------------


def of(case: Chaotic, source: str) -> list[int]:
    """What came from it to the folder `out`, in order."""
    files = [path for path in oracle.outputs(case.root / "out") if path.name.startswith(f"p.{source}-")]
    return [int(line) for path in files for line in path.read_text().splitlines()]


@pytest.mark.contract(
    "S6", "S9", "V2", reason="what arrived of each source, and what each was told, are compared after each kill"
)
def test_two_sources_with_the_same_positions_hear_of_their_own(tmp_path: Path, gateway: Gateway) -> None:
    case = Chaotic(tmp_path / "case", gateway, sources={"a": {}, "b": {"rate": "150"}})

    def audit() -> None:
        told = {name: case.hears(name).settled for name in case.sources}
        for name, settled in told.items():
            assert settled <= set(of(case, name)), name

    for point in ("K8", "done"):
        assert case.run(arguments=(), kill_at=point, kill_nth=3).killed
        audit()
    running = case.start(arguments=())
    until(lambda: over(running) or case.hears("a").lives[-1].acks, "an ack")
    kill(case.hears("a").lives[-1].pid)
    lives = len(case.hears("a").lives)
    until(lambda: over(running) or len(case.hears("a").lives) > lives, "another life of it")
    audit()
    assert running.kill(group=False).killed
    case.sources = {"a": {}, "b": {}}
    case.ends()
    for name in case.sources:
        assert of(case, name) == upto(case.records), name
        assert not list(case.hears(name).faults()), name


@pytest.mark.contract(
    "S6", "P12", "V2", reason="what arrived of each source, and what each was told, are compared all the time"
)
def test_a_fault_on_the_stream_that_two_sources_share_crosses_no_acks(
    tmp_path: Path, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One program writes for both lanes. It dies with what it has written and not answered; the host of a source dies, and all at once."""
    sizes = {"a": {"size": "12"}, "b": {"size": "10"}}
    case = Chaotic(tmp_path / "case", gateway, rate=100, sources=sizes, destinations=())
    with case.environment():
        case.hosted_plugin = installed(case.root, "chaotic", CHAOS)
    case.more, case.hosted = {"guarantee": "at-least-once"}, {"out": {"answer": "${DIES}"}}
    case.configure()

    monkeypatch.setenv("DIES", "kill every 150 records")

    def arrived(name: str) -> list[int]:
        return [int(line) for line in case.lines("out") if len(line) == int(sizes[name]["size"])]

    def audit() -> bool:
        told = {name: case.hears(name).settled for name in sizes}
        for name, settled in told.items():
            assert settled <= set(arrived(name)), name
        return False

    def lives() -> int:
        return len(case.calls_of("out", "open"))

    running = case.start(arguments=())
    until(lambda: over(running) or now_and_then(audit) or lives() > 2, "two deaths of the program")
    kill(case.hears("a").lives[-1].pid)
    until(
        lambda: over(running) or now_and_then(audit) or (lives() > 3 and len(case.hears("a").lives) > 1),
        "one more of each",
    )
    kill(*case.processes())
    assert running.wait().killed
    case.nothing_runs()
    audit()
    monkeypatch.setenv("DIES", "succeed")
    case.ends()
    for name in sizes:
        assert set(arrived(name)) == set(upto(case.records)), name
        first = list(dict.fromkeys(arrived(name)))
        assert first == sorted(first), name
        assert not list(case.hears(name).faults()), name


# -- 12: a stop, and somebody who does not come back -----------------------------------------------------------------------------


@pytest.mark.contract("S12", "T13", reason="the number said is compared with the number delivered later")
def test_a_stop_with_a_stuck_destination_ends_at_its_deadline_and_says_what_is_left(
    tmp_path: Path, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its third write never comes back, and the source goes on giving. Nobody but the deadline would end that."""
    case = Chaotic(tmp_path / "case", gateway, destinations=())
    case.more, case.hosted = {"guarantee": "at-least-once"}, {"out": {"write": "${STUCK}"}}
    monkeypatch.setenv("STUCK", "block at 3")
    case.configure()
    running = case.start(arguments=(), deadline=1.0)
    until(lambda: over(running) or len(case.calls_of("out", "write")) == 3, "the write that is stuck")
    read = len(case.logged())
    until(lambda: over(running) or len(case.logged()) > read, "more of the source")
    running.signal(signal.SIGTERM)
    ended = running.wait()
    assert ended.returncode == 0, ended.err
    case.nothing_runs()
    before = [int(n) for n in case.lines("out")]
    assert len(case.calls_of("out", "open")) == 1  # nothing is begun again
    told = case.heard().settled
    assert told <= set(before)  # a batch may be a few writes
    said = ended.summary["sources"]["in"]["remaining"]["records"]
    case.records = max(case.logged())
    assert said == case.records - len(told) > 0
    known = case.records  # a host that was killed has written more than it could say was durable
    monkeypatch.setenv("STUCK", "succeed")
    later = case.ends()
    assert later.summary["destinations"]["out"]["delivered"] == said + case.records - known
    assert [int(n) for n in case.lines("out")] == upto(case.records)
