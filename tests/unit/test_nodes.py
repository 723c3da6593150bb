"""Where processors run: as columns or in Python, which of them are fused, and what is refused before anything starts."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.native import Columns, Processor, Record, Shape, Step, Unsuitable, Where
from penstock.plan.condition import Condition
from penstock.plan.nodes import Node, Stage, stages
from penstock.plugins import builtin
from penstock.processors.python import FunctionProcessor

RAW, TYPED, OPEN = Shape.RAW, Shape.TYPED, Shape.OPEN
PYTHON, SPARK = Where.PYTHON, Where.SPARK


def node(plugin: str, *, condition: str = "", id: str = "", **settings: Any) -> Node:
    made = builtin.implementation("processor", plugin)(
        builtin.settings_class("processor", plugin)(**settings), id or plugin
    )
    return Node(made, Condition(condition))


def function(*, batch: bool = False, id: str = "function", condition: str = "") -> Node:
    return Node(FunctionProcessor(lambda x: x, id, batch=batch), Condition(condition))


def ways(made: tuple[Stage, ...]) -> list[tuple[Where, list[str]]]:
    return [(s.where, [n.id for n in s.nodes]) for s in made]


AFTER, X = ".Payload.After", ".Payload.After.x"


@pytest.mark.parametrize(
    "made, shape, where, behind",
    [
        (node("filter"), RAW, SPARK, RAW),
        (node("filter"), TYPED, SPARK, TYPED),
        (node("filter"), OPEN, PYTHON, OPEN),
        (node("error"), RAW, SPARK, RAW),
        (node("error"), TYPED, SPARK, TYPED),
        (node("error"), OPEN, PYTHON, OPEN),
        (node("json.decode"), RAW, PYTHON, OPEN),
        (node("json.decode"), OPEN, PYTHON, OPEN),
        (node("json.decode", schema="x INT"), RAW, PYTHON, TYPED),
        (node("json.decode", schema="x INT"), OPEN, PYTHON, TYPED),
        (node("json.decode", field=".Key"), RAW, PYTHON, RAW),
        (node("json.decode", field=".Key"), TYPED, PYTHON, OPEN),  # what comes out of Python has no schema any more
        (node("json.decode", field=X), OPEN, PYTHON, OPEN),
        (node("json.encode"), RAW, PYTHON, RAW),
        (node("json.encode"), OPEN, PYTHON, RAW),
        (node("json.encode"), TYPED, SPARK, RAW),
        (node("json.encode", field=X), OPEN, PYTHON, OPEN),
        (node("json.encode", field=".Key"), RAW, PYTHON, RAW),
        (node("field.set", field=X, value="v"), OPEN, PYTHON, OPEN),
        (node("field.set", field=X, value="v"), TYPED, SPARK, TYPED),
        (node("field.set", field=AFTER, value="v"), RAW, PYTHON, RAW),
        (node("field.set", field=AFTER, value="v"), OPEN, PYTHON, RAW),
        (node("field.set", field=AFTER, value="v"), TYPED, PYTHON, RAW),
        (node("field.set", field=".Metadata.m", value="v"), RAW, PYTHON, RAW),
        (node("field.set", field=".Metadata.m", value="v"), TYPED, SPARK, TYPED),
        (node("field.exclude", fields=".Payload.After.x"), TYPED, SPARK, TYPED),
        (node("field.exclude", fields=".Payload.After.x", condition="after.x = 1"), TYPED, PYTHON, OPEN),
        (node("field.set", field=".Payload.After.m", value="v", condition="after.x = 1"), TYPED, SPARK, TYPED),
        (node("field.set", field=".Payload.After.m", value="v", condition="{{ true }}"), TYPED, PYTHON, OPEN),
        (node("field.set", field=".Operation", value="update"), OPEN, PYTHON, OPEN),
        (node("sql", field=X, expression="1"), TYPED, SPARK, TYPED),
        (node("sql", field=X, expression="1"), OPEN, PYTHON, OPEN),
        (node("sql", field=".Metadata.m", expression="1"), RAW, PYTHON, RAW),
        (node("python", function="m:f"), RAW, PYTHON, OPEN),
        (node("python", function="m:f"), TYPED, PYTHON, OPEN),
        (node("python", function="m:f", batch=True), RAW, PYTHON, OPEN),
        (function(), RAW, PYTHON, OPEN),
        (function(batch=True), OPEN, PYTHON, OPEN),
    ],
)
def test_a_processor_lands_where_its_input_is_best_worked_on(
    made: Node, shape: Shape, where: Where, behind: Shape
) -> None:
    assert stages([made], shape) == (Stage(where, (made,), shape, behind),)


@pytest.mark.parametrize(
    "made, shape, what",
    [
        (node("field.set", field=X, value="v"), RAW, "it has no fields yet"),
        (node("sql", field=X, expression="1"), RAW, "it has no fields yet"),
        (node("sql", field=AFTER, expression="1"), OPEN, "the whole payload can't be set"),
        (node("sql", field=X, expression="sha2(after.x, 256)"), OPEN, "can't be used"),
        (node("json.decode", schema="x INT"), TYPED, "typed already"),
        (node("json.decode", schema="x INT", condition="true"), RAW, "takes no condition"),
        (node("json.decode", schema="x INT", condition="after.x = 1"), OPEN, "takes no condition"),
        (node("json.decode"), TYPED, "typed already"),
        (node("filter", condition="{{ eq .Metadata.x"), RAW, "condition"),
        (node("filter", condition="after.x ="), OPEN, "the condition can't be used"),
        (node("filter", condition="after ="), RAW, "the condition can't be used"),
        (node("filter", condition="explode(after.x)"), OPEN, "the condition can't be used"),
        (function(batch=True, condition="true"), RAW, "takes no condition"),
    ],
)
def test_what_can_not_run_is_refused(made: Node, shape: Shape, what: str) -> None:
    with pytest.raises(Unsuitable, match=what) as caught:
        stages([made], shape)
    assert caught.value.hint or "does not parse" in str(caught.value) or caught.value.code == "config.bad-template"


@pytest.mark.parametrize("plugin", ["json.decode", "json.encode"])
def test_a_field_of_a_raw_payload_can_be_neither_decoded_nor_encoded(plugin: str) -> None:
    with pytest.raises(Unsuitable, match="raw"):
        stages([node(plugin, field=X)], RAW)


@pytest.mark.parametrize("made", [node("filter", condition="after.x = 1"), function(condition="after.x = 1")])
def test_a_condition_on_a_field_of_a_raw_payload_is_refused(made: Node) -> None:
    with pytest.raises(Unsuitable, match=r"raw"):
        stages([made], RAW)


def test_neighbours_in_python_are_one_stage() -> None:
    chain = [node("json.decode"), node("filter", condition="after.x = 1"), function(), node("json.encode")]
    made = stages(chain, RAW)
    assert ways(made) == [(PYTHON, ["json.decode", "filter", "function", "json.encode"])]
    assert (made[0].given, made[0].gives) == (RAW, RAW)


def test_neighbours_in_columns_are_one_stage() -> None:
    chain = [node("filter", condition="after.x = 1"), node("field.set", field=X, value="v"), node("json.encode")]
    made = stages(chain, TYPED)
    assert ways(made) == [(SPARK, ["filter", "field.set", "json.encode"])]
    assert (made[0].given, made[0].gives) == (TYPED, RAW)
    assert made[0].schema is None


def test_what_gives_a_schema_ends_its_stage() -> None:
    """Behind it are typed columns, and what works on those is Spark's; what can't starts from them anew."""
    typed = node("json.decode", schema="x INT", id="typed")
    chain = [node("json.decode"), function(id="f"), typed, node("filter", condition="after.x = 1"), function(id="g")]
    made = stages(chain, RAW)
    assert ways(made) == [(PYTHON, ["json.decode", "f", "typed"]), (SPARK, ["filter"]), (PYTHON, ["g"])]
    assert [(s.given, s.gives) for s in made] == [(RAW, TYPED), (TYPED, TYPED), (TYPED, OPEN)]
    assert [s.schema for s in made] == [typed.processor.typed, None, None]
    assert typed.processor.typed is not None
    assert typed.processor.typed.ddl == "STRUCT<`x` INT>"


def test_nothing_in_python_is_fused_behind_what_gives_a_schema() -> None:
    chain = [node("json.decode", schema="x INT", id="typed"), function(id="f"), function(id="g")]
    made = stages(chain, RAW)
    assert ways(made) == [(PYTHON, ["typed"]), (PYTHON, ["f", "g"])]
    assert [(s.given, s.gives) for s in made] == [(RAW, TYPED), (TYPED, OPEN)]


def test_a_change_of_place_is_a_new_stage() -> None:
    chain = [node("filter", id="a"), node("json.decode", id="b"), node("json.encode", id="c"), node("filter", id="d")]
    made = stages(chain, RAW)
    assert ways(made) == [(SPARK, ["a"]), (PYTHON, ["b", "c"]), (SPARK, ["d"])]
    assert [(s.given, s.gives) for s in made] == [(RAW, RAW), (RAW, RAW), (RAW, RAW)]


def test_a_function_of_batches_is_alone() -> None:
    chain = [
        function(id="a"),
        function(batch=True, id="b"),
        function(batch=True, id="c"),
        function(id="d"),
        function(id="e"),
    ]
    assert ways(stages(chain, RAW)) == [(PYTHON, ["a"]), (PYTHON, ["b"]), (PYTHON, ["c"]), (PYTHON, ["d", "e"])]


def test_the_first_that_can_not_run_is_the_one_that_is_said() -> None:
    first = node("json.decode", schema="x INT")
    chain = [first, node("json.decode", schema="x INT", id="second"), node("filter", condition="{{")]
    with pytest.raises(Unsuitable, match="typed already"):
        stages(chain, RAW)


def test_no_processors_are_no_stages() -> None:
    assert stages([], RAW) == ()


def test_an_author_who_writes_one_of_the_two_need_not_say_which() -> None:
    class InPython(Processor[None]):
        def apply(self, r: Record) -> Record:
            return r

    class InColumns(Processor[None]):
        def compile(self, columns: Columns) -> Step:
            return Step()

    assert stages([Node(InPython(None, "p"))], RAW)[0].where is PYTHON
    assert stages([Node(InColumns(None, "c"))], RAW)[0].where is SPARK
