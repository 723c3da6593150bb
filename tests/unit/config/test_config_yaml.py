"""One file: what its scalars become, what is refused, and where everything stands."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml as pyyaml

from penstock.config import yaml
from penstock.config.problem import Problem
from penstock.config.yaml import Document, Mark


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def _each_loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C loader is not everywhere; both must see the same file."""
    monkeypatch.setattr(yaml, "_LOADER", getattr(pyyaml, request.param))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "p.yaml"


def document(file: Path, text: str) -> Document:
    file.write_text(text, encoding="utf-8")
    found, problems = yaml.read(file)
    assert problems == []
    assert found is not None
    return found


def refused(file: Path, raw: str | bytes) -> list[Problem]:
    file.write_bytes(raw.encode() if isinstance(raw, str) else raw)
    return yaml.read(file)[1]


def only(problems: list[Problem], file: Path) -> tuple[str, str]:
    assert len(problems) == 1, problems
    return problems[0].code, problems[0].where.removeprefix(f"{file}:")


@pytest.mark.parametrize(
    "text", ["yes", "12:30:45", "0123", "1.0", "true", "12", "~", "null", "1e3", "0x1F", "2024-01-01", "+5", ".5"]
)
def test_a_scalar_setting_keeps_its_source_text(file: Path, text: str) -> None:
    assert document(file, f"settings:\n  a: {text}\n").data == {"settings": {"a": text}}


def test_an_empty_setting_is_an_empty_text(file: Path) -> None:
    assert document(file, "settings:\n  a:\n  b: ''\n").data == {"settings": {"a": "", "b": ""}}


def test_settings_without_a_mapping_are_null(file: Path) -> None:
    assert document(file, "settings:\n").data == {"settings": None}


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("FALSE", False), ("12", 12), ("-3", -3), ("0", 0), ("null", None), ("~", None), ("", None)],
)
def test_elsewhere_the_core_words_and_integers_are_typed(file: Path, text: str, value: object) -> None:
    found = document(file, f"a: {text}\n").data["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["2.2", "yes", "off", "12:30:45", "0123", "2024-01-01", "1_000", "nan", "9" * 30])
def test_everything_else_is_text_as_written(file: Path, text: str) -> None:
    assert document(file, f"a: {text}\n").data == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"), [("'12'", "12"), ('"true"', "true"), ('"a\\tb"', "a\tb"), ("|\n  12", "12\n")]
)
def test_a_quoted_scalar_is_text(file: Path, text: str, value: str) -> None:
    assert document(file, f"a: {text}\n").data == {"a": value}


def test_every_key_and_value_has_a_place_counted_in_characters_from_one(file: Path) -> None:
    found = document(file, "é: b\nlist:\n  - x\n  - {k: v, née: 1}\n")
    assert found.mark(("é",), key=True) == Mark(1, 1)
    assert found.mark(("é",)) == Mark(1, 4)
    assert found.mark(("list",), key=True) == Mark(2, 1)
    assert found.mark(("list",)) == Mark(3, 3)
    assert found.mark(("list", 0)) == Mark(3, 5)
    assert found.mark(("list", 1, "née"), key=True) == Mark(4, 12)
    assert found.mark(("list", 1, "née")) == Mark(4, 17)


def test_what_is_not_in_the_file_has_the_place_of_what_is_around_it(file: Path) -> None:
    found = document(file, "# top\nlist:\n  - k: v\n")
    assert found.mark(("list", 0, "other", "deeper")) == Mark(3, 5)
    assert found.mark(("nowhere",)) == Mark(2, 1)


@pytest.mark.parametrize("end", ["\r\n", "\r", "\x85", "\u2028"])
def test_lines_are_counted_as_yaml_counts_them(file: Path, end: str) -> None:
    problems = refused(file, f"a: 1{end}b: 2{end}a: 3{end}")
    assert only(problems, file) == ("config.duplicate-key", "3:1")
    assert problems[0].line_text == "a: 3"


def test_a_byte_order_mark_is_no_part_of_the_first_key(file: Path) -> None:
    found = document(file, "\ufeffa: b\n")
    assert found.data == {"a": "b"}
    assert (found.mark(("a",)), found.lines[0]) == (Mark(1, 4), "a: b")


def test_a_duplicate_key_is_refused_even_when_one_of_the_two_is_quoted(file: Path) -> None:
    problems = refused(file, 'a: 1\nb:\n  c: 1\n  "c": 2\n')
    assert only(problems, file) == ("config.duplicate-key", "4:3")
    assert problems[0].line_text == '  "c": 2'
    assert "line 3" in problems[0].hint


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.getcwd", "!!str", "!mine", "!", "!!binary"])
def test_an_explicit_tag_is_refused_at_its_place(file: Path, tag: str) -> None:
    problems = refused(file, f"a: 1\nb: {tag} x\n")
    assert only(problems, file) == ("config.tag", "2:4")
    assert f"'{tag}'" in problems[0].what


def test_a_tag_on_a_list_or_a_key_is_refused_too(file: Path) -> None:
    problems = refused(file, "a: !!python/tuple [1]\n!!str b: 2\n")
    assert [(p.code, p.position) for p in problems] == [("config.tag", (1, 4)), ("config.tag", (2, 1))]


def test_aliases_are_refused_each_at_its_place(file: Path) -> None:
    problems = refused(file, "a: &x [1]\nb: *x\nc: {d: *x}\n")
    assert [(p.code, p.position) for p in problems] == [("config.syntax", (2, 4)), ("config.syntax", (3, 8))]
    assert "'*x'" in problems[0].what


def test_a_bomb_of_aliases_is_refused_without_being_built(file: Path) -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30)]
    problems = refused(file, "\n".join(["l0: &l0 [x]", *levels]))
    assert len(problems) == 29 * 9
    assert {p.code for p in problems} == {"config.syntax"}


def test_a_merge_key_is_refused_unless_it_is_quoted(file: Path) -> None:
    assert only(refused(file, "a: 1\n<<: {b: 2}\n"), file) == ("config.syntax", "2:1")
    assert document(file, '"<<": 1\n').data == {"<<": 1}


def test_a_second_document_is_refused(file: Path) -> None:
    problems = refused(file, "a: 1\n---\nb: 2\n")
    assert only(problems, file) == ("config.syntax", "2:1")
    assert "'pipelines' list" in problems[0].hint


def test_a_key_that_is_not_text_is_refused(file: Path) -> None:
    assert only(refused(file, "a: 1\n? [x]\n: y\n"), file) == ("config.syntax", "2:3")


def test_nesting_without_end_is_refused_and_does_not_crash(file: Path) -> None:
    assert only(refused(file, "[" * 100_000), file) == ("config.syntax", "1:51")


def test_nesting_of_fifty_levels_is_read(file: Path) -> None:
    assert document(file, "[" * 50 + "]" * 50).data


def test_a_tab_for_indentation_is_refused_with_the_way_out(file: Path) -> None:
    problems = refused(file, "a:\n\tb: 1\n")
    assert only(problems, file) == ("config.syntax", "2:1")
    assert problems[0].hint == "use spaces, not tabs"


@pytest.mark.parametrize(
    ("text", "place"), [("a: 1\n b: 2\n", "2:3"), ("a: [1, 2\nb: 3\n", "2:2"), ("a: b: c\n", "1:5"), ("a: @x\n", "1:4")]
)
def test_a_syntax_error_has_its_place(file: Path, text: str, place: str) -> None:
    assert only(refused(file, text), file) == ("config.syntax", place)


def test_a_quote_that_is_never_closed_names_the_line_on_which_it_opens(file: Path) -> None:
    (problem,) = refused(file, "a: 1\nb: 'x\nc: 2\n")
    assert problem.code == "config.syntax"
    assert problem.what.endswith("that starts on line 2")


def test_bytes_that_are_not_utf8_are_refused_at_their_place(file: Path) -> None:
    problems = refused(file, "a: 1\né: ".encode() + b"\xff\n")
    assert only(problems, file) == ("config.unreadable", "2:4")
    assert "0xff" in problems[0].what


def test_a_control_character_is_refused_and_never_printed(file: Path) -> None:
    problems = refused(file, "a: 1\nb: x\x1b[31m\n")
    assert only(problems, file) == ("config.syntax", "2:5")
    assert "\x1b" not in str(problems[0])


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "---\n", "null\n"])
def test_an_empty_file_is_refused(file: Path, text: str) -> None:
    problems = refused(file, text)
    assert only(problems, file) == ("config.unreadable", "1:1")
    assert problems[0].what == "the file is empty"


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    found, (problem,) = yaml.read(file)
    assert found is None
    assert (problem.code, problem.where) == ("config.unreadable", str(file))


def test_duplicates_and_tags_of_one_file_are_all_told(file: Path) -> None:
    problems = refused(file, "a: !x 1\na: 2\nb:\n  c: 1\n  c: !y 2\n")
    assert sorted((p.position, p.code) for p in problems) == [
        ((1, 4), "config.tag"),
        ((2, 1), "config.duplicate-key"),
        ((5, 3), "config.duplicate-key"),
        ((5, 6), "config.tag"),
    ]
