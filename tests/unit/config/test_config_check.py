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


def test_an_empty_file_is_refused(write: Write) -> None:
    assert only(refused(write("# later\n"))).what == "the file is empty"


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
        ('version: "2.2"\n', "", (1, 1), "version"),
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


def test_a_file_without_pipelines_is_refused(write: Write) -> None:
    assert short(refused(write("version: 2.2\n"))) == [("config.missing-key", (1, 1))]
    assert only(refused(write("version: 2.2\npipelines: []\n"))).what == "'pipelines' must not be empty"


@pytest.mark.parametrize(
    ("old", "new", "place", "what"),
    [
        ('"2.2"', "3.0", (1, 10), "'version' must be '2.0', '2.1' or '2.2'"),
        ('"2.2"', "2", (1, 10), "'version' must be '2.0', '2.1' or '2.2'"),
        ("type: source", "type: sink", (5, 24), "'type' must be 'source' or 'destination'"),
        ("id: orders", "id: orders\n    status: up", (4, 13), "'status' must be 'running' or 'stopped'"),
        (
            "id: orders",
            "id: orders\n    guarantee: once",
            (4, 16),
            "'guarantee' must be 'exactly-once', 'at-least-once' or 'at-most-once'",
        ),
        ("id: orders", "id: true", (3, 9), "'id' must be text"),
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


@pytest.mark.parametrize("name", ["a", "A-b_c.d", "-", "_", "9", "x" * 100])
def test_an_id_is_letters_digits_and_a_few_signs(write: Write, name: str) -> None:
    assert load(write(GOOD.replace("id: orders", f"id: '{name}'")), {})[0].pipelines[0].id == name


@pytest.mark.parametrize("name", ["", ".a", "a b", "a/b", "é", "x" * 101, "a\\n"])
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
