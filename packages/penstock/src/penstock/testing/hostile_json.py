"""The hostile cases of JSON lines, without a schema (the line itself arrives, or is nacked) and with one (every field is exact,
or the record is nacked by the field's name)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from penstock.testing.hostile import Case, Delivered, Filtered, Nacked, Outcome
from penstock.testing.hostile_text import BOM, NAMES

INVALID = Nacked("json.invalid")
NOT_AN_OBJECT = Nacked("json.not-an-object")
DEPTH = 10_000
WIDTH = 5_000
DIGITS = b"12345678901234567890123456789012345678"  # 38 of them
FRACTION = b"0.1234567890123456789"


def cases() -> Iterator[Case]:
    yield from _open()
    yield from _typed()


def _open() -> Iterator[Case]:
    yield _case("json-bom", BOM + b'{"id":"jbom:0"}\n', [b'{"id":"jbom:0"}'])
    yield _case("json-bom-inside", b'{"id":"jbom:1"}\n' + BOM + b'{"id":"jbom:2"}\n', [b'{"id":"jbom:1"}', INVALID])
    yield _case("json-crlf", b'{"id":"jcrlf:0"}\r\n{"id":"jcrlf:1"}\r\n', [b'{"id":"jcrlf:0"}', b'{"id":"jcrlf:1"}'])
    yield _case(
        "json-lone-cr",
        b'{"id":"jcr:0"}\r{"id":"jcr:1"}\n{"id":\r"jcr:2"}\n',
        [INVALID, b'{"id":\r"jcr:2"}'],
    )
    yield _case(
        "json-blank",
        b'\n  \n\r\n{"id":"jblank:3"}\n\t\n',
        [Filtered(), Filtered(), Filtered(), b'{"id":"jblank:3"}', Filtered()],
    )
    yield _case("json-spaces", b'  {"id":"jspace:0"}\t \n', [b'{"id":"jspace:0"}'])
    yield _case("json-empty-file", b"", [])
    yield _case("json-bom-only", BOM, [])
    yield _case("json-no-end", b'{"id":"jend:0"}\n{"id":"jend:1"}', [b'{"id":"jend:0"}', b'{"id":"jend:1"}'])
    yield _case("json-cut-off", b'{"id":"jcut:0"}\n{"id":"jcut', [b'{"id":"jcut:0"}', INVALID])
    yield _case(
        "json-no-objects",
        b'"text"\n1\n[{"id":"jno:2"}]\nnull\ntrue\n{"id":"jno:5"}\n',
        [NOT_AN_OBJECT] * 5 + [b'{"id":"jno:5"}'],
    )
    yield _case(
        "json-invalid-utf8",
        b'{"id":"jutf8:0","v":"\xff"}\n{"id":"jutf8:1","\xc3":1}\n{"id":"jutf8:2"}\n',
        [INVALID, INVALID, b'{"id":"jutf8:2"}'],
    )
    yield _case(
        "json-surrogates",
        b'{"id":"jsur:0","v":"\\ud83c\\udf88"}\n{"id":"jsur:1","v":"\\ud800"}\n',
        [b'{"id":"jsur:0","v":"\\ud83c\\udf88"}', INVALID],
    )
    yield _case(
        "json-nul",
        b'{"id":"jnul:0","v":"a\0b"}\n{"id":"jnul:1","v":"a\\u0000b"}\n{"id":"jnul:2"}\0\n',
        [INVALID, b'{"id":"jnul:1","v":"a\\u0000b"}', INVALID],
    )
    yield _case(
        "json-constants",
        b'{"id":"jnan:0","v":NaN}\n{"id":"jnan:1","v":Infinity}\n{"id":"jnan:2","v":-Infinity}\n{"id":"jnan:3","v":01}\n'
        b"{'id':'jnan:4'}\n{\"id\":\"jnan:5\",}\n",
        [INVALID] * 6,
    )
    yield Case("json-numbers", "json", *_numbers())
    yield _case("json-1e400", b'{"id":"jinf:0","v":1e400}\n{"id":"jinf:1","v":-1e400}\n', [INVALID, INVALID])
    far = b'{"id":"jfar:0","v":1e-99999999999999999999}\n{"id":"jfar:1","v":' + b"1" * 5000 + b"}\n"
    yield _case("json-far-numbers", far, [INVALID, INVALID])
    digits = b'{"id":"jboth:0","v":' + FRACTION + b"}"
    yield _case("json-1e400-beside-digits", digits + b'\n{"id":"jboth:1","v":1e400}\n', [digits, INVALID])
    yield _case(
        "json-duplicate-keys",
        b'{"id":"jtwice:0","v":1,"v":2}\n{"id":"jtwice:1","v":{"a":1,"a":2}}\n',
        [b'{"id":"jtwice:0","v":1,"v":2}', b'{"id":"jtwice:1","v":{"a":1,"a":2}}'],
    )
    deep, deeper = b"[" * DEPTH + b"]" * DEPTH, b'{"a":' * DEPTH + b"1" + b"}" * DEPTH
    some = b"[" * 100 + b"]" * 100
    yield _case(
        "json-deep",
        b'{"id":"jdeep:0","v":' + some + b'}\n{"id":"jdeep:1","v":' + deep + b"}\n" + deeper + b'\n{"id":"jdeep:3"}\n',
        [b'{"id":"jdeep:0","v":' + some + b"}", INVALID, INVALID, b'{"id":"jdeep:3"}'],
    )
    wide = b'{"id":"jwide:0",' + b",".join(b'"c%d":%d' % (i, i) for i in range(WIDTH)) + b"}"
    yield _case("json-5000-fields", wide + b"\n", [wide])
    odd = b'{"id":"jkeys:0","":1," ":2,"a.b":3,"a`b":4,"$":5,"\\u0000":6,"\xc3\xbc":7}'
    yield _case("json-odd-keys", odd + b"\n", [odd])
    long = b'{"id":"jlong:0","v":"' + b"x" * (5 * 1024 * 1024) + b'"}'
    yield _case("json-5-mb-line", long + b"\n", [long])
    yield _case(
        "json-too-large",
        b'{"id":"jlarge:0"}\n{"id":"jlarge:1","v":"' + b"x" * 2000 + b'"}\n',
        [b'{"id":"jlarge:0"}', Nacked("record.too-large", "2024 bytes")],
        batch={"max-record-bytes": "1000"},
    )
    names = NAMES[:10]
    files = {name: b'{"id":"jname:%d"}\n' % i for i, name in enumerate(names)}
    yield Case("json-names", "json", files, {name: (Delivered(line.strip()),) for name, line in files.items()})


def _numbers() -> tuple[Mapping[str, bytes], Mapping[str, tuple[Outcome, ...]]]:
    """They arrive with every digit."""
    values = (
        b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", DIGITS, b"-" + DIGITS, FRACTION,
        b"-0.0", b"1e-400", b"1E+2", b"123456789012345678901234567890.123456789012345678901234567890", b"9007199254740993",
        b"0.1", b"1.7976931348623157e308", b"5e-324",
    )  # fmt: skip
    lines = [b'{"id":"jnum:%d","v":%s}' % (i, v) for i, v in enumerate(values)]
    return {"lines.json": b"\n".join(lines) + b"\n"}, {"lines.json": tuple(Delivered(line) for line in lines)}


def _typed() -> Iterator[Case]:
    big, small, whole = Nacked("schema.mismatch", "field v"), "id STRING, v BIGINT", "id STRING, v DECIMAL(38,0)"
    yield _typed_case(
        "json-schema-bigint",
        small,
        [
            (b"9223372036854775807", 2**63 - 1),
            (b"-9223372036854775808", -(2**63)),
            (b"9223372036854775808", big),
            (b"18446744073709551616", big),
            (DIGITS, big),
            (b"1.5", big),
            (b'"1"', big),
            (b"true", big),
            (b"null", None),
            (b"1e400", big),
        ],
    )
    yield _typed_case(
        "json-schema-decimal",
        whole,
        [(DIGITS, int(DIGITS)), (b"-" + DIGITS, -int(DIGITS)), (DIGITS + b"9", big), (FRACTION, big)],
    )
    yield _typed_case(
        "json-schema-fraction",
        "id STRING, v DECIMAL(38,19)",
        [(FRACTION, Decimal(FRACTION.decode())), (b"0.12345678901234567891", big), (b"1e400", big)],
    )
    yield _typed_case(
        "json-schema-double",
        "id STRING, v DOUBLE",
        [(b"0.1", Decimal("0.1")), (b"1e400", big), (b"9007199254740993", big), (b'"NaN"', big)],
    )
    yield _typed_case(
        "json-schema-string",
        "id STRING, v STRING",
        [(b'"a\\u0000b"', "a\0b"), (b'"\\ud83c\\udf88"', "🎈"), (b"1", big), (b'{"a":1}', big), (b'""', "")],
    )
    schema = "id STRING, v BIGINT"
    content = (
        b'{"id":"jshape:0","v":1,"v":2}\n{"id":"jshape:1","v":1,"w":2}\n{"id":"jshape:2"}\n"text"\n[1]\nnull\n\n'
        b'{"id":"jshape:7","v":"\xff"}\n{"id":"jshape:8","v":' + b"[" * DEPTH + b"]" * DEPTH + b"}\n"
    )
    outcomes: list[bytes | Outcome] = [
        Nacked("schema.mismatch", "v"),
        Nacked("schema.mismatch", "w"),
        Delivered({"id": "jshape:2", "v": None}),
        NOT_AN_OBJECT,
        NOT_AN_OBJECT,
        NOT_AN_OBJECT,
        Filtered(),
        INVALID,
        INVALID,
    ]
    yield _case("json-schema-shape", content, outcomes, settings={"schema": schema})


def _typed_case(name: str, schema: str, values: list[tuple[bytes, Any]]) -> Case:
    lines = [b'{"id":"%s:%d","v":%s}' % (name.encode(), i, text) for i, (text, _) in enumerate(values)]
    found = [
        v if isinstance(v, Nacked) else Delivered({"id": f"{name}:{i}", "v": v}) for i, (_, v) in enumerate(values)
    ]
    return _case(name, b"\n".join(lines) + b"\n", list(found), settings={"schema": schema})


def _case(name: str, content: bytes, outcomes: list[Any], **more: Any) -> Case:
    made: tuple[Outcome, ...] = tuple(Delivered(o) if isinstance(o, bytes) else o for o in outcomes)
    return Case(name, "json", {"lines.json": content}, {"lines.json": made}, **more)
