"""`Pipeline` built by hand and from files: what it makes of its parts, and what it refuses before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import penstock.native
from penstock.config import ConfigErrors
from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings, FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.engine.batch.context import Guarantee
from penstock.engine.gate import Window
from penstock.engine.lock import StateFolder
from penstock.engine.supervisor import LaneResult, PipelineResult
from penstock.engine.view import Status
from penstock.errors import Stop, UsageError
from penstock.ledger import Ledger
from penstock.native import Limits, Record
from penstock.pipeline import Pipeline, run, state_folder
from penstock.processors.filter import Filter
from penstock.processors.python import FunctionProcessor, processor
from penstock.summary import Summary

FILE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {id: in, type: source, plugin: files, settings: {path: /in}, batch: {max-files: 7, max-bytes: 1KiB}}
      - {id: out, type: destination, plugin: "builtin:files", settings: {path: /out}}
"""


def built(id: str = "p") -> Pipeline:
    return Pipeline(id).source("in", "files", path="/in").destination("out", "files", path="/out")


def from_text(folder: Path, text: str) -> Pipeline:
    (folder / "p.yaml").write_text(text)
    return Pipeline.from_file(folder / "p.yaml")


def problems(make: Callable[[], object]) -> list[tuple[str, str]]:
    with pytest.raises(ConfigErrors) as caught:
        make()
    return [(p.code, p.what) for p in caught.value.problems]


# -- building -------------------------------------------------------------------------------------------------------


def test_a_file_and_the_same_by_hand_make_the_same_plan(tmp_path: Path) -> None:
    by_hand = Pipeline("p").source("in", "files", path="/in", batch={"max_files": 7, "max_bytes": "1KiB"})
    by_hand.destination("out", "builtin:files", path="/out")
    for pipeline in (from_text(tmp_path, FILE), by_hand):
        plan = pipeline.plan()
        assert (plan.id, pipeline.id) == ("p", "p")
        [lane] = plan.lanes
        assert isinstance(lane.source, FilesSource)
        assert (lane.source.source_id, lane.source.settings.path) == ("in", "/in")
        assert lane.limits == Limits(max_bytes=1024, max_files=7)
        [(name, target)] = lane.targets.items()
        assert isinstance(target.destination, FilesDestination)
        assert (name, target.destination.settings.path, target.plugin) == ("out", "/out", "builtin:files")
        assert lane.nodes == target.nodes == ()
        assert lane.dlq is None
        assert plan.guarantee is Guarantee.EXACTLY_ONCE
        assert plan.window == Window(1, 0)


def test_keyword_arguments_become_settings(tmp_path: Path) -> None:
    pipeline = Pipeline("p").destination("out", "files", path=tmp_path / "out")
    pipeline.source("in", "files", path=tmp_path, after_ack="move", move_to=tmp_path / "done", settle="250ms")
    settings = pipeline.plan().lanes[0].source.settings
    assert settings == FilesSourceSettings(
        path=str(tmp_path), after_ack="move", move_to=str(tmp_path / "done"), settle=0.25
    )


def test_limits_that_are_not_given_are_the_defaults() -> None:
    assert built().plan().lanes[0].limits == Limits()


def test_processors_run_at_the_source_then_in_the_middle_then_at_the_destination(tmp_path: Path) -> None:
    text = """\
version: "2.2"
pipelines:
  - id: p
    processors: [{id: middle, plugin: filter, condition: "true"}]
    connectors:
      - id: out
        type: destination
        plugin: files
        settings: {path: /out}
        processors: [{id: last, plugin: filter, condition: "true"}]
      - id: in
        type: source
        plugin: files
        settings: {path: /in}
        processors: [{id: first, plugin: filter, condition: "true"}, {id: second, plugin: filter, condition: "true"}]
"""
    [lane] = from_text(tmp_path, text).plan().lanes
    assert [node.id for node in lane.nodes] == ["first", "second", "middle"]
    assert [node.id for node in lane.targets["out"].nodes] == ["last"]


def test_every_source_is_a_lane_with_a_destination_of_its_own() -> None:
    pipeline = built().source("in2", "files", path="/in2")
    first, second = pipeline.plan().lanes
    assert [lane.source.source_id for lane in (first, second)] == ["in", "in2"]
    assert first.targets["out"].destination is not second.targets["out"].destination


def test_connectors_may_be_given_as_objects() -> None:
    source = FilesSource(FilesSourceSettings(path="/in"), "in")
    destination = FilesDestination(FilesDestinationSettings(path="/out"), "out")
    [lane] = Pipeline("p").source("in", source).destination("out", destination).plan().lanes
    assert lane.source is source
    assert lane.targets["out"].destination is destination
    assert lane.targets["out"].plugin.startswith("python:penstock.connectors.files")


def test_a_condition_reaches_the_processor() -> None:
    [node] = built().processor("keep", "filter", condition="seq < 3").plan().lanes[0].nodes
    assert isinstance(node.processor, Filter)
    assert node.condition.text == "seq < 3"


def test_a_processor_may_be_put_on_one_connector_only() -> None:
    pipeline = built().source("in2", "files", path="/in2").destination("out2", "files", path="/out2")
    pipeline.processor("s", "filter", on="in2", condition="true").processor("d", "filter", on="out", condition="true")
    first, second = pipeline.plan().lanes
    assert [[node.id for node in lane.nodes] for lane in (first, second)] == [[], ["s"]]
    for lane in (first, second):
        assert {name: [node.id for node in t.nodes] for name, t in lane.targets.items()} == {"out": ["d"], "out2": []}


def test_a_processor_on_a_connector_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        built().processor("f", "filter", on="elsewhere")
    assert caught.value.code == "config.unknown-connector"


def test_a_function_is_a_processor_marked_or_not() -> None:
    def plain(r: Record) -> Record:
        return r

    def whole(batch: object) -> object:
        return batch

    pipeline = (
        built().processor("a", plain).processor("b", processor(plain)).processor("c", processor(batch=True)(whole))
    )
    made = [node.processor for node in pipeline.plan().lanes[0].nodes]
    assert [(type(p), p.function, p.batch) for p in made] == [  # type: ignore[attr-defined]
        (FunctionProcessor, plain, False),
        (FunctionProcessor, plain, False),
        (FunctionProcessor, whole, True),
    ]
    assert [p.processor_id for p in made] == ["a", "b", "c"]


def test_a_dead_letter_queue_is_a_destination_with_a_window() -> None:
    plan = built().dead_letter_queue("files", window=10, threshold=2, path="/dead").plan()
    assert plan.window == Window(10, 2)
    [lane] = plan.lanes
    assert lane.dlq is not None
    assert isinstance(lane.dlq.destination, FilesDestination)
    assert (lane.dlq.destination.settings.path, lane.dlq.plugin) == ("/dead", "files")
    assert set(lane.targets) == {"out"}


def test_a_window_needs_no_queue() -> None:
    plan = built().dead_letter_queue(window=0).plan()
    assert plan.window == Window(0, 0)
    assert plan.lanes[0].dlq is None


def test_a_queue_may_be_given_as_an_object() -> None:
    queue = FilesDestination(FilesDestinationSettings(path="/dead"), "queue")
    [lane] = built().dead_letter_queue(queue, window=0).plan().lanes
    assert lane.dlq is not None
    assert lane.dlq.destination is queue


def test_handlers_are_kept_in_their_order() -> None:
    handlers: list[Callable[[object], None]] = [lambda _: None, lambda _: None]
    assert list(built().on_outcome(handlers[0]).on_outcome(handlers[1]).plan().handlers) == handlers


@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_each_guarantee_may_be_asked_for(guarantee: Guarantee) -> None:
    assert built().guarantee(guarantee.value).plan().guarantee is guarantee


def test_a_guarantee_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError):
        built().guarantee("at-best")


def test_references_are_expanded_for_the_connector_and_kept_for_the_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUT", "/secret/place")
    pipeline = Pipeline("p").source("in", "files", path="/in").destination("out", "files", path="${OUT}")
    target = pipeline.plan().lanes[0].targets["out"]
    assert target.destination.settings.path == "/secret/place"
    assert dict(target.settings) == {"path": "${OUT}"}


# -- what is refused ------------------------------------------------------------------------------------------------


def test_a_pipeline_without_source_or_destination_is_refused() -> None:
    assert [code for code, _ in problems(Pipeline("p").plan)] == ["config.no-source", "config.no-destination"]
    assert problems(Pipeline("p").source("in", "files", path="/in").plan) == [
        ("config.no-destination", "pipeline 'p' has no destination")
    ]


def test_an_unknown_plugin_of_any_kind_is_refused_by_name() -> None:
    pipeline = Pipeline("p").source("in", "a").destination("out", "b").processor("x", "c")
    assert problems(pipeline.plan) == [
        ("config.unknown-plugin", "no source is called 'a'"),
        ("config.unknown-plugin", "no destination is called 'b'"),
        ("config.unknown-plugin", "no processor is called 'c'"),
    ]


@pytest.mark.parametrize("settings", [{}, {"path": ""}, {"path": "x", "pth": "y"}, {"path": "x", "settle": "-1s"}])
def test_settings_that_are_wrong_are_refused(settings: dict[str, object]) -> None:
    pipeline = Pipeline("p").source("in", "files", **settings).destination("out", "files", path="/out")
    assert len(problems(pipeline.plan)) == 1


@pytest.mark.parametrize("settings", [{"after_ack": "move"}, {"move_to": "x"}, {"after_ack": "delete", "move_to": "x"}])
def test_a_move_needs_its_target_and_a_target_its_move(settings: dict[str, str]) -> None:
    pipeline = Pipeline("p").destination("out", "files", path="/out")
    pipeline.source("in", "files", path="/in", batch=None, **settings)
    [(_, what)] = problems(pipeline.plan)
    assert "move-to" in what


def test_several_destinations_are_all_in_every_lane() -> None:
    pipeline = built().destination("out2", "files", path="/out2").source("in2", "files", path="/in2")
    for lane in pipeline.plan().lanes:
        assert {name: t.destination.settings.path for name, t in lane.targets.items()} == {
            "out": "/out",
            "out2": "/out2",
        }


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_another_guarantee_may_be_said_in_a_file(tmp_path: Path, guarantee: str) -> None:
    made = from_text(tmp_path, FILE.replace("- id: p\n", f"- id: p\n    guarantee: {guarantee}\n", 1))
    assert made.plan().guarantee == guarantee


def test_a_guarantee_that_does_not_exist_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        from_text(tmp_path, FILE.replace("- id: p\n", "- id: p\n    guarantee: perhaps\n", 1))
    [problem] = caught.value.problems
    assert problem.code == "config.bad-value"
    assert problem.position[0] == 4


def test_exactly_once_may_be_said(tmp_path: Path) -> None:
    from_text(tmp_path, FILE.replace("- id: p\n", "- id: p\n    guarantee: exactly-once\n", 1)).plan()


@pytest.mark.parametrize(
    "queue, window, plugin",
    [
        ("{plugin: files, settings: {path: /dead}}", Window(1, 0), "files"),
        ("{window-size: 10, window-nack-threshold: 2}", Window(10, 2), None),
        ("{window-size: 0, plugin: 'builtin:log'}", Window(0, 0), "builtin:log"),
    ],
)
def test_a_dead_letter_queue_of_a_file_is_planned(
    tmp_path: Path, queue: str, window: Window, plugin: str | None
) -> None:
    plan = from_text(tmp_path, FILE.replace("- id: p\n", f"- id: p\n    dead-letter-queue: {queue}\n", 1)).plan()
    assert plan.window == window
    [lane] = plan.lanes
    assert (lane.dlq.plugin if lane.dlq else None) == plugin


@pytest.mark.parametrize(
    "limit, limits",
    [
        ({}, Limits()),
        ({"max_records": 5}, Limits(max_records=5)),
        ({"max_bytes": "1 MiB"}, Limits(max_bytes=1 << 20)),
        ({"max_files": 3}, Limits(max_files=3)),
        ({"max_delay": "2m"}, Limits(max_delay=120.0)),
        ({"max_record_bytes": "4 KiB"}, Limits(max_record_bytes=4096)),
        ({"max_records": 1, "max_files": 2, "max_delay": "1s"}, Limits(max_records=1, max_files=2, max_delay=1.0)),
    ],
)
def test_every_limit_of_a_batch_is_planned(tmp_path: Path, limit: dict[str, object], limits: Limits) -> None:
    pipeline = Pipeline("p").source("in", "files", path="/in", batch=limit).destination("out", "files", path="/out")
    assert [lane.limits for lane in pipeline.plan().lanes] == [limits]
    batch = ", ".join(f"{key.replace('_', '-')}: {value}" for key, value in limit.items())
    text = FILE.replace("{max-files: 7, max-bytes: 1KiB}", f"{{{batch}}}")
    assert [lane.limits for lane in from_text(tmp_path, text).plan().lanes] == [limits]


def test_an_id_that_is_used_twice_is_refused() -> None:
    assert problems(built().source("in", "files", path="/in2").plan) == [
        ("config.duplicate-id", "the id 'in' is used 2 times")
    ]
    assert problems(Pipeline("p").source("x", "files", path="/in").destination("x", "files", path="/out").plan) == [
        ("config.duplicate-id", "the id 'x' is used 2 times")
    ]


def test_an_object_and_another_kind_of_part_may_share_an_id() -> None:
    source = FilesSource(FilesSourceSettings(path="/in"), "x")
    pipeline = Pipeline("p").source("x", source).destination("out", "files", path="/out")
    [lane] = pipeline.processor("x", "filter", condition="true").plan().lanes
    assert lane.source is source
    assert [type(node.processor) for node in lane.nodes] == [Filter]


def test_two_pipelines_of_one_id_are_refused(tmp_path: Path) -> None:
    """Their sources are missing, so that nothing starts either way."""
    pipelines = [
        Pipeline("p").source("in", "files", path=tmp_path / f"{n}").destination("out", "files", path=tmp_path / "out")
        for n in "ab"
    ]
    with pytest.raises(UsageError):
        run(pipelines, state=tmp_path / "state")


@pytest.mark.parametrize("bad", ["bad id", "", ".hidden", "a/b", "x" * 255])
def test_an_id_that_is_no_id_is_refused(bad: str) -> None:
    with pytest.raises(UsageError, match="letters, digits"):
        Pipeline(bad)
    with pytest.raises(UsageError, match="letters, digits"):
        Pipeline("p").source(bad, "files", path="/in")


@pytest.mark.parametrize(
    "build",
    [
        lambda: Pipeline("bad id"),
        lambda: Pipeline("p").source("bad id", "files", path="/in"),
        lambda: Pipeline("p").source("in", "files", path="/in", batch={"max_fils": 1}),
    ],
)
def test_whatever_is_wrong_with_a_pipeline_built_in_python_is_a_usage_error(build: Callable[[], Pipeline]) -> None:
    with pytest.raises(UsageError):
        build().plan()


def test_a_folder_that_is_source_and_destination_is_refused(tmp_path: Path) -> None:
    def loop(read: object, written: object) -> Pipeline:
        return Pipeline("p").source("in", "files", path=read).destination("out", "files", path=written)

    expected = [("config.loop", "the destination writes into a folder that is read")]
    assert problems(loop("/in", "/in/").plan) == expected
    assert problems(loop(tmp_path, tmp_path / ".").plan) == expected
    loop("/in", "/in/out").plan()


@pytest.mark.parametrize("written", ["${SAME}", "ROOT/x/../in", "ROOT/link"])
def test_a_loop_is_found_however_its_path_is_spelt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "x").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "in")
    monkeypatch.setenv("SAME", str(tmp_path / "in"))
    pipeline = Pipeline("p").source("in", "files", path=tmp_path / "in")
    pipeline.destination("out", "files", path=written.replace("ROOT", str(tmp_path)))
    assert [code for code, _ in problems(pipeline.plan)] == ["config.loop"]


def test_problems_of_all_files_are_raised_together(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.yaml").write_text(FILE.replace("id: p", f"id: {name}").replace("{path: /in}", "{}"))
    with pytest.raises(ConfigErrors) as caught:
        Pipeline.from_files([tmp_path])
    assert [Path(p.where.split(":")[0]).name for p in caught.value.problems] == ["a.yaml", "b.yaml"]


def test_from_file_wants_exactly_one_pipeline(tmp_path: Path) -> None:
    two = FILE + FILE.split("pipelines:\n")[1].replace("id: p", "id: q")
    with pytest.raises(UsageError) as caught:
        from_text(tmp_path, two)
    assert caught.value.code == "config.several"
    assert [p.id for p in Pipeline.from_files([tmp_path / "p.yaml"])] == ["p", "q"]


# -- state and summary ----------------------------------------------------------------------------------------------


def test_the_state_folder_lies_beside_the_file_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    from_file = from_text(tmp_path, FILE)
    assert state_folder([from_file], None) == tmp_path / ".penstock"
    assert state_folder([built()], None) == elsewhere / ".penstock"
    assert state_folder([from_file], "here") == elsewhere / "here"


def test_a_rewind_starts_every_source_anew_and_leaves_the_folder_unlocked(tmp_path: Path) -> None:
    state = tmp_path / "state"

    def epochs() -> list[int]:
        ledger = Ledger(state / "ledger.db")
        try:
            return [ledger.lane("p", source).epoch for source in ("in", "in2")]
        finally:
            ledger.close()

    state.mkdir()
    before = epochs()
    built().source("in2", "files", path="/in2").rewind(state=state)
    assert epochs() == [e + 1 for e in before]
    folder = StateFolder(state)
    folder.open()
    with pytest.raises(UsageError) as caught:
        built().rewind(state=state)
    assert caught.value.code == "state.locked"
    folder.close()


def _summary(*errors: Stop | None) -> Summary:
    lane = LaneResult("in", 5, 4, {"out": 3}, {"out": 2}, {"out": 1}, {}, {"out": 1}, (), None)
    status = {True: Status.STOPPED, False: Status.DEGRADED}
    return Summary(tuple(PipelineResult(f"p{n}", status[e is None], e, "", 1.0, (lane,)) for n, e in enumerate(errors)))


def test_a_summary_raises_the_first_error_and_returns_itself_without_one() -> None:
    good = _summary(None, None)
    assert good.ok
    assert good.raise_for_error() is good
    first = Stop("first")
    bad = _summary(None, first, Stop("second"))
    assert not bad.ok
    with pytest.raises(Stop) as caught:
        bad.raise_for_error()
    assert caught.value is first


def test_a_summary_as_json_accounts_for_every_record() -> None:
    [pipeline] = _summary(Stop("why", code="x")).to_json()["pipelines"]
    assert pipeline["status"] == "degraded"
    assert pipeline["error"] == "[x] why"
    assert pipeline["sources"] == {"in": {"read": 5, "acked": 4}}
    assert pipeline["destinations"] == {
        "out": {"delivered": 3, "filtered": 2, "dead_lettered": 1, "discarded": 0, "produced": 1}
    }


# -- the public interface for authors -------------------------------------------------------------------------------


def test_every_name_of_the_native_interface_is_there_once() -> None:
    names = penstock.native.__all__
    assert len(set(names)) == len(names) > 0
    assert [name for name in names if not hasattr(penstock.native, name)] == []
