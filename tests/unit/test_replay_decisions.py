"""What `penstock dlq replay` writes down, and what it refuses. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.ledger.look import COLUMNS
from tests.support import oracle
from tests.support.states import State, letter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    state = State(tmp_path / ".penstock", "orders", "in")
    state.batch(10, [letter(1, error="bad date"), letter(2, code="orders.customer"), letter(3, "eu")])
    state.close()
    return tmp_path / ".penstock"


def command(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["dlq", *arguments, "--state", str(folder)])


def code(result: Result) -> str:
    return str(getattr(result.exception, "code", ""))


def test_what_is_asked_for_is_written_down_with_who_and_for_every_lane_once(folder: Path) -> None:
    done = command(folder, "replay", "--all")
    assert done.exit_code == 0, done.output
    assert "orders: 3 dead letters to be replayed" in done.output
    assert oracle.rows(folder, "SELECT count(*), state, start FROM replay") == [(1, "asked", "start")]
    assert oracle.rows(folder, "SELECT DISTINCT replay FROM nack") == [(1,)]
    [(what, detail)] = oracle.rows(folder, "SELECT what, detail FROM audit")
    assert what == "replay"
    assert '"dead_letters":3' in str(detail)
    assert "Nothing to replay" in command(folder, "replay", "--all").output


@pytest.mark.parametrize(
    ("where", "seqs"),
    [
        ("error LIKE '%date%'", [1]),
        ("code = 'orders.customer' OR destination = 'eu'", [2, 3]),
        ("seq > 1 AND tries = 0", [2, 3]),
        ("at > '2000-01-01' AND status = 'open'", [1, 2, 3]),
    ],
)
def test_a_condition_chooses(folder: Path, where: str, seqs: list[int]) -> None:
    assert command(folder, "replay", "--where", where).exit_code == 0
    assert oracle.rows(folder, "SELECT seq FROM nack WHERE replay IS NOT NULL ORDER BY 1") == [(n,) for n in seqs]


@pytest.mark.parametrize("where", ["1) OR (1 = 1", "seq = 1; DROP TABLE nack", "seq =", "nothing = 1", ""])
def test_what_is_no_condition_is_refused_and_nothing_is_changed(folder: Path, where: str) -> None:
    for arguments in (
        ["replay", "--where", where],
        ["drop", "--all", "--where", where, "--reason", "x"],
        ["list", "--where", where],
    ):
        assert code(command(folder, *arguments)) == "dlq.where"
    assert oracle.rows(folder, "SELECT DISTINCT state, replay FROM nack") == [("open", None)]


def test_every_column_can_be_asked_for(folder: Path) -> None:
    for name in COLUMNS:
        assert command(folder, "list", "--where", f"{name} IS NOT NULL").exit_code == 0, name


@pytest.mark.parametrize("arguments", [[], ["--pipeline", "orders"], ["abc", "--all"]])
def test_who_does_not_say_which_is_asked(folder: Path, arguments: list[str]) -> None:
    assert code(command(folder, "replay", *arguments)) == "dlq.which"


def test_a_record_that_is_held_is_said_to_be_waited_for(tmp_path: Path) -> None:
    state = State(tmp_path / ".penstock", "orders", "in")
    held = letter(7)
    state.hold(held)
    state.close()
    done = command(tmp_path / ".penstock", "replay", held.id)
    assert "is held" in done.output
    assert "penstock pipelines step orders" in done.output
