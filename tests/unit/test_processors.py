"""The built-in processors without Spark: their settings, and that `apply` and `on_payload` come to the same."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from penstock import DROP, Record, Reject, processor
from penstock.native import Processor, Rejected, Result
from penstock.plugins import builtin
from penstock.processors import json_decode
from penstock.processors.python import FunctionProcessor, Python, PythonSettings


def made(plugin: str, **settings: Any) -> Processor[Any]:
    cls = builtin.settings_class("processor", plugin)
    p: Processor[Any] = builtin.implementation("processor", plugin)(cls(**settings), plugin)
    return p


def apply(p: Processor[Any], r: Record) -> Any:
    """What becomes of the record, or the error."""
    try:
        return p.apply(r)
    except Exception as e:
        return type(e)


def both(p: Processor[Any], payload: Any) -> Any:
    """The payload behind it, or DROP, or the error: the same on both ways."""
    op = p.on_payload()
    assert op is not None
    result = apply(p, Record(copy.deepcopy(payload)))
    slow = result.after if isinstance(result, Record) else result
    try:
        fast = op(copy.deepcopy(payload))
    except Exception as e:
        fast = type(e)
    assert (fast, type(fast)) == (slow, type(slow))
    return fast


def refused(plugin: str, **settings: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        made(plugin, **settings)
    [error] = caught.value.errors()
    return str(error["msg"])


# -- filter and error ----------------------------------------------------------------------------------------------------


def test_a_filter_drops_whatever_it_is_given() -> None:
    for payload in (b"x", {"a": 1}, None):
        assert both(made("filter"), payload) is DROP
    assert refused("filter", condition="x")


def test_error_rejects_with_its_message() -> None:
    result = made("error").apply(Record(b"x"))
    assert isinstance(result, Reject)
    assert result.reason == "error processor triggered"
    custom = made("error", message="no").apply(Record(b"x"))
    assert isinstance(custom, Reject)
    assert custom.reason == "no"


# -- json.decode ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload, result",
    [
        (b'{"a": 1}', {"a": 1}),
        (b' {"b":[1,{"c":null}]} ', {"b": [1, {"c": None}]}),
        (b"{}", {}),
        (b'{"n": 9007199254740993}', {"n": 9007199254740993}),
        (b'{"n": -123456789012345678901234567890}', {"n": -123456789012345678901234567890}),
        (b'{"n": 1.0}', {"n": 1.0}),
        (b'{"a":1,"a":2}', {"a": 2}),  # the last of two equal keys wins, as in Conduit
        (b"", None),
        (b"null", None),
        (None, None),
        (b'"text \\u00fc"', "text ü".encode()),  # a JSON string is raw, as in Conduit
        (b'""', b""),
        ({"a": 1}, {"a": 1}),  # what is structured already passes
        (b"[1]", Rejected),
        (b"5", Rejected),
        (b"true", Rejected),
        (b"1.5", Rejected),
    ],
)
def test_json_is_decoded_exactly(payload: Any, result: Any) -> None:
    assert both(made("json.decode"), payload) == result


def test_what_was_decoded_keeps_its_types() -> None:
    value = both(made("json.decode"), b'{"i": 1, "f": 1.0, "b": true, "big": 18446744073709551616}')
    assert [type(v) for v in value.values()] == [int, float, bool, int]


@pytest.mark.parametrize("payload", [b"{", b"no", b"\xff", b"{'a':1}", b'{"a":NaN}', b'{"a":1}x', b"  "])
def test_what_is_no_json_is_an_error(payload: bytes) -> None:
    assert issubclass(both(made("json.decode"), payload), Exception)


def test_a_nack_of_a_list_says_what_it_is() -> None:
    with pytest.raises(Rejected) as caught:
        json_decode.decode(b"[1]")
    assert (caught.value.code, caught.value.what) == ("json.not-an-object", "the payload is a JSON list, not an object")


def test_a_key_and_a_field_can_be_decoded_too() -> None:
    r = Record({"x": '{"y": 1}'}, key=b'{"k": 2}', before=b'{"b": 3}')
    for field in (".Key", ".Payload.Before", ".Payload.After.x"):
        p = made("json.decode", field=field)
        assert p.on_payload() is None
        assert p.apply(r) is r
    assert (r.key, r.before, r.after) == ({"k": 2}, {"b": 3}, {"x": {"y": 1}})


@pytest.mark.parametrize("value", [b"", pytest.param("")])
def test_an_empty_field_is_decoded_to_nothing(value: Any) -> None:
    r = Record({"x": value})
    made("json.decode", field=".Payload.After.x").apply(r)
    assert r.after == {"x": None}


@pytest.mark.parametrize("field", [".Metadata.x", ".Operation", ".Position", "nonsense", "", ".Payload.After[0]"])
def test_only_payloads_and_the_key_hold_json(field: str) -> None:
    for plugin in ("json.decode", "json.encode"):
        assert "must" in refused(plugin, field=field)


def test_a_schema_is_for_the_whole_payload() -> None:
    assert "must decode `.Payload.After`" in refused("json.decode", field=".Key", schema="x INT")
    assert made("json.decode", field=".payload.after", schema="x INT").settings.schema_ == "x INT"


def test_only_the_column_it_works_on_is_asked_for() -> None:
    assert made("json.decode").uses == made("json.encode").uses == {"after"}
    assert made("json.decode", field=".Key.x").uses == made("json.encode", field=".Key.x").uses == {"key"}


# -- json.encode ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload, result",
    [
        ({"b": 1, "a": {"d": None, "c": [1.5, "ü"]}}, '{"a":{"c":[1.5,"ü"],"d":null},"b":1}'.encode()),
        ({"n": 2**70}, b'{"n":%d}' % 2**70),
        ({}, b"{}"),
        (b"raw stays", b'"cmF3IHN0YXlz"'),
        (None, None),
        ({"x": object()}, TypeError),
    ],
)
def test_json_is_encoded_with_sorted_keys(payload: Any, result: Any) -> None:
    if not isinstance(result, type):
        assert both(made("json.encode"), payload) == result
    else:
        assert apply(made("json.encode"), Record(payload)) is result


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_number_that_json_does_not_have_is_an_error(value: float) -> None:
    assert issubclass(both(made("json.encode"), {"x": value}), Exception)


def test_a_decimal_is_a_number() -> None:
    assert both(made("json.encode"), {"x": Decimal("1.50")}) == b'{"x":1.50}'


def test_a_field_is_encoded_as_text() -> None:
    r = Record({"x": {"b": 1, "a": 2}, "y": None}, key={"k": 1})
    made("json.encode", field=".Payload.After.x").apply(r)
    made("json.encode", field=".Payload.After.y").apply(r)
    made("json.encode", field=".Key").apply(r)
    assert (r.after, r.key) == ({"x": '{"a":2,"b":1}', "y": None}, b'{"k":1}')


# -- field.set -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field, payload, result",
    [
        (".Payload.After.x", {}, {"x": "v"}),
        (".Payload.After.x", {"x": 1, "y": 2}, {"x": "v", "y": 2}),
        (".Payload.After.x", None, {"x": "v"}),
        (".Payload.After.x.y", {}, {"x": {"y": "v"}}),
        (".Payload.After.x.y", {"x": None}, {"x": {"y": "v"}}),
        ('.Payload.After["a.b"]', {}, {"a.b": "v"}),
        (".Payload.After", {"x": 1}, b"v"),
        (".Payload.After", b"raw", b"v"),
        (".Payload.After.x", b"raw", TypeError),
        (".Payload.After.x.y", {"x": "text"}, TypeError),
    ],
)
def test_a_field_of_the_payload_is_set_to_text(field: str, payload: Any, result: Any) -> None:
    assert both(made("field.set", field=field, value="v"), payload) == result


def test_other_places_are_set_too() -> None:
    r = Record(b"a", metadata={"m": "1"})
    settings = [(".Metadata.n", "2"), (".Key", "k"), (".Payload.Before.x", "b"), (".Operation", "delete")]
    for field, value in settings:
        p = made("field.set", field=field, value=value)
        assert p.on_payload() is None
        assert p.apply(r) is r
    assert (r.metadata, r.key, r.before, r.operation) == ({"m": "1", "n": "2"}, b"k", {"x": "b"}, "delete")
    assert r.after == b"a"


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"field": ".Position", "value": "v"}, "must not be the position"),
        ({"field": ".Metadata.a.b", "value": "v"}, "must name one key"),
        ({"field": ".Payload.After.x", "value": ""}, "at least 1 character"),
        ({"field": "nonsense", "value": "v"}, "must be a reference"),
    ],
)
def test_what_can_not_be_set_is_refused(settings: dict[str, str], words: str) -> None:
    assert words in refused("field.set", **settings)


def test_a_field_of_the_operation_does_not_exist() -> None:
    assert "must" in refused("field.set", field=".Operation.x", value="create")


# -- sql -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "expression, payload, result",
    [
        ("after.a + 1", {"a": 1}, {"a": 1, "x": 2}),
        ("after.missing", {}, {"x": None}),
        ("upper(after.s)", {"s": "ab"}, {"s": "ab", "x": "AB"}),
        ("case when after.a > 1 then 'big' else 'small' end", {"a": 5}, {"a": 5, "x": "big"}),
        ("1", None, {"x": 1}),
    ],
)
def test_a_field_is_set_to_the_value_of_an_expression(expression: str, payload: Any, result: Any) -> None:
    assert both(made("sql", field=".Payload.After.x", expression=expression), payload) == result


def test_an_expression_that_raises_costs_the_record() -> None:
    result = both(made("sql", field=".Payload.After.x", expression="after.a + 1"), {"a": "no number"})
    assert isinstance(result, type)
    assert issubclass(result, Exception)


def test_what_looks_at_more_than_the_payload_needs_the_record() -> None:
    p = made("sql", field=".Payload.After.x", expression="concat(operation, '!')")
    assert p.on_payload() is None
    assert p.uses == {"after", "operation"}
    r = Record({})
    p.apply(r)
    assert r.after == {"x": "create!"}


def test_metadata_holds_only_text() -> None:
    r = Record({"a": 5})
    made("sql", field=".Metadata.m", expression="after.a").apply(r)
    assert r.metadata == {"m": "5"}
    with pytest.raises(Rejected) as caught:
        made("sql", field=".Metadata.m", expression="after.b").apply(r)
    assert caught.value.code == "sql.null"


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"field": ".Payload.After.x", "expression": "after.x +"}, "must be a SQL expression"),
        ({"field": ".Payload.After.x", "expression": ""}, "at least 1 character"),
        ({"field": ".Key.x", "expression": "1"}, "must be `.Payload.After`"),
        ({"field": ".Operation", "expression": "1"}, "must be `.Payload.After`"),
        ({"field": "x", "expression": "1"}, "must be a reference"),
    ],
)
def test_settings_of_sql_that_make_no_sense_are_refused(settings: dict[str, str], words: str) -> None:
    assert words in refused("sql", **settings)


@pytest.mark.parametrize("field", [".Metadata", ".Metadata.a.b"])
def test_sql_sets_one_key_of_the_metadata(field: str) -> None:
    """Anything else would leave metadata that is no map of text."""
    assert "must" in refused("sql", field=field, expression="'v'")


# -- python --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def clean_imports() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("user_"):
            del sys.modules[name]


MODULE = """
from penstock import processor
def plain(r):
    return r.derive(after=b"plain")
@processor
def marked(r):
    return r.derive(after=b"marked")
@processor(batch=True)
def whole(batch):
    return batch
class Holder:
    @staticmethod
    def inside(r):
        return r.derive(after=b"inside")
"""


@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize("name, result", [("plain", b"plain"), ("marked", b"marked"), ("Holder.inside", b"inside")])
def test_a_function_is_found_in_the_folder_it_is_said_to_be_in(tmp_path: Path, name: str, result: bytes) -> None:
    (tmp_path / "user_functions.py").write_text(MODULE)
    p = made("python", function=f"user_functions:{name}", path=str(tmp_path))
    p.open()
    made_record = p.apply(Record(b"x"))
    assert isinstance(made_record, Record)
    assert made_record.after == result
    assert p.on_batch() is None


@pytest.mark.usefixtures("clean_imports")
def test_a_function_of_batches_is_called_with_batches(tmp_path: Path) -> None:
    (tmp_path / "user_batches.py").write_text(MODULE)
    f = made("python", function="user_batches:whole", path=str(tmp_path), batch=True).on_batch()
    assert f is not None
    batch: Any = object()
    assert f(batch) is batch


@pytest.mark.usefixtures("clean_imports")
def test_a_module_in_a_package_is_found(tmp_path: Path) -> None:
    (tmp_path / "user_package").mkdir()
    (tmp_path / "user_package" / "__init__.py").write_text("")
    (tmp_path / "user_package" / "steps.py").write_text(MODULE)
    result = made("python", function="user_package.steps:plain", path=str(tmp_path)).apply(Record(b"x"))
    assert isinstance(result, Record)


@pytest.mark.usefixtures("clean_imports")
def test_functions_of_one_name_in_two_folders_are_two_functions(tmp_path: Path) -> None:
    """Two pipelines, each with a `steps.py` beside its file, share Spark's Python workers."""
    results = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "user_steps.py").write_text(f"def f(r):\n    return r.derive(after=b'{name}')\n")
        result = made("python", function="user_steps:f", path=str(tmp_path / name)).apply(Record(b"x"))
        assert isinstance(result, Record)
        results.append(result.after)
    assert results == [b"one", b"two"]


@pytest.mark.usefixtures("clean_imports")
def test_a_function_with_an_attribute_of_that_name_is_itself(tmp_path: Path) -> None:
    (tmp_path / "user_odd.py").write_text("def f(r):\n    return r\nf.function = 'not this'\n")
    r = Record(b"x")
    assert made("python", function="user_odd:f", path=str(tmp_path)).apply(r) is r


@pytest.mark.usefixtures("clean_imports")
@pytest.mark.parametrize(
    "function, error",
    [("user_missing:f", ModuleNotFoundError), ("user_there:g", AttributeError), ("user_broken:f", ZeroDivisionError)],
)
def test_a_function_that_is_not_there_is_said_when_the_task_opens_it(
    tmp_path: Path, function: str, error: type[Exception]
) -> None:
    (tmp_path / "user_there.py").write_text("def f(r):\n    return r\n")
    (tmp_path / "user_broken.py").write_text("1 / 0\n")
    p = made("python", function=function, path=str(tmp_path))  # making it imports nothing
    with pytest.raises(error):
        p.open()


@pytest.mark.parametrize("function", ["", "f", "module:", ":f", "a b:f", "module:f()", "m:f; import os", "m/n:f"])
def test_a_function_is_named_module_and_name(function: str) -> None:
    with pytest.raises(ValidationError):
        PythonSettings(function=function)


def test_any_column_may_be_looked_at_by_user_code() -> None:
    from penstock.record import COLUMNS

    assert Python(PythonSettings(function="m:f"), "p").uses == FunctionProcessor(lambda r: r, "f").uses == set(COLUMNS)


def test_a_marked_function_can_still_be_called() -> None:
    @processor
    def f(r: Record) -> Result:
        return r

    @processor(batch=True)
    def g(batch: Any) -> Any:
        return batch

    r = Record()
    assert f(r) is r
    assert g(5) == 5
    assert (f.batch, g.batch) == (False, True)
