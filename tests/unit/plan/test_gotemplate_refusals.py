"""What templates refuse: at parsing what Go refuses and what is not offered, on a record what Go stops at."""

from __future__ import annotations

import pickle

import pytest

from penstock.plan.gotemplate import Template, TemplateError
from penstock.plan.gotemplate.functions import FUNCTIONS, KNOWN, REFUSED
from penstock_sdk.errors import Rejected
from penstock_sdk.record import Record
from tests.unit.plan.test_gotemplate_values import record

NACKED = [
    "{{ .Nope }}",
    "{{ .Payload.after }}",
    "{{ .Payload.After.nul.x }}",
    "{{ .Payload.After.s.x }}",
    "{{ eq 1 1.0 }}",
    '{{ eq 1 "1" }}',
    "{{ eq 1 }}",
    "{{ eq }}",
    "{{ lt 1 2 3 }}",
    "{{ lt nil 1 }}",
    "{{ lt true false }}",
    "{{ eq (list) (list) }}",
    "{{ eq .Payload.After.s 5 }}",
    '{{ eq (len "abc") 3.0 }}',
    "{{ len nil }}",
    "{{ len 5 }}",
    "{{ index (list 1) 5 }}",
    "{{ index nil 1 }}",
    "{{ index .Payload.After.list .Payload.After.n }}",
    '{{ hasPrefix "a" .Payload.After.missing }}',
    "{{ upper .Payload.After.n }}",
    '{{ repeat (int64 2) "a" }}',
    '{{ repeat -1 "a" }}',
    '{{ hasKey .Metadata "k" }}',
    '{{ hasKey .Payload.After.nul "k" }}',
    '{{ dig "s" "x" .Payload.After }}',
    "{{ div 1 0 }}",
    '{{ fail "x" }}',
    '{{ fail "x" | or true }}',
    '{{ template "nope" }}',
    "{{ nil }}",
    '{{ "a" "b" }}',
    "{{ 9223372036854775808 }}",
    "{{ range 1.5 }}{{ end }}",
    "{{ range $i, $e := 3 }}{{ end }}",
    "{{ $y = 1 }}",
    '{{ mustRegexMatch "[" "a" }}',
    '{{ regexFind "(?=a)" "a" }}',
    '{{ mustFromJson "x" }}',
    "{{ .Metadata.GetReadAt }}",
    '{{ first "abc" }}',
    '{{ substr 3 2 "hello" }}',
    '{{ semverCompare "1" "x" }}',
    "{{ slice .Payload.After.s 1 2 }}",
    "{{ call .Payload.After.s }}",
]
INVALID = [
    "{{",
    "{{ 1",
    "{{ end }}",
    "{{ else }}",
    "{{ if true }}x",
    "{{ if }}x{{ end }}",
    "{{ nope }}",
    "{{ $x }}",
    "{{ break }}",
    "{{ ( 1 }}",
    "{{ 1 ) }}",
    "{{ 1 | 2 }}",
    "{{ }}",
    '{{ "a',
    '{{ "a\\q" }}',
    "{{ 'ab' }}",
    "{{ 08 }}",
    "{{ 1x }}",
    "{{ 18446744073709551616 }}",
    "{{ true.x }}",
    "{{ .a-b }}",
    "{{ @ü }}",
    "{{/* a }}",
    "{{ /* a */ }}",
    "{{ template x }}",
    '{{ define "a" }}1{{ end }}{{ define "a" }}2{{ end }}',
    '{{ if true }}{{ define "a" }}{{ end }}{{ end }}',
    "{{ range $a, $b, $c := list }}{{ end }}",
    "{{ $x, $y := 1 }}",
    "{{ print 1,2 }}",
    "{{ print : 1 }}",
    '{{ md5sum "a" }}',
    "{{ if true }}a{{ else }}b{{ else }}c{{ end }}",
]


ALL = {"after", "before", "key", "metadata", "namespace", "operation", "position"}


@pytest.mark.parametrize("text", NACKED)
def test_where_go_stops_the_record_is_nacked(text: str) -> None:
    template = Template.parse(text)
    with pytest.raises(Rejected) as e:
        template.text(record())
    assert e.value.code == "condition.error"


@pytest.mark.parametrize("text", INVALID)
def test_what_go_does_not_parse_is_refused(text: str) -> None:
    with pytest.raises(TemplateError) as e:
        Template.parse(text)
    assert e.value.code == "config.bad-template"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_functions_that_are_not_offered_are_refused_by_name(name: str) -> None:
    with pytest.raises(TemplateError) as e:
        Template.parse(f"{{{{ {name} }}}}")
    assert e.value.code == "config.unsupported-template"
    assert name in e.value.what
    assert e.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "{{ 1i }}",
        '{{ printf "%#v" 1 }}',
        '{{ printf "%[1]d" 1 }}',
        '{{ regexMatch "\\\\pL" "a" }}',
        '{{ regexMatch "(a+)+$" "a" }}',
        "{{ .Clone }}",
        "{{ " + "(" * 100 + "1" + ")" * 100 + " }}",
        "{{ if true }}" * 100 + "{{ end }}" * 100,
        "x" * 100_000 + "{{ 1 }}",
    ],
    ids=range(9),
)
def test_constructs_that_are_not_offered_are_refused(text: str) -> None:
    with pytest.raises(TemplateError) as e:
        Template.parse(text)
    assert e.value.code == "config.unsupported-template"


def test_an_unknown_function_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(TemplateError, match="did you mean `hasPrefix`"):
        Template.parse('{{ hasPrefx "a" "b" }}')


def test_no_function_is_both_offered_and_refused() -> None:
    assert not KNOWN & REFUSED.keys()
    assert len(FUNCTIONS) > 150


@pytest.mark.parametrize(
    "text",
    [
        "{{ until 1000000000 }}",
        "{{ range 1000000000 }}{{ end }}",
        '{{ repeat 1000000000 "abc" }}',
        '{{ $x := repeat 1000000 "a" }}{{ range 100 }}{{ $x }}{{ end }}',
        '{{ $x := repeat 1000000 "a" }}{{ range 100 }}{{ $x = print $x $x }}{{ end }}',
        "{{ $x := until 1000 }}{{ range 100 }}{{ $x = concat $x $x }}{{ end }}",
        '{{ define "r" }}{{ template "r" . }}{{ end }}{{ template "r" . }}',
        '{{ $d := dict }}{{ $_ := set $d "a" (list $d) }}{{ $d }}',
        '{{ set .Payload.After "a" 1 }}',
    ],
)
def test_a_template_that_runs_away_costs_its_record_only(text: str) -> None:
    with pytest.raises(Rejected):
        Template.parse(text).text(record())


@pytest.mark.parametrize("text", ["{{ true }} ", "{{ true }}\n", "{{ 2 }}", '{{ "" }}', "{{ .Payload.After.nul }}"])
def test_a_condition_that_writes_no_boolean_nacks(text: str) -> None:
    with pytest.raises(Rejected):
        Template.parse(text).matches(record())


def test_an_error_never_shows_values() -> None:
    secret = "hunter2"
    for text in (
        "{{ .Payload.After.s }}",
        "{{ .Payload.After.s.x }}",
        "{{ fail .Payload.After.s }}",
        "{{ eq .Payload.After.s 1 }}",
    ):
        with pytest.raises(Rejected) as e:
            Template.parse(text).matches(Record({"s": secret}))
        assert secret not in str(e.value)


def test_raw_and_absent_payloads_have_no_fields() -> None:
    template = Template.parse("{{ .Payload.After.n }}")
    for after in (b'{"n":5}', None):
        with pytest.raises(Rejected):
            template.text(Record(after))


@pytest.mark.parametrize(
    "text, columns",
    [
        ("{{ true }}", set()),
        ("{{ eq .Payload.After.x 1 }}", {"after"}),
        ("{{ $.Payload.Before.x }}{{ .Key.id }}", {"before", "key"}),
        ("{{ .Payload }}", {"before", "after"}),
        ("{{ .Metadata.k }}", {"metadata", "namespace"}),
        ("{{ .Operation.String }}{{ .Position }}", {"operation", "position"}),
        ("{{ with .Key }}{{ .id }}{{ $.Operation }}{{ end }}", {"key", "operation"}),
        ("{{ with .Key }}x{{ else }}{{ .Operation }}{{ end }}", {"key", "operation"}),
        ('{{ define "a" }}{{ .x }}{{ end }}{{ template "a" .Key }}', {"key"}),
        ("{{ . }}", ALL),
        ("{{ $ }}", ALL),
        ("{{ .Map.key }}", ALL),
        ("{{ .Bytes }}", ALL),
        ('{{ template "a" . }}', ALL),
    ],
)
def test_the_columns_that_a_template_may_look_at(text: str, columns: set[str]) -> None:
    assert Template.parse(text).columns == columns


def test_a_template_travels_as_its_text() -> None:
    template = Template.parse('{{ eq .Payload.After.s "hello" }}')
    again = pickle.loads(pickle.dumps(template))
    assert again == template
    assert again.matches(record())
    assert len(pickle.dumps(template)) < 200


def test_an_error_of_a_template_can_be_pickled() -> None:
    with pytest.raises(TemplateError) as e:
        Template.parse("{{ env }}")
    again = pickle.loads(pickle.dumps(e.value))
    assert (again.what, again.hint, again.code) == (e.value.what, e.value.hint, e.value.code)
