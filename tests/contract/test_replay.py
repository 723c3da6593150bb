"""Dead letters come back: through the pipeline as it is now, only to the destinations that lack them, once, whoever is killed."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from penstock.cli.main import cli
from penstock.ledger import decisions
from penstock.ledger.look import Wanted
from tests.support.harness import Case, age
from tests.support.outcomes import Refusing, delivered, write_json
from tests.support.replaying import BAD, mended

pytestmark = [pytest.mark.spark, pytest.mark.crash]

MakeCase = Callable[..., Case]
PIPELINES = "tests.support.replaying"
WHY = {"by": "somebody"}


def ask(case: Case, start: str = "start", **wanted: str) -> dict[str, int]:
    return decisions.replay(case.state / "ledger.db", [Wanted(**wanted)], start, WHY)  # type: ignore[arg-type]


def states(case: Case) -> dict[str, int]:
    return dict(case.rows("SELECT state, count(*) FROM nack GROUP BY 1"))


def ids(folder: Path) -> list[str]:
    return sorted(str(r["id"]) for r in delivered(folder))


@pytest.mark.contract("C14", "X4", safeguard="replayed-with-done")
@pytest.mark.parametrize(
    "point",
    [
        *("K2", "K6", "K7", "K6a", "ledger:done", "done"),
        *(
            pytest.param(p, marks=pytest.mark.long)
            for p in ("K1", "stage", "ledger:prepare", "K8", "ledger:ended replay")
        ),
    ],
)
def test_a_replay_that_is_killed_at_a_step_lands_once_at_both_destinations(make_case: MakeCase, point: str) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 4, 10)
    case.finish(pipeline=f"{PIPELINES}:two")
    assert states(case) == {"open": 8}
    mended(case.root).touch()
    assert ask(case) == {"p": 8}
    assert case.run(pipeline=f"{PIPELINES}:two", kill_at=point).killed
    case.run(pipeline=f"{PIPELINES}:two", kill_at="K11")
    case.finish(pipeline=f"{PIPELINES}:two")
    for name in ("one", "two"):
        assert ids(case.root / name) == sorted(issued)
    assert states(case) == {"replayed": 8}
    assert case.rows("SELECT source, read FROM lane ORDER BY id") == [("in", 40), ("in~replay", 8)]
    again = case.finish(pipeline=f"{PIPELINES}:two")
    assert again.counts.get("stage", 0) == 0


@pytest.mark.contract("C14", safeguard="replayed-with-done")
def test_without_the_mark_in_the_same_transaction_a_kill_delivers_dead_letters_twice(make_case: MakeCase) -> None:
    """The same dead letters have the same hash, so the destination's receipt would save them: it is off, too."""
    case = make_case("case")
    write_json(case.inp, 1, 10)
    case.finish(pipeline=f"{PIPELINES}:two")
    mended(case.root).touch()
    ask(case)
    off = ("replayed-with-done", "receipt")
    assert case.run(pipeline=f"{PIPELINES}:two", kill_at="done", off=off).killed
    case.finish(pipeline=f"{PIPELINES}:two", off=off)
    there = ids(case.root / "one")
    assert len(there) == len(set(there)) + 2


def test_a_record_that_fails_again_is_the_same_dead_letter_with_one_more_try(make_case: MakeCase) -> None:
    case = make_case("case")
    write_json(case.inp, 1, 10)
    case.finish(pipeline=f"{PIPELINES}:two")
    for tries in (1, 2):
        assert ask(case) == {"p": 2}
        assert ask(case) == {}, "those that wait already are not asked for twice"
        case.finish(pipeline=f"{PIPELINES}:two")
        assert case.rows("SELECT DISTINCT state, tries, code, replay FROM nack") == [("open", tries, "my.fault", None)]
        assert case.rows("SELECT count(*) FROM nack") == [(2,)]
    assert len(list((case.state / "dead-letters").glob("*/*.parquet"))) == 1
    assert case.rows("SELECT DISTINCT state FROM replay") == [("done",)]


@pytest.mark.contract("C14", reason="what each destination has is compared with what was issued, once each")
def test_what_is_bad_at_one_destination_goes_only_there(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 3, 10)
    case.finish(pipeline=f"{PIPELINES}:one_of_two")
    assert ids(case.root / "one") == sorted(issued)
    assert ids(case.root / "two") == sorted(i for i in issued if not i.endswith(BAD))
    mended(case.root).touch()
    ask(case)
    case.finish(pipeline=f"{PIPELINES}:one_of_two")
    for name in ("one", "two"):
        assert ids(case.root / name) == sorted(issued)


@pytest.mark.parametrize("begun", [False, True])
def test_a_destination_that_is_gone_keeps_its_dead_letters_and_stops_nothing(make_case: MakeCase, begun: bool) -> None:
    """Also where its replay was begun before: that batch is given up."""
    case = make_case("case")
    issued = write_json(case.inp, 1, 10)
    case.finish(pipeline=f"{PIPELINES}:one_of_two")
    mended(case.root).touch()
    ask(case)
    if begun:
        assert case.run(pipeline=f"{PIPELINES}:one_of_two", kill_at="K2").killed
    write_json(case.inp, 1, 10, first=1)
    case.finish(pipeline=f"{PIPELINES}:one_alone")
    assert len(ids(case.root / "one")) == 20
    gone = "replay.destination-gone"
    assert case.rows("SELECT DISTINCT state, tries, code, replay FROM nack") == [("open", 1, gone, None)]
    assert case.rows("SELECT count(*) FROM snapshot WHERE state = 'open'") == [(0,)]
    ask(case)
    case.finish(pipeline=f"{PIPELINES}:one_of_two")
    assert set(issued) <= set(ids(case.root / "two"))
    assert states(case) == {"replayed": 2}


def test_what_was_dropped_when_its_replay_had_begun_is_not_delivered(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 1, 10)
    case.finish(pipeline=f"{PIPELINES}:two")
    mended(case.root).touch()
    ask(case)
    assert case.run(pipeline=f"{PIPELINES}:two", kill_at="K2").killed
    decisions.drop(case.state / "ledger.db", [Wanted(where="position like '%#2'")], WHY)
    case.finish(pipeline=f"{PIPELINES}:two")
    for name in ("one", "two"):
        assert ids(case.root / name) == sorted(set(issued) - {"f00000:2"})
    assert states(case) == {"dropped": 1, "replayed": 1}


def test_of_a_record_that_was_split_only_the_parts_that_failed_come_back(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 1, 4)
    case.finish(pipeline=f"{PIPELINES}:in_parts")
    assert states(case) == {"open": 4}
    mended(case.root).touch()
    ask(case)
    case.finish(pipeline=f"{PIPELINES}:in_parts")
    for name in ("one", "two"):
        there = sorted((str(r["id"]), r["k"]) for r in delivered(case.root / name))
        assert there == [(i, k) for i in issued for k in range(3)]
    assert states(case) == {"replayed": 4}


def test_a_destination_that_refused_late_gets_them_and_no_other(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 1, 10)
    refuse = case.root / "two" / "refuse.txt"
    refuse.parent.mkdir()
    refuse.write_text("f00000:3 f00000:8")
    pipeline = "tests.support.outcomes:refusing_with_room"
    case.finish(pipeline=pipeline)
    assert case.rows("SELECT DISTINCT destination, state FROM nack") == [("two", "open")]
    refuse.write_text("f00000:8")
    ask(case)
    case.finish(pipeline=pipeline)
    assert ids(case.root / "one") == sorted(issued)
    assert sorted(Refusing(case.root / "two", "two").ids()) == sorted(i for i in issued if i != "f00000:8")
    assert case.rows("SELECT state, tries FROM nack ORDER BY seq") == [("replayed", 0), ("open", 1)]


def test_a_replay_may_begin_at_the_processor_that_failed(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 1, 10)
    case.finish(pipeline=f"{PIPELINES}:two")
    mended(case.root).touch()
    ask(case, start="failed")
    case.finish(pipeline=f"{PIPELINES}:two")
    for name in ("one", "two"):
        assert ids(case.root / name) == sorted(issued)


def test_payloads_with_types_come_back_with_their_types(make_case: MakeCase) -> None:
    case = make_case("case")
    rows = [
        {
            "n": n,
            "big": 2**62 + n,
            "amount": decimal.Decimal("12345678901234567890.12"),
            "day": datetime.date(2024, 2, 29),
            "at": datetime.datetime(2024, 2, 29, 12, 0, 0, 123456, datetime.UTC),
            "raw": b"\xff\x00",
            "tags": ["a", None],
            "in": {"x": None, "y": 1.5},
        }
        for n in range(10)
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, case.inp / "a.parquet")
    age(case.inp)
    case.finish(pipeline=f"{PIPELINES}:typed")
    assert states(case) == {"open": 2}
    mended(case.root).touch()
    ask(case)
    case.finish(pipeline=f"{PIPELINES}:typed")
    found = [r for p in sorted((case.root / "one").glob("*.parquet")) for r in pq.read_table(p).to_pylist()]
    assert sorted(found, key=lambda r: r["n"]) == table.to_pylist()


def test_a_dead_letter_whose_file_is_gone_says_so_and_costs_no_other(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 4, 10)
    case.finish(pipeline=f"{PIPELINES}:two")
    first = min((case.state / "dead-letters").glob("*/*.parquet"))
    first.unlink()
    mended(case.root).touch()
    ask(case)
    case.finish(pipeline=f"{PIPELINES}:two")
    lost = {f"f{f:05d}{bad}" for f in (0, 1) for bad in BAD}
    assert ids(case.root / "one") == sorted(set(issued) - lost)
    assert states(case) == {"open": 4, "replayed": 4}
    assert case.rows("SELECT DISTINCT code, tries FROM nack WHERE state = 'open'") == [("replay.no-record", 1)]


def test_only_those_that_are_named_are_replayed(make_case: MakeCase) -> None:
    case = make_case("case")
    write_json(case.inp, 1, 10)
    case.finish(pipeline=f"{PIPELINES}:two")
    mended(case.root).touch()
    assert ask(case, where="position like '%#2'") == {"p": 1}
    case.finish(pipeline=f"{PIPELINES}:two")
    assert states(case) == {"open": 1, "replayed": 1}
    assert "f00000:2" in ids(case.root / "one")


def test_a_running_engine_replays_when_it_is_asked(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 1, 10)
    mended_ = mended(case.root)
    running = case.start(pipeline=f"{PIPELINES}:two", arguments=())
    assert running.await_point("acked")
    mended_.touch()
    until = time.monotonic() + 60
    while not (case.state / "ledger.db").exists() or states(case) != {"open": 2}:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert ask(case) == {"p": 2}
    while states(case) != {"replayed": 2}:
        assert time.monotonic() < until
        time.sleep(0.05)
    running.signal(signal.SIGTERM)
    assert running.wait().returncode == 0
    assert ids(case.root / "one") == sorted(issued)


def test_what_came_through_a_log_is_replayed_to_a_process_of_its_own_as_well(make_case: MakeCase) -> None:
    case = make_case("case")
    issued = write_json(case.inp, 1, 10)
    (case.inp / "f00000.txt").rename(case.root / "in.jsonl")
    case.finish(pipeline=f"{PIPELINES}:hosted")
    assert states(case) == {"open": 2}
    mended(case.root).touch()
    ask(case)
    case.finish(pipeline=f"{PIPELINES}:hosted")
    assert ids(case.root / "one") == sorted(issued)
    lines = [json.loads(line) for line in (case.root / "two.jsonl").read_text().splitlines()]
    sent = [json.loads(base64.b64decode(r["payload"]["after"]))["id"] for r in lines]
    assert sorted(sent) == sorted(issued)


YAML = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {root}/out}}}}
    processors:
      - {{id: decode, plugin: json.decode}}
      - {{id: rule, plugin: expect, settings: {{rule: "{rule}"}}}}
      - {{id: encode, plugin: json.encode}}
    dead-letter-queue: {{window-size: 0}}
"""


def test_from_the_command_line_the_processor_is_mended_and_everything_replayed(case: Case) -> None:
    issued = write_json(case.inp, 2, 10)
    (case.root / "p.yaml").write_text(YAML.format(root=case.root, rule="after.n != 4"))
    case.finish()
    assert states(case) == {"open": 2}
    (case.root / "p.yaml").write_text(YAML.format(root=case.root, rule="true"))
    at = ["--state", str(case.state)]
    asked = CliRunner().invoke(cli, ["dlq", "replay", "--all", *at])
    assert asked.exit_code == 0, asked.output
    assert "2 dead letters" in asked.output
    case.finish()
    assert ids(case.out) == sorted(issued)
    listed = CliRunner().invoke(cli, ["dlq", "list", "--status", "replayed", "--json", *at])
    assert [json.loads(line)["status"] for line in listed.stdout.splitlines()] == ["replayed", "replayed"]
