"""How rows go to a hosted destination: batches, tails that are sent again, marks; without Spark and without a connector."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from penstock.errors import Stop
from penstock.host import marks as marks_module
from penstock.host.marks import BEGINNING, Marks, path_of, reached
from penstock.host.outgoing import Outgoing, Unfit
from penstock.host.sending import Pace, Send, Stopped, Superseded, Turn
from penstock.native import Refusal
from penstock.testing import faults

Refuses = Callable[[int], str]


def outgoing(*numbers: int, unfit: Sequence[int] = ()) -> Outgoing:
    items = [Unfit("too large") if n in unfit else b"%d" % n for n in numbers]
    return Outgoing([(n, 0) for n in numbers], [b"%d" % n for n in numbers], items)


class Plugin:
    """Writes what it is sent. `tail`: as Conduit's SDK does, one that is bad takes the rest of its batch with it."""

    def __init__(self, bad: Sequence[int] = (), *, tail: bool = True, dies_after: int = 0) -> None:
        self.bad, self.tail, self.dies_after = set(bad), tail, dies_after
        self.written: list[int] = []
        self.batches: list[int] = []

    def __call__(self, found: Outgoing) -> list[str]:
        self.batches.append(len(found))
        answers: list[str] = []
        for seq, _ in found.places:
            if seq in self.bad or (self.tail and any(answers)):
                answers.append("no")
                continue
            self.written.append(seq)
            answers.append("")
        return answers


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Send]:
    def make(ask: Callable[[Refusal], bool] = lambda _: True, most: int = 1000, delivery: str = "d") -> Send:
        return Send(Marks(tmp_path, "lane/out", delivery), 0, Pace(most), ask)

    return make


def noting(asked: list[Refusal]) -> Callable[[Refusal], bool]:
    """Goes on behind whatever is refused."""

    def ask(refusal: Refusal) -> bool:
        asked.append(refusal)
        return True

    return ask


def nothing() -> None:
    pass


def test_one_bad_record_costs_one_nack_though_the_plugin_refuses_the_rest_of_its_batch(
    made: Callable[..., Send],
) -> None:
    asked: list[Refusal] = []
    send = made(noting(asked))
    plugin = Plugin([500])
    send(outgoing(*range(1000)), plugin, exact=False, check=nothing)
    assert [r.seq for r in asked] == [500]
    assert plugin.written == [n for n in range(1000) if n != 500]
    assert send._mark.written == 999
    assert [r.seq for r in send._mark.refused] == [500]


@pytest.mark.parametrize("bad", [[0], [999], [0, 1, 2], [5, 500, 501, 998], list(range(1000))])
def test_each_bad_record_is_found_and_no_other(made: Callable[..., Send], bad: list[int]) -> None:
    asked: list[Refusal] = []
    plugin = Plugin(bad)
    send = made(noting(asked))
    send(outgoing(*range(1000)), plugin, exact=False, check=nothing)
    assert [r.seq for r in asked] == bad
    assert plugin.written == [n for n in range(1000) if n not in bad]


def test_a_plugin_that_refuses_everything_is_not_sent_everything_again_and_again(made: Callable[..., Send]) -> None:
    plugin = Plugin(range(1000))
    made()(outgoing(*range(1000)), plugin, exact=False, check=nothing)
    assert sum(plugin.batches) < 1200


def test_a_record_that_is_refused_while_those_behind_it_were_written_is_bad(made: Callable[..., Send]) -> None:
    """Sending it again would put it behind them."""
    asked: list[Refusal] = []
    plugin = Plugin([3, 7], tail=False)
    made(noting(asked))(outgoing(*range(10)), plugin, exact=False, check=nothing)
    assert [r.seq for r in asked] == [3, 7]
    assert plugin.written == [0, 1, 2, 4, 5, 6, 8, 9]


def test_where_the_gate_closes_nothing_behind_is_sent_and_it_goes_on_there_later(
    tmp_path: Path, made: Callable[..., Send]
) -> None:
    plugin = Plugin([42])
    with pytest.raises(Stopped):
        made(lambda _: False)(outgoing(*range(100)), plugin, exact=False, check=nothing)
    assert plugin.written == list(range(42))
    plugin.bad = set()
    send = made()
    assert send._mark.at == (41, 0)
    send(outgoing(*range(100)), plugin, exact=False, check=nothing)
    assert plugin.written == list(range(100))
    assert send._mark.written == 100


def test_what_was_written_behind_a_record_that_closed_the_gate_is_not_sent_again(made: Callable[..., Send]) -> None:
    """A connector that refuses single records has written the others of the batch."""
    plugin = Plugin([5], tail=False)
    with pytest.raises(Stopped):
        made(lambda _: False)(outgoing(*range(20)), plugin, exact=True, check=nothing)
    assert plugin.written == [0, 1, 2, 3, 4, 6]  # 3 to 6 are the third batch
    plugin.bad = set()
    send = made()
    send(outgoing(*range(20)), plugin, exact=True, check=nothing)
    assert sorted(plugin.written) == list(range(20))
    assert send._mark.written == 20


def test_what_can_not_be_sent_is_a_nack_of_its_own(made: Callable[..., Send]) -> None:
    asked: list[Refusal] = []
    plugin = Plugin()
    send = made(noting(asked))
    send(outgoing(*range(10), unfit=[0, 4, 9]), plugin, exact=False, check=nothing)
    assert [(r.seq, r.reason, r.code) for r in asked] == [(n, "too large", "destination.unfit") for n in (0, 4, 9)]
    assert plugin.written == [1, 2, 3, 5, 6, 7, 8]
    assert send._mark.written == 7


def test_a_batch_that_was_not_answered_is_sent_again_and_nothing_before_it(made: Callable[..., Send]) -> None:
    plugin = Plugin()
    calls = [0]

    def dies(found: Outgoing) -> list[str]:
        calls[0] += 1
        if calls[0] == 8:
            raise RuntimeError("gone")
        return plugin(found)

    send = made()
    with pytest.raises(RuntimeError):
        send(outgoing(*range(1000)), dies, exact=False, check=nothing)
    assert send.unanswered == 128
    before = list(plugin.written)
    send(outgoing(*range(1000)), dies, exact=False, check=nothing)
    assert plugin.written == list(range(1000))
    assert len(before) == 127


def test_batches_grow_while_they_are_quick_and_shrink_when_they_are_slow() -> None:
    pace = Pace(1000)
    sizes = []
    for _ in range(12):
        sizes.append(pace.records)
        pace.took(pace.records, 0.01)
    assert sizes == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1000]
    pace.took(1000, 5.0)
    assert pace.records == 500
    pace.lost()
    assert pace.records == 250
    pace.took(10, 0.01)  # not a full one: it says nothing about full ones
    assert pace.records == 250
    pace.took(250, 0.01)  # it went away with 500: it is led there with care
    assert pace.records == 262
    assert Pace(1).records == 1


def test_an_older_attempt_is_turned_away_when_a_newer_one_has_come() -> None:
    turn = Turn()
    entered, left, order = threading.Event(), threading.Event(), []

    def old() -> None:
        with pytest.raises(Superseded), turn.taken((0, 1)):
            entered.set()
            left.wait(10)
            order.append("old")
            turn.check((0, 1))

    thread = threading.Thread(target=old)
    thread.start()
    entered.wait(10)
    newer = threading.Thread(target=lambda: _take(turn, order))
    newer.start()
    left.set()
    thread.join(10)
    newer.join(10)
    assert order == ["old", "new"]  # what the older one had under way is answered first
    with pytest.raises(Superseded), turn.taken((0, 1)):
        pass


def _take(turn: Turn, order: list[str]) -> None:
    with turn.taken((0, 2)):
        order.append("new")


# -- marks -------------------------------------------------------------------------------------------------------------------


def test_marks_are_there_after_a_kill_without_any_close(tmp_path: Path) -> None:
    marks = Marks(tmp_path, "l/out", "d")
    marks.partition(0).at, marks.partition(0).written = (7, 1), 8
    marks.save(0, [Refusal(3, 0, "bad")])
    again = Marks(tmp_path, "l/out", "d")
    assert again.partition(0).at == (7, 1)
    assert again.partition(0).written == 8
    assert again.partition(0).refused == [Refusal(3, 0, "bad")]
    assert not again.done
    again.finish()
    assert Marks(tmp_path, "l/out", "d").done


def test_marks_of_another_delivery_are_forgotten_and_those_of_other_lanes_are_not(tmp_path: Path) -> None:
    for name in ("a/out", "b/out"):
        marks = Marks(tmp_path, name, "d1")
        marks.partition(0).at = (5, 0)
        marks.save(0)
    assert Marks(tmp_path, "a/out", "d2").partition(0).at == BEGINNING
    assert Marks(tmp_path, "b/out", "d1").partition(0).at == (5, 0)


@pytest.mark.parametrize("keep", range(1, 45))
def test_a_torn_line_is_cut_off(tmp_path: Path, keep: int) -> None:
    marks = Marks(tmp_path, "l/out", "d")
    marks.partition(0).at, marks.partition(0).written = (1, 0), 2
    marks.save(0)
    path = path_of(tmp_path, "l/out")
    whole = path.read_bytes()
    marks.partition(0).at, marks.partition(0).written = (9, 0), 10
    marks.save(0)
    last = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + last[: min(keep, len(last) - 1)])
    again = Marks(tmp_path, "l/out", "d")
    assert again.partition(0).at == (1, 0)
    again.partition(0).at = (4, 0)
    again.save(0)
    assert Marks(tmp_path, "l/out", "d").partition(0).at == (4, 0)


@pytest.mark.parametrize("text", [b"", b"\0" * 40, b"{}\n", b'{"format": "other"}\n'])
def test_a_file_of_nobody_is_none(tmp_path: Path, text: bytes) -> None:
    path = path_of(tmp_path, "l/out")
    path.parent.mkdir()
    path.write_bytes(text)
    assert Marks(tmp_path, "l/out", "d").partition(0).at == BEGINNING


def test_marks_of_a_newer_version_are_refused_untouched(tmp_path: Path) -> None:
    Marks(tmp_path, "l/out", "d")
    path = path_of(tmp_path, "l/out")
    newer = {**json.loads(path.read_bytes()), "version": marks_module.VERSION + 1}
    path.write_text(json.dumps(newer) + "\n")
    before = path.read_bytes()
    with pytest.raises(Stop, match="newer Penstock"):
        Marks(tmp_path, "l/out", "d")
    assert path.read_bytes() == before


def test_how_far_a_delivery_has_come_is_seen_from_outside(tmp_path: Path) -> None:
    assert reached(tmp_path, "l/out", "d") is None
    marks = Marks(tmp_path, "l/out", "d")
    assert reached(tmp_path, "l/out", "d") is None
    marks.partition(0).at, marks.partition(0).written = (1, 0), 2
    marks.save(0)
    first = reached(tmp_path, "l/out", "d")
    marks.partition(0).at = (2, 0)
    marks.save(0)
    assert first is not None
    assert reached(tmp_path, "l/out", "d") != first


def test_without_marks_everything_is_sent_again(tmp_path: Path) -> None:
    """The control of `high-water`."""
    try:
        faults.install(off=["high-water"])
        marks = Marks(tmp_path, "l/out", "d")
        marks.partition(0).at = (5, 0)
        marks.save(0)
    finally:
        faults.install()
    assert Marks(tmp_path, "l/out", "d").partition(0).at == BEGINNING
