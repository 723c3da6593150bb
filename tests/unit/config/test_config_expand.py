"""References to the environment."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import BadReferenceError, expand, expand_settings
from penstock.config.expand import anchored, unresolved

ENV = {"X": "one", "Y_2": "two", "EMPTY": "", "TRICK": "$X ${Y_2}", "é": "acc", "a.b": "dot"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("$X", "one"),
        ("${X}", "one"),
        ("${env:X}", "one"),
        ("a${X}b$Y_2/c", "aoneb" + "two/c"),
        ("[${EMPTY}]", "[]"),
        ("$X}", "one}"),
        ("\\$X", "\\one"),
        ("${X}}", "one}"),
        ("${é}", "acc"),
        ("${a.b}", "dot"),
        ("${env:X:-other}", "one"),
        ("${env:NO:-a default: {x}}", "a default: {x}"),
        ("${env:NO:-}", ""),
        ("${env:EMPTY:-other}", ""),
        ("${literal:pa$$word $NO ${NO}}!", "pa$$word $NO ${NO}!"),
        ('${literal:{"a": {}}}$X', '{"a": {}}one'),
    ],
)
def test_a_reference_becomes_its_value(text: str, value: str) -> None:
    assert expand(text, ENV) == value


def test_a_value_is_not_expanded_again() -> None:
    assert expand("$TRICK", ENV) == "$X ${Y_2}"


@pytest.mark.parametrize(
    "text", ["^a$", "$.x.y", "a $ b", "x$|y", "$", "$(", "{X}", "$é", "a$, b", "{{ $.Payload.After.x }}"]
)
def test_a_dollar_that_starts_no_reference_stays(text: str) -> None:
    assert expand(text, ENV) == text


@pytest.mark.parametrize("text", ["$NO", "${NO}", "${env:NO}", "a $X $NO"])
def test_an_unset_variable_is_an_error_that_names_it(text: str) -> None:
    with pytest.raises(BadReferenceError) as caught:
        expand(text, ENV)
    assert caught.value.code == "config.unset-variable"
    assert caught.value.what == "the environment variable 'NO' is not set"


@pytest.mark.parametrize(
    "text",
    [
        *("$$", "pa$$word", "$1", "$*", "$#", "$@", "$!", "$?", "$-"),
        *("${", "${X", "${}", "${1}", "${X:-d}", "${what:X}", "${env:}", "${env:X:-$Y_2}", "${X }", "${:}"),
    ],
)
def test_what_conduit_would_make_empty_is_refused(text: str) -> None:
    with pytest.raises(BadReferenceError) as caught:
        expand(text, ENV)
    assert caught.value.code == "config.bad-reference"
    assert caught.value.hint


@pytest.mark.parametrize("text", ["${NO:-d}", "${NO-d}", "${X:+d}", "${X:=d}", "${X:?d}"])
def test_a_default_as_shells_write_it_is_refused_with_ours(text: str) -> None:
    (error,) = unresolved(text, ENV)
    assert error.hint == f"for a default write ${{env:{text[2]}{'O' if text[3] == 'O' else ''}:-d}}"


@pytest.mark.parametrize(
    "text",
    [
        "{{ $x := 1 }}{{ $x }}",
        "{{ range $i, $v := .Payload.After.a }}{{ $v }}{{ end }}",
        "{{ $x }}",
        "{{ $X := 1 }}",  # set, and not what is meant
        "{{- with $y := .Key -}}{{ $y }}{{ end }}",
    ],
)
def test_a_variable_of_a_template_is_refused_with_the_reason(text: str) -> None:
    errors = unresolved(text, ENV)
    assert {error.code for error in errors} == {"config.template-variable"}
    assert "${literal:…}" in errors[0].hint
    assert expand(f"${{literal:{text}}}", ENV) == text


def test_the_environment_may_be_used_inside_a_template() -> None:
    assert expand('{{ eq .Metadata.k "$X" }} $Y_2', ENV) == '{{ eq .Metadata.k "one" }} two'
    (error,) = unresolved("{{ .Key }} $NO", ENV)
    assert error.code == "config.unset-variable"


# Files


def test_a_file_gives_its_text_without_the_last_newline(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for content, value in (
        (b"s\n", "s"),
        (b"s", "s"),
        (b"a\nb\n\n", "a\nb\n"),
        (b"s\r\n", "s"),
        (b"", ""),
        (b"$X", "$X"),
    ):
        (tmp_path / "sub" / "p w").write_bytes(content)
        assert expand("<${file:sub/p w}>", ENV, folder=tmp_path) == f"<{value}>"
        assert expand(f"${{file:{tmp_path}/sub/p w}}", ENV) == value
        assert expand_settings({"a": "${file:sub/p w}"}, ENV, folder=tmp_path) == {"a": value}


@pytest.mark.parametrize("text", ["${file:}", "${file:$X}", "${file:a${X}}"])
def test_the_path_of_a_file_is_plain(text: str) -> None:
    (error, *_) = unresolved(text, ENV)
    assert error.code == "config.bad-reference"


@pytest.mark.parametrize("name", ["missing", ".", "binary", "large", "fifo"])
def test_a_file_that_can_not_be_read_is_an_error_that_names_the_path_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "binary").write_bytes(b"hunter2\xff")
    (tmp_path / "large").write_bytes(b"hunter2" * (1 << 18))
    os.mkfifo(tmp_path / "fifo")
    (error,) = unresolved(f"${{file:{name}}}", ENV, folder=tmp_path)
    assert error.code == "config.unreadable-reference"
    assert f"${{file:{name}}}" in error.what
    assert "hunter" not in str(error) + repr(error)
    assert error.hint


def test_file_references_are_made_absolute_and_nothing_else_is_touched(tmp_path: Path) -> None:
    text = "$X ${file:a/../b} ${literal:${file:c}} ${file:/d} ${env:Y:-{}} ${"
    assert (
        anchored(text, tmp_path)
        == f"$X ${{file:{tmp_path}/b}} ${{literal:${{file:c}}}} ${{file:/d}} ${{env:Y:-{{}}}} ${{"
    )


def test_two_dollars_are_refused_with_what_to_write_instead() -> None:
    (error,) = unresolved("a$$b", ENV)
    assert error.hint == "write ${literal:$$} for the characters themselves"
    assert expand("a${literal:$$}b", ENV) == "a$$b"


def test_every_reference_that_does_not_resolve_is_told() -> None:
    assert [e.what for e in unresolved("$A ${X} ${env:B} $$", ENV)] == [
        "the environment variable 'A' is not set",
        "the environment variable 'B' is not set",
        "'$$' is not a reference",
    ]


def test_settings_are_expanded_in_values_and_not_in_names() -> None:
    assert expand_settings({"$X": "$X", "b": "2"}, ENV) == {"$X": "one", "b": "2"}


def test_settings_name_the_one_that_does_not_expand() -> None:
    with pytest.raises(BadReferenceError) as caught:
        expand_settings({"a": "$X", "b": "$NO"}, ENV)
    assert caught.value.where == "setting 'b'"


_BALANCED = st.recursive(
    st.text(alphabet="ab$X :-"), lambda inner: st.lists(inner, max_size=4).map(lambda parts: "{" + "".join(parts) + "}")
)


@given(_BALANCED)
def test_a_literal_with_paired_braces_is_untouched(text: str) -> None:
    assert expand(f"<${{literal:{text}}}>", {}) == f"<{text}>"


@given(st.text().filter(lambda text: "$" not in text))
def test_a_text_without_a_dollar_is_untouched(text: str) -> None:
    assert expand(text, {}) == text
