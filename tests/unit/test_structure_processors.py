"""Row Y1: json.*, base64.*, split, clone and unwrap.* beyond what the cases of the real Conduit show.

What is expected of texts was made with the libraries that Conduit uses.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from penstock.config import ConfigErrors, parse_settings
from penstock.errors import Rejected
from penstock.native import DROP, Example, Processor, Record, Shape, Unsuitable, Where
from penstock.plan.gotext import printed
from penstock.plan.opencdc import dumps, read
from penstock.plugins import builtin

PLUGINS: Mapping[str, Mapping[str, str]] = {
    "json.decode": {},
    "json.encode": {},
    "base64.decode": {"field": ".Payload.After.x"},
    "base64.encode": {"field": ".Payload.After.x"},
    "split": {"field": ".Payload.After.x"},
    "clone": {"count": "2"},
    "unwrap.debezium": {},
    "unwrap.kafkaconnect": {},
    "unwrap.opencdc": {},
}


def made(plugin: str, **settings: str) -> Processor[Any]:
    parsed = parse_settings(builtin.settings_class("processor", plugin), settings)
    processor: Processor[Any] = builtin.implementation("processor", plugin)(parsed, "p")
    return processor


def refused(plugin: str, **settings: str) -> str:
    with pytest.raises(ConfigErrors) as caught:
        made(plugin, **settings)
    return str(caught.value)


def shown(r: Record, names: Mapping[str, Any]) -> dict[str, Any]:
    return {name: getattr(r, name) for name in names}


@pytest.mark.parametrize("plugin", PLUGINS)
def test_the_example_on_its_page_is_true(plugin: str) -> None:
    example = builtin.implementation("processor", plugin).example
    assert isinstance(example, Example)
    result = made(plugin, **example.settings).apply(Record(**copy.deepcopy(dict(example.given))))
    if isinstance(example.gives, Mapping):
        assert isinstance(result, Record)
        assert shown(result, example.gives) == example.gives
    else:
        assert example.gives is not None
        assert isinstance(result, list)
        assert [shown(r, g) for r, g in zip(result, example.gives, strict=True)] == list(example.gives)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_it_is_sent_to_tasks_and_says_what_its_settings_are_for(plugin: str) -> None:
    again = pickle.loads(pickle.dumps(made(plugin, **PLUGINS[plugin])))
    assert again.uses >= {"after"}
    assert all(f.description for f in builtin.settings_class("processor", plugin).model_fields.values())


# -- reading -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, value",
    [
        (b'{"a":1.,"b":-.5,"c":01,"d":-01.50,"e":1.e2}', {"a": 1.0, "b": -0.5, "c": 1, "d": -1.5, "e": 100.0}),
        (b'{"a":0009007199254740993}', {"a": 9007199254740993}),
        (b'{"a":01,"b":1e-400}', {"a": 1, "b": Decimal("1e-400")}),
        (b'{"a":"line\nbreak\x01\x7f"}', {"a": "line\nbreak\x01\x7f"}),
        (b'{"a":"\xff"}', {"a": "\udcff"}),
        (b'{"\xff":[]}', {"\udcff": []}),
        (b'{"a":"\\ud83d\\u0041\\ude00\\ud83d\\ud83d\\ude00"}', {"a": "\ufffdA\ufffd\ufffd\U0001f600"}),
        (b'{"a":"\n\\b\\f\\n\\r\\t\\/\\\\\\"\\u00fc"}', {"a": '\n\b\f\n\r\t/\\"ü'}),
        (b"{null:01}", {"": 1}),
        (b'{"a":1}\0 \0', {"a": 1}),
        (b' {"a" : [ ] , "b" : { } , "c" : [ { "d" : 00 } , null ] } ', {"a": [], "b": {}, "c": [{"d": 0}, None]}),
        (b'{"a":01,"a":{"b":02},"a":{"c":true}}', {"a": {"c": True}}),
    ],
)
def test_what_conduit_takes_though_it_is_not_strict_is_taken(text: bytes, value: Any) -> None:
    assert read(text) == value
    assert made("json.decode").apply(Record(text)).after == value  # type: ignore[union-attr]
    on_payload = made("json.decode").on_payload()
    assert on_payload is not None
    assert on_payload(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":-}', b'{"a":1-1}', b'{"a":1e}', b'{"a":1e400}', b'{"a":+1}', b'{"a":.5}', b'{"a":1_000}', b'{"a":0x10}',
        b'{"a":NaN}', b'{"a":\x0b1}', b'{"a":\xa01}', b'{"a":"\0"}', b'{"a":"\\x"}', b'{"a":"\\u12G4"}', b'{"a":"\\u12',
        b'"abc', b"[1,]", b"[,1]", b"[1 2]", b'{"a":1,}', b'{"a":1:2}', b'{"a"1}', b'{"a"}', b"{1:2}", b'{"a":truefalse}',
        b'{"a":nul}', b"{", b"[", b"]", b"", b" ", b'{"a":01}}', b'{"a":01}x', b"01 02", b"\xef\xbb\xbf{}", b"[" * 10_001,
    ],
)  # fmt: skip
def test_what_conduit_does_not_take_is_a_nack(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"byte|Number|float|literal|deeper"):
        read(text)
    if text:
        with pytest.raises(Rejected) as caught:
            made("json.decode").apply(Record(text))
        assert caught.value.code == "json.invalid"


def test_ten_thousand_levels_are_read_and_written() -> None:
    text = b'{"a":' * 9_999 + b"[]" + b"}" * 9_999
    r = made("json.decode").apply(Record(text))
    assert isinstance(r, Record)
    assert dumps(r.after) == text
    with pytest.raises(Rejected):
        made("json.decode").apply(Record(b'{"a":' * 10_000 + b"[]" + b"}" * 10_000))


def test_a_long_text_that_does_not_end_is_found_out_at_once() -> None:
    with pytest.raises(ValueError, match="byte"):
        read(b'{"a":"' + b"x\\n" * 200_000)


@pytest.mark.parametrize(
    "value, result",
    [
        ("12", 12),
        ('"s"', "s"),
        ("[01]", [1]),
        ("true", True),
        ("", None),
        ("null", None),
        (b"{}", {}),
        ({"k": 1}, {"k": 1}),
    ],
)
def test_a_field_may_be_json_of_any_kind(value: Any, result: Any) -> None:
    r = made("json.decode", field=".Payload.After.x").apply(Record({"x": value}))
    assert isinstance(r, Record)
    assert r.after == {"x": result}


@pytest.mark.parametrize("value", [1, 1.5, True, [1], Decimal(1), datetime.now(UTC)])
def test_only_text_is_decoded(value: Any) -> None:
    for plugin in ("json.decode", "base64.decode"):
        with pytest.raises(Rejected):
            made(plugin, field=".Payload.After.x").apply(Record({"x": value}))


@pytest.mark.parametrize("plugin", ["json.decode", "json.encode", "base64.decode", "base64.encode"])
def test_what_is_missing_on_the_way_is_made(plugin: str) -> None:
    r = made(plugin, field=".Payload.After.x.y").apply(Record(None))
    assert isinstance(r, Record)
    assert r.after == {"x": {}}
    with pytest.raises(TypeError, match="not an object"):
        made(plugin, field=".Payload.After.x.y").apply(Record({"x": 1}))


# -- writing -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, text",
    [
        (0.0, "0"), (-0.0, "-0"), (1.0, "1"), (1e6, "1000000"), (2.0**53, "9007199254740992"), (2.0**63, "9223372036854776000"),
        (1e16, "10000000000000000"), (1e20, "100000000000000000000"), (1e21, "1e+21"), (-1.5e300, "-1.5e+300"),
        (1e-5, "0.00001"), (1e-6, "0.000001"), (1.5e-6, "0.0000015"), (1e-7, "1e-07"), (5e-324, "5e-324"), (12.5, "12.5"),
        (2**70, str(2**70)), (Decimal("0.1234567890123456789"), "0.1234567890123456789"), (True, "true"),
        ("<a>&\u2028\u2029", '"\\u003ca\\u003e\\u0026\\u2028\\u2029"'), ("\b\f\x0b\\b", '"\\u0008\\u000c\\u000b\\\\b"'),
        ("ü€…\x7f", '"ü€…\x7f"'), ("a\udcff\udcfeb", '"a\\ufffd\\ufffdb"'), ("1.0,1e5]", '"1.0,1e5]"'), (b"\0\xff", '"AP8="'),
        (datetime(2024, 2, 29, 23, 59, 59, 120_000, UTC), '"2024-02-29T23:59:59.12Z"'),
        (datetime(2024, 2, 29, 23, 59, 59, tzinfo=timezone(timedelta(hours=2))), '"2024-02-29T23:59:59+02:00"'),
    ],
)  # fmt: skip
def test_json_has_the_bytes_that_go_writes(value: Any, text: str) -> None:
    for deep, around in (
        (value, "%s"),
        ({"a": value}, '{"a":%s}'),
        ({"b": [0.5, {"a": value}]}, '{"b":[0.5,{"a":%s}]}'),
    ):
        assert dumps(deep).decode() == around.replace("%s", text)
    r = made("json.encode", field=".Payload.After.x").apply(Record({"x": value}))
    assert isinstance(r, Record)
    assert r.after == {"x": text}


def test_keys_are_sorted_as_they_are_written() -> None:
    assert dumps({"ü": 1, "a=": 2, "a<": 3, "A": 4}) == '{"A":4,"a=":2,"a\\u003c":3,"ü":1}'.encode()
    assert dumps({"a=": 1, 'a<":': 2}) == b'{"a=":1,"a\\u003c\\":":2}'


def test_a_raw_payload_becomes_the_text_of_its_base64() -> None:
    on_payload = made("json.encode").on_payload()
    assert on_payload is not None
    assert on_payload(b"hello") == b'"aGVsbG8="'
    assert on_payload(None) is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), Decimal("NaN"), Decimal("-Infinity")])
def test_a_number_that_json_has_not_is_a_nack_that_names_the_field(value: Any) -> None:
    with pytest.raises(Rejected, match=r"'x\.1'"):
        dumps({"x": [1, value]})


# -- base64 --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, text",
    [
        (1_000_000, "1e+06"),
        (1_000_000.0, "1e+06"),
        (5, "5"),
        (2**53 + 1, str(2**53 + 1)),
        (0.00001, "1e-05"),
        (False, "false"),
    ],
)
def test_numbers_are_printed_as_go_prints_doubles(value: Any, text: str) -> None:
    assert printed(value) == text
    r = made("base64.encode", field=".Payload.After.x").apply(Record({"x": value}))
    r = made("base64.decode", field=".Payload.After.x").apply(r)  # type: ignore[arg-type]
    assert isinstance(r, Record)
    assert r.after == {"x": text}


def test_anything_is_printed_as_go_prints_it() -> None:
    value = {"b": 1.0, "a": [1e6, "x", None, True, {}], "t": datetime(2024, 2, 29, 23, 59, 59, 120_000, UTC)}
    assert printed(value) == "map[a:[1e+06 x <nil> true map[]] b:1 t:2024-02-29 23:59:59.12 +0000 UTC]"
    assert [printed(v) for v in (-0.0, float("nan"), float("inf"), 123456789.5, 999999.5)] == [
        "-0", "NaN", "+Inf", "1.234567895e+08", "999999.5",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["YQ", "YQ=", "Y===", "YQ==YQ==", "Y Q=", "_-8=", "YQ==\t", "é"])
def test_what_is_no_base64_is_a_nack(text: str) -> None:
    with pytest.raises(Rejected, match="base64"):
        made("base64.decode", field=".Metadata.x").apply(Record(metadata={"x": text}))


def test_line_ends_in_base64_are_skipped() -> None:
    r = made("base64.decode", field=".Key").apply(Record(key=b"\r\nYW\n Jj".replace(b" ", b"") + b"\n"))
    assert isinstance(r, Record)
    assert r.key == b"abc"


def test_base64_of_a_payload_needs_no_record() -> None:
    encode, decode = made("base64.encode", field=".Payload.After"), made("base64.decode", field=".Payload.After")
    there, back = encode.on_payload(), decode.on_payload()
    assert there is not None
    assert back is not None
    assert (there(b"\xff\0"), back(b"/wA="), there(None), back(None)) == (b"/wA=", b"\xff\0", None, None)
    nested = made("base64.encode", field=".Payload.After.a.b").on_payload()
    assert nested is not None
    assert nested({"a": {"b": "hello"}, "c": 1}) == {"a": {"b": "aGVsbG8="}, "c": 1}
    assert made("base64.encode", field=".Key").on_payload() is None
    assert made("base64.encode", field=".Metadata.k").uses == {"metadata", "namespace"}


# -- split and clone -----------------------------------------------------------------------------------------------------


def parts(plugin: str, r: Record, **settings: str) -> list[Record]:
    made_of = made(plugin, **settings).apply(r)
    assert isinstance(made_of, list)
    return made_of


def test_no_part_shares_anything_with_another() -> None:
    def given() -> Record:
        return Record(
            {"x": [{"i": 0}, {"i": 1}], "o": {"l": [1]}}, before={"b": {}}, key={"k": {}}, position=b"p", seq=7
        )

    for made_of in (parts("split", given(), field=".Payload.After.x"), parts("clone", given(), count="1")):
        first, second = made_of
        assert (second.position, second.seq, second.source) == (first.position, 7, first.source)
        first.after["o"]["l"].append(2)  # type: ignore[index, call-overload]
        first.before["b"]["changed"] = first.key["k"]["changed"] = 1  # type: ignore[index, call-overload]
        first.metadata["m"] = "changed"
        assert second.after["o"] == {"l": [1]}  # type: ignore[index, call-overload]
        assert (second.before, second.key, "m" in second.metadata) == ({"b": {}}, {"k": {}}, False)


def test_a_list_is_split_wherever_it_is() -> None:
    found = parts("split", Record({"a": {"l": ["x", "y"]}, "o": 1}), field=".Payload.After.a.l")
    assert [r.after for r in found] == [{"a": {"l": "x"}, "o": 1}, {"a": {"l": "y"}, "o": 1}]
    found = parts("split", Record(b"raw", key={"l": [1]}), field=".Key.l")
    assert [(r.key, r.after) for r in found] == [({"l": 1}, b"raw")]
    assert [r.after for r in parts("split", Record({"b": b"ab"}), field=".Payload.After.b")] == [{"b": 97}, {"b": 98}]


def test_an_empty_list_leaves_nothing_and_what_is_no_list_is_a_nack() -> None:
    split = made("split", field=".Payload.After.x")
    assert split.apply(Record({"x": []})) is DROP
    bad: list[dict[str, Any] | None] = [{"x": None}, {}, {"x": "text"}, {"x": {}}, None]
    for value in bad:
        with pytest.raises(Rejected, match="not a list"):
            split.apply(Record(value))


@pytest.mark.parametrize("count", ["0", "-1", "", "1.0", "1.5", "x", "1_0"])
def test_a_count_is_a_whole_number_above_nothing(count: str) -> None:
    assert "count" in refused("clone", count=count)


# -- unwrap --------------------------------------------------------------------------------------------------------------


def debezium(**changes: Any) -> Record:
    event = {"op": "c", "after": {"id": 1}, "source": {"db": "d"}, **changes}
    return Record({"payload": {k: v for k, v in event.items() if v is not ...}}, metadata={"db": "old", "m": "1"})


def test_metadata_of_a_debezium_event() -> None:
    r = debezium(
        source={"db": "d", "n": 1_000_000, "big": 2**60, "o": {"p": {"q": [1, None]}}, "nul": None, "": "e"},
        transaction={"id": "t", "total": 1.5, "none": None},
        extra="x",
        ts_ms=1.9,
    )
    assert isinstance(made("unwrap.debezium").apply(r), Record)
    assert r.metadata == {
        "m": "1", "db": "d", "n": "1e+06", "big": str(2**60), "o.p.q": "[1 <nil>]", "": "e", "debezium.transaction.id": "t",
        "debezium.transaction.total": "1.5", "debezium.extra": "x", "opencdc.readAt": "1000000",
    }  # fmt: skip


@pytest.mark.parametrize(
    "op, operation", [("c", "create"), ("u", "update"), ("d", "delete"), ("r", "snapshot"), ("$unset", "update")]
)
def test_operations_of_debezium(op: str, operation: str) -> None:
    r = debezium(op=op, before="text", after=None)
    made("unwrap.debezium").apply(r)
    assert (r.operation, r.before, r.after) == (operation, b"text", None)


@pytest.mark.parametrize(
    "changes",
    [{"op": "t"}, {"op": None}, {"op": 1}, {"op": ...}, {"after": ...}, {"source": ...}, {"after": [1]}, {"before": 1},
     {"ts_ms": None}, {"ts_ms": True}, {"ts_ms": "17"}],
)  # fmt: skip
def test_an_event_that_is_not_whole_is_a_nack_and_changes_nothing(changes: dict[str, Any]) -> None:
    r = debezium(**changes)
    with pytest.raises(Rejected) as caught:
        made("unwrap.debezium").apply(r)
    assert caught.value.code == "unwrap.invalid"
    assert r.metadata == {"db": "old", "m": "1"}


@pytest.mark.parametrize(
    "key, result",
    [
        (b'{"payload":{"id":01}}', {"id": 1}),
        (b'{"payload":null}', b"<nil>"),
        (b'{"payload":1000000}', b"1e+06"),
        (b'{"payload":[1,"a"]}', b"[1 a]"),
        ({"payload": "k"}, b"k"),
        (b"null", b"null"),
        (b'{"id":1}', b'{"id":1}'),
        (None, None),
    ],
)
def test_a_key_is_unwrapped_where_it_can_be(key: Any, result: Any) -> None:
    for plugin in ("unwrap.debezium", "unwrap.kafkaconnect"):
        r = debezium()
        r.key = key
        made(plugin).apply(r)
        assert r.key == result


def test_a_record_inside_a_record_takes_its_place() -> None:
    inner = b'{"operation":"4","metadata":{"opencdc.collection":"c","n":01},"key":"aw==","payload":{"before":"Yg=="}}'
    r = Record(inner, key=b"old", before=b"old", metadata={"gone": "1"}, position=b"p", namespace="old")
    made("unwrap.opencdc").apply(r)
    assert (r.operation, r.key, r.before, r.after, r.position) == ("snapshot", b"k", b"b", None, b"p")
    assert (r.metadata, r.namespace) == ({"opencdc.collection": "c", "n": "1"}, "c")


def test_where_a_record_may_be_inside_another() -> None:
    inner = {"operation": "create", "metadata": {}, "payload": {}}
    text = '{"operation":"create","metadata":{},"payload":{}}'
    for field, r in (
        (".Metadata.w", Record(metadata={"w": text})),
        (".Payload.After.w", Record({"w": text})),
        (".Key", Record(key=inner)),
    ):
        assert made("unwrap.opencdc", field=field).apply(r) is r
    for value in (inner, text.encode(), 1, None):  # in a field Conduit takes a text and nothing else
        with pytest.raises(Rejected):
            made("unwrap.opencdc", field=".Payload.After.w").apply(Record({"w": value}))
    assert made("unwrap.kafkaconnect", field=".Payload.Before.w").apply(Record(before={"w": {"payload": {"a": 1}}}))


# -- where they run ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "plugin", ["base64.encode", "base64.decode", "split", "unwrap.debezium", "unwrap.opencdc", "json.decode"]
)
def test_a_raw_payload_has_no_fields_to_work_on(plugin: str) -> None:
    with pytest.raises(Unsuitable, match="raw"):
        made(plugin, field=".Payload.After.x").where(Shape.RAW)
    for shape in (Shape.OPEN, Shape.TYPED):
        assert made(plugin, field=".Payload.After.x").where(shape) is Where.PYTHON


def test_what_is_unwrapped_is_open_whatever_it_was() -> None:
    for plugin in ("unwrap.debezium", "unwrap.kafkaconnect", "unwrap.opencdc"):
        assert {made(plugin).gives(shape) for shape in Shape} == {Shape.OPEN}
        assert {made(plugin).where(shape) for shape in Shape} == {Where.PYTHON}


@pytest.mark.parametrize(
    "plugin, field",
    [
        *(
            (p, f)
            for p in ("base64.encode", "base64.decode", "unwrap.opencdc")
            for f in (".Payload", ".Metadata", ".Position")
        ),
        *(
            (p, f)
            for p in ("unwrap.debezium", "unwrap.kafkaconnect")
            for f in (".Payload", ".Key", ".Metadata.x", ".Operation")
        ),
        *(("split", f) for f in (".Payload", ".Payload.After", ".Key", ".Metadata.k", "")),
        *((p, "") for p in ("json.decode", "json.encode", "base64.encode", "base64.decode")),
        ("base64.encode", ".Metadata.a.b"),
    ],
)
def test_a_field_that_can_never_work_is_refused(plugin: str, field: str) -> None:
    assert "must" in refused(plugin, field=field)
