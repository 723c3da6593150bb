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
    (found,), problems = yaml.read(file)
    assert problems == []
    return found


def refused(file: Path, raw: str | bytes) -> list[Problem]:
    file.write_bytes(raw.encode() if isinstance(raw, str) else raw)
    return yaml.read(file)[1]


def only(problems: list[Problem], file: Path) -> tuple[str, str]:
    assert len(problems) == 1, problems
    return problems[0].code, problems[0].where.removeprefix(f"{file}:")


@pytest.mark.parametrize(
    "text", ["yes", "12:30:45", "0123", "1.0", "true", "12", "1e3", "0x1F", "2024-01-01", "+5", ".5", "nil", "<<", "="]
)
def test_a_scalar_setting_keeps_its_source_text(file: Path, text: str) -> None:
    assert document(file, f"settings:\n  a: {text}\n").data == {"settings": {"a": text}}


@pytest.mark.parametrize("text", ["", "''", "~", "null", "Null", "NULL", "# c"])
def test_an_empty_setting_is_an_empty_text(file: Path, text: str) -> None:
    assert document(file, f"settings:\n  a: {text}\n").data == {"settings": {"a": ""}}


def test_a_null_key_is_dropped_from_settings_and_a_quoted_one_is_kept(file: Path) -> None:
    given = document(file, "settings:\n  null: x\n  ~: {y: [z]}\n  '': e\n  'NULL': q\n  1: a\n  true: b\n").data
    assert given == {"settings": {"": "e", "NULL": "q", "1": "a", "true": "b"}}


def test_a_key_without_a_value_is_as_good_as_absent_and_has_its_place(file: Path) -> None:
    found = document(file, "settings:\na: 1\n")
    assert found.data == {"a": 1}
    assert found.mark(("settings",), key=True) == Mark(1, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [("12", 12), ("-3", -3), ("0", 0), ("null", None), ("~", None), ("", None)],
)
def test_elsewhere_null_and_integers_are_typed(file: Path, text: str, value: object) -> None:
    (found,) = document(file, f"- {text}\n").data
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("FALSE", False), ("~", None), ("", None), ("yes", "yes"), ("'1'", "1"), ("|-\n    1", "1")),
        *(("1", 1), ("-0", 0), ("+12", 12), ("010", 10), ("0o17", 15), ("0xFf", 255), ("9" * 400, int("9" * 400))),
        *(("1.5", 1.5), ("1e3", 1000.0), (".5", 0.5), ("5.", 5.0), ("-.inf", float("-inf")), ("1_000", "1_000")),
        *(("2024-01-01", "2024-01-01"), ("12:30", "12:30"), ("0b1", "0b1"), ("!!str 5", "5"), ("$X", "$X")),
    ],
)
def test_below_tests_everything_is_typed_as_yaml_says(file: Path, text: str, value: object) -> None:
    found = document(file, f"tests:\n  settings: {text}\n").data["tests"]["settings"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["true", "FALSE", "2.2", "yes", "off", "12:30:45", "0123", "2024-01-01", "1_000", "nan", "9" * 30]
)
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


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.getcwd", "!!int", "!mine", "!!null", "!!binary"])
def test_an_explicit_tag_is_refused_at_its_place(file: Path, tag: str) -> None:
    problems = refused(file, f"a: 1\nb: {tag} x\n")
    assert only(problems, file) == ("config.tag", "2:4")
    assert f"'{tag}'" in problems[0].what


@pytest.mark.parametrize("tag", ["!!str", "!", "!<tag:yaml.org,2002:str>"])
def test_a_tag_that_says_text_is_as_good_as_quotes(file: Path, tag: str) -> None:
    assert document(file, f"a: {tag} 12\n{tag} b: 1\n").data == {"a": "12", "b": 1}


def test_a_tag_on_a_list_a_mapping_or_a_key_is_refused_too(file: Path) -> None:
    problems = refused(file, "a: !!python/tuple [1]\n!!int 1: 2\nc: !!str {}\n")
    assert [(p.code, p.position) for p in problems] == [("config.tag", at) for at in ((1, 4), (2, 1), (3, 4))]


# Anchors, aliases and merge keys


def test_an_alias_is_read_as_what_it_would_be_there(file: Path) -> None:
    given = document(file, "a: &x {n: 1, t: true}\nsettings: *x\ntests: *x\nb: *x\n").data
    assert given == {
        "a": {"n": 1, "t": "true"},
        "settings": {"n": "1", "t": "true"},
        "tests": {"n": 1, "t": True},
        "b": {"n": 1, "t": "true"},
    }


def test_anchors_stand_anywhere_and_the_last_one_counts(file: Path) -> None:
    given = document(file, "&k a: &v 1\nb: *k\nc: *v\nd: &v [&w x, *w]\ne: *v\nf: *w\n*k : 7\n".replace("*k : 7\n", ""))
    assert given.data == {"a": 1, "b": "a", "c": 1, "d": ["x", "x"], "e": ["x", "x"], "f": "x"}


def test_an_alias_inside_an_anchored_value_keeps_what_it_was(file: Path) -> None:
    assert document(file, "- &y 1\n- &x [*y]\n- &y 2\n- *x\n").data == [1, [1], 2, [1]]


def test_the_anchor_that_stands_last_counts_even_inside_another(file: Path) -> None:
    assert document(file, "- &x [&x v]\n- *x\n").data == [["v"], "v"]


def test_an_alias_may_be_a_key(file: Path) -> None:
    assert document(file, "- &k name\n- *k : 1\n").data == ["name", {"name": 1}]


def test_what_an_alias_brings_has_the_place_where_it_is_written(file: Path) -> None:
    found = document(file, "a: &x\n  k: v\nb: *x\nc: {<<: *x, l: 1}\n")
    assert found.mark(("b", "k")) == Mark(2, 6)
    assert found.mark(("c", "k"), key=True) == Mark(2, 3)
    assert found.mark(("c", "l")) == Mark(4, 16)


def test_an_anchor_in_what_is_dropped_is_known_and_an_alias_there_is_checked(file: Path) -> None:
    assert document(file, "settings: {null: &x v, a: *x, *x : b}\n").data == {"settings": {"a": "v", "v": "b"}}
    assert only(refused(file, "settings: {null: [*x]}\n"), file) == ("config.syntax", "1:19")


def test_an_alias_without_an_anchor_is_refused_at_its_place(file: Path) -> None:
    problems = refused(file, "a: 1\nb: *x\nc: {d: *y}\n")
    assert [(p.code, p.position) for p in problems] == [("config.syntax", (2, 4)), ("config.syntax", (3, 8))]
    assert "'&x'" in problems[0].what


def test_anchors_end_with_their_document(file: Path) -> None:
    assert only(refused(file, "a: &x 1\n---\nb: *x\n"), file) == ("config.syntax", "3:4")


@pytest.mark.parametrize("text", ["a: &x [*x]\n", "a: &x {b: {c: *x}}\n", "a: &x\n  <<: *x\n"])
def test_a_value_that_holds_itself_is_refused(file: Path, text: str) -> None:
    (problem,) = refused(file, text)
    assert problem.code == "config.syntax"
    assert "inside what it names" in problem.what


def test_a_bomb_of_aliases_is_refused_without_being_built(file: Path) -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 30)]
    (problem,) = refused(file, "\n".join(["l0: &l0 [x]", *levels]))
    assert problem.code == "config.syntax"
    assert problem.position[0] < 9


def test_aliases_do_not_get_round_the_limit_of_depth(file: Path) -> None:
    levels = [f"l{n}: &l{n} [*l{n - 1}]" for n in range(1, 60)]
    (problem,) = refused(file, "\n".join(["l0: &l0 [x]", *levels]))
    assert problem.what == "nested more than 50 levels deep"


def test_anchors_without_end_are_refused_and_do_not_crash(file: Path) -> None:
    (problem,) = refused(file, "".join(f"[&a{n} " for n in range(20_000)))
    assert problem.what == "nested more than 50 levels deep"


def test_a_merge_key_brings_what_is_not_written_out(file: Path) -> None:
    text = "base: &b {n: 1, m: 2, d: {x: 1}}\nother: &o {m: 3, z: 4}\n"
    assert document(file, text + "a: {m: 5, <<: *b}\n").data["a"] == {"m": 5, "n": 1, "d": {"x": 1}}
    assert document(file, text + "a: {<<: *b, m: 5}\n").data["a"] == {"m": 5, "n": 1, "d": {"x": 1}}
    assert document(file, text + "a: {<<: [*o, *b]}\n").data["a"] == {"m": 3, "n": 1, "z": 4, "d": {"x": 1}}
    assert document(file, text + "settings: {<<: *b, d: 1}\n").data["settings"] == {"n": "1", "m": "2", "d": "1"}
    assert document(file, "a: {<<: {b: 2, <<: {c: 3}}}\n").data["a"] == {"b": 2, "c": 3}
    assert document(file, "a: {b: , <<: {b: 2}}\n").data["a"] == {}


def test_a_merge_key_is_a_key_when_it_is_quoted(file: Path) -> None:
    assert document(file, '"<<": 1\n').data == {"<<": 1}


@pytest.mark.parametrize("value", ["1", "[1]", "x", "", "[{a: 1}, 2]", "[[{a: 1}], x]"])
def test_a_merge_key_without_a_mapping_is_refused(file: Path, value: str) -> None:
    (problem,) = refused(file, f"a: 1\n<<: {value}\n")
    assert (problem.code, problem.position[0]) == ("config.syntax", 2)


@pytest.mark.parametrize("key", ["1", "true", "1.5"])
def test_a_key_that_is_no_text_to_yaml_is_not_merged_and_written_out(file: Path, key: str) -> None:
    """Conduit takes the one that is merged."""
    problems = refused(file, f"settings: {{<<: {{{key}: a}}, {key}: b}}\n")
    assert [p.code for p in problems] == ["config.duplicate-key"]
    assert document(file, f"settings: {{<<: {{{key}: a}}, '{key}': b}}\n").data == {"settings": {key: "b"}}


def test_two_merge_keys_are_two_equal_keys(file: Path) -> None:
    assert only(refused(file, "<<: {a: 1}\n<<: {b: 1}\n"), file) == ("config.duplicate-key", "2:1")


def test_the_documents_of_a_file_are_read_one_by_one_with_their_places(file: Path) -> None:
    file.write_text("a: 1\n---\nb: 2\n---\n", encoding="utf-8")
    documents, problems = yaml.read(file)
    assert problems == []
    assert [d.data for d in documents] == [{"a": 1}, {"b": 2}, {}]
    assert documents[1].mark(("b",)) == Mark(3, 4)


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
def test_an_empty_file_is_an_empty_document(file: Path, text: str) -> None:
    found = document(file, text)
    assert (found.data, found.mark(("x",)).line) == ({}, found.mark(()).line)


def test_a_file_that_cannot_be_read_is_refused(file: Path) -> None:
    found, (problem,) = yaml.read(file)
    assert found == []
    assert (problem.code, problem.where) == ("config.unreadable", str(file))
    assert problem.hint


def test_duplicates_and_tags_of_one_file_are_all_told(file: Path) -> None:
    problems = refused(file, "a: !x 1\na: 2\nb:\n  c: 1\n  c: !y 2\n")
    assert sorted((p.position, p.code) for p in problems) == [
        ((1, 4), "config.tag"),
        ((2, 1), "config.duplicate-key"),
        ((5, 3), "config.duplicate-key"),
    ]  # of the second 'c' no more is said
