"""field.set, field.rename, field.exclude, field.convert, filter and error without Spark: rules of Conduit beyond its recorded cases."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from penstock.config import ConfigErrors, parse_settings
from penstock.native import DROP, Drop, Processor, Record, Reject, Shape, Unsuitable, Where
from penstock.plan import gotext
from penstock.plan.moment import Moment
from penstock.plan.payload import to_json
from penstock.plugins import builtin

PLUGINS = ("field.set", "field.rename", "field.exclude", "field.convert", "filter", "error")
BAD = "bad"


def made(plugin: str, **settings: str) -> Processor[Any]:
    cls = builtin.settings_class("processor", plugin)
    p: Processor[Any] = builtin.implementation("processor", plugin)(parse_settings(cls, settings), "p")
    return pickle.loads(pickle.dumps(p))  # type: ignore[no-any-return]


def after(p: Processor[Any], payload: Any) -> Any:
    """The payload behind it, or BAD; the same on both ways, where there are two."""
    result = applied(p, Record(copy.deepcopy(payload)))
    slow = result.after if isinstance(result, Record) else result
    op = p.on_payload()
    if op is not None:
        try:
            fast = op(copy.deepcopy(payload))
        except Exception:
            fast = BAD
        assert repr(fast) == repr(slow)
    return slow


def applied(p: Processor[Any], r: Record) -> Any:
    try:
        result = p.apply(r)
    except Exception:
        return BAD
    return BAD if isinstance(result, Reject) else result


def refused(plugin: str, **settings: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        made(plugin, **settings)
    assert {p.code for p in caught.value.problems} <= {"config.bad-value", "config.missing-key"}
    return str(caught.value)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_example_of_its_page_is_true(plugin: str) -> None:
    example = builtin.implementation("processor", plugin).example
    given = Record(**copy.deepcopy(dict(example.given)))
    result = made(plugin, **example.settings).apply(given)
    if example.rejects:
        assert isinstance(result, Reject)
        assert result.reason == example.rejects
    elif example.gives is None:
        assert isinstance(result, Drop)
    else:
        assert isinstance(result, Record)
        assert {name: getattr(result, name) for name in example.gives} == example.gives


@pytest.mark.parametrize("plugin", PLUGINS)
def test_every_setting_is_described(plugin: str) -> None:
    for field in builtin.settings_class("processor", plugin).model_fields.values():
        assert field.description


# -- field.set -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, operation",
    [("create", "create"), ("2", "update"), ("+3", "delete"), ("004", "snapshot"), ("Operation(2)", "update"), ("2)", "update"),
     ("0", BAD), ("5", BAD), ("-1", BAD), ("Create", BAD), ("2.0", BAD), ("Operation(x)", BAD), ("99999999999999999999", BAD)],
)  # fmt: skip
def test_the_operation_is_a_name_or_a_number(value: str, operation: str) -> None:
    result = applied(made("field.set", field=".Operation", value=value), Record(operation="create"))
    assert (result if result == BAD else result.operation) == operation


@pytest.mark.parametrize("field", [".", "$", ".Payload", ".payload", ".Metadata", ".position"])
def test_what_can_not_hold_a_text_costs_every_record(field: str) -> None:
    assert applied(made("field.set", field=field, value="v"), Record({})) == BAD


@pytest.mark.parametrize("field", [".Position", " .Position ", "position", ".Nope", "", " ", ".Metadata.a.b"])
def test_other_fields_are_refused(field: str) -> None:
    assert "must" in refused("field.set", field=field, value="v")


def test_settings_are_trimmed_as_go_does_it() -> None:
    p = made("field.set", field="\u00a0.Payload.After.x\n", value=" \u2003v\x1f\t")
    assert after(p, {}) == {"x": "v\x1f"}
    assert "must not be empty" in refused("field.set", field=".Payload.After.x", value=" \n")


def test_a_template_is_evaluated_before_anything_is_changed() -> None:
    p = made("field.set", field=".Payload.After.a", value="{{ .Payload.After.a }}-{{ .Metadata.k }}")
    assert p.uses >= {"after", "metadata"}
    assert p.on_payload() is None
    assert p.fields() is None
    result = applied(p, Record({"a": 1}, metadata={"k": "v"}))
    assert result.after == {"a": "1-v"}
    assert applied(made("field.set", field=".Payload.After", value="{{ .Nope }}"), Record({})) == BAD
    assert "template" in refused("field.set", field=".Payload.After.a", value="{{ nope }}")


def test_the_namespace_is_a_key_of_the_metadata() -> None:
    r = Record({}, namespace="a", metadata={"k": "v"})
    made("field.set", field="namespace", value="b").apply(r)
    assert (r.namespace, r.metadata) == ("b", {"k": "v", "opencdc.collection": "b"})
    made("field.exclude", fields='.Metadata["opencdc.collection"]').apply(r)
    assert (r.namespace, r.metadata) == (None, {"k": "v"})


# -- field.exclude -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields, payload, result",
    [
        (".Payload.After.a", {"a": {"b": 1}, "c": 2}, {"c": 2}),
        (".Payload.After.a.b", {"a": {"b": 1}}, {"a": {}}),
        (".Payload.After.a.b", {}, {"a": {}}),
        (".Payload.After.a.b", {"a": None}, {"a": {}}),
        (".Payload.After.a", None, {}),
        (".Payload.After.a.b", {"a": [1]}, BAD),
        (".Payload.After.a", b"raw", BAD),
        (".Payload.After.a,.Payload.After.b", {"a": 1, "b": 2}, {}),
        (".Payload.After", {"a": 1}, None),
        (".Payload.After,.Payload.After.a", {"a": 1}, {}),
        ("after.a", {"a": 1}, {}),
        (".Payload.After.a,", {"a": 1}, BAD),  # an empty reference is the record
        (".operation", {"a": 1}, BAD),
        (".", {"a": 1}, BAD),
    ],
)
def test_fields_are_excluded(fields: str, payload: Any, result: Any) -> None:
    assert after(made("field.exclude", fields=fields), payload) == result


def test_whole_places_are_excluded() -> None:
    r = Record({"a": 1}, before={"b": 1}, key=b"k", metadata={"m": "1"}, namespace="n")
    made("field.exclude", fields=".Payload,.Key,.Metadata").apply(r)
    assert (r.after, r.before, r.key, r.metadata, r.namespace) == (None, None, None, {}, None)


@pytest.mark.parametrize(
    "fields", ["", ".Operation", ".Position", "operation", ".Payload.After.a, .Key", '.Payload.After["a,b"]']
)
def test_what_can_not_be_excluded_is_refused(fields: str) -> None:
    assert "must" in refused("field.exclude", fields=fields)


# -- field.rename --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mapping, payload, result",
    [
        (".Payload.After.a:b", {"a": 1}, {"b": 1}),
        (".Payload.After.a:b", {"a": None}, {"b": None}),
        (".Payload.After.a:b", {}, {"b": None}),
        (".Payload.After.a:b", None, {"b": None}),
        (".Payload.After.a:b", {"a": 1, "b": None}, BAD),
        (".Payload.After.a:a", {"a": 1}, BAD),
        (".Payload.After.a:a", {}, {}),
        (".Payload.After.a.b:c", {"a": {"b": 1}, "c": 2}, {"a": {"c": 1}, "c": 2}),
        (".Payload.After.a.b:c", {}, {"a": {"c": None}}),
        (".Payload.After.a.b:c", {"a": 1}, BAD),
        (" .Payload.After.a : b.c , .Payload.After.d:a", {"a": 1, "d": 2}, {"b.c": 1, "a": 2}),
        (".Payload.After.a:b,.Payload.After.b:c", {"a": 1}, {"c": 1}),
        (".payload.after:x", {"a": 1}, BAD),
        (".:x", {"a": 1}, BAD),
    ],
)
def test_fields_are_renamed(mapping: str, payload: Any, result: Any) -> None:
    assert after(made("field.rename", mapping=mapping), payload) == result


def test_a_missing_key_of_the_metadata_is_renamed_to_an_empty_text() -> None:
    r = Record(metadata={"k": "v"})
    made("field.rename", mapping=".Metadata.missing:x,.Metadata.k:opencdc.collection").apply(r)
    assert (r.metadata, r.namespace) == ({"x": "", "opencdc.collection": "v"}, "v")


@pytest.mark.parametrize(
    "mapping",
    [
        "",
        ".Payload.After.a",
        ".Payload.After.a:",
        ".Payload.After.a: ",
        ".Key:x",
        "after:x",
        ".Payload.After.a:b,",
        "a:b",
    ],
)
def test_what_can_not_be_renamed_is_refused(mapping: str) -> None:
    assert "must" in refused("field.rename", mapping=mapping)


# -- field.convert -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, text",
    [
        (None, "<nil>"), (True, "true"), ("x", "x"), (b"hi", "hi"), (b"\xff", "\udcff"), (1000000, "1000000"), (1e6, "1000000"),
        (2**53 + 1, "9007199254740993"), (-0.0, "-0"), (1e21, "1" + "0" * 21), (5e-324, "0." + "0" * 323 + "5"), (0.1, "0.1"),
        (math.inf, "+Inf"), (-math.inf, "-Inf"), (math.nan, "NaN"), (Decimal("1.50"), "1.50"), (date(2024, 2, 29), "2024-02-29"),
        ([1000000, 1e20, 1e-5, 0.0001, 999999, -0.0, 2**53 + 1], "[1e+06 1e+20 1e-05 0.0001 999999 -0 9007199254740993]"),
        ([True, None, "", "a b", [], {}], "[true <nil>  a b [] map[]]"),
        ({"b": 1, "a": b"\x01\x02", "": 1234567.5}, "map[:1.2345675e+06 a:[1 2] b:1]"),
        (datetime(2024, 1, 2, 3, 4, 5, 120000, UTC), "2024-01-02 03:04:05.12 +0000 UTC"),
        (datetime(2024, 1, 2, 3, 4, 5, 0, timezone(timedelta(hours=-1, minutes=-30))), "2024-01-02 03:04:05 -0130 -0130"),
        ([datetime(1, 1, 1, tzinfo=UTC)], "[0001-01-01 00:00:00 +0000 UTC]"),
    ],
)  # fmt: skip
def test_any_value_has_gos_text(value: Any, text: str) -> None:
    assert after(made("field.convert", field=".Payload.After.v", type="string"), {"v": value}) == {"v": text}


TEXTS: Mapping[str, Mapping[str, Any]] = {
    "int": {"+5": 5, "-0": 0, "0" * 5000 + "1": 1, "-9223372036854775808": -(2**63), "9223372036854775808": BAD, "9" * 5000: BAD,
            "1_0": BAD, "٣": BAD, " 1": BAD, "1\n": BAD, "": BAD, "+": BAD, "0x1": BAD, "1.0": BAD},
    "float": {"1_000.5_5e1_0": 1.00055e13, "1__0": BAD, "1_": BAD, "_1": BAD, "1._5": BAD, "0x_1_0.8_8p1_0": 16928.0, "0x10": BAD,
              "-0x1p4": -16.0, "0x1p99999": BAD, "iNf": math.inf, "-infinity": -math.inf, "infin": BAD, "-nan": BAD, "1e400": BAD,
              "1e-400": 0.0, "١": BAD, "1f": BAD, "1 ": BAD, "5.": 5.0, ".": BAD, "1e99999999999999999999": BAD},
    "bool": {"t": True, "True": True, "tRUE": BAD, "0": False, "yes": BAD, "": BAD},
    "time": {"42": Moment.of(datetime(1970, 1, 1, tzinfo=UTC), 42), "2024-02-29T3:04:05,5Z": datetime(2024, 2, 29, 3, 4, 5, 500000, UTC),
             "2024-02-29T23:59:59.1234567891+02:60": Moment.of(datetime(2024, 2, 29, 20, 59, 59, 123456, UTC), 789),
             "2024-02-29T23:59:59+24:00": datetime(2024, 2, 28, 23, 59, 59, 0, UTC), "2024-02-29T23:59:59+24:61": BAD,
             "2024-02-29T23:59:60Z": BAD, "2024-02-29t23:59:59Z": BAD, "2023-02-29T00:00:00Z": BAD, "2024-02-29T00:00:00": BAD,
             "2024-02-29T00:00:00+0000": BAD, "9223372036854775808": BAD},
}  # fmt: skip


@pytest.mark.parametrize("to, text, result", [(to, text, r) for to, all_ in TEXTS.items() for text, r in all_.items()])
def test_text_is_read_as_go_reads_it(to: str, text: str, result: Any) -> None:
    found = after(made("field.convert", field=".Payload.After.v", type=to), {"v": text})
    assert (found if found == BAD else found["v"]) == result


@pytest.mark.parametrize(
    "to, value, result",
    [
        ("int", True, 1), ("int", 5.0, 5), ("int", 5.5, BAD), ("int", 2**63, BAD), ("int", 2.0**60, 1152921504606847000),
        ("int", None, BAD),
        ("int", Decimal("5"), 5), ("int", Decimal("5.0"), BAD), ("int", b"7", 7), ("int", [], BAD), ("int", math.nan, BAD),
        ("float", 2**53 + 1, 2.0**53), ("float", False, 0.0), ("float", 10**400, BAD), ("float", {}, BAD),
        ("bool", 1, True), ("bool", 0.0, False), ("bool", -0.0, BAD), ("bool", 2, BAD), ("bool", None, BAD),
        ("time", -1, Moment.of(datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), 999)),
        ("time", 1.5, BAD), ("time", datetime(2024, 1, 1, tzinfo=UTC), BAD),
    ],
)  # fmt: skip
def test_other_values_go_by_way_of_their_text(to: str, value: Any, result: Any) -> None:
    found = after(made("field.convert", field=".Payload.After.v", type=to), {"v": value})
    assert (found if found == BAD else (found["v"], type(found["v"]))) == (
        result if result == BAD else (result, type(result))
    )


def test_a_missing_field_is_converted_like_null_and_its_parents_are_made() -> None:
    assert after(made("field.convert", field=".Payload.After.a.b", type="string"), {}) == {"a": {"b": "<nil>"}}
    assert after(made("field.convert", field=".Payload.After.a.b", type="string"), {"a": 1}) == BAD


def test_a_whole_payload_can_only_become_text() -> None:
    assert after(made("field.convert", field=".Payload.After", type="string"), {"a": [1]}) == b"map[a:[1]]"
    assert after(made("field.convert", field=".Payload.After", type="string"), b"hi") == b"[104 105]"
    assert after(made("field.convert", field=".Payload.After", type="string"), None) == b"<nil>"
    assert after(made("field.convert", field=".Payload.After", type="int"), b"5") == BAD
    assert after(made("field.convert", field=".Payload", type="string"), b"5") == BAD


@pytest.mark.parametrize(
    "field", ["", ".Metadata.k", ".Operation", ".payload.after.x", "$.Payload.After.x", ".", "metadata.k"]
)
def test_only_payloads_and_the_key_can_be_converted(field: str) -> None:
    assert "must" in refused("field.convert", field=field, type="int")


def test_no_error_of_a_conversion_shows_the_value() -> None:
    for to, convert in gotext.CONVERT.items():
        if to != "string":
            with pytest.raises(ValueError, match="it can't be read") as caught:
                convert("s3cret")
            assert "s3cret" not in str(caught.value)


# -- filter, error, and where they run -----------------------------------------------------------------------------------


def test_filter_drops_and_error_nacks_with_its_message() -> None:
    assert made("filter").apply(Record({})) is DROP
    for message, reason in (("", "error processor triggered"), (" m ", "m"), ("{{ .Payload.After.a }}!", "1!")):
        result = made("error", message=message).apply(Record({"a": 1}))
        assert isinstance(result, Reject)
        assert result.reason == reason
    assert applied(made("error", message="{{ .Nope }}"), Record({})) == BAD
    assert "template" in refused("error", message="{{ nope")


@pytest.mark.parametrize(
    "plugin, settings",
    [
        ("field.set", {"field": ".Payload.After.x", "value": "v"}),
        ("field.exclude", {"fields": ".Metadata.k,.Payload.After.x"}),
        ("field.rename", {"mapping": ".Payload.After.x:y"}),
        ("field.convert", {"field": ".Payload.After.x", "type": "int"}),
    ],
)
def test_raw_payloads_have_no_fields_and_typed_ones_are_changed_as_columns(
    plugin: str, settings: dict[str, str]
) -> None:
    p = made(plugin, **settings)
    with pytest.raises(Unsuitable, match="the payload is raw"):
        p.where(Shape.RAW)
    assert (p.where(Shape.OPEN), p.where(Shape.TYPED), p.gives(Shape.TYPED)) == (Where.PYTHON, Where.SPARK, Shape.TYPED)


@pytest.mark.parametrize(
    "plugin, settings",
    [
        ("field.set", {"field": ".Key.x", "value": "v"}),
        ("field.set", {"field": ".Metadata.x", "value": "{{ .Key }}"}),
        ("field.exclude", {"fields": ".Payload.Before.x"}),
        ("field.rename", {"mapping": ".Key.x:y"}),
        ("field.convert", {"field": ".Key.x", "type": "int"}),
    ],
)
def test_key_and_before_are_changed_in_python_on_every_shape(plugin: str, settings: dict[str, str]) -> None:
    assert {made(plugin, **settings).where(shape) for shape in Shape} == {Where.PYTHON}


def test_a_time_keeps_its_nanoseconds_through_json_and_pickle() -> None:
    found = after(
        made("field.convert", field=".Payload.After.v", type="time"), {"v": "2024-02-29T23:59:59.123456789+02:00"}
    )
    assert isinstance(found, dict)
    assert pickle.loads(pickle.dumps(found["v"])) == found["v"] != found["v"].replace(microsecond=0)
    assert to_json(found) == b'{"v":"2024-02-29T23:59:59.123456789+02:00"}'
    assert after(made("field.convert", field=".Payload.After.v", type="string"), found) == {
        "v": "2024-02-29 23:59:59.123456789 +0200 +0200"
    }
