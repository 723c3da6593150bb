"""Files and folders of pipelines: what is accepted, and every refusal with its place."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from penstock.config import (
    BatchConfig,
    ConfigErrors,
    ConnectorConfig,
    DeadLetterQueueConfig,
    Loaded,
    PipelineConfig,
    Problem,
    expand_settings,
    load,
)
from penstock.errors import UsageError

GOOD = """\
version: "2.2"
pipelines:
  - id: orders
    connectors:
      - {id: in, type: source, plugin: "builtin:files", settings: {path: ./in}}
      - {id: out, type: destination, plugin: "builtin:files", settings: {path: ./out}}
"""

FULL = """\
version: 2.2
pipelines:
  - id: orders
    status: stopped
    name: Orders
    description: |
      All of them.
    guarantee: at-least-once
    connectors:
      - id: in
        type: source
        plugin: builtin:files
        name: Inbox
        settings:
          path: ${HOME_OF_ORDERS}/in
          header: yes
          zip: 0123
        processors:
          - {id: first, plugin: json.decode, settings: {field: .Payload.After}}
        batch: {max-records: 1000, max-bytes: 64m, max-files: 4, max-delay: 500ms}
      - {id: out, type: destination, plugin: builtin:files}
      - {id: out-2, type: destination, plugin: builtin:log}
    processors:
      - {id: small, plugin: filter, condition: "after.amount < ${LIMIT}", workers: 2}
    dead-letter-queue: {plugin: builtin:files, settings: {path: ./dead}, window-size: 10, window-nack-threshold: 3}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def writes(text: str, name: str = "p.yaml") -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    return writes


def refused(*paths: Path, environ: dict[str, str] | None = None) -> list[Problem]:
    with pytest.raises(ConfigErrors) as caught:
        load(paths, environ or {})
    return caught.value.problems


def short(problems: list[Problem]) -> list[tuple[str, tuple[int, int]]]:
    return [(problem.code, problem.position) for problem in problems]


def only(problems: list[Problem]) -> Problem:
    assert len(problems) == 1, [str(p) for p in problems]
    return problems[0]


# What is accepted


def test_a_full_pipeline_is_read_as_it_is_written(write: Write) -> None:
    (loaded,) = load(write(FULL), {"HOME_OF_ORDERS": "/data", "LIMIT": "50"})
    (pipeline,) = loaded.pipelines
    assert (pipeline.id, pipeline.status, pipeline.name, pipeline.description, pipeline.guarantee) == (
        "orders",
        "stopped",
        "Orders",
        "All of them.\n",
        "at-least-once",
    )
    source, out, out_2 = pipeline.connectors
    assert (source.id, source.type, source.plugin, source.name) == ("in", "source", "builtin:files", "Inbox")
    assert source.batch == BatchConfig(max_records=1000, max_bytes=64 << 20, max_files=4, max_delay=0.5)
    assert source.processors[0].settings == {"field": ".Payload.After"}
    assert (out.type, out_2.type) == ("destination", "destination")
    assert pipeline.processors[0].workers == 2
    dlq = pipeline.dead_letter_queue
    assert (dlq.plugin, dlq.settings, dlq.window_size, dlq.window_nack_threshold) == (
        "builtin:files",
        {"path": "./dead"},
        10,
        3,
    )


def test_what_is_left_out_has_its_default(write: Write) -> None:
    pipeline = load(write(GOOD), {})[0].pipelines[0]
    assert (pipeline.status, pipeline.guarantee, pipeline.processors) == ("running", "exactly-once", ())
    assert pipeline.dead_letter_queue == DeadLetterQueueConfig(plugin=None, window_size=1, window_nack_threshold=0)
    assert pipeline.connectors[0].batch == BatchConfig(max_records=None, max_bytes=None, max_files=None, max_delay=None)


def test_settings_and_conditions_keep_their_text_and_never_a_value(write: Write) -> None:
    (loaded,) = load(write(FULL), {"HOME_OF_ORDERS": "s3cret-home", "LIMIT": "s3cret-limit"})
    settings = loaded.pipelines[0].connectors[0].settings
    assert settings == {"path": "${HOME_OF_ORDERS}/in", "header": "yes", "zip": "0123"}
    assert loaded.pipelines[0].processors[0].condition == "after.amount < ${LIMIT}"
    assert "s3cret" not in repr(loaded)


def test_references_outside_settings_and_conditions_have_their_value(write: Write) -> None:
    text = GOOD.replace("id: orders", "id: orders-$STAGE\n    status: ${env:STATUS:-stopped}").replace(
        "settings: {path: ./in}", "batch: {max-files: '${N}', max-bytes: $BYTES}"
    )
    pipeline = load(write(text), {"STAGE": "test", "N": "7", "BYTES": "1k"})[0].pipelines[0]
    assert (pipeline.id, pipeline.status) == ("orders-test", "stopped")
    assert pipeline.connectors[0].batch == BatchConfig(max_files=7, max_bytes=1024)


def test_an_expanded_id_is_checked_like_any_other(write: Write) -> None:
    problem = only(refused(write(GOOD.replace("id: orders", "id: $NAME")), environ={"NAME": "a b"}))
    assert short([problem]) == [("config.bad-value", (3, 9))]


def test_the_environment_of_the_process_is_the_default(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write(GOOD.replace("id: orders", "id: $PENSTOCK_TEST_ID"))
    monkeypatch.setenv("PENSTOCK_TEST_ID", "from-outside")
    assert load(file)[0].pipelines[0].id == "from-outside"


@pytest.mark.parametrize("version", ["2.0", '"2.1"', "2.2"])
def test_a_version_may_be_quoted_or_not(write: Write, version: str) -> None:
    assert load(write(GOOD.replace('"2.2"', version)), {})


def test_a_number_may_be_an_id(write: Write) -> None:
    assert load(write(GOOD.replace("id: orders", "id: 12")), {})[0].pipelines[0].id == "12"


def test_a_key_without_a_value_is_as_good_as_absent(write: Write) -> None:
    text = GOOD + "    processors:\n    name:\n    dead-letter-queue:\n"
    assert load(write(text), {})[0].pipelines == load(write(GOOD), {})[0].pipelines


def test_several_destinations_and_several_sources_are_no_error(write: Write) -> None:
    more = "      - {id: b, type: source, plugin: x}\n      - {id: c, type: destination, plugin: x}\n"
    assert len(load(write(GOOD + more), {})[0].pipelines[0].connectors) == 4


def test_connectors_and_processors_may_share_an_id(write: Write) -> None:
    assert load(write(GOOD + "    processors: [{id: in, plugin: x}]\n"), {})


def test_the_same_connector_ids_in_two_pipelines_are_no_error(write: Write) -> None:
    second = GOOD.replace("id: orders", "id: other").split("pipelines:\n")[1]
    assert [p.id for p in load(write(GOOD + second), {})[0].pipelines] == ["orders", "other"]


def test_models_are_frozen(write: Write) -> None:
    pipeline = load(write(GOOD), {})[0].pipelines[0]
    with pytest.raises(ValidationError, match="frozen"):
        pipeline.name = "x"  # type: ignore[misc]


def test_models_are_made_by_field_names_in_python() -> None:
    source = ConnectorConfig(id="in", type="source", plugin="x", batch=BatchConfig(max_files=1))
    assert PipelineConfig(id="p", connectors=(source,)).connectors[0].batch.max_files == 1


# Files and folders


def test_a_folder_gives_its_yaml_files_in_order_and_nothing_else(write: Write, tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.txt"):
        write(GOOD.replace("orders", name[0]), f"folder/{name}")
    (tmp_path / "folder" / "d.yaml").mkdir()
    loaded = load([tmp_path / "folder"], {})
    assert [(x.file.name, x.pipelines[0].id) for x in loaded] == [("a.yaml", "a"), ("b.yml", "b")]


def test_a_file_that_is_named_twice_is_read_once(write: Write, tmp_path: Path) -> None:
    file = write(GOOD)
    assert len(load([file, tmp_path, str(file)], {})) == 1


def test_a_path_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    problem = only(refused(tmp_path / "no.yaml"))
    assert (problem.code, problem.where) == ("config.unreadable", str(tmp_path / "no.yaml"))
    assert "No such file" in problem.what


def test_a_folder_without_yaml_is_refused(tmp_path: Path) -> None:
    problem = only(refused(tmp_path))
    assert (problem.code, problem.where) == ("config.unreadable", str(tmp_path))
    assert "no *.yml or *.yaml" in problem.what


def test_a_link_to_itself_is_refused_and_no_crash(tmp_path: Path) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    assert only(refused(tmp_path / "loop.yaml")).code == "config.unreadable"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_may_not_be_read_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0)
    try:
        assert only(refused(tmp_path)).code == "config.unreadable"
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    "text", ["", "# later\n", "---\n", "null\n", "version: 2.2\n", "version: 2.2\npipelines: []\n"]
)
def test_files_without_any_pipeline_are_refused(write: Write, text: str) -> None:
    problem = only(refused(write(text)))
    assert (problem.code, problem.position[1]) == ("config.no-pipelines", 1)
    assert load(write(text), {}, runnable=False)[0].pipelines == ()


def test_an_empty_file_among_others_is_no_error(write: Write) -> None:
    loaded = load([write("# later\n", "a.yaml"), write(GOOD, "b.yaml")], {})
    assert [len(x.pipelines) for x in loaded] == [0, 1]


def test_the_documents_of_a_file_are_loaded_each_with_its_places(write: Write) -> None:
    loaded = load(write(GOOD + "---\n" + GOOD.replace("orders", "more")), {})
    assert [(x.pipelines[0].id, x.where("pipelines", 0, "id").rsplit(":", 2)[1]) for x in loaded] == [
        ("orders", "3"),
        ("more", "10"),
    ]


def test_an_id_is_unique_over_the_documents_of_a_file(write: Write) -> None:
    assert short(refused(write(GOOD + "---\n" + GOOD))) == [("config.duplicate-id", (10, 9))]


# Older and unknown versions


def test_a_file_without_a_version_is_read_as_the_latest_with_a_warning(write: Write) -> None:
    (loaded,) = load(write(GOOD.replace('version: "2.2"\n', "")), {})
    assert short(list(loaded.warnings)) == [("config.no-version", (1, 1))]
    assert loaded.warnings[0].hint


@pytest.mark.parametrize("version", ["2", "2.3", "2.20", "2.99", '"2"'])
def test_an_unknown_minor_version_is_read_as_the_latest_with_a_warning(write: Write, version: str) -> None:
    (loaded,) = load(write(GOOD.replace('"2.2"', version)), {})
    assert short(list(loaded.warnings)) == [("config.unknown-version", (1, 10))]


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_the_type_of_a_processor_is_its_plugin_with_a_warning(write: Write, version: str) -> None:
    text = GOOD.replace('"2.2"', version).replace("settings: {path: ./in}", "processors: [{id: a, type: x}]")
    (loaded,) = load(write(text + "    processors: [{id: b, type: y, plugin: z}]\n"), {})
    (pipeline,) = loaded.pipelines
    assert [p.plugin for p in (*pipeline.connectors[0].processors, *pipeline.processors)] == ["x", "z"]
    assert short(list(loaded.warnings)) == [("config.renamed-key", (5, 78)), ("config.renamed-key", (7, 26))]


def test_a_good_file_has_no_warnings(write: Write) -> None:
    assert load(write(GOOD), {})[0].warnings == ()


# As in Conduit


@pytest.mark.parametrize(("given", "made"), [("0", 1), ("1", 1), ("7", 7), ("", 1)])
def test_no_workers_are_one(write: Write, given: str, made: int) -> None:
    text = GOOD + f"    processors: [{{id: a, plugin: x, workers: {given}}}]\n"
    assert load(write(text), {})[0].pipelines[0].processors[0].workers == made


@pytest.mark.parametrize("given", ['"2"', "$N", "-1", "1.5", "true", "[1]"])
@pytest.mark.parametrize("key", ["workers", "window-size", "window-nack-threshold"])
def test_these_numbers_are_written_as_numbers(write: Write, key: str, given: str) -> None:
    what = (
        f"processors: [{{id: a, plugin: x, {key}: {given}}}]"
        if key == "workers"
        else f"dead-letter-queue: {{{key}: {given}}}"
    )
    problem = only(refused(write(GOOD + f"    {what}\n"), environ={"N": "5"}))
    assert (problem.code, problem.position[0]) == ("config.bad-value", 7)
    assert problem.hint


def test_an_empty_status_is_running_and_an_empty_queue_none(write: Write) -> None:
    text = GOOD.replace("id: orders", 'id: orders\n    status: ""\n    dead-letter-queue: {plugin: ""}')
    pipeline = load(write(text), {})[0].pipelines[0]
    assert (pipeline.status, pipeline.dead_letter_queue.plugin) == ("running", None)


@pytest.mark.parametrize(("key", "limit"), [("name", 128), ("description", 8192)], ids=["name", "description"])
def test_texts_of_a_pipeline_have_conduits_limits_in_bytes(write: Write, key: str, limit: int) -> None:
    ok = GOOD.replace("id: orders", f"id: orders\n    {key}: {'é' * (limit // 2)}")
    assert getattr(load(write(ok), {})[0].pipelines[0], key) == "é" * (limit // 2)
    problem = only(refused(write(ok.replace(f"{key}: ", f"{key}: x"))))
    assert short([problem]) == [("config.bad-value", (4, 7 + len(key)))]


def test_a_connectors_name_has_conduits_limit(write: Write) -> None:
    assert load(write(GOOD.replace("id: out,", f"id: out, name: {'x' * 256},")), {})
    assert only(refused(write(GOOD.replace("id: out,", f"id: out, name: {'x' * 257},")))).code == "config.bad-value"


def test_two_ids_that_make_a_file_name_too_long_are_refused(write: Write) -> None:
    text = GOOD.replace("id: orders", f"id: {'p' * 128}")
    assert load(write(text.replace("id: in,", f"id: {'c' * 72},")), {})
    problem = only(refused(write(text.replace("id: in,", f"id: {'c' * 73},"))))
    assert short([problem]) == [("config.bad-value", (5, 14))]


def test_text_may_be_any_scalar_as_it_is_written(write: Write) -> None:
    text = GOOD.replace("id: orders", "id: true\n    name: 0x1F\n    description: 2024-01-01")
    pipeline = load(write(text), {})[0].pipelines[0]
    assert (pipeline.id, pipeline.name, pipeline.description) == ("true", "0x1F", "2024-01-01")


def test_connectors_may_share_what_is_written_once(write: Write) -> None:
    text = GOOD.replace("settings: {path: ./in}", "settings: &s {path: ./in, header: true}").replace(
        "{path: ./out}", "{<<: *s, path: ./out}"
    )
    source, destination = load(write(text), {})[0].pipelines[0].connectors
    assert source.settings == {"path": "./in", "header": "true"}
    assert destination.settings == {"path": "./out", "header": "true"}


# Tests in a file

TESTS = (
    GOOD
    + """\
    tests:
      - name: a test
        input:
          - a line with $5 and ${X}
          - {after: {n: 1, big: 123456789012345678901234567890, x: 1.5, t: true, no: null, s: "1"}, operation: update}
          - {after: null, key: k, metadata: {a: 1}, namespace: t}
        expect:
          - {after: {n: 1}}
        rejects: [{node: out, code: x.y}]
        filtered: 1
"""
)


def test_tests_have_typed_records_and_nothing_in_them_is_expanded(write: Write) -> None:
    (test,) = load(write(TESTS), {})[0].pipelines[0].tests
    line, update, rest = test.input
    assert line.after == "a line with $5 and ${X}"
    assert update.after == {"n": 1, "big": 123456789012345678901234567890, "x": 1.5, "t": True, "no": None, "s": "1"}
    assert (update.operation, line.operation) == ("update", "create")
    assert (rest.after, rest.key, rest.metadata, rest.namespace) == (None, "k", {"a": "1"}, "t")
    assert test.expected(["out"]) == {"out": [{"after": {"n": 1}}]}
    assert test.rejects[0].shown() == "node 'out', code 'x.y'"
    assert (test.rejects[0].node, test.rejects[0].error, test.filtered, test.source) == ("out", None, 1, None)


def test_what_is_expected_may_be_given_by_destination(write: Write) -> None:
    (test,) = (
        load(write(TESTS.replace("        expect:\n", "        expect:\n         out:\n")), {})[0].pipelines[0].tests
    )
    assert test.expected(["out"]) == {"out": [{"after": {"n": 1}}]}


@pytest.mark.parametrize(
    ("old", "new", "code", "place"),
    [
        ("{after: {n: 1}}", "{aftr: {n: 1}}", "config.unknown-key", (14, 14)),
        ("{after: {n: 1}}", "{after: [1]}", "config.bad-value", (14, 21)),
        ("{after: {n: 1}}", "5", "config.bad-value", (14, 13)),
        ("name: a test", "source: out", "config.bad-value", (8, 17)),
        ("filtered: 1", "filtered: -1", "config.bad-value", (16, 19)),
        ("operation: update", "operation: upd", "config.bad-value", (11, 112)),
        ("        expect:\n", "        expect:\n         other:\n", "config.bad-value", (14, 10)),
        ("- name: a test\n        input:", "- name: a test\n        inputs:", "config.missing-key", (8, 9)),
    ],
)
def test_a_bad_test_is_refused_at_its_place(
    write: Write, old: str, new: str, code: str, place: tuple[int, int]
) -> None:
    problems = refused(write(TESTS.replace(old, new)))
    assert (code, place) in short(problems)
    assert len(problems) == (2 if "inputs" in new else 1)  # what is missing, and what is not known


def test_a_test_of_several_sources_names_one(write: Write) -> None:
    more = "      - {id: in-2, type: source, plugin: x}\n    tests:"
    assert short(refused(write(TESTS.replace("    tests:", more)))) == [("config.bad-value", (9, 9))]
    assert load(write(TESTS.replace("    tests:", more).replace("name: a test", "source: in-2")), {})


# Files that are named in references


def test_a_file_reference_is_relative_to_the_pipeline_file_and_works_from_anywhere(
    write: Write, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("hunter2\n")
    (loaded,) = load(write(GOOD.replace("./in", "'x-${file:secret}-${literal:${file:y}}'")), {})
    settings = loaded.pipelines[0].connectors[0].settings
    assert settings == {"path": f"x-${{file:{tmp_path}/secret}}-${{literal:${{file:y}}}}"}
    assert expand_settings(settings, {}) == {"path": "x-hunter2-${file:y}"}
    assert "hunter2" not in repr(loaded)


def test_a_file_that_a_reference_names_must_be_readable(write: Write) -> None:
    problem = only(refused(write(GOOD.replace("./in", "'${file:no/such}'"))))
    assert short([problem]) == [("config.unreadable-reference", (5, 74))]
    assert "no/such" in problem.what


def test_a_reference_that_needs_quotes_is_told_so(write: Write) -> None:
    problem = only(refused(write(GOOD.replace("./in", "${X}"))))
    assert (problem.code, problem.hint) == (
        "config.syntax",
        "inside { } and [ ], put quotes around a text with ${…}",
    )


def test_every_problem_says_what_to_do(write: Write, tmp_path: Path) -> None:
    """Each line of this file is wrong in its own way."""
    text = """\
version: 3
extra: 1
pipelines:
  - 5
  - id: [a]
    status: up
    name: {a: b}
    connectors: {}
    processors: [{plugin: "", workers: x, condition: $NO}, {id: "a b", settings: [1], plugin: $$}]
    dead-letter-queue: {window-size: 2, window-nack-threshold: 2}
    tests: [{input: 5, expect: 5, rejects: [5], filtered: x}, {}]
  - {id: , id: x, connectors: [{id: a, type: s, plugin: !x y, batch: {max-bytes: x, max-delay: 5, max-files: 0}}]}
"""
    problems = refused(write(text), write("a: [", "b.yaml"), tmp_path / "no")
    assert len(problems) > 20
    assert [str(p) for p in problems if not p.hint] == []


# Refusals, each with its place


def test_an_unknown_key_is_refused_with_the_nearest_known_one(write: Write) -> None:
    problem = only(refused(write(GOOD.replace("connectors", "conectors"))))
    assert short([problem]) == [("config.unknown-key", (4, 5))]
    assert problem.line_text == "    conectors:"
    assert problem.hint == "did you mean 'connectors'?"


@pytest.mark.parametrize(
    ("old", "new", "place", "hint"),
    [
        ("version:", "versions: 1\nversion:", (1, 1), "did you mean 'version'?"),
        ("type: source,", "type: source, plugn: x,", (5, 32), "did you mean 'plugin'?"),
        ("settings: {path: ./in}", "batch: {max_files: 1}", (5, 65), "did you mean 'max-files'?"),
        (
            "    connectors:",
            "    dead-letter-queue: {window: 3}\n    connectors:",
            (4, 25),
            "did you mean 'window-size'?",
        ),
        (
            "settings: {path: ./in}",
            "batch: {zzz: 1}",
            (5, 65),
            "known keys: max-records, max-bytes, max-files, max-delay, max-record-bytes",
        ),
    ],
)
def test_an_unknown_key_is_found_at_every_level(
    write: Write, old: str, new: str, place: tuple[int, int], hint: str
) -> None:
    problem = only(refused(write(GOOD.replace(old, new))))
    assert short([problem]) == [("config.unknown-key", place)]
    assert problem.hint == hint


@pytest.mark.parametrize(
    ("old", "new", "place", "key"),
    [
        ("  - id: orders\n    connectors", "  - connectors", (3, 5), "id"),
        ('plugin: "builtin:files", settings: {path: ./in}', "name: x", (5, 9), "plugin"),
    ],
)
def test_a_missing_key_is_refused_where_it_should_stand(
    write: Write, old: str, new: str, place: tuple[int, int], key: str
) -> None:
    problem = only(refused(write(GOOD.replace(old, new))))
    assert short([problem]) == [("config.missing-key", place)]
    assert problem.what == f"the key '{key}' is missing"


def test_a_needed_key_without_a_value_is_refused_at_the_key(write: Write) -> None:
    problem = only(refused(write(GOOD.replace("id: orders", "id:"))))
    assert short([problem]) == [("config.missing-key", (3, 5))]
    assert problem.what == "the key 'id' has no value"


@pytest.mark.parametrize(
    ("old", "new", "place", "what"),
    [
        ('"2.2"', "3.0", (1, 10), "'version' must be '2.0', '2.1' or '2.2'"),
        ('"2.2"', "20", (1, 10), "'version' must be '2.0', '2.1' or '2.2'"),
        ('"2.2"', "v2.2", (1, 10), "'version' must be '2.0', '2.1' or '2.2'"),
        ('"2.2"', "$V", (1, 10), "'version' must be '2.0', '2.1' or '2.2'"),
        ("type: source", "type: sink", (5, 24), "'type' must be 'source' or 'destination'"),
        ("id: orders", "id: orders\n    status: up", (4, 13), "'status' must be 'running' or 'stopped'"),
        (
            "id: orders",
            "id: orders\n    guarantee: once",
            (4, 16),
            "'guarantee' must be 'exactly-once', 'at-least-once' or 'at-most-once'",
        ),
        ("id: orders", "id: [a]", (3, 9), "'id' must be text"),
        ('plugin: "builtin:files", settings: {path: ./in}', 'plugin: ""', (5, 40), "'plugin' must not be empty"),
        ("{path: ./in}", "[1]", (5, 67), "'settings' must be a mapping of keys to values"),
        ("{path: ./in}", "{path: {a: b}}", (5, 74), "'path' must be text"),
        ("    connectors:", "    processors: x\n    connectors:", (4, 17), "'processors' must be a list"),
        (
            "    connectors:",
            "    processors: [x]\n    connectors:",
            (4, 18),
            "item 1 of 'processors' must be a mapping of keys to values",
        ),
        ("settings: {path: ./in}", "batch: {max-files: 0}", (5, 76), "'max-files' must be greater than 0"),
        ("settings: {path: ./in}", "batch: {max-records: 0}", (5, 78), "'max-records' must be greater than 0"),
        ("settings: {path: ./in}", "batch: {max-bytes: 0}", (5, 76), "'max-bytes' must be greater than 0"),
        ("settings: {path: ./in}", "batch: {max-files: x}", (5, 76), "'max-files' must be a whole number"),
        ("settings: {path: ./in}", "batch: {max-files: true}", (5, 76), "'max-files' must be a whole number"),
        (
            "settings: {path: ./in}",
            "batch: {max-bytes: 5x}",
            (5, 76),
            "'max-bytes' must be a size such as 1048576, 64m, 512MB or 1g",
        ),
        (
            "settings: {path: ./in}",
            "batch: {max-delay: 5}",
            (5, 76),
            "'max-delay' must be a duration with a unit, such as 500ms, 5s or 1m",
        ),
        (
            "    connectors:",
            "    dead-letter-queue: {window-size: 2, window-nack-threshold: 2}\n    connectors:",
            (4, 24),
            "'dead-letter-queue' must have a 'window-nack-threshold' lower than its 'window-size'",
        ),
        (
            "    connectors:",
            "    dead-letter-queue: {settings: {a: b}}\n    connectors:",
            (4, 24),
            "'dead-letter-queue' must name the 'plugin' that takes its 'settings'",
        ),
    ],
)
def test_a_bad_value_is_refused_at_its_place(
    write: Write, old: str, new: str, place: tuple[int, int], what: str
) -> None:
    problem = only(refused(write(GOOD.replace(old, new))))
    assert short([problem]) == [("config.bad-value", place)]
    assert problem.what == what


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text\n"])
def test_a_file_that_is_no_mapping_is_refused(write: Write, text: str) -> None:
    problem = only(refused(write(text)))
    assert short([problem]) == [("config.bad-value", (1, 1))]
    assert problem.what == "the file must be a mapping of keys to values"


@pytest.mark.parametrize("connectors", ["3", "x", "{a: b}", "[x]", "[[]]", "[{type: [source]}]"])
def test_connectors_of_a_wrong_shape_are_refused_and_no_crash(write: Write, connectors: str) -> None:
    problems = refused(write(f"version: 2.2\npipelines:\n  - id: a\n    connectors: {connectors}\n"))
    assert {p.position[0] for p in problems} == {4}
    assert "config.bad-value" in {p.code for p in problems}


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "-", "_", "9", "x" * 128])
def test_an_id_is_letters_digits_and_a_few_signs(write: Write, name: str) -> None:
    assert load(write(GOOD.replace("id: orders", f"id: '{name}'")), {})[0].pipelines[0].id == name


@pytest.mark.parametrize("name", ["", ".a", "a b", "a/b", "é", "x" * 129, "a\\n"])
def test_any_other_id_is_refused(write: Write, name: str) -> None:
    problem = only(refused(write(GOOD.replace("id: orders", f'id: "{name}"'))))
    assert short([problem]) == [("config.bad-value", (3, 9))]


def test_a_pipeline_without_a_source_or_a_destination_is_refused_at_its_line(write: Write) -> None:
    lines = GOOD.splitlines(keepends=True)
    assert short(refused(write("".join(lines[:4] + lines[5:])))) == [("config.no-source", (3, 5))]
    assert short(refused(write("".join(lines[:5])))) == [("config.no-destination", (3, 5))]
    nothing = refused(write("".join(lines[:3])))
    assert short(nothing) == [("config.no-source", (3, 5)), ("config.no-destination", (3, 5))]
    assert nothing[0].line_text == "  - id: orders"
    assert nothing[0].hint == "add a connector with type: source"


def test_a_pipeline_id_is_unique_over_all_files(write: Write) -> None:
    first, second = write(GOOD, "a.yaml"), write("# a line more\n" + GOOD, "b.yaml")
    problem = only(refused(first, second))
    assert (problem.code, problem.where) == ("config.duplicate-id", f"{second}:4:9")
    assert problem.hint == f"change it; the first is at {first}:3:9"


def test_a_connector_id_is_unique_in_its_pipeline(write: Write) -> None:
    problem = only(refused(write(GOOD.replace("id: out", "id: in"))))
    assert short([problem]) == [("config.duplicate-id", (6, 14))]
    assert problem.what == "the connector id 'in' is already taken"


def test_a_processor_id_is_unique_in_its_pipeline_and_its_connectors(write: Write) -> None:
    text = GOOD.replace("settings: {path: ./in}", "processors: [{id: x, plugin: y}]")
    problem = only(refused(write(text + "    processors:\n      - {id: x, plugin: y}\n")))
    assert short([problem]) == [("config.duplicate-id", (8, 14))]
    assert problem.hint.endswith(":5:75")


def test_an_unset_variable_is_refused_at_its_place(write: Write) -> None:
    problem = only(refused(write(GOOD.replace("./in", "$NO/in"))))
    assert short([problem]) == [("config.unset-variable", (5, 74))]
    assert problem.what == "the environment variable 'NO' is not set"


@pytest.mark.parametrize("text", ["$NO", "a$$b"])
def test_a_bad_reference_is_not_called_a_bad_value_as_well(write: Write, text: str) -> None:
    problem = only(refused(write(GOOD.replace("id: orders", f"id: {text}"))))
    assert problem.code in ("config.unset-variable", "config.bad-reference")
    assert problem.position == (3, 9)


def test_a_variable_in_a_condition_must_be_set(write: Write) -> None:
    text = GOOD + '    processors: [{id: x, plugin: filter, condition: "a < $NO"}]\n'
    assert short(refused(write(text))) == [("config.unset-variable", (7, 53))]


# All of it at once


def test_all_problems_of_all_files_are_told_at_once_and_in_order(write: Write, tmp_path: Path) -> None:
    bad = """\
version: 9
pipelines:
  - id: orders
    id: again
    statsu: running
    connectors:
      - {id: in, type: source, plugin: !x y, settings: {path: $NO}}
      - {id: in, type: destination, settings: {path: [1]}}
"""
    missing, first, second = tmp_path / "no.yaml", write(bad, "bad.yaml"), write(GOOD, "good.yaml")
    broken = write("a: [\n", "broken.yaml")
    problems = refused(missing, first, second, broken)
    assert [(Path(p.where.split(":")[0]).name, p.code, p.position) for p in problems] == [
        ("no.yaml", "config.unreadable", (0, 0)),
        ("bad.yaml", "config.bad-value", (1, 10)),
        ("bad.yaml", "config.duplicate-key", (4, 5)),
        ("bad.yaml", "config.unknown-key", (5, 5)),
        ("bad.yaml", "config.tag", (7, 40)),
        ("bad.yaml", "config.unset-variable", (7, 63)),
        ("bad.yaml", "config.missing-key", (8, 9)),
        ("bad.yaml", "config.duplicate-id", (8, 14)),
        ("bad.yaml", "config.bad-value", (8, 54)),
        ("good.yaml", "config.duplicate-id", (3, 9)),
        ("broken.yaml", "config.syntax", (2, 1)),
    ]


def test_problems_print_as_blocks_with_the_line_and_a_caret(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(GOOD.replace("    connectors", "    conectors").replace('"2.2"', "9"), "pipeline.yaml")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigErrors) as caught:
        load("pipeline.yaml", {})
    assert str(caught.value) == (
        "[config.bad-value] 'version' must be '2.0', '2.1' or '2.2'\n"
        "  at: pipeline.yaml:1:10\n"
        "    version: 9\n"
        "             ^\n"
        "  do: write 2.0 or 2.1 or 2.2\n"
        "[config.unknown-key] unknown key 'conectors'\n"
        "  at: pipeline.yaml:4:5\n"
        "        conectors:\n"
        "        ^\n"
        "  do: did you mean 'connectors'?"
    )


def test_the_error_is_one_of_usage_with_the_parts_every_error_has(write: Write) -> None:
    file = write(GOOD.replace("connectors", "conectors"))
    with pytest.raises(UsageError) as caught:
        load(file, {})
    error = caught.value
    assert (error.code, error.where, error.what) == ("config.unknown-key", f"{file}:4:5", "unknown key 'conectors'")


def test_a_caret_stands_under_its_character_after_a_tab_and_in_a_long_line() -> None:
    lines = str(Problem("c", "w", "f:1:3", "a\tb")).splitlines()
    assert lines[2:] == ["    a b", "      ^"]
    _, _, line, caret = str(Problem("c", "w", "f:1:5001", "x" * 5000 + "!" + "x" * 5000)).splitlines()
    assert line[caret.index("^")] == "!"
    assert len(line) < 200


def test_what_a_file_says_cannot_drive_the_terminal(write: Write) -> None:
    text = str(only(refused(write(GOOD.replace("connectors:", '"\\e[31m\\u202Econ": 1\n    connectors:')))))
    assert "unknown key" in text
    assert all(c.isprintable() or c == "\n" for c in text)


# Places for later checks


@pytest.fixture
def loaded(write: Write) -> Loaded:
    return load(write(GOOD), {})[0]


def test_a_loaded_file_says_where_a_value_stands_and_shows_its_line(loaded: Loaded) -> None:
    assert loaded.where("pipelines", 0, "connectors", 1, "plugin") == f"{loaded.file}:6:46"
    assert loaded.excerpt("pipelines", 0, "connectors", 1).startswith("      - {id: out,")
    assert loaded.where("pipelines", 0, "guarantee") == f"{loaded.file}:3:5"


def test_a_later_check_makes_its_problem_with_the_place(loaded: Loaded) -> None:
    problem = loaded.problem("plugin.unknown", "no such plugin", "pipelines", 0, "connectors", 0, "plugin", hint="look")
    assert (problem.where, problem.hint) == (f"{loaded.file}:5:40", "look")
    assert problem.line_text == loaded.excerpt("pipelines", 0, "connectors", 0)


def test_places_are_looked_for_only_when_there_is_something_to_show(write: Write) -> None:
    """They would cost half as much again as the file itself."""
    (loaded,) = load(write(GOOD), {})
    assert "places" not in vars(loaded.document)
    assert loaded.where("pipelines", 0, "id").endswith(":3:9")
    assert "places" in vars(loaded.document)
