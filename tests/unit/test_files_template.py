"""`path: out/{namespace}`: what is a template, what it names, and what is refused before anything starts."""

from __future__ import annotations

import pytest

from penstock.connectors.files.template import Template


@pytest.mark.parametrize("path", ["out", "/out", "/a/b c/ü", "out/", ".", "..", "/", "a//b", "../out"])
def test_a_path_without_braces_is_a_folder_as_it_is(path: str) -> None:
    assert Template.parse(path) == Template(path, ())
    assert Template.parse(path).names == []
    assert Template.parse(path).columns == set()


@pytest.mark.parametrize(
    "path, root, parts, columns",
    [
        ("out/{namespace}", "out", (("", "namespace"), ("", "")), {"namespace"}),
        ("/out/{operation}", "/out", (("", "operation"), ("", "")), {"operation"}),
        ("/a/b/{source}/c", "/a/b", (("", "source"), ("/c", "")), {"source"}),
        ("out/day={metadata.day}", "out", (("day=", "metadata.day"), ("", "")), {"metadata"}),
        ("out/{metadata.a.b c}", "out", (("", "metadata.a.b c"), ("", "")), {"metadata"}),
        ("out/{after.x}/{after.y.z}", "out", (("", "after.x"), ("/", "after.y.z"), ("", "")), {"after"}),
        (
            "out/x-{namespace}-{operation}.d/z",
            "out",
            (("x-", "namespace"), ("-", "operation"), (".d/z", "")),
            {"namespace", "operation"},
        ),
        ("../out/{namespace}", "../out", (("", "namespace"), ("", "")), {"namespace"}),
    ],
)
def test_the_folder_in_front_and_what_comes_behind_it(
    path: str, root: str, parts: tuple[tuple[str, str], ...], columns: set[str]
) -> None:
    made = Template.parse(path)
    assert made == Template(root, parts)
    assert made.columns == columns
    assert made.names == [name for _, name in parts if name]
    assert "".join(f"{text}{{{name}}}" if name else text for text, name in parts) == path.removeprefix(root + "/")


@pytest.mark.parametrize(
    "path, words",
    [
        ("out/{}", "must have only {namespace}"),
        ("out/{x}", "and it has {x}"),
        ("out/{Namespace}", "{namespace}"),
        ("out/{ namespace }", "must have only"),
        ("out/{key}", "must have only"),
        ("out/{seq}", "must have only"),
        ("out/{metadata}", "{metadata.KEY}"),
        ("out/{metadata.}", "{metadata.KEY}"),
        ("out/{after}", "{after.FIELD}"),
        ("out/{namespace.x}", "must have only"),
        ("out/{namespace", "for every `{`"),
        ("out/namespace}", "for every `}`"),
        ("out/{namespace}}", "for every"),
        ("out/{{namespace}}", "for every"),
        ("out/}{namespace}", "for every"),
        ("{namespace}", "a folder of its own"),
        ("/{namespace}", "a folder of its own"),
        ("./{namespace}", "a folder of its own"),
        ("../{namespace}", "a folder of its own"),
        ("x{namespace}", "a folder of its own"),
        ("out/{namespace}/../x", "without `..`"),
        ("out/./{namespace}", "without `..`"),
        ("out/../{namespace}", "without `..`"),
        ("out/{namespace}/..", "without `..`"),
        ("out/{namespace}/", "empty ones"),
        ("out/{namespace}//x", "empty ones"),
    ],
)
def test_what_is_no_template_is_refused_with_words_that_begin_with_must(path: str, words: str) -> None:
    with pytest.raises(ValueError, match=r"^must ") as caught:
        Template.parse(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("path", ["out/_{namespace}", "out/_pen{namespace}/x", "out/_{source}{namespace}"])
def test_a_folder_that_could_become_penstocks_own_is_refused(path: str) -> None:
    """`_penstock` holds what is staged: a record whose namespace is `penstock` must not be published into it."""
    with pytest.raises(ValueError, match=r"^must "):
        Template.parse(path)


def test_a_template_without_values_has_no_folder_below_its_root() -> None:
    assert Template.parse("out").folder({}) is None
    assert Template.parse("out").unfit({}) == []
