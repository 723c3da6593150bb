"""The hostile cases of CSV: line by line, with a schema, and with line breaks inside quotes.

Without a schema every value is text, and arrives with all its digits. A line that has not as many values as the header has names
is a nack; a file whose header is no header is one dead letter.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from penstock.testing.hostile import Case, Delivered, Filtered, Nacked, Outcome, Unreadable
from penstock.testing.hostile_json import DIGITS, FRACTION
from penstock.testing.hostile_text import BOM, NAMES

RAGGED = Nacked("csv.invalid", "as many values as there are columns")
NOT_UTF8 = Nacked("csv.invalid", "not UTF-8")
UNCLOSED = Nacked("csv.invalid", "quote is not closed")
MULTI = {"multi-line": "true"}
WIDTH = 5_000


def cases() -> Iterator[Case]:
    yield from _lines()
    yield from _headers()
    yield from _typed()
    yield from _multi_line()


def row(*values: str | None, line: bytes | None = None, names: tuple[str, ...] = ("id", "v")) -> Delivered:
    """A record of texts. The line at a CSV destination has quotes only where they are needed."""
    made = line if line is not None else ",".join("" if v is None else v for v in values).encode()
    return Delivered(made, dict(zip(names, values, strict=True)))


def _lines() -> Iterator[Case]:
    yield _case("csv-plain", b"id,v\ncplain:0,a\ncplain:1,b", [row("cplain:0", "a"), row("cplain:1", "b")])
    yield _case("csv-bom", BOM + b"id,v\ncbom:0,a\n", [row("cbom:0", "a")])
    yield _case("csv-crlf", b"id,v\r\nccrlf:0,a\r\nccrlf:1,\r\n", [row("ccrlf:0", "a"), row("ccrlf:1", None)])
    yield _case(
        "csv-crlf-quoted",
        b'id,v\r\nccrlfq:0,"a"\r\nccrlfq:1,""\r\n',
        [row("ccrlfq:0", "a"), row("ccrlfq:1", "", line=b'ccrlfq:1,""')],
    )
    yield _case(
        "csv-lone-cr", b"id,v\nccr:0,a\rb\nccr:1,c\n", [row("ccr:0", "a\rb", line=b'ccr:0,"a\rb"'), row("ccr:1", "c")]
    )
    yield _case("csv-blank", b"id,v\n\ncblank:1,a\n\r\n\n", [Filtered(), row("cblank:1", "a"), Filtered(), Filtered()])
    yield _case("csv-whitespace", b"id,v\n  \n ,\t\n", [RAGGED, row(" ", "\t", line=b" ,\t")])
    yield _case(
        "csv-spaces", b'id,v\ncspace:0,  a  \ncspace:1," a "\n', [row("cspace:0", "  a  "), row("cspace:1", " a ")]
    )
    yield _case("csv-spaces-and-quotes", b'id,v\ncsq:0, "a" \n', [row("csq:0", ' "a" ', line=b'csq:0," ""a"" "')])
    yield _case(
        "csv-empty-or-nothing",
        b'id,v\ncempty:0,\ncempty:1,""\n,x\n"",x\n,\n',
        [
            row("cempty:0", None),
            row("cempty:1", "", line=b'cempty:1,""'),
            row(None, "x"),
            row("", "x", line=b'"",x'),
            row(None, None),
        ],
    )
    yield _case("csv-invalid-utf8", b"id,v\ncutf8:0,\xff\ncutf8:1,ok\n", [NOT_UTF8, row("cutf8:1", "ok")])
    yield _case(
        "csv-nul",
        b"id,v\ncnul:0,a\0b\n\0cnul:1,b\ncnul:2,\0\n",
        [row("cnul:0", "a\0b"), row("\0cnul:1", "b"), row("cnul:2", "\0")],
    )
    yield _case("csv-comment", b"id,v\n#ccom:0,a\n", [row("#ccom:0", "a", line=b'"#ccom:0",a')])
    yield _case(
        "csv-ragged",
        b"id,v\ncrag:0\ncrag:1,a,b\ncrag:2,c\ncrag:3,d,\n",
        [RAGGED, RAGGED, row("crag:2", "c"), RAGGED],
    )
    yield _case(
        "csv-quotes",
        b'id,v\ncq:0,"say ""hi"""\ncq:1,5" nail\ncq:2,a "b" c\ncq:3,"a"b\ncq:4,"a,b"\n',
        [
            row("cq:0", 'say "hi"', line=b'cq:0,"say ""hi"""'),
            UNCLOSED,
            row("cq:2", 'a "b" c', line=b'cq:2,"a ""b"" c"'),
            row("cq:3", '"a"b', line=b'cq:3,"""a""b"'),
            row("cq:4", "a,b", line=b'cq:4,"a,b"'),
        ],
    )
    yield _case(
        "csv-unclosed",
        b'id,v\ncopen:0,a\ncopen:1,"b\ncopen:2,c\n',
        [row("copen:0", "a"), UNCLOSED, row("copen:2", "c")],
    )
    yield _case("csv-line-break", b'id,v\ncbreak:0,"a\nb"\ncbreak:2,c\n', [UNCLOSED, RAGGED, row("cbreak:2", "c")])
    backslash = b"id,v\n" + rb"cback:0,a\b" + b"\n" + rb'cback:1,"a\"' + b"\n" + rb"cback:2,\N" + b"\n"
    yield _case(
        "csv-backslash",
        backslash,
        [row("cback:0", "a\\b"), row("cback:1", "a\\"), row("cback:2", "\\N")],
    )
    formulas = ("=1+1", "+1", "-1", "@x", "=cmd|' /C calc'!A0", "'=1")
    yield _case(
        "csv-formulas",
        b"id,v\n" + b"".join(f"cform:{i},{f}\n".encode() for i, f in enumerate(formulas)),
        [row(f"cform:{i}", f) for i, f in enumerate(formulas)],
    )
    numbers = (
        "9223372036854775808",
        "18446744073709551616",
        DIGITS.decode(),
        "1e400",
        FRACTION.decode(),
        "007",
        "NaN",
        "null",
        "1,5",
    )
    yield _case(
        "csv-numbers",
        b"id,v\n" + b"".join(f'cnum:{i},"{v}"\n'.encode() for i, v in enumerate(numbers)),
        [row(f"cnum:{i}", v, line=f'cnum:{i},"{v}"'.encode() if "," in v else None) for i, v in enumerate(numbers)],
    )
    names = ("id", *(f"c{i}" for i in range(1, WIDTH)))
    values = ("cwide:0", *(str(i) for i in range(1, WIDTH)))
    wide = ",".join(names).encode() + b"\n" + ",".join(values).encode() + b"\nshort\n"
    yield _case("csv-5000-columns", wide, [row(*values, names=names), RAGGED])
    long = "x" * (2 * 1024 * 1024)
    yield _case("csv-2-mb-value", f"id,v\nclong:0,{long}\n".encode(), [row("clong:0", long)])
    yield _case(
        "csv-too-large",
        b"id,v\nclarge:0," + b"x" * 2000 + b"\nclarge:1,a\n",
        [Nacked("record.too-large", "2009 bytes"), row("clarge:1", "a")],
        batch={"max-record-bytes": "1000"},
    )
    packed = gzip.compress(b"id,v\ncgz:0,a\n", mtime=0)
    yield _files(
        "csv-packed",
        {
            "whole.csv.gz": packed,
            "cut.csv.gz": packed[:-9],
            "garbage.csv.gz": packed + b"xx",
            "text.csv.gz": b"id,v\n1,a\n",
        },
        {
            "whole.csv.gz": (row("cgz:0", "a"),),
            "cut.csv.gz": (Unreadable(),),
            "garbage.csv.gz": (Unreadable(),),
            "text.csv.gz": (Unreadable(),),
        },
    )
    files = {name: b"id,v\ncname:%d,a\n" % i for i, name in enumerate(NAMES[:10])}
    yield _files("csv-names", files, {name: (row(f"cname:{i}", "a"),) for i, name in enumerate(files)})


def _headers() -> Iterator[Case]:
    yield _case("csv-empty-file", b"", [])
    yield _case("csv-bom-only", BOM, [])
    yield _case("csv-header-only", b"id,v\n", [])
    yield _case("csv-header-without-end", b"id,v", [])
    yield _case("csv-header-twice", b"id,v,v\nchead:0,a,b\n", [Unreadable("names the column 'v' twice")])
    yield _case("csv-header-empty", b"id,,v\nchead:1,a,b\n", [Unreadable("no name for column 2")])
    yield _case("csv-header-blank", b"\nid,v\nchead:2,a\n", [Unreadable("header")])
    yield _case("csv-header-not-utf8", b"id,\xff\nchead:3,a\n", [Unreadable()])
    yield _case("csv-header-unclosed", b'id,"v\nchead:4,a\n', [Unreadable("header")])
    yield _case("csv-header-case", b"id,ID\nchead:5,a\n", [row("chead:5", "a", names=("id", "ID"))])
    odd = ("id", "a.b", "a`b", "a b", "ü", "seq", "after", "_metadata", "value", "a'b")
    yield _case(
        "csv-header-odd",
        ",".join(odd).encode() + b"\nchead:6,1,2,3,4,5,6,7,8,9\n",
        [row("chead:6", *"123456789", names=odd)],
    )
    yield _case("csv-header-quoted", b'"id","a,b"\nchead:7,1\n', [row("chead:7", "1", names=("id", "a,b"))])
    yield _files(
        "csv-headers-differ",
        {
            "a.csv": b"id,v\ncdiff:0,a\n",
            "b.csv": b"v,id\na,cdiff:1\n",
            "c.csv": b"id,w\ncdiff:2,a\n",
            "d.csv": b"id,v\ncdiff:3,a\n",
        },
        {
            "a.csv": (row("cdiff:0", "a"),),
            "b.csv": (row("a", "cdiff:1", names=("v", "id")),),
            "c.csv": (row("cdiff:2", "a", names=("id", "w")),),
            "d.csv": (row("cdiff:3", "a"),),
        },
    )
    yield _case(
        "csv-no-header",
        b"cnone:0,a\ncnone:1,b\ncnone:2\n",
        [row("cnone:0", "a", names=("_c0", "_c1")), row("cnone:1", "b", names=("_c0", "_c1")), RAGGED],
        settings={"header": "false"},
    )
    yield _case(
        "csv-no-header-blank",
        b"\ncblankn:1,a\n",
        [Filtered(), row("cblankn:1", "a", names=("_c0", "_c1"))],
        settings={"header": "false"},
    )
    yield _files(
        "csv-partitions",
        {
            "day=1/rows.csv": b"id,v\ncpart:0,a\n",
            "day=a%2Fb/rows.csv": b"id,v\ncpart:1,a\n",
            "day=__HIVE_DEFAULT_PARTITION__/rows.csv": b"id,v\ncpart:2,a\n",
            "v=x/rows.csv": b"id,v\ncpart:3,a\n",
        },
        {
            "day=1/rows.csv": (row("cpart:0", "a", "1", names=("id", "v", "day")),),
            "day=a%2Fb/rows.csv": (row("cpart:1", "a", "a/b", names=("id", "v", "day")),),
            "day=__HIVE_DEFAULT_PARTITION__/rows.csv": (row("cpart:2", "a", None, names=("id", "v", "day")),),
            "v=x/rows.csv": (row("cpart:3", "a"),),
        },
    )


def _typed() -> Iterator[Case]:
    def bad(kind: str) -> Nacked:
        return Nacked("schema.mismatch", f"the field 'v' can't be {kind}")

    integer, double = bad("BIGINT"), bad("DOUBLE")
    yield _typed_case(
        "csv-schema-bigint",
        "BIGINT",
        [
            (b"9223372036854775807", 2**63 - 1, b"9223372036854775807"),
            (b"9223372036854775808", integer, b""),
            (b"18446744073709551616", integer, b""),
            (DIGITS, integer, b""),
            (b"1.0", integer, b""),
            (b"x", integer, b""),
            (b'""', integer, b""),
            (b"", None, b""),
            (b"1e400", integer, b""),
        ],
    )
    yield _typed_case(
        "csv-schema-decimal",
        "DECIMAL(38,19)",
        [
            (FRACTION, Decimal(FRACTION.decode()), FRACTION),
            (b"0.12345678901234567891", bad("DECIMAL(38,19)"), b""),
            (DIGITS, bad("DECIMAL(38,19)"), b""),
            (b"NaN", bad("DECIMAL(38,19)"), b""),
        ],
    )
    yield _typed_case(
        "csv-schema-38-digits",
        "DECIMAL(38,0)",
        [(DIGITS, int(DIGITS), DIGITS), (DIGITS + b"9", bad("DECIMAL(38,0)"), b"")],
    )
    yield _typed_case(
        "csv-schema-double",
        "DOUBLE",
        [
            (b"0.1", Decimal("0.1"), b"0.1"),
            (b"1e400", double, b""),
            (b"9007199254740993", double, b""),
            (b"12d", double, b""),
            (b"0x1p3", double, b""),
        ],
    )
    yield _typed_case(
        "csv-schema-time",
        "DATE",
        [(b"2024-02-29", "2024-02-29", b"2024-02-29"), (b"2023-02-29", bad("DATE"), b""), (b"2024", bad("DATE"), b"")],
    )
    schema = {"schema": "id STRING, v BIGINT"}
    yield _files(
        "csv-schema-header",
        {
            "other.csv": b"id,w\ncother:0,1\n",
            "more.csv": b"id,v,w\ncother:1,1,2\n",
            "fewer.csv": b"id\ncother:2\n",
            "order.csv": b"v,id\n1,cother:3\n",
        },
        {
            "other.csv": (Unreadable("'w'"),),
            "more.csv": (Unreadable("'w'"),),
            "fewer.csv": (Unreadable("'v'"),),
            "order.csv": (Delivered(b"1,cother:3", {"v": 1, "id": "cother:3"}),),
        },
        settings=schema,
    )


def _multi_line() -> Iterator[Case]:
    yield _multi(
        "csv-multi-break",
        b'id,v\nmbreak:0,"a\nb"\nmbreak:1,"a\r\nb"\nmbreak:2,c\n',
        [
            row("mbreak:0", "a\nb", line=b'mbreak:0,"a\nb"'),
            row("mbreak:1", "a\r\nb", line=b'mbreak:1,"a\r\nb"'),
            row("mbreak:2", "c"),
        ],
    )
    yield _multi("csv-multi-bom", BOM + b'id,v\r\nmbom:0,"a"\r\nmbom:1,b\r\n', [row("mbom:0", "a"), row("mbom:1", "b")])
    yield _multi("csv-multi-blank", b"id,v\n\nmblank:0,a\n\n", [Filtered(), row("mblank:0", "a"), Filtered()])
    yield _multi("csv-multi-ragged", b"id,v\nmrag:0\nmrag:1,a,b\nmrag:2,c\n", [RAGGED, RAGGED, row("mrag:2", "c")])
    yield _multi(
        "csv-multi-empty",
        b'id,v\nmempty:0,\nmempty:1,""\n',
        [row("mempty:0", None), row("mempty:1", "", line=b'mempty:1,""')],
    )
    yield _multi(
        "csv-multi-lone-cr",
        b"id,v\nmcr:0,a\rb\nmcr:1,c\n",
        [row("mcr:0", "a\rb", line=b'mcr:0,"a\rb"'), row("mcr:1", "c")],
    )
    yield _multi("csv-multi-mixed-ends", b"id,v\r\nmmix:0,a\nmmix:1,b\r\n", [row("mmix:0", "a"), row("mmix:1", "b")])
    yield _multi("csv-multi-nul", b"id,v\nmnul:0,a\0b\n\0mnul:1,b\n", [row("mnul:0", "a\0b"), row("\0mnul:1", "b")])
    yield _multi("csv-multi-invalid-utf8", b"id,v\nmutf8:0,\xff\nmutf8:1,ok\n", [NOT_UTF8, row("mutf8:1", "ok")])
    yield _multi("csv-multi-unclosed", b'id,v\nmopen:0,a\nmopen:1,"b\nmopen:2,c\n', [row("mopen:0", "a"), UNCLOSED])
    yield _multi(
        "csv-multi-stray-quotes",
        b'id,v\nmstray:0,5" nail\nmstray:1,a "b" c\nmstray:2,"a"b\nmstray:3,"say ""hi\n"""\n',
        [
            UNCLOSED,
            row("mstray:1", 'a "b" c', line=b'mstray:1,"a ""b"" c"'),
            row("mstray:2", '"a"b', line=b'mstray:2,"""a""b"'),
            row("mstray:3", 'say "hi\n"', line=b'mstray:3,"say ""hi\n"""'),
        ],
    )
    yield _multi(
        "csv-multi-unclosed-twice",
        b'id,v\nmtwice:0,"a\nmtwice:1,"b"\nmtwice:2,c\n',
        [UNCLOSED, row("mtwice:2", "c")],
    )
    yield _multi("csv-multi-header-only", b"id,v\n", [])
    yield _multi("csv-multi-empty-file", b"", [])
    yield _multi("csv-multi-header-break", b'id,"a\nb"\nmhead:0,1\n', [row("mhead:0", "1", names=("id", "a\nb"))])
    yield _case(
        "csv-multi-too-large",
        b'id,v\nmlarge:0,"' + b"x\n" * 1000 + b'"\nmlarge:1,a\n',
        [Nacked("record.too-large", "2011 bytes"), row("mlarge:1", "a")],
        settings=MULTI,
        batch={"max-record-bytes": "1000"},
    )
    for word, delimiter in (("tab", "\\t"), ("semicolon", ";"), ("pipe", "|")):
        d = "\t" if word == "tab" else delimiter
        yield _case(
            f"csv-{word}",
            f'id{d}v\nc{word}:0{d}a,b\nc{word}:1{d}"a{d}b"\nc{word}:2\n'.encode(),
            [
                row(f"c{word}:0", "a,b", line=f'c{word}:0,"a,b"'.encode()),
                row(f"c{word}:1", f"a{d}b", line=f"c{word}:1,a{d}b".encode()),
                RAGGED,
            ],
            settings={"delimiter": delimiter},
        )
    packed = gzip.compress(b'id,v\nmgz:0,"a\nb"\n', mtime=0)
    yield _files(
        "csv-multi-packed",
        {"whole.csv.gz": packed, "cut.csv.gz": packed[:-9]},
        {"whole.csv.gz": (row("mgz:0", "a\nb", line=b'mgz:0,"a\nb"'),), "cut.csv.gz": (Unreadable(),)},
        settings=MULTI,
    )


def _typed_case(name: str, kind: str, values: list[tuple[bytes, Any, bytes]]) -> Case:
    lines = [b"%s:%d,%s" % (name.encode(), i, text) for i, (text, _, _) in enumerate(values)]
    found = [
        v if isinstance(v, Nacked) else Delivered(b"%s:%d,%s" % (name.encode(), i, out), {"id": f"{name}:{i}", "v": v})
        for i, (_, v, out) in enumerate(values)
    ]
    return _case(name, b"id,v\n" + b"\n".join(lines) + b"\n", list(found), settings={"schema": f"id STRING, v {kind}"})


def _multi(name: str, content: bytes, outcomes: list[Any]) -> Case:
    return _case(name, content, outcomes, settings=MULTI)


def _case(name: str, content: bytes, outcomes: list[Any], **more: Any) -> Case:
    return _files(name, {"rows.csv": content}, {"rows.csv": tuple(outcomes)}, **more)


def _files(name: str, files: Mapping[str, bytes], outcomes: Mapping[str, tuple[Outcome, ...]], **more: Any) -> Case:
    return Case(name, "csv", files, outcomes, **more)
