"""`penstock dlq` as people and programs use it: the real command on real state folders, without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import deadletters
from penstock.cli import shown
from penstock.engine.batch.context import folder_name
from penstock.engine.batch.deadletter import Letter
from penstock.engine.lock import StateFolder
from penstock.ledger import Lane
from penstock.ranges import Known
from tests.support.states import State, bytes_of, letter, penstock, terminal


@pytest.fixture
def state(tmp_path: Path) -> Iterator[State]:
    made = State(tmp_path / ".penstock")
    yield made
    made.close()


def _folder_with(path: Path, *letters: Letter) -> None:
    state = State(path / ".penstock")
    state.batch(1000, letters, ("out", "eu"))
    state.close()


def said(folder: Path, *arguments: str) -> str:
    ended = penstock(folder, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def refused(folder: Path, *arguments: str, code: int = 2) -> str:
    ended = penstock(folder, *arguments)
    assert ended.returncode == code
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert "\x1b" not in ended.stderr
    return ended.stderr


# -- list -----------------------------------------------------------------------------------------------------------


def test_a_list_has_a_line_for_each_dead_letter_and_says_what_to_type_next(tmp_path: Path) -> None:
    letters = [letter(3), letter(7, "eu", node="eu", code="files.too-wide", error="first\nsecond")]
    _folder_with(tmp_path, *letters)
    ended = penstock(tmp_path, "dlq", "list")
    assert ended.returncode == 0
    assert ended.stdout.splitlines() == [
        "ID            SOURCE          NODE    CODE            ERROR",
        f"{letters[0].id[:12]}  orders/in       decode  json.invalid    the payload is not JSON",
        f"{letters[1].id[:12]}  orders/in → eu  eu      files.too-wide  first second",
    ]
    assert "2 dead letters" in ended.stderr
    assert "penstock dlq show ID" in ended.stderr


def test_a_list_is_cut_at_its_limit_and_says_how_many_there_are(tmp_path: Path) -> None:
    _folder_with(tmp_path, *(letter(n) for n in range(60)))
    ended = penstock(tmp_path, "dlq", "list")
    assert len(ended.stdout.splitlines()) == 51
    assert "the first 50 of 60 dead letters" in ended.stderr
    ended = penstock(tmp_path, "dlq", "list", "--json", "--limit", "2")
    assert [json.loads(line)["seq"] for line in ended.stdout.splitlines()] == [0, 1]
    assert "2 of 60" in ended.stderr


def test_programs_get_every_field_as_it_is(tmp_path: Path) -> None:
    odd = letter(3, "eu", error="\x1b[31m\x7f\xa0ü😀\u2028", position=b"\xff\x00")
    _folder_with(tmp_path, odd)
    text = said(tmp_path, "dlq", "list", "--json")
    assert all(c.isprintable() or c == "\n" for c in text)
    assert json.loads(text) == {
        "id": odd.id,
        "pipeline": "orders",
        "source": "in",
        "destination": "eu",
        "status": "open",
        "node": "decode",
        "code": "json.invalid",
        "error": "\x1b[31m\x7f\xa0ü😀\u2028",
        "at": odd.dead.at,
        "batch": 1,
        "seq": 3,
        "part": 0,
        "position": {"base64": "/wA="},
        "tries": 0,
    }


def test_programs_get_every_character_in_any_encoding(tmp_path: Path) -> None:
    _folder_with(tmp_path, letter(3, error="ü😀"))
    text = penstock(tmp_path, "dlq", "list", "--json", PYTHONIOENCODING="ascii").stdout
    assert text.isascii()
    assert json.loads(text)["error"] == "ü😀"


def test_a_list_is_narrowed_by_what_is_asked_for(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(1), letter(2, code="orders.customer")])
    state.hold(letter(100))

    def seqs(*arguments: str) -> list[int]:
        lines = said(tmp_path, "dlq", "list", "--json", *arguments).splitlines()
        return [json.loads(line)["seq"] for line in lines]

    assert seqs() == [1, 2, 100]
    assert seqs("--code", "orders.customer", "--pipeline", "orders") == [2]
    assert seqs("--status", "held", "--source", "in") == [100]
    ended = penstock(tmp_path, "dlq", "list", "--status", "replayed")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "No dead letters like that. There are others: json.invalid (2), orders.customer (1)" in ended.stderr
    assert "1 of them held" in penstock(tmp_path, "dlq", "list").stderr


def test_no_dead_letters_is_no_error(state: State, tmp_path: Path) -> None:
    state.batch(10)
    ended = penstock(tmp_path, "dlq", "list")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "No dead letters in .penstock." in ended.stderr


def test_a_mistyped_name_does_not_look_like_one_without_dead_letters(state: State, tmp_path: Path) -> None:
    state.batch(10, [letter(1)])
    error = refused(tmp_path, "dlq", "list", "--pipeline", "order")
    assert "[state.unknown-pipeline]" in error
    assert "did you mean 'orders'?" in error
    assert "[state.unknown-source]" in refused(tmp_path, "dlq", "list", "--source", "inn")


def test_a_list_fits_a_terminal_of_80_columns(tmp_path: Path) -> None:
    state = State(tmp_path / ".penstock", "a-pipeline-with-a-very-long-name", "and-a-source-with-one")
    long = {"node": "a-processor-that-is-named", "code": "a-code.of-many-words", "error": "why " * 100}
    state.batch(10, [letter(1, **long), letter(2, "a-destination", error="\x1b]0;title\x07")], ("a-destination",))
    state.close()
    text = terminal(tmp_path, "dlq", "list")
    assert "\x1b" not in text
    assert "\x07" not in text
    table = text.split("\n\n")[0].splitlines()
    assert len(table) == 3
    assert max(map(len, table)) <= 80
    assert all("…" in line for line in table[1:])


# -- show -----------------------------------------------------------------------------------------------------------


def test_a_dead_letter_is_shown_by_the_first_digits_of_its_id(tmp_path: Path) -> None:
    given = {"after": {"text": '{"amount": '}}
    shown_ = letter(3, given=given, form={"after": {"value": {"amount": 1, "x": [2.50]}}, "operation": "update"})
    _folder_with(tmp_path, letter(1), shown_, letter(4))
    text = said(tmp_path, "dlq", "show", shown_.id[:6])
    for part in (
        f"dead letter {shown_.id} (open)",
        "json.invalid at 'decode', for every destination, 2023-11-14T22:13:20Z",
        "orders/in, batch 1, seq 3",
        "position: /in/a.jsonl#3",
        '{"amount": \n',
        "penstock.file: /in/a.jsonl",
        '      "amount": 1,',
        "operation: update",
        "penstock dlq replay",
    ):
        assert part in text
    assert "line 4" not in text


def test_the_line_of_the_pipeline_that_failed_is_named(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        'version: "2.2"\npipelines:\n  - id: orders\n    connectors:\n'
        "      - {id: in, type: source, plugin: files, settings: {path: ./in}}\n"
        "      - {id: out, type: destination, plugin: files, settings: {path: ./out}}\n"
        "    processors:\n      - {id: decode, plugin: json.decode}\n"
    )
    one = letter(3)
    _folder_with(tmp_path, one)
    assert f"  in {tmp_path / 'p.yaml'}:8:9" in said(tmp_path, "dlq", "show", one.id)


def test_programs_get_the_record_with_all_its_digits_and_characters(tmp_path: Path) -> None:
    value = '{"n":12345678901234567890123,"x":0.10000000000000000000001,"s":"\\u0000ü"}'
    given = {"after": {"text": "\x1b\t"}, "key": {"base64": "/w=="}}
    one = letter(3, given=given, form={"after": {"value": deadletters._decode(value)}})
    _folder_with(tmp_path, one)
    text = said(tmp_path, "dlq", "show", one.id.upper(), "--json")
    assert value in text
    found = json.loads(text)
    assert found["given"]["after"] == {"text": "\x1b\t"}
    assert found["given"]["key"] == {"base64": "/w=="}
    assert (found["id"], found["seq"], found["status"]) == (one.id, 3, "open")
    assert "missing" not in found


def test_each_destination_of_a_record_is_shown(tmp_path: Path) -> None:
    one = letter(3, "out", error="not here")
    _folder_with(tmp_path, one, letter(3, "eu", error="nor there"))
    text = said(tmp_path, "dlq", "show", one.id)
    assert text.count("dead letter ") == 2
    assert "destination 'out'" in text
    assert "destination 'eu'" in text
    assert "not here" in text
    assert "nor there" in text


def test_control_characters_of_a_record_are_shown_and_not_sent_to_the_terminal(tmp_path: Path) -> None:
    one = letter(
        3,
        error="bad \x1b[31mred",
        given={"after": {"text": "a\tb\x00\x1b[2J\nsecond\r"}, "metadata": {"\x1bk": "\x9bv"}},
        form={"after": {"value": {"\x07": "\x9b"}}},
        position=b"/in/\x1b[31m#1",
    )
    _folder_with(tmp_path, one)
    text = said(tmp_path, "dlq", "show", one.id)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert r"a\tb\x00\x1b[2J" in text
    assert r"second\r" in text


def test_bytes_are_shown_in_hexadecimal_digits(tmp_path: Path) -> None:
    one = letter(3, given={"after": {"base64": "/wAB" + "YWFh" * 200}})
    _folder_with(tmp_path, one)
    text = said(tmp_path, "dlq", "show", one.id)
    assert "after (binary, 603 bytes):" in text
    assert "0000  ff 00 01 61 61" in text
    assert "347 bytes more; --full shows all" in text
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("line", ["x" * 100_000, "line\n" * 1000])
def test_a_large_record_is_cut_unless_it_is_wanted_whole(tmp_path: Path, line: str) -> None:
    one = letter(3, given={"after": {"text": line}})
    _folder_with(tmp_path, one)
    text = said(tmp_path, "dlq", "show", one.id)
    assert len(text) < 5000
    assert "--full shows all" in text
    assert len(said(tmp_path, "dlq", "show", one.id, "--full")) > len(line)


def test_a_held_record_is_shown_from_the_ledger(state: State, tmp_path: Path) -> None:
    held = letter(3, given={"after": {"text": "the one"}})
    state.hold(held)
    text = said(tmp_path, "dlq", "show", held.id)
    assert f"held record {held.id} (held)" in text
    assert "the one" in text
    assert "run\n  the pipeline again" in text


def test_a_dead_letter_that_is_not_in_its_place_yet_is_found(state: State, tmp_path: Path) -> None:
    """The engine was killed between prepare and commit."""
    one = letter(3, given={"after": {"text": "still staged"}})
    state.batch(10, [one], done=[])
    assert "still staged" in said(tmp_path, "dlq", "show", one.id)


def test_a_dead_letter_whose_file_was_removed_shows_what_the_ledger_knows(tmp_path: Path) -> None:
    one = letter(3)
    _folder_with(tmp_path, one)
    [file] = (tmp_path / ".penstock" / "dead-letters" / "orders.in").glob("*.parquet")
    file.write_bytes(b"PAR1 no longer")
    assert "can't be read" in said(tmp_path, "dlq", "show", one.id)
    file.unlink()
    text = said(tmp_path, "dlq", "show", one.id)
    assert "json.invalid at 'decode'" in text
    assert "it was removed or moved" in text
    assert json.loads(said(tmp_path, "dlq", "show", one.id, "--json"))["given"] is None


def test_an_id_that_is_unknown_or_not_enough_is_said(tmp_path: Path) -> None:
    letters = [letter(n) for n in range(40)]
    _folder_with(tmp_path, *letters)
    assert "[dlq.unknown]" in refused(tmp_path, "dlq", "show", "zz")
    assert "[dlq.unknown]" in refused(tmp_path, "dlq", "show", "")
    assert "[dlq.unknown]" in refused(tmp_path, "dlq", "show", "\x1b[31m%")
    first = sorted(x.id for x in letters)
    digit = next(d for d in "0123456789abcdef" if sum(id_.startswith(d) for id_ in first) > 1)
    error = refused(tmp_path, "dlq", "show", digit)
    assert "[dlq.ambiguous]" in error
    assert next(id_ for id_ in first if id_.startswith(digit)) in error


@pytest.mark.thorough
def test_one_of_very_many_is_found(tmp_path: Path) -> None:
    """Over several row groups of the file."""
    letters = [letter(n, given={"after": {"text": f"this is {n}"}}) for n in range(9000)]
    _folder_with(tmp_path, *letters)
    for n in (0, 4095, 4096, 8999):
        assert f"this is {n}\n" in said(tmp_path, "dlq", "show", letters[n].id)


def test_the_folder_of_a_lane_is_the_one_that_the_engine_writes_to() -> None:
    for pipeline, source in (("a", "b"), ("a.b", "c"), ("a", "b.c")):
        lane = Lane(1, pipeline, source, 0, 1, 0, Known({}, 0, set()))
        assert deadletters.folder(pipeline, source) == folder_name(lane)


# -- folders --------------------------------------------------------------------------------------------------------

COMMANDS = [("dlq", "list"), ("dlq", "show", "1"), ("pipelines", "list"), ("pipelines", "show", "orders")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_folder_without_state_is_said_with_what_to_do(tmp_path: Path, command: tuple[str, ...]) -> None:
    error = refused(tmp_path, *command)
    assert "[state.missing] There is no state folder at .penstock" in error
    assert "run a pipeline first" in error
    assert "--state" in error
    assert list(tmp_path.iterdir()) == []


def test_a_state_folder_one_level_down_is_named(tmp_path: Path) -> None:
    State(tmp_path / "shop" / ".penstock").close()
    assert "--state shop/.penstock" in refused(tmp_path, "dlq", "list")
    assert penstock(tmp_path, "dlq", "list", "--state", "shop/.penstock").returncode == 0


def test_folders_that_are_none_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    (tmp_path / "file").touch()
    begun = StateFolder(tmp_path / "begun")
    begun.open()
    begun.close()
    before = bytes_of(tmp_path)
    assert "[state.empty]" in refused(tmp_path, "dlq", "list", "--state", "empty")
    assert "[state.empty]" in refused(tmp_path, "dlq", "list", "--state", "begun")
    assert "[state.foreign] photos is not a state folder" in refused(tmp_path, "dlq", "list", "--state", "photos")
    assert "is a file" in refused(tmp_path, "dlq", "list", "--state", "file")
    assert bytes_of(tmp_path) == before


def test_a_broken_or_foreign_ledger_is_said_without_a_stack_trace(tmp_path: Path) -> None:
    (tmp_path / ".penstock").mkdir()
    (tmp_path / ".penstock" / "ledger.db").write_bytes(b"no database, " * 1000)
    assert "[ledger.read]" in refused(tmp_path, "dlq", "list", code=1)
    (tmp_path / ".penstock" / "VERSION").write_text("penstock state 99\n")
    assert "[state.version]" in refused(tmp_path, "dlq", "list")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    State(tmp_path / ".penstock").close()
    (tmp_path / ".penstock").chmod(0)
    try:
        assert "read" in refused(tmp_path, "dlq", "list")
    finally:
        (tmp_path / ".penstock").chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_dead_letters_that_may_not_be_read_are_said_to_be_so(tmp_path: Path) -> None:
    one = letter(1)
    _folder_with(tmp_path, one)
    (tmp_path / ".penstock" / "dead-letters").chmod(0)
    try:
        assert "can't be read: Permission denied" in said(tmp_path, "dlq", "show", one.id)
    finally:
        (tmp_path / ".penstock" / "dead-letters").chmod(0o700)


# -- streams --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command", ["dlq list", "dlq list --json", "dlq show {id}", "pipelines list", "pipelines show orders"]
)
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, command: str) -> None:
    _folder_with(tmp_path, *(letter(n) for n in range(2000)), letter(5000, "eu"), letter(5000, "out"))
    words = command.format(id=letter(5000).id).split()
    line = f"{Path(sys.executable).with_name('penstock')} {' '.join(words)} | head -1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0
    assert len(ended.stdout.splitlines()) == 1
    assert "Traceback" not in ended.stderr
    assert "Broken" not in ended.stderr


def test_a_list_is_quick_and_needs_no_pyarrow(tmp_path: Path) -> None:
    _folder_with(tmp_path, letter(1))
    command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", "dlq", "list"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in ended.stderr.splitlines()}
    assert loaded.isdisjoint({"pyspark", "py4j", "pandas", "pyarrow", "numpy"})


def test_without_pyarrow_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = letter(1)
    _folder_with(tmp_path, one)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    kept = deadletters.kept(tmp_path / ".penstock", "orders", "in", one.nack(batch=1))
    assert "pip install 'penstock[spark]'" in kept.missing


# -- small parts ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "number, text", [("1", "1"), ("99,999", "99,999"), ("123,456", "123.5k"), ("12,345,678", "12.3M"), ("READ", "READ")]
)
def test_large_numbers_are_rounded_where_there_is_no_room(number: str, text: str) -> None:
    assert shown.rounded(number) == text


def test_columns_give_way_the_widest_first() -> None:
    assert shown.fitted([12, 30, 10, 60], 80, [1, 2, 3]) == [12, 29, 10, 29]
    assert shown.fitted([12, 30], 10, [1]) == [12, 8]
    assert shown.fitted([12, 30], 10, []) == [12, 30]
