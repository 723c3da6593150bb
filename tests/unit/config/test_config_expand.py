"""References to the environment."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config import BadReferenceError, expand, expand_settings
from penstock.config.expand import unresolved

ENV = {"X": "one", "Y_2": "two", "EMPTY": "", "TRICK": "$X ${Y_2}"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("plain", "plain"),
        ("$X", "one"),
        ("${X}", "one"),
        ("${env:X}", "one"),
        ("a${X}b$Y_2/c", "aoneb" + "two/c"),
        ("[${EMPTY}]", "[]"),
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


@pytest.mark.parametrize("text", ["^a$", "$.x.y", "a $ b", "x$|y", "$", "$(", "{X}"])
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
