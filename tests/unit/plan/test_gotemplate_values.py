"""What templates write: tables of template and text. The texts are what Go 1.26 with sprig 3.3 writes for the same record."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.plan.gotemplate import Template
from penstock_sdk.record import Record


def record(number: type = int) -> Record:
    after = {
        "n": number(5),
        "f": 1.5,
        "s": "hello",
        "t": True,
        "nul": None,
        "e": "",
        "u": "é ☃",
        "list": ["b", "a"],
        "m": {"k": "v", "d": {"e": number(1)}},
        "objs": [{"x": number(1)}, {"x": number(2)}],
        "js": '{"a":[1,"x"]}',
    }
    return Record(
        after,
        before={"s": "old"},
        key={"id": number(1)},
        position=b"p1",
        operation="update",
        metadata={"k": "v", "opencdc.collection": "users"},
    )


PRINTED = [
    ("{{ .Payload.After.n }}", "5"),
    ("{{ .Payload.After.f }}", "1.5"),
    ("{{ .Payload.After.t }}", "true"),
    ("{{ .Payload.After.nul }}", "<no value>"),
    ("{{ .Payload.After.missing }}", "<no value>"),
    ("{{ .Payload.After.m }}", "map[d:map[e:1] k:v]"),
    ("{{ .Payload.After.list }}", "[b a]"),
    (
        "{{ . }}",
        '{p1 update map[k:v opencdc.collection:users] map[id:1] {map[s:old] map[e: f:1.5 js:{"a":[1,"x"]} list:[b a] '
        "m:map[d:map[e:1] k:v] n:5 nul:<nil> objs:[map[x:1] map[x:2]] s:hello t:true u:é ☃]} <nil>}",
    ),
    ("{{ .Payload.Before }} {{ .Key }} {{ .Position }} {{ .Operation }}", "map[s:old] map[id:1] p1 update"),
    ("{{ 1000000.0 }} {{ 123456.5 }} {{ 1e20 }} {{ 0.00001 }} {{ -0.0 }}", "1e+06 123456.5 1e+20 1e-05 -0"),
    ('{{ print 1 2 "a" "b" 3 nil }}', "1 2ab3 <nil>"),
    ('{{ println 1 "a" }}', "1 a\n"),
    ('{{ list 1 nil "a" 1.5 true (dict "b" 1 "a" 2) }}', "[1 <nil> a 1.5 true map[a:2 b:1]]"),
]
CONTROL = [
    ("{{ if .Payload.After.e }}a{{ else if .Payload.After.s }}b{{ else }}c{{ end }}", "b"),
    ("{{ with .Payload.After.m }}{{ .k }}{{ $.Operation }}{{ end }}", "vupdate"),
    ("{{ with .Payload.After.e }}x{{ else with 5 }}{{ . }}{{ end }}", "5"),
    ("{{ range $i, $e := .Payload.After.list }}{{ $i }}={{ $e }};{{ end }}", "0=b;1=a;"),
    ("{{ range $k, $v := .Payload.After.m }}{{ $k }}={{ $v }};{{ end }}", "d=map[e:1];k=v;"),
    ("{{ range 3 }}{{ . }}{{ end }}", "012"),
    ("{{ range .Payload.After.missing }}x{{ else }}none{{ end }}", "none"),
    (
        "{{ range until 9 }}{{ if eq . 1 }}{{ continue }}{{ end }}{{ if eq . 3 }}{{ break }}{{ end }}{{ . }}{{ end }}",
        "02",
    ),
    ("{{ $x := 1 }}{{ if true }}{{ $x = 2 }}{{ $x := 3 }}{{ end }}{{ $x }}", "2"),
    ('{{ define "a" }}<{{ . }}>{{ end }}{{ template "a" 1 }}{{ block "b" .Operation }}{{ . }}{{ end }}', "<1>update"),
    (
        '{{ define "r" }}{{ if . }}{{ . }}{{ template "r" (int (sub . 1)) }}{{ end }}{{ end }}{{ template "r" 3 }}',
        "321",
    ),
    ('a {{- " b " -}} c{{/* x */}}', "a b c"),
    ("{{ range .Payload.After.objs }}{{ .x }}{{ end }}{{ (index .Payload.After.objs 1).x }}", "122"),
]
LITERALS = [
    ("{{ 0x1F }}", "31"),
    ("{{ 0b11 }}", "3"),
    ("{{ 0o17 }}", "15"),
    ("{{ 017 }}", "15"),
    ("{{ 1_000 }}", "1000"),
    ("{{ 1e3 }}", "1000"),
    ("{{ .5 }}", "0.5"),
    ("{{ 0x1p4 }}", "16"),
    ("{{ 'a' }} {{ '\\n' }} {{ '\\u00e9' }}", "97 10 233"),
    ('{{ "a\\tb\\x41\\u00e9\\101\\"" }}', 'a\tbAéA"'),
    ("{{ `raw\\n` }}", "raw\\n"),
]
PRINTF = [
    (
        '{{ printf "%5d|%-5d|%05d|%+d|%x|%X|%o|%b|%c|%q" 42 42 42 42 255 255 8 5 97 97 }}',
        "   42|42   |00042|+42|ff|FF|10|101|a|'a'",
    ),
    (
        '{{ printf "%5.2f|%08.3f|%e|%g|%+.1f" 3.14159 3.14159 314.159 1e10 2.55 }}',
        " 3.14|0003.142|3.141590e+02|1e+10|+2.5",
    ),
    (
        '{{ printf "%s|%10s|%-4s|%.2s|%q|%x" "hi" "hi" "hi" "hello" "h\\"i" "hi" }}',
        'hi|        hi|hi  |he|"h\\"i"|6869',
    ),
    ('{{ printf "%d %s %v" .Payload.After.n .Payload.After.n .Payload.After.n }}', "%!d(float64=5) %!s(float64=5) 5"),
    ('{{ printf "%d" 1 2 }}', "1%!(EXTRA int=2)"),
    ('{{ printf "%d %d" 1 }}', "1 %!d(MISSING)"),
    ('{{ printf "%" }}', "%!(NOVERB)"),
    ('{{ printf "%s" nil }}', "%!s(<nil>)"),
    ('{{ printf "%v|%d|%s" .Operation .Operation .Operation }}', "update|2|update"),
    ('{{ printf "%s" .Payload.After.m }}', "map[d:map[e:%!s(float64=1)] k:v]"),
    ('{{ printf "%T %T %T" 1 1.5 .Payload.After }}', "int float64 opencdc.StructuredData"),
]
TEXTS = [
    ('{{ b64dec "aGk" }}', "illegal base64 data at input byte 0"),
    ('{{ upper "straße" }}', "STRAßE"),
    ('{{ title "hello world" }}', "Hello World"),
    ('{{ untitle "Hello World" }}', "hello world"),
    ('{{ swapcase "Ab" }}', "aB"),
    ('{{ initials "First Try" }}', "FT"),
    ('{{ trim " a " }}', "a"),
    ('{{ trimAll "$" "$5$" }}', "5"),
    ('{{ trimSuffix "-" "a--" }}', "a-"),
    ('{{ nospace "a b" }}', "ab"),
    ('{{ substr 0 2 "hello" }}', "he"),
    ('{{ trunc -2 "hello" }}', "lo"),
    ('{{ abbrev 5 "hello world" }}', "he..."),
    ('{{ repeat 3 "ab" }}', "ababab"),
    ('{{ quote "a" 1 nil }}', '"a" "1"'),
    ('{{ squote "b" }}', "'b'"),
    ('{{ cat "a" nil 1 }}', "a 1"),
    ('{{ replace "l" "L" "hello" }}', "heLLo"),
    ('{{ split "," "a,b" }}', "map[_0:a _1:b]"),
    ('{{ splitList "," "a,b" }}', "[a b]"),
    ('{{ join "-" (list 1 nil "a") }}', "1-a"),
    ('{{ indent 2 "a\\nb" }}', "  a\n  b"),
    ('{{ len "é" }} {{ trunc 1 "abc" }} {{ index "abc" 1 }}', "2 a 98"),
    ('{{ b64enc "hi" }}', "aGk="),
    ('{{ b64dec "aGk=" }}', "hi"),
    ('{{ sha256sum "a" }}', "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"),
    ('{{ adler32sum "abc" }}', "38600999"),
    ('{{ html "<a>" }} {{ js "\'" }} {{ urlquery "a b&c" }}', "&lt;a&gt; \\' a+b%26c"),
]
NUMBERS = [
    ("{{ addf 0.1 0.2 }}", "0.3"),
    ("{{ divf 1 3 }}", "0.3333333333333333"),
    ("{{ divf 0 -2.25 }}", "0"),
    ('{{ add 1 2.9 "3" "x" }}', "6"),
    ("{{ sub 1 5 }}", "-4"),
    ("{{ mul 2 3 }}", "6"),
    ("{{ div -7 2 }}", "-3"),
    ("{{ mod -7 2 }}", "-1"),
    ("{{ max 1 3 }}", "3"),
    ("{{ min 3 1.9 }}", "1"),
    ('{{ int "0x10" }}', "16"),
    ('{{ int "1.0" }}', "1"),
    ('{{ int "1.5" }}', "0"),
    ('{{ float64 "1e3" }}', "1000"),
    ('{{ atoi "x" }}', "0"),
    ('{{ toDecimal "777" }}', "511"),
    ("{{ round 2.675 2 }} {{ floor -1.1 }} {{ ceil 1.1 }}", "2.68 -2 2"),
    ("{{ seq 2 5 }} {{ until 3 }} {{ untilStep 0 10 4 }}", "2 3 4 5 [0 1 2] [0 4 8]"),
    ("{{ add 9223372036854775807 1 }}", "-9223372036854775808"),
]
LISTS = [
    ("{{ first .Payload.After.list }}", "b"),
    ("{{ last .Payload.After.list }}", "a"),
    ("{{ rest (list 1 2 3) }}", "[2 3]"),
    ("{{ initial (list 1 2 3) }}", "[1 2]"),
    ("{{ reverse (list 1 2) }}", "[2 1]"),
    ("{{ uniq (list 1 1.0 1) }}", "[1 1]"),
    ("{{ without (list 1 2) 1 }}", "[2]"),
    ("{{ concat (list 1) (list 2) }}", "[1 2]"),
    ('{{ compact (list 0 1 "") }}', "[1]"),
    ("{{ chunk 2 (list 1 2 3) }}", "[[1 2] [3]]"),
    ('{{ has "a" .Payload.After.list }}', "true"),
    ("{{ has 5 (list .Payload.After.n) }}", "false"),
    ("{{ has 5.0 (list .Payload.After.n) }}", "true"),
    ("{{ slice (list 1 2 3) 1 2 }}", "[2]"),
    ("{{ append (list 1) 2 }}", "[1 2]"),
    ("{{ prepend (list 1) 0 }}", "[0 1]"),
    ('{{ dict "a" 1 "b" }}', "map[a:1 b:]"),
    ('{{ get .Payload.After "s" }}', "hello"),
    ('{{ hasKey .Payload.After "zz" }}', "false"),
    ('{{ pluck "s" .Payload.After .Payload.Before }}', "[hello old]"),
    ('{{ pick .Payload.After "s" }}', "map[s:hello]"),
    ('{{ omit .Payload.After.m "d" }}', "map[k:v]"),
    ('{{ dig "d" "e" 0 .Payload.After.m }}', "1"),
    ('{{ dig "x" 0 .Payload.After.m }}', "0"),
    ('{{ $d := dict "a" 1 }}{{ $_ := set $d "b" 2 }}{{ $d }}', "map[a:1 b:2]"),
    ("{{ toJson .Payload.After.m }}", '{"d":{"e":1},"k":"v"}'),
    ("{{ (fromJson .Payload.After.js).a }}", "[1 x]"),
    ('{{ toRawJson "<" }}', '"<"'),
    ('{{ toJson "<" }}', '"\\u003c"'),
    ('{{ default "d" .Payload.After.e }}', "d"),
    ('{{ coalesce 0 "" "x" }}', "x"),
    ("{{ ternary 1 2 true }}", "1"),
    ("{{ empty .Payload.After.nul }}", "true"),
    ("{{ all 1 0 }}", "false"),
    ("{{ any 1 0 }}", "true"),
    ("{{ typeOf .Payload.After }}", "opencdc.StructuredData"),
    ("{{ kindOf .Payload.After.n }}", "float64"),
    ("{{ typeOf .Metadata }}", "opencdc.Metadata"),
    ('{{ kindIs "map" .Payload.After.m }}', "true"),
]
PATTERNS = [
    ('{{ regexMatch "^h.*o$" .Payload.After.s }}', "true"),
    ('{{ regexMatch "[" "a" }}', "false"),
    ('{{ regexMatch "a$" "a\\n" }}', "false"),
    ('{{ regexMatch "\\\\d" "٣" }}', "false"),
    ('{{ regexMatch "(?i)HELLO" "hello" }}', "true"),
    ('{{ regexReplaceAll "a(x*)b" "-ab-axxb-" "${1}W" }}', "-W-xxW-"),
    ('{{ regexReplaceAll "x*" "abxd" "-" }}', "-a-b-d-"),
    ('{{ regexReplaceAllLiteral "a" "banana" "$1" }}', "b$1n$1n$1"),
    ('{{ regexFindAll "[a-z]" "a1b2" -1 }}', "[a b]"),
    ('{{ regexSplit "z+" "pizza" -1 }}', "[pi a]"),
    ('{{ regexFind "l+" "hello" }}', "ll"),
    ('{{ regexQuoteMeta "a.b" }}', "a\\.b"),
    ('{{ semverCompare "^1.2" "1.9.0" }}', "true"),
    ('{{ semverCompare "~1.2" "1.3.0" }}', "false"),
    ('{{ semverCompare ">=1.0" "1.2.3-beta" }}', "false"),
    ('{{ semverCompare "1.0 || 2.0" "2.0.0" }}', "true"),
    ('{{ date "2006-01-02 15:04:05 Mon Jan PM" 1700000000 }}', "2023-11-14 22:13:20 Tue Nov PM"),
    ('{{ dateInZone "15:04 MST" 0 "Europe/Berlin" }}', "01:00 CET"),
    ('{{ duration "95" }}', "1m35s"),
]
METHODS = [
    ("{{ .Operation.String }}", "update"),
    ("{{ .Position.String }}", "p1"),
    ("{{ .Metadata.GetCollection }}", "users"),
    ('{{ index .Metadata "opencdc.collection" }}', "users"),
    ('{{ printf "%s" .Key.Bytes }} {{ .Map.operation }} {{ len .Bytes }}', '{"id":1} update 307'),
]

TABLES = {
    "printed": PRINTED,
    "control": CONTROL,
    "literals": LITERALS,
    "printf": PRINTF,
    "texts": TEXTS,
    "numbers": NUMBERS,
    "lists": LISTS,
    "patterns": PATTERNS,
    "methods": METHODS,
}
CASES = [(text, expected) for table in TABLES.values() for text, expected in table]


@pytest.mark.parametrize("number", [int, float])
@pytest.mark.parametrize("text, expected", CASES)
def test_a_template_writes_what_go_writes(text: str, expected: str, number: Any) -> None:
    assert Template.parse(text).text(record(number)) == expected


@pytest.mark.parametrize("number", [7, 7.0])
@pytest.mark.parametrize(
    "text", ["{{ eq .Payload.After.n 7 }}", "{{ eq .Payload.After.n 7.0 }}", "{{ lt .Payload.After.n 8 }}"]
)
def test_a_number_of_a_payload_compares_with_every_number(text: str, number: float) -> None:
    assert Template.parse(text).matches(Record({"n": number}))


def test_whole_numbers_of_a_payload_keep_their_digits() -> None:
    large = 9007199254740993
    assert Template.parse("{{ .Payload.After.n }}").text(Record({"n": large})) == str(large)
    assert Template.parse("{{ gt .Payload.After.n 9007199254740992 }}").matches(Record({"n": large}))
    assert Template.parse("{{ .Payload.After.n }}").text(Record({"n": float(2**53)})) == "9.007199254740992e+15"


def test_bytes_that_are_no_utf8_pass_through() -> None:
    given = b"\xff\xfe".decode("utf-8", "surrogateescape")
    assert Template.parse("[{{ .Payload.After.v }}]").text(Record({"v": given})) == f"[{given}]"


def test_maps_made_by_the_template_can_be_changed_and_the_record_cannot() -> None:
    r = Record({"a": {"b": 1}})
    assert Template.parse('{{ set (pick .Payload.After.a "b") "b" 2 }}').text(r) == "map[b:2]"
    assert r.after == {"a": {"b": 1}}


@pytest.mark.parametrize("written", ["1", "t", "T", "TRUE", "true", "True", "0", "f", "F", "FALSE", "false", "False"])
def test_the_booleans_are_those_of_go(written: str) -> None:
    expected = written in ("1", "t", "T", "TRUE", "true", "True")
    assert Template.parse(f"{{{{ {written!r} }}}}".replace("'", '"')).matches(Record()) is expected
