"""`generator` without Spark: its settings, its templates, what it offers, and its pace on a clock of the test's own."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConfigErrors, parse_settings
from penstock.connectors.generator import source as module
from penstock.connectors.generator import template
from penstock.connectors.generator.pace import BACKLOG
from penstock.connectors.generator.settings import GeneratorSourceSettings
from penstock.connectors.generator.source import BATCH, GeneratorSource
from penstock.connectors.generator.template import LARGEST, Kind, Value
from penstock.connectors.generator.words import WORDS
from penstock.errors import Stop
from penstock.pipeline import Pipeline
from penstock.ranges import Known, Limits, Range, Ranges
from penstock.record import Shape

RAW = {"format.type": "raw", "format.options.id": "int"}
NO_BYTES = 1 << 60


def parsed(settings: dict[str, str]) -> GeneratorSourceSettings:
    return parse_settings(GeneratorSourceSettings, settings)


def problems(settings: dict[str, str]) -> list[str]:
    with pytest.raises(ConfigErrors) as caught:
        parsed(settings)
    return [p.what for p in caught.value.problems]


class Clock:
    """Time that passes only when it is told to, or slept."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(module, "clock", made)
    monkeypatch.setattr(module, "sleep", made.sleep)
    return made


class Lane:
    """A source and what its ledger would know."""

    def __init__(self, limits: Limits | None = None, /, **settings: str) -> None:
        self.limits = limits or Limits(max_bytes=NO_BYTES)
        self.known = Known({}, 0, set())
        self.start(**settings)

    def start(self, **settings: str) -> None:
        """A new process, maybe with other settings: what the source had in memory is gone."""
        self.source = GeneratorSource(parsed({**RAW, **settings}), "g")

    def take(self) -> tuple[int, int] | None:
        ranges = self.source.available(self.known, self.limits)
        if ranges is None:
            return None
        self.known.took(ranges)
        return ranges[0].position["from"], ranges[0].position["to"]

    def last(self) -> Range:
        return self.known.strands["generator"]


# -- settings -------------------------------------------------------------------------------------------------------


def test_the_defaults_are_conduits() -> None:
    s = parsed(RAW)
    assert (s.record_count, s.rate, s.read_time, s.sleep_time, s.generate_time) == (0, 0.0, 0.0, 0.0, 1.0)
    assert (s.operations, s.seed, s.collections, s.template) == (("create",), 0, {}, None)


def test_every_setting_of_a_file_is_taken_as_text() -> None:
    given = {
        "recordCount": "100",
        "rate": "12.5",
        "burst.sleepTime": "500ms",
        "burst.generateTime": "2s",
        "seed": "-7",
        "format.type": "structured",
        "format.options.id": "int",
        "format.options.user_name": "string",
        "operations": "create, update,update",
        "sdk.schema.extract.payload.enabled": "false",
        "sdk.schema.extract.key.enabled": "false",
    }
    s = parsed(given)
    assert (s.record_count, s.rate, s.sleep_time, s.generate_time, s.seed) == (100, 12.5, 0.5, 2.0, -7)
    assert s.options == {"id": "int", "user_name": "string"}
    assert s.operations == ("create", "update", "update")


def test_collections_have_settings_of_their_own_and_take_turns_by_name() -> None:
    s = parsed(
        {
            "collections.users.format.type": "raw",
            "collections.users.format.options.id": "int",
            "collections.orders.template": "{seq}",
            "collections.orders.operations": "create,delete",
            "format.type": "raw",
        }
    )
    assert [(name, c.format_type, c.operations) for name, c in s.parts] == [
        ("", "raw", ("create",)),
        ("orders", None, ("create", "delete")),
        ("users", "raw", ("create",)),
    ]
    assert s.parts[2][1].options == {"id": "int"}


def test_read_time_is_a_rate() -> None:
    assert parsed({**RAW, "readTime": "100ms"}).records_per_second == 10
    assert parsed({**RAW, "rate": "10"}).records_per_second == 10


BAD = [
    ({}, "the settings must have `format.type`, or a `template`, or `collections.<name>.format.type`"),
    ({"format.type": "xml"}, "'format.type' must be 'raw', 'structured' or 'file'"),
    ({"format.type": "file"}, "the settings must have `format.options.path` where `format.type` is file"),
    (
        {"format.type": "file", "format.options.path": "/x", "format.options.id": "int"},
        "'format.options.id' must be left out: a file is taken whole, and has only `format.options.path`",
    ),
    (RAW | {"format.options.id": "decimal"}, "'format.options.id' must be a type: int, string, time, bool, duration"),
    (RAW | {"format.options.a.b": "int"}, "'format.options.a.b' must name a field without a dot"),
    (RAW | {"format.options": "id:int"}, "'format.options' must be one setting per field"),
    (RAW | {"fields": "id:int"}, "'fields' must be one setting per field"),
    (RAW | {"operations": "upsert"}, "'operations' must be one or more of create, update, delete, snapshot"),
    (RAW | {"operations": ""}, "'operations' must be one or more of"),
    (RAW | {"recordCount": "-1"}, "'recordCount' must be greater than or equal to 0"),
    (RAW | {"recordCount": "many"}, "'recordCount' must be a whole number"),
    (RAW | {"rate": "fast"}, "'rate' must be a valid number"),
    (RAW | {"rate": "-1"}, "'rate' must be greater than or equal to 0"),
    (RAW | {"rate": "inf"}, "'rate' must be a finite number"),
    (RAW | {"rate": "1", "readTime": "1s"}, "the settings must have `rate` or `readTime`, not both"),
    (RAW | {"readTime": "5"}, "'readTime' must be a duration with a unit"),
    (
        RAW | {"burst.sleepTime": "1s", "burst.generateTime": "0s"},
        "the settings must have a `burst.generateTime` above 0s",
    ),
    (RAW | {"seed": str(2**63)}, "'seed' must be less than"),
    (RAW | {"template": "x"}, "the settings must have `template` or `format.options.*`, not both"),
    ({"format.type": "structured", "template": "x"}, "the settings must have `format.type: raw` where"),
    ({"template": "{int:9..1}"}, "'template' must say a number from where to where"),
    (
        RAW | {"sdk.batch.size": "10"},
        "'sdk.batch.size' must be left out: say how much goes into a batch under `batch:`",
    ),
    (RAW | {"sdk.batch.delay": "1s"}, "'sdk.batch.delay' must be left out"),
    (RAW | {"sdk.schema.context.name": "x"}, "'sdk.schema.context.name' must be left out"),
    (
        RAW | {"sdk.schema.extract.payload.enabled": "true"},
        "'sdk.schema.extract.payload.enabled' must be false or left out",
    ),
    (RAW | {"operation": "create"}, "unknown setting 'operation'"),
    (RAW | {"collections": "users"}, "'collections' must be settings of their own"),
    (RAW | {"collections.users": "raw"}, "unknown setting 'collections.users'"),
    ({"collections.users.operations": "create"}, "'collections.users' must have `format.type`, or a `template`"),
    ({"collections.users.format.type": "xml"}, "'collections.users.format.type' must be 'raw'"),
    (
        {"collections.users.format.type": "raw", "collections.users.format.options.x": "y"},
        "'collections.users.format.options.x' must be a type",
    ),
    (
        {"collections.users.format.type": "raw", "collections.users.rate": "1"},
        "unknown setting 'collections.users.rate'",
    ),
    (
        {"collections.users.format.type": "raw", "operations": "delete"},
        "the settings must have `format.type` for records without a collection",
    ),
    (RAW | {"collections.users.format.type": "structured"}, "the settings must have `structured` payloads in every"),
]


@pytest.mark.parametrize(("settings", "what"), BAD, ids=[what for _, what in BAD])
def test_what_is_wrong_is_said_at_the_name_that_was_written(settings: dict[str, str], what: str) -> None:
    found = problems(settings)
    assert len(found) == 1
    assert found[0].startswith(what)


def test_all_problems_are_said_at_once() -> None:
    found = problems(
        {
            "format.type": "raw",
            "format.options.id": "decimal",
            "rate": "fast",
            "collections.a.format.type": "xml",
            "sdk.batch.size": "1",
        }
    )
    assert sorted(what.split()[0] for what in found) == [
        "'collections.a.format.type'",
        "'format.options.id'",
        "'rate'",
        "'sdk.batch.size'",
    ]


def test_a_problem_has_its_place_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        'version: "2.2"\npipelines:\n  - id: p\n    connectors:\n      - id: g\n        type: source\n'
        "        plugin: generator\n        settings:\n          format.type: raw\n          format.options.id: decimal\n"
        "      - {id: out, type: destination, plugin: blackhole}\n"
    )
    with pytest.raises(ConfigErrors) as caught:
        Pipeline.from_file(file)
    [problem] = caught.value.problems
    assert problem.where.startswith(f"{file}:10:")


def test_a_template_in_a_file_keeps_its_braces_and_yields_to_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP", "north")
    file = tmp_path / "p.yaml"
    file.write_text(
        'version: "2.2"\npipelines:\n  - id: p\n    connectors:\n'
        "      - {id: g, type: source, plugin: 'builtin:generator',"
        ' settings: {template: \'{"n": {"id": {seq}}, "shop": "$SHOP", "cost": "${literal:$5}"}\'}}\n'
        "      - {id: out, type: destination, plugin: blackhole}\n"
    )
    source = Pipeline.from_file(file).plan().lanes[0].source
    assert source.settings.template == '{"n": {"id": {seq}}, "shop": "north", "cost": "$5"}'


# -- what a payload is made of --------------------------------------------------------------------------------------


def test_only_known_placeholders_are_taken_for_one() -> None:
    pieces = template.parse('{"id": {seq}, "x": {other}, "y": {{seq}}, {"word"} {duration} {}')
    assert pieces == (
        '{"id": ',
        Value(Kind.SEQ, "1"),
        ', "x": {other}, "y": {',
        Value(Kind.SEQ, "3"),
        '}, {"word"} {duration} {}',
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{int:1..100}", Value(Kind.INT, "0", 1, 100)),
        ("{int:-5..-5}", Value(Kind.INT, "0", -5, -5)),
        ("{int}", Value(Kind.INT, "0", 0, 2**63 - 1)),
        ("{float:0..1}", Value(Kind.FLOAT, "0", 0, 100, 2)),
        ("{float}", Value(Kind.FLOAT, "0", 0, 100, 2)),
        ("{float:-0.5..9.125}", Value(Kind.FLOAT, "0", -500, 9125, 3)),
        ("{choice:a|b c|}", Value(Kind.CHOICE, "0", choices=("a", "b c", ""))),
        ("{bool}", Value(Kind.BOOL, "0")),
    ],
)
def test_placeholders_and_what_they_say(text: str, value: Value) -> None:
    assert template.parse(text) == (value,)


@pytest.mark.parametrize(
    "text",
    [
        "{int:}",
        "{int:1}",
        "{int:2..1}",
        "{int:a..b}",
        f"{{int:0..{LARGEST}}}",
        "{float:1..0}",
        "{float:0..1e9}",
        "{float:0..0.0000000001}",
        "{choice}",
        "{choice:}",
        "{seq:3}",
        "{time:now}",
    ],
)
def test_a_known_placeholder_that_is_wrongly_used_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must "):
        template.parse(f"x {text} y")


def test_fields_are_an_object_with_sorted_keys() -> None:
    pieces = template.of_fields({"b": "string", 'a"': "int", "t": "time"})
    text = "".join(p if isinstance(p, str) else "1" for p in pieces if not isinstance(p, bytes))
    assert text == '{"a\\"":1,"b":"1","t":"1"}'
    assert list(json.loads(text)) == ['a"', "b", "t"]
    assert template.of_fields({}) == ("{}",)


def test_words_need_no_quoting_and_differ() -> None:
    words = WORDS.split()
    assert len(words) == len(set(words)) >= 200
    assert all(w.isascii() and w.isalpha() and w.islower() for w in words)


# -- what the source says of itself ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "shape", "lines"),
    [
        (RAW, Shape.RAW, True),
        ({"format.type": "structured"}, Shape.OPEN, True),
        (RAW | {"operations": "create,update"}, Shape.RAW, True),
        (RAW | {"operations": "create,delete"}, Shape.RAW, False),
        ({"template": "{seq}"}, Shape.RAW, True),
        ({"template": "a\nb"}, Shape.RAW, False),
        ({"template": "{choice:a|\n}"}, Shape.RAW, False),
        ({"format.type": "file", "format.options.path": "/there/is/none"}, Shape.RAW, False),
        (RAW | {"collections.x.template": "a\nb"}, Shape.RAW, False),
    ],
)
def test_shape_and_lines_follow_from_the_settings_alone(settings: dict[str, str], shape: Shape, lines: bool) -> None:
    source = GeneratorSource(parsed(settings), "g")
    assert (source.shape, source.lines) == (shape, lines)


def test_a_file_that_is_not_there_is_said_before_spark_starts(tmp_path: Path) -> None:
    source = GeneratorSource(parsed({"format.type": "file", "format.options.path": str(tmp_path / "none")}), "g")
    with pytest.raises(Stop, match="can't be read"):
        source.check()


# -- what is offered ------------------------------------------------------------------------------------------------


def test_a_range_is_numbers_with_what_makes_their_content() -> None:
    lane = Lane(recordCount="100", seed="5")
    ranges = lane.source.available(lane.known, lane.limits)
    assert ranges is not None
    [r] = ranges
    assert (r.strand, r.base, ranges.next_seq) == ("generator", 0, 100)
    assert {k: v for k, v in r.position.items() if k != "format"} == {"from": 0, "to": 100, "seed": 5}
    assert r.size == 100 * len('{"id":}') + 100 * 19
    assert lane.source.promised(ranges) == lane.source.count(ranges) == 100
    assert Ranges.from_json(ranges.to_json()) == ranges
    assert lane.source.available(lane.known, lane.limits) == ranges  # offering changes nothing


def test_the_digest_names_the_format_and_nothing_else() -> None:
    def digest(**settings: str) -> str:
        lane = Lane(**settings)
        lane.take()
        return str(lane.last().position["format"])

    same = {digest(), digest(), digest(seed="1"), digest(recordCount="9"), digest(readTime="1s")}
    others = [
        digest(**{"format.options.x": "int"}),
        digest(operations="update"),
        digest(**{"format.options.id": "string"}),
        digest(**{"collections.a.format.type": "raw"}),
    ]
    assert len(same) == 1
    assert len(same | set(others)) == 5


def test_an_endless_source_gives_batch_after_batch() -> None:
    lane = Lane()
    assert lane.take() == (0, BATCH)
    assert lane.take() == (BATCH, 2 * BATCH)
    assert not lane.source.idle()


@pytest.mark.parametrize(
    ("limits", "records"),
    [
        (Limits(max_records=10, max_bytes=NO_BYTES), 10),
        (Limits(max_records=3 * BATCH, max_bytes=NO_BYTES), 3 * BATCH),
        (Limits(max_bytes=2600), 100),
        (Limits(max_bytes=1), 1),
        (Limits(max_records=7, max_bytes=2600), 7),
    ],
)
def test_limits_are_obeyed(limits: Limits, records: int) -> None:
    assert Lane(limits).take() == (0, records)


def test_the_count_is_of_all_runs_together() -> None:
    lane = Lane(Limits(max_records=40, max_bytes=NO_BYTES), recordCount="100")
    assert [lane.take() for _ in range(2)] == [(0, 40), (40, 80)]
    assert not lane.source.idle()
    lane.start(recordCount="100")
    assert [lane.take() for _ in range(2)] == [(80, 100), None]
    assert lane.source.idle()
    lane.start(recordCount="120", seed="9")
    assert lane.take() == (100, 120)
    assert lane.last().position["seed"] == 9
    lane.start(recordCount="50")
    assert lane.take() is None
    assert lane.source.idle()


def test_after_a_rewind_numbers_begin_again_and_seqs_do_not() -> None:
    lane = Lane(recordCount="10")
    lane.take()
    lane.known.strands.clear()
    lane.start(recordCount="10")
    ranges = lane.source.available(lane.known, lane.limits)
    assert ranges is not None
    assert (ranges[0].position["from"], ranges[0].base, ranges.next_seq) == (0, 10, 20)
    assert lane.source.locate(ranges)(13)[0] == b"3"


def test_what_is_left_of_a_range_that_was_cut() -> None:
    lane = Lane(recordCount="10")
    ranges = lane.source.available(lane.known, lane.limits)
    assert ranges is not None
    first, second = ranges.split(4)
    assert (lane.source.count(first), lane.source.count(second)) == (4, 6)


def test_places_follow_from_the_seq_and_pickle() -> None:
    lane = Lane(**{"collections.users.format.type": "raw"})
    ranges = Ranges((Range("generator", {"from": 100, "to": 200}, 100),))
    places = pickle.loads(pickle.dumps(lane.source.locate(ranges)))
    assert places(100) == (b"100", {"opencdc.createdAt": "1704067200100000000"})
    assert places(101) == (b"101", {"opencdc.createdAt": "1704067200101000000", "opencdc.collection": "users"})


# -- pace -----------------------------------------------------------------------------------------------------------


def run_for(lane: Lane, clock: Clock, seconds: float) -> list[tuple[float, int]]:
    """What a lane does that takes no time: seconds since now and records of every batch."""
    started, made = clock.now, []
    while clock.now - started < seconds:
        if (taken := lane.take()) is not None:
            made.append((round(clock.now - started, 3), taken[1] - taken[0]))
        else:
            lane.source.wait(1.0)
    return made


def test_a_rate_is_kept_and_gathered_to_a_batch_a_second(clock: Clock) -> None:
    made = run_for(Lane(rate="1000"), clock, 10)
    assert sum(n for _, n in made) in range(9_000, 10_002)
    assert len(made) <= 11
    assert max(clock.slept) <= 1.0


def test_a_slow_rate_gives_single_records_the_first_at_once(clock: Clock) -> None:
    assert run_for(Lane(rate="0.5"), clock, 7) == [(0, 1), (2, 1), (4, 1), (6, 1)]
    assert run_for(Lane(readTime="3s"), clock, 7) == [(0, 1), (3, 1), (6, 1)]


def test_the_last_records_do_not_wait_for_others(clock: Clock) -> None:
    lane = Lane(rate="1000", recordCount="1500")
    made = run_for(lane, clock, 3)
    assert sum(n for _, n in made) == 1500
    assert made[-1][0] < 1.6
    assert lane.source.idle()


def test_a_small_batch_does_not_wait_for_more_than_it_takes(clock: Clock) -> None:
    made = run_for(Lane(Limits(max_records=10, max_bytes=NO_BYTES), rate="100"), clock, 5)
    assert {n for _, n in made} == {10}
    assert sum(n for _, n in made) in range(480, 502)


def test_what_a_long_batch_held_up_is_made_up_for_but_not_for_ever(clock: Clock) -> None:
    lane = Lane(rate="100")
    run_for(lane, clock, 2)
    clock.now += 10
    taken = lane.take()
    assert taken is not None
    assert taken[1] - taken[0] in range(1000, 1102)
    clock.now += 86_400
    taken = lane.take()
    assert taken is not None
    assert taken[1] - taken[0] == 100 * BACKLOG
    assert sum(n for _, n in run_for(lane, clock, 10)) in range(900, 1002)


def test_the_rate_counts_from_this_start(clock: Clock) -> None:
    lane = Lane(rate="100")
    run_for(lane, clock, 5)
    clock.now += 3600
    lane.start(rate="100")
    assert sum(n for _, n in run_for(lane, clock, 5)) in range(400, 502)


def test_bursts_of_a_rate_have_pauses_between_them(clock: Clock) -> None:
    settings = {"rate": "10", "recordCount": "100", "burst.generateTime": "1s", "burst.sleepTime": "1s"}
    lane = Lane(**settings)
    made = run_for(lane, clock, 25)
    assert sum(n for _, n in made) == 100
    assert 17 <= made[-1][0] <= 20
    assert all(at % 2 <= 1.01 for at, _ in made)


def test_bursts_without_a_rate_are_as_fast_as_they_can_be(clock: Clock) -> None:
    lane = Lane(Limits(max_records=5, max_bytes=NO_BYTES), **{"burst.generateTime": "1s", "burst.sleepTime": "4s"})
    at: list[Any] = []
    started = clock.now
    for _ in range(100):
        if lane.take() is None:
            lane.source.wait(1.0)
        else:
            at.append(clock.now - started)
            clock.now += 0.25  # a batch takes its time
    assert all(t % 5 < 1 for t in at)
    assert len({t // 5 for t in at}) > 5
    assert not lane.source.idle()


def test_a_source_that_has_ended_waits_as_long_as_it_is_told(clock: Clock) -> None:
    lane = Lane(recordCount="1")
    lane.take()
    assert lane.take() is None
    lane.source.wait(1.0)
    assert clock.slept == [1.0]
