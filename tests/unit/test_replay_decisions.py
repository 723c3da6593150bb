"""What `penstock dlq replay` writes down, and what it refuses. No Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from penstock.cli.main import cli
from penstock.engine.frontier import frontier
from penstock.ledger import Prepared
from penstock.ledger.look import COLUMNS
from penstock.ranges import Range, Ranges
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


@pytest.mark.parametrize(
    "where",
    [
        *("1) OR (1 = 1", "seq = 1; DROP TABLE nack", "seq =", "nothing = 1", "", "'it"),
        *("nothing(seq) = 1", "count(*) > 1", "seq > ?", "seq > :lane", "seq IN (SELECT seq FROM nack)"),
        "json_extract(error, '$.a') = 1",  # raises on what is there
    ],
)
def test_what_is_no_condition_is_refused_and_nothing_is_changed(folder: Path, where: str) -> None:
    for arguments in (
        ["replay", "--where", where],
        ["drop", "--all", "--where", where, "--reason", "x"],
        ["list", "--where", where],
    ):
        refused = command(folder, *arguments)
        assert code(refused) == "dlq.where"
        assert "sqlglot" not in str(refused.exception)
    assert oracle.rows(folder, "SELECT DISTINCT state, replay FROM nack") == [("open", None)]


def test_every_column_can_be_asked_for(folder: Path) -> None:
    for name in COLUMNS:
        assert command(folder, "list", "--where", f"{name} IS NOT NULL").exit_code == 0, name


@pytest.mark.parametrize("arguments", [[], ["--pipeline", "orders"], ["abc", "--all"]])
def test_who_does_not_say_which_is_asked(folder: Path, arguments: list[str]) -> None:
    assert code(command(folder, "replay", *arguments)) == "dlq.which"


def on_its_way(tmp_path: Path, failed: bool) -> list[tuple[object, ...]]:
    """A replay of two, both of them dropped after their batch has begun; what there is when it is done."""
    state = State(tmp_path / "state", "orders", "in")
    letters = [letter(1), letter(2)]
    state.batch(10, letters)
    assert command(state.path, "replay", "--all").exit_code == 0
    position = {"replay": 1, "start": "start", "destination": "", "node": "", "letters": [[1, 0, 1], [2, 0, 1]]}
    s = state.ledger.take(state.ledger.lane("orders", "in~replay"), Ranges((Range("replay", position, 1, 0),), 3))[0]
    assert command(state.path, "drop", "--all", "--reason", "no").exit_code == 0
    nacks = [x.nack() for x in letters] if failed else []
    state.ledger.prepare(s, 2, [Prepared("out", "hash", "files", {}, {}, 0, nacked=len(nacks))], nacks)
    state.ledger.done(s, "out", {}, 2 - len(nacks), frontier)
    state.close()
    return oracle.rows(state.path, "SELECT seq, state, tries FROM nack ORDER BY seq")


def test_what_was_dropped_on_its_way_and_failed_again_stays_dropped(tmp_path: Path) -> None:
    assert on_its_way(tmp_path, True) == [(1, "dropped", 1), (2, "dropped", 1)]


def test_what_was_dropped_on_its_way_and_has_arrived_is_replayed(tmp_path: Path) -> None:
    assert on_its_way(tmp_path, False) == [(1, "replayed", 0), (2, "replayed", 0)]


def test_what_is_wrong_with_the_files_is_said_before_anything_is_written_down(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(OTHER)
    assert code(command(folder, "replay", "--all", "--run", str(tmp_path / "none.yaml"))) == "config.unreadable"
    refused = command(folder, "replay", "--all", "--run", str(tmp_path / "other.yaml"))
    assert code(refused) == "dlq.not-here"
    assert "orders" in str(refused.exception)
    assert oracle.rows(folder, "SELECT count(*) FROM replay") == [(0,)]
    assert oracle.rows(folder, "SELECT count(*) FROM audit") == [(0,)]


def test_without_anything_to_replay_no_engine_is_started(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(OTHER)
    assert command(folder, "replay", "--all").exit_code == 0
    done = command(folder, "replay", "--all", "--code", "no.such", "--run", str(tmp_path / "other.yaml"))
    assert done.exit_code == 0
    assert "orders is not in what --run names" in done.output
    assert "Spark" not in done.output


OTHER = """\
version: "2.2"
pipelines:
  - id: other
    connectors:
      - {id: in, type: source, plugin: files, settings: {path: ./in}}
      - {id: out, type: destination, plugin: files, settings: {path: ./out}}
"""


def test_a_record_that_is_held_is_said_to_be_waited_for(tmp_path: Path) -> None:
    state = State(tmp_path / ".penstock", "orders", "in")
    held = letter(7)
    state.hold(held)
    state.close()
    done = command(tmp_path / ".penstock", "replay", held.id)
    assert "is held" in done.output
    assert "penstock pipelines step orders" in done.output
