"""Random schemas: values that fit arrive equal; whatever else comes is refused as `Rejected`, and never changed.

SCHEMA_EXAMPLES=20000 in the environment makes it a campaign.
"""

from __future__ import annotations

import base64
import json
import os
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.plan.schema import Field, Schema, Type
from penstock.plan.typed import TypedDecoder, float32
from penstock_sdk.errors import Rejected

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "300"))
campaign = settings(
    max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.one_of(st.sampled_from(["a", "b", "f0", "f1", "id", 'q"', "\\", "a b", "é"]), TEXT.filter(bool))
SCALARS = [
    "STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "BINARY",
]  # fmt: skip


@st.composite
def decimals_type(draw: st.DrawFn) -> Type:
    precision = draw(st.integers(1, 38))
    return Type("DECIMAL", precision, draw(st.integers(0, precision)))


def structs(of: st.SearchStrategy[Type]) -> st.SearchStrategy[Type]:
    fields = st.lists(st.builds(Field, NAMES, of, st.booleans()), min_size=1, max_size=5, unique_by=lambda f: f.name)
    return fields.map(lambda found: Type("STRUCT", fields=tuple(found)))


TYPES = st.recursive(
    st.one_of(st.sampled_from(SCALARS).map(Type), decimals_type()),
    lambda of: st.one_of(structs(of), of.map(lambda t: Type("ARRAY", of=t)), of.map(lambda t: Type("MAP", of=t))),
    max_leaves=6,
)
SCHEMAS = structs(TYPES).map(lambda t: Schema(t.fields))

INTEGERS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}


def fitting(type_: Type) -> st.SearchStrategy[Any]:
    """Values of a type, as the column should give them back."""
    if type_.name in INTEGERS:
        n = 2 ** INTEGERS[type_.name]
        return st.integers(-n, n - 1)
    if type_.name == "DECIMAL":
        n = 10**type_.precision - 1
        return st.integers(-n, n).map(lambda v: Decimal((int(v < 0), tuple(map(int, str(abs(v)))), -type_.scale)))
    if type_.name == "STRUCT":
        return st.tuples(*(nullable(f) for f in type_.fields)).map(
            lambda vs: {f.name: v for f, v in zip(type_.fields, vs, strict=True)}
        )
    if type_.of is not None:
        inner = st.one_of(st.none(), fitting(type_.of))
        return st.lists(inner, max_size=4) if type_.name == "ARRAY" else st.dictionaries(TEXT, inner, max_size=4)
    known: dict[str, st.SearchStrategy[Any]] = {
        "STRING": TEXT,
        "BOOLEAN": st.booleans(),
        "FLOAT": st.floats(width=32, allow_nan=False, allow_infinity=False),
        "DOUBLE": st.floats(allow_nan=False, allow_infinity=False),
        "DATE": st.dates(),
        "TIMESTAMP": st.datetimes(timezones=st.just(UTC)),
        "TIMESTAMP_NTZ": st.datetimes(),
        "BINARY": st.binary(max_size=8),
    }
    return known[type_.name]


def nullable(field: Field) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), fitting(field.type)) if field.nullable else fitting(field.type)


def json_of(value: Any, how: Any) -> str:
    """Text in one of its spellings; `how` draws."""
    if isinstance(value, dict):
        gap = how(st.sampled_from(["", " "]))
        items = [f"{json_of(k, how)}{gap}:{gap}{json_of(v, how)}" for k, v in how(st.permutations(list(value.items())))]
        return "{" + f",{gap}".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(json_of(v, how) for v in value) + "]"
    if isinstance(value, Decimal):
        text = how(st.sampled_from([f"{value:f}", str(value), f"{value:f}{'0' * 3 if '.' in f'{value:f}' else ''}"]))
        return f'"{text}"' if how(st.booleans()) else text
    if isinstance(value, bytes):
        return json.dumps(base64.b64encode(value).decode())
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            hours = how(st.integers(-12, 14)) if 1 < value.year < 9999 else 0
            text = value.astimezone(timezone(timedelta(hours=hours))).isoformat()
            return json.dumps(text.replace("+00:00", "Z") if how(st.booleans()) else text)
        return json.dumps(value.isoformat())
    if isinstance(value, date):
        return json.dumps(value.isoformat())
    return json.dumps(value, ensure_ascii=how(st.booleans()))


def without_some(value: Any, type_: Type, how: Any) -> Any:
    """Leaves out fields that are null."""
    if value is None:
        return None
    if type_.name == "STRUCT":
        return {
            f.name: without_some(value[f.name], f.type, how)
            for f in type_.fields
            if value[f.name] is not None or how(st.booleans())
        }
    if type_.of is None:
        return value
    if type_.name == "ARRAY":
        return [without_some(v, type_.of, how) for v in value]
    return {k: without_some(v, type_.of, how) for k, v in value.items()}


@pytest.mark.thorough
@campaign
@given(st.data())
def test_values_that_fit_arrive_equal_in_every_way(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    assert Schema.parse(schema.ddl) == schema
    values = data.draw(st.lists(st.one_of(st.none(), fitting(schema.type)), max_size=4))
    texts = [
        json_of(None if v is None else without_some(v, schema.type, data.draw), data.draw).encode() for v in values
    ]

    fast, slow = TypedDecoder(schema), TypedDecoder(schema)
    slow._quick = None
    for kept in (
        [fast.from_json(t) for t in texts],
        [slow.from_json(t) for t in texts],
        [fast.from_value(v) for v in values],
    ):
        column = fast.column(kept)
        column.validate(full=True)
        assert column.type == schema.arrow()
        assert column.to_pylist(maps_as_pydicts="strict") == values
        assert [None if o is None else fast.to_dict(o) for o in kept] == values


ASCII = st.characters(codec="ascii")
NUMBERS = st.one_of(
    st.sampled_from(
        [
            "0", "-0", "-0.0", "1", "1.0", "1e2", "1E-2", "127", "128", "32768", "16777217", "2147483648",
            "9007199254740993", "9223372036854775808",
            "1e400", "1e-400", "0.1", "3.5e38", "1.50", "99999999999999999999999999999999999999", "100000000000000000000000000000000000000",
            "1e99999999999999999999",
        ]
    ),
    st.from_regex(r"-?(0|[1-9][0-9]{0,40})(\.[0-9]{1,10})?([eE][+-]?[0-9]{1,3})?", fullmatch=True, alphabet=ASCII),
)  # fmt: skip
STRINGS = st.one_of(
    TEXT.map(json.dumps),
    st.sampled_from(
        [
            '"2024-01-02"', '"2024-02-30"', '"2024-01-02T03:04:05Z"', '"2024-01-02T03:04:05"', '"2024-01-02 03:04:05.1234567Z"',
            '"2024-01-02T03:04:05.5+02:00"', '"0001-01-01T00:00:00+01:00"', '"aGk="', '"aGk"', '"1.5"', '"NaN"', '"null"', r'"\""',
            r'"\\"', r'"\ud800"', r'"\u0061"', '"\t"', '""', '"2024-01-02T03:04:05\\u002e1234567Z"',
        ]
    ),
    NUMBERS.map(lambda n: f'"{n}"'),
)  # fmt: skip


def any_json(keys: list[str]) -> st.SearchStrategy[str]:
    """Well-formed more or less, with the schema's own names, at times twice."""
    names = st.one_of(st.sampled_from([*keys, "a", "b"]), TEXT)
    return st.recursive(
        st.one_of(st.sampled_from(["null", "true", "false", "NaN", "", "01"]), NUMBERS, STRINGS),
        lambda of: st.one_of(
            st.lists(of, max_size=3).map(lambda vs: f"[{','.join(vs)}]"),
            st.lists(st.tuples(names, of), max_size=4).map(
                lambda kvs: "{" + ", ".join(f"{json.dumps(k)}:{v}" for k, v in kvs) + "}"
            ),
        ),
        max_leaves=8,
    )


def near(type_: Type) -> st.SearchStrategy[str]:
    """Text that has a fair chance to fit: the shape is right, the leaves are anything."""
    leaves: dict[str, st.SearchStrategy[str]] = {"BOOLEAN": st.sampled_from(["true", "false", "1"]), "DECIMAL": NUMBERS}
    if type_.name == "STRUCT":
        pairs = [st.tuples(st.just(f.name), st.one_of(near(f.type), st.just("null"))) for f in type_.fields]
        return st.lists(st.one_of(pairs), max_size=2 * len(pairs)).map(
            lambda kvs: "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in kvs) + "}"
        )
    if type_.name == "ARRAY" and type_.of:
        return st.lists(st.one_of(near(type_.of), st.just("null")), max_size=3).map(lambda vs: f"[{','.join(vs)}]")
    if type_.name == "MAP" and type_.of:
        return st.lists(st.tuples(TEXT, near(type_.of)), max_size=3).map(
            lambda kvs: "{" + ",".join(f"{json.dumps(k)}:{v}" for k, v in kvs) + "}"
        )
    numeric = type_.name in INTEGERS or type_.name in ("FLOAT", "DOUBLE")
    return st.one_of(leaves.get(type_.name, NUMBERS if numeric else STRINGS), NUMBERS, STRINGS)


def result(decoder: TypedDecoder, text: bytes) -> Any:
    try:
        return decoder.from_json(text)
    except Rejected as e:
        refused = e
    assert refused.code in ("json.invalid", "json.not-an-object", "schema.mismatch")
    assert len(refused.what) < 2000
    return refused


@pytest.mark.thorough
@campaign
@given(st.data())
def test_whatever_comes_is_kept_as_it_is_or_refused(data: st.DataObject) -> None:
    schema = data.draw(SCHEMAS)
    keys = [f.name for f in schema.fields]
    text = data.draw(
        st.one_of(
            near(schema.type).map(str.encode),
            any_json(keys).map(str.encode),
            st.binary(max_size=30),
            st.tuples(near(schema.type), st.integers(0, 200), st.binary(max_size=2)).map(
                lambda t: t[0].encode()[: t[1]] + t[2] + t[0].encode()[t[1] + 1 :]
            ),
        )
    )
    fast, slow = TypedDecoder(schema), TypedDecoder(schema)
    slow._quick = None
    one, other = result(fast, text), result(slow, text)
    if isinstance(one, Rejected):
        assert isinstance(other, Rejected)
        assert str(one) == str(other)
        return
    assert not isinstance(other, Rejected)
    column = fast.column([one])
    column.validate(full=True)
    assert column.equals(fast.column([other]))
    if one is None:
        assert text.strip() in (b"", b"null")
        return
    plain = fast.to_dict(one)
    assert column.to_pylist(maps_as_pydicts="strict") == [plain]
    sent = json.loads(text, parse_float=Decimal, object_pairs_hook=once)
    assert same(sent, plain, schema.type), (sent, plain)


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), "a key was there twice"
    return dict(pairs)


def same(sent: Any, kept: Any, type_: Type) -> bool:
    """Judged from what the text says, by other means than those under test."""
    if sent is None or kept is None:
        return sent is None and kept is None
    if type_.name == "STRUCT":
        names = {f.name for f in type_.fields}
        return set(sent) <= names == set(kept) and all(
            same(sent.get(f.name), kept[f.name], f.type) for f in type_.fields
        )
    if type_.name == "ARRAY" and type_.of:
        return len(sent) == len(kept) and all(same(a, b, type_.of) for a, b in zip(sent, kept, strict=True))
    if type_.name == "MAP" and type_.of:
        return list(sent) == list(kept) and all(same(v, kept[k], type_.of) for k, v in sent.items())
    if type_.name == "DECIMAL":
        return isinstance(sent, str | int | Decimal) and Decimal(sent) == kept
    if type_.name in ("FLOAT", "DOUBLE"):
        narrow = float32 if type_.name == "FLOAT" else float
        return not isinstance(sent, str) and kept == (sent if isinstance(sent, int) else narrow(float(sent)))
    if type_.name == "DATE":
        return bool(kept.isoformat() == sent)
    if type_.name in ("TIMESTAMP", "TIMESTAMP_NTZ"):
        return bool(datetime.fromisoformat(sent) == kept)
    if type_.name == "BINARY":
        return bool(base64.b64decode(sent) == kept)
    return type(sent) is type(kept) and bool(sent == kept)
