"""What a file asks for and can't be done, said before anything starts, with the place in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock import Pipeline, Record
from penstock.config import ConfigErrors, Problem
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.native import NativeDestination, Shape
from penstock.processors.python import Python

HEAD = 'version: "2.2"\npipelines:\n  - id: p\n'


CONNECTORS = """\
    connectors:
      - id: in
        type: source
        plugin: files
        settings: {path: /in}
      - id: out
        type: destination
        plugin: files
        settings: {path: /out}
"""


def found(folder: Path, text: str) -> list[Problem]:
    path = folder / "p.yaml"
    path.write_text(text)
    with pytest.raises(ConfigErrors) as caught:
        Pipeline.from_file(path)
    return caught.value.problems


def place(text: str, needle: str) -> tuple[int, int]:
    """Line and column of a piece of the text, from 1."""
    [line] = [n for n, t in enumerate(text.splitlines(), 1) if needle in t]
    return line, text.splitlines()[line - 1].index(needle) + 1


def with_processors(*lines: str) -> str:
    return HEAD + "    processors:\n" + "".join(f"      - {line}\n" for line in lines) + CONNECTORS


def the_one(folder: Path, text: str, code: str, at: str) -> Problem:
    [problem] = found(folder, text)
    assert problem.code == code
    assert problem.where.startswith(str(folder / "p.yaml"))
    assert problem.position == place(text, at), problem.where
    return problem


# -- shapes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "processors, at, words",
    [
        (['{id: a, plugin: "field.set", settings: {field: .Payload.After.x, value: v}}'], '"field.set"', "json.decode"),
        (['{id: a, plugin: "sql", settings: {field: .Payload.After.x, expression: "1"}}'], '"sql"', "json.decode"),
        (
            [
                '{id: d, plugin: json.decode, settings: {schema: "x INT"}}',
                '{id: a, plugin: "json.decode", settings: {schema: "x INT"}}',
            ],
            '"json.decode"',
            "schema",
        ),
        (
            ['{id: d, plugin: json.decode, settings: {schema: "x INT"}}', '{id: a, plugin: "json.decode"}'],
            '"json.decode"',
            "leave this processor out",
        ),
    ],
)
def test_a_processor_that_can_not_work_on_what_reaches_it_is_refused_with_its_place(
    tmp_path: Path, processors: list[str], at: str, words: str
) -> None:
    problem = the_one(tmp_path, with_processors(*processors), "config.shape", at)
    assert "processor 'a'" in problem.what
    assert words in problem.hint


@pytest.mark.parametrize(
    "condition",
    [
        "after.x =",
        "after.x = = 1",
        "{{ eq .Metadata.x",
        "explode(after.x)",
        "select 1",
        "(",
        "after.x in (select 1)",
    ],
)
def test_a_condition_that_can_not_be_used_is_refused_with_its_place(tmp_path: Path, condition: str) -> None:
    text = with_processors("{id: d, plugin: json.decode}", f'{{id: a, plugin: filter, condition: "{condition}"}}')
    code = "config.bad-template" if "{{" in condition else "config.bad-condition"
    problem = the_one(tmp_path, text, code, f'"{condition}"')
    assert "processor 'a'" in problem.what
    assert "condition" in problem.what


@pytest.mark.parametrize("condition", ["after.x =", "(", "{{ . "])
def test_a_condition_in_columns_is_parsed_too(tmp_path: Path, condition: str) -> None:
    text = with_processors(f'{{id: a, plugin: filter, condition: "{condition}"}}')
    the_one(tmp_path, text, "config.bad-template" if "{{" in condition else "config.bad-condition", f'"{condition}"')


def test_a_condition_on_a_field_of_a_raw_payload_is_refused_and_names_json_decode(tmp_path: Path) -> None:
    text = with_processors('{id: a, plugin: filter, condition: "after.x = 1"}')
    problem = the_one(tmp_path, text, "config.shape", '"after.x = 1"')
    assert "json.decode" in problem.hint


def test_a_condition_with_a_variable_that_is_not_set_is_refused_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PENSTOCK_TEST_UNSET", raising=False)
    text = with_processors('{id: a, plugin: filter, condition: "after = ${PENSTOCK_TEST_UNSET}"}')
    [problem] = found(tmp_path, text)
    assert problem.position[0] == 5
    assert "PENSTOCK_TEST_UNSET" in problem.what


def test_a_condition_may_use_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIMIT", "5")
    path = tmp_path / "p.yaml"
    path.write_text(
        with_processors("{id: d, plugin: json.decode}", '{id: a, plugin: filter, condition: "after.x < $LIMIT"}')
    )
    assert Pipeline.from_file(path).plan().lanes[0].nodes[1].condition.text == "after.x < 5"


def test_a_blank_condition_is_none(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(with_processors('{id: a, plugin: filter, condition: "  "}'))
    assert not Pipeline.from_file(path).plan().lanes[0].nodes[0].condition


def test_a_function_of_batches_takes_no_condition(tmp_path: Path) -> None:
    line = '{id: a, plugin: python, settings: {function: "m:f", batch: true}, condition: "true"}'
    the_one(tmp_path, with_processors(line), "config.shape", '"true"')


@pytest.mark.parametrize("condition", ["true", "after.x = 1"])
def test_what_gives_a_schema_takes_no_condition(tmp_path: Path, condition: str) -> None:
    """A record that it left out would have no columns."""
    line = f"{{id: a, plugin: json.decode, settings: {{schema: 'x INT'}}, condition: \"{condition}\"}}"
    problem = the_one(tmp_path, with_processors("{id: d, plugin: json.decode}", line), "config.shape", f'"{condition}"')
    assert "processor 'a'" in problem.what


def test_an_open_payload_may_be_given_a_schema(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(
        with_processors(
            "{id: d, plugin: json.decode}",
            "{id: f, plugin: filter, condition: after.x = 2}",
            "{id: a, plugin: json.decode, settings: {schema: 'x INT'}}",
            "{id: e, plugin: json.encode}",
        )
    )
    Pipeline.from_file(path).plan()


def test_typed_payloads_do_not_fit_text_files_and_the_place_is_the_destinations(tmp_path: Path) -> None:
    text = with_processors('{id: d, plugin: json.decode, settings: {schema: "x INT"}}')
    [problem] = found(tmp_path, text)
    assert (problem.code, problem.what) == ("config.shape", "'out' can't take typed payloads")
    assert problem.position == (13, 17)
    assert "json.encode" in problem.hint


def test_a_destinations_own_processors_count(tmp_path: Path) -> None:
    own = "        processors: [{id: e, plugin: json.encode}]\n"
    path = tmp_path / "p.yaml"
    path.write_text(with_processors('{id: d, plugin: json.decode, settings: {schema: "x INT"}}') + own)
    Pipeline.from_file(path).plan()
    bad = "        processors: [{id: bad, plugin: 'field.set', settings: {field: .Payload.After.x, value: v}}]\n"
    [problem] = found(tmp_path, HEAD + CONNECTORS + bad)
    assert (problem.code, problem.position) == ("config.shape", (13, 40))


def test_a_chain_is_walked_for_every_source(tmp_path: Path) -> None:
    """One of them decodes, so that the pipeline's processors work for it and not for the other."""
    text = HEAD + (
        "    processors: [{id: a, plugin: field.set, settings: {field: .Payload.After.x, value: v}}]\n"
        "    connectors:\n"
        "      - {id: one, type: source, plugin: files, settings: {path: /1}, processors: [{id: d, plugin: json.decode}]}\n"
        "      - {id: two, type: source, plugin: files, settings: {path: /2}}\n"
        "      - {id: out, type: destination, plugin: files, settings: {path: /out}}\n"
    )
    [problem] = found(tmp_path, text)
    assert (problem.code, problem.position) == ("config.shape", (4, 34))


def test_nothing_is_said_twice_where_a_plugin_is_unknown(tmp_path: Path) -> None:
    text = with_processors(
        "{id: a, plugin: no.such}", "{id: b, plugin: field.set, settings: {field: nonsense, value: v}}"
    )
    assert sorted(p.code for p in found(tmp_path, text)) == ["config.bad-value", "config.unknown-plugin"]


# -- guarantees ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("plugin", ["log", "builtin:log"])
def test_exactly_once_is_refused_where_the_destination_can_not(tmp_path: Path, plugin: str) -> None:
    text = HEAD + CONNECTORS.replace("plugin: files\n        settings: {path: /out}", f'plugin: "{plugin}"')
    problem = the_one(tmp_path, text, "config.guarantee", f'"{plugin}"')
    assert "exactly once" in problem.what
    assert "at-least-once" in problem.hint
    for guarantee in ("at-least-once", "at-most-once"):
        path = tmp_path / "p.yaml"
        path.write_text(text.replace("- id: p\n", f"- id: p\n    guarantee: {guarantee}\n"))
        assert Pipeline.from_file(path).plan().guarantee == guarantee


def test_at_most_once_leaves_files_where_they_are(tmp_path: Path) -> None:
    text = (HEAD + "    guarantee: at-most-once\n" + CONNECTORS).replace(
        "{path: /in}", "{path: /in, after-ack: 'delete'}"
    )
    problem = the_one(tmp_path, text, "config.guarantee", "'delete'")
    assert "keep" in problem.hint


def test_at_most_once_takes_a_variable_that_says_keep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTER", "keep")
    path = tmp_path / "p.yaml"
    path.write_text(
        (HEAD + "    guarantee: at-most-once\n" + CONNECTORS).replace("{path: /in}", "{path: /in, after-ack: $AFTER}")
    )
    Pipeline.from_file(path).plan()


def test_at_most_once_leaves_files_of_a_source_given_as_an_object_too() -> None:
    source = FilesSource(FilesSourceSettings(path="/in", after_ack="delete"), "in")
    pipeline = Pipeline("p").guarantee("at-most-once").source("in", source).destination("out", "files", path="/out")
    with pytest.raises(ConfigErrors) as caught:
        pipeline.plan()
    assert [p.code for p in caught.value.problems] == ["config.guarantee"]


def test_a_dead_letter_queue_need_not_be_exactly_once(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text(HEAD + "    dead-letter-queue: {plugin: log}\n" + CONNECTORS)
    assert Pipeline.from_file(path).plan().lanes[0].dlq is not None


# -- the dead letter queue -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "queue, code, at",
    [
        ('{plugin: "flies"}', "config.unknown-plugin", '"flies"'),
        ('{plugin: files, "settings": {}}', "config.missing-key", "{}"),
        ("{plugin: files, settings: {path: /dead, 'pth': x}}", "config.unknown-key", "'pth'"),
        ("{window-size: '-1'}", "config.bad-value", "'-1'"),
        ("{window-size: 5, window-nack-threshold: 'many'}", "config.bad-value", "'many'"),
        ("{'windowsize': 5}", "config.unknown-key", "'windowsize'"),
    ],
)
def test_what_is_wrong_with_a_dead_letter_queue_is_said_with_its_place(
    tmp_path: Path, queue: str, code: str, at: str
) -> None:
    text = HEAD + f"    dead-letter-queue: {queue}\n" + CONNECTORS
    [problem] = found(tmp_path, text)
    assert problem.code == code
    assert problem.position[0] == 4
    if code != "config.missing-key":
        assert problem.position == place(text, at)


@pytest.mark.parametrize(
    "window", ["{window-size: 1, window-nack-threshold: 1}", "{window-size: 5, window-nack-threshold: 7}"]
)
def test_a_threshold_that_a_window_can_never_pass_is_refused(tmp_path: Path, window: str) -> None:
    """Such a gate would never close."""
    assert found(tmp_path, HEAD + f"    dead-letter-queue: {window}\n" + CONNECTORS)


# -- python ----------------------------------------------------------------------------------------------------------------


def test_a_module_is_looked_for_beside_the_file_and_not_imported(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('validate must not import this')\n")
    path = tmp_path / "p.yaml"
    path.write_text(
        with_processors(
            '{id: a, plugin: python, settings: {function: "evil:f"}}',
            '{id: b, plugin: python, settings: {function: "evil:f", path: /elsewhere}}',
        )
    )
    first, second = (node.processor for node in Pipeline.from_file(path).plan().lanes[0].nodes)
    assert isinstance(first, Python)
    assert isinstance(second, Python)
    assert (first.settings.path, second.settings.path) == (str(tmp_path), "/elsewhere")


def test_a_pipeline_built_by_hand_looks_nowhere_else() -> None:
    pipeline = Pipeline("p").source("in", "files", path="/in").destination("out", "files", path="/out")
    [node] = pipeline.processor("a", "python", function="m:f").plan().lanes[0].nodes
    assert isinstance(node.processor, Python)
    assert node.processor.settings.path == ""


# -- built by hand ---------------------------------------------------------------------------------------------------------


class OnlyTyped(NativeDestination[None]):
    shapes = frozenset({Shape.TYPED})


def test_what_an_object_can_not_take_is_refused_too() -> None:
    pipeline = Pipeline("p").guarantee("at-least-once").source("in", "files", path="/in")
    pipeline.destination("out", OnlyTyped(None, "out"))
    with pytest.raises(ConfigErrors) as caught:
        pipeline.plan()
    assert [(p.code, p.what, p.where) for p in caught.value.problems] == [
        ("config.shape", "'out' can't take raw payloads", "")
    ]
    pipeline.processor("f", lambda r: Record(r.after))
    with pytest.raises(ConfigErrors, match="can't take open payloads"):
        pipeline.plan()
