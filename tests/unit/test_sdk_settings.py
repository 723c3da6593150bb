"""Settings declared once: what is parsed, refused, documented and told to hosts, and that all of it agrees."""

from __future__ import annotations

import copy
import pickle
import types
from collections.abc import Iterable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_protocol.interfaces import Parameter, ParameterType, Validation, ValidationType
from penstock_sdk.errors import PenstockError
from penstock_sdk.foreign import parse_parameters
from penstock_sdk.problems import Problem, SettingsError
from penstock_sdk.settings import Settings, setting


class Tail(Settings):
    """Follows one file."""

    path: Path = setting("The file to follow.")
    batch_size: int = setting("Records per read.", default=1000, least=1, most=100_000)
    poll: timedelta = setting("How long to wait for more.", default=timedelta(milliseconds=100))
    format: Literal["raw", "json"] = setting("What a line is.", default="raw")
    token: str = setting("For the server.", default="", secret=True)
    tags: list[str] = setting("What to call it | them.", default=())
    ratio: float = setting("How many.", default=0.5, least=0, most=1)
    strict: bool = setting("Refuse what is odd.", default=False)
    prefix: str | None = setting("Before each line.", default=None)
    headers: dict[str, str] = setting("Sent along.", default=())
    slot: str = setting("Where.", default="main", pattern="[a-z0-9_]+")
    sdk_size: int = setting("For the host.", default=0, name="sdk.batch.size")
    numbers: list[int] = setting("Some.", default=(1, 2), least=0)
    drift: timedelta = setting("Either way.", default=timedelta(0), least=timedelta(hours=-1), most=timedelta(hours=1))


class Pair(Settings):
    low: int = setting("From.", default=0)
    high: int = setting("To.")

    def check(self) -> Iterable[str]:
        if self.low > self.high:
            yield "low is above high"
        if self.high > 100:
            raise ValueError("high is\ntoo high")


def problems(made: type[Settings], **config: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        made.parse({name.replace("_", "-"): text for name, text in config.items()})
    return str(caught.value).splitlines()


def tail(**values: Any) -> Tail:
    return Tail(path=Path("x"), **values)


def read(name: str, text: str) -> Any:
    return getattr(Tail.parse({"path": "x", name.replace("_", "-"): text}), name)


def outcome(config: dict[str, str]) -> Tail | SettingsError:
    try:
        return Tail.parse(config)
    except SettingsError as error:
        return error


# Parsing


def test_every_type_is_parsed() -> None:
    found = Tail.parse(
        {
            "path": "/a/b",
            "batch-size": "7",
            "poll": "2h45m",
            "format": "json",
            "token": "s3cret",
            "tags": "a, b,c",
            "ratio": "1e-1",
            "strict": "t",
            "prefix": "> ",
            "headers.X-Name": "v",
            "headers.a.b": "",
            "slot": "s_1",
            "sdk.batch.size": "3",
            "numbers": "4,5",
            "drift": "-30m",
        }
    )
    assert found == Tail(
        path=Path("/a/b"),
        batch_size=7,
        poll=timedelta(hours=2, minutes=45),
        format="json",
        token="s3cret",
        tags=["a", "b", "c"],
        ratio=0.1,
        strict=True,
        prefix="> ",
        headers={"X-Name": "v", "a.b": ""},
        slot="s_1",
        sdk_size=3,
        numbers=[4, 5],
        drift=timedelta(minutes=-30),
    )


def test_what_is_missing_or_empty_has_its_default() -> None:
    names = [name for name in Tail.parameters() if name not in ("path", "headers.*")]
    assert Tail.parse({"path": "x"}) == Tail.parse({"path": "x", **dict.fromkeys(names, "")}) == tail()


def test_all_problems_are_told_at_once_and_in_order() -> None:
    assert problems(Tail, ratio="2", batch_size="ten", format="xml", slot="A b", batchsize="3", strict="yes") == [
        "batch-size: 'ten' is no integer",
        "batchsize: no such setting; did you mean 'batch-size'?",
        "format: 'xml' is not one of raw, json",
        "path: is required",
        "ratio: '2' is more than 1.0",
        "slot: 'A b' does not match [a-z0-9_]+",
        "strict: 'yes' is neither true nor false",
    ]


def test_a_required_setting_that_is_empty_is_missing() -> None:
    assert problems(Tail, path="") == ["path: is required"]


def test_the_error_is_one_of_ours_and_can_be_sent_to_another_process() -> None:
    error = SettingsError([Problem("b", "is bad"), Problem("a", "is bad")])
    assert isinstance(error, PenstockError)
    assert error.problems == [Problem("a", "is bad"), Problem("b", "is bad")]
    assert pickle.loads(pickle.dumps(error)).problems == error.problems


@pytest.mark.parametrize(
    ("text", "value"),
    [(text, True) for text in ("1", "t", "T", "true", "TRUE", "True", " true ")]
    + [(text, False) for text in ("0", "f", "F", "false", "FALSE", "False")],
)
def test_booleans_are_go_s(text: str, value: bool) -> None:
    assert read("strict", text) is value


@pytest.mark.parametrize("text", ["1.0", "1_000", "٣", "0x10", "1e3", "--1", "1 2", "nan", "9" * 5000, "\n", "1\0"])
def test_integers_are_exact(text: str) -> None:
    (line,) = problems(Tail, path="x", batch_size=text)
    assert line.startswith("batch-size: ")
    assert line.endswith("is no integer")
    assert len(line) < 150


def test_integers_have_64_bits() -> None:
    assert read("batch_size", "+100000") == 100_000
    assert Tail.parse({"path": "x", "sdk.batch.size": str(2**63 - 1)}).sdk_size == 2**63 - 1
    with pytest.raises(SettingsError, match="does not fit into 64 bits"):
        Tail.parse({"path": "x", "sdk.batch.size": str(2**63)})


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "1e400", "1_0", "0x1p3", "１", "."])
def test_numbers_are_finite(text: str) -> None:
    (line,) = problems(Tail, path="x", ratio=text)
    assert line.startswith("ratio: ")


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("300ms", 300_000),
        ("1.5s", 1_500_000),
        ("2h45m", 9_900_000_000),
        ("0", 0),
        ("-0", 0),
        ("1us", 1),
        ("1µs", 1),
        ("1μs", 1),
        ("1000ns", 1),
        (".5ms", 500),
        ("5.s", 5_000_000),
        ("1m1ms", 60_001_000),
        ("0.000001s", 1),
        ("1s1s", 2_000_000),
        ("+1s", 1_000_000),
        ("0.1h", 360_000_000),
    ],
)
def test_durations_are_go_s(text: str, microseconds: int) -> None:
    assert read("poll", text) == timedelta(microseconds=microseconds)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("5", "is no duration"),
        ("5 parsecs", "is no duration"),
        ("1d", "is no duration"),
        ("s", "is no duration"),
        (".s", "is no duration"),
        ("1s-1s", "is no duration"),
        ("1 s", "is no duration"),
        ("1" * 200 + "s", "is no duration"),
        ("1ns", "is finer than a microsecond"),
        ("1.0000001s", "is finer than a microsecond"),
        ("-1s", "is less than 0s"),
        ("9999999h", "is too long"),
        ("9" * 90 + "h", "is too long"),
    ],
)
def test_durations_that_are_refused(text: str, why: str) -> None:
    (line,) = problems(Tail, path="x", poll=text)
    assert why in line


def test_a_list_has_no_empty_items() -> None:
    assert problems(Tail, path="x", tags="a,,b") == ["tags: '' cannot be an item of a list"]
    assert problems(Tail, path="x", numbers="1,x") == ["numbers: 'x' is no integer"]
    assert problems(Tail, path="x", numbers="1,-1") == ["numbers: '-1' is less than 0"]


def test_an_entry_of_a_map_has_a_name() -> None:
    assert problems(Tail, path="x", **{"headers.": "v"}) == ["headers: has an entry without a name"]
    assert problems(Tail, path="x", headers="v") == ["headers: no such setting; did you mean 'headers.*'?"]


def test_a_required_map_needs_an_entry() -> None:
    class Needs(Settings):
        headers: dict[str, str] = setting("Sent along.")

    assert problems(Needs) == ["headers: is required"]
    with pytest.raises(SettingsError, match="is required"):
        Needs(headers={})


def test_the_wrong_case_is_recognised_and_the_absurd_is_not() -> None:
    assert problems(Tail, path="x", PATH="y", qqqqqqqq="") == [
        "PATH: no such setting; did you mean 'path'?",
        "qqqqqqqq: no such setting",
    ]


def test_each_problem_is_one_line_whatever_was_sent() -> None:
    lines = problems(Tail, path="x", **{"a\nb": "c", "batch_size": "1\n2", "y" * 1000: ""})
    assert len(lines) == 3
    assert max(map(len, lines)) < 200


def test_a_value_that_is_no_text_is_a_problem_and_no_crash() -> None:
    with pytest.raises(SettingsError, match="batch-size: has to be given as text"):
        Tail.parse({"path": "x", "batch-size": 5})  # type: ignore[dict-item]
    with pytest.raises(SettingsError, match=r"headers: .* is no map of texts"):
        Tail.parse({"path": "x", "headers.a": None})  # type: ignore[dict-item]


def test_a_path_has_no_nul() -> None:
    assert problems(Tail, path="a\0b") == [r"path: 'a\x00b' is no path"]


def test_settings_are_checked_together_when_each_is_good() -> None:
    assert Pair.parse({"high": "1"}) == Pair(high=1)
    assert problems(Pair, low="2", high="1") == ["low is above high"]
    assert problems(Pair, low="300", high="200") == ["high is too high", "low is above high"]
    assert problems(Pair, low="300", high="x") == ["high: 'x' is no integer"]


def test_a_check_that_answers_with_one_text_has_one_problem() -> None:
    class Odd(Settings):
        def check(self) -> str:
            return "no good"

    assert problems(Odd) == ["no good"]


# Objects


def test_objects_cannot_be_changed() -> None:
    made = tail()
    with pytest.raises(FrozenInstanceError):
        made.batch_size = 5  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del made.path


def test_objects_are_values() -> None:
    made = tail(tags=["a"], headers={"a": "b"})
    assert made == copy.deepcopy(made) == pickle.loads(pickle.dumps(made))
    assert hash(made) == hash(copy.deepcopy(made))
    assert made != tail()
    assert tail(ratio=0) == tail(ratio=-0.0)
    assert hash(tail(ratio=0)) == hash(tail(ratio=-0.0))
    assert Pair(high=1) != tail()


def test_objects_share_nothing_that_can_change() -> None:
    given = ["a"]
    made = tail(tags=given)
    given.append("b")
    tail().tags.append("c")
    tail().headers["x"] = "y"
    assert made.tags == ["a"]
    assert tail().tags == []
    assert tail().headers == {}


def test_arguments_are_by_name_and_complete() -> None:
    with pytest.raises(TypeError, match="Tail needs path"):
        Tail()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="Tail has no pth"):
        Tail(path=Path("x"), pth=Path("y"))  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Tail(Path("x"))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"batch_size": 0}, "batch-size: 0 is less than 1"),
        ({"batch_size": True}, "batch-size: True is no integer"),
        ({"batch_size": "7"}, "batch-size: '7' is no integer"),
        ({"batch_size": None}, "batch-size: None is no integer"),
        ({"ratio": float("nan")}, "ratio: nan is not finite"),
        ({"strict": 1}, "strict: 1 is no boolean"),
        ({"poll": timedelta(seconds=-1)}, "poll: datetime.timedelta(days=-1, seconds=86399) is less than 0s"),
        ({"poll": timedelta(days=200_000)}, "poll: datetime.timedelta(days=200000) is too long, the most is 292 years"),
        ({"tags": "abc"}, "tags: 'abc' is no list"),
        ({"tags": ["a,b"]}, "tags: 'a,b' cannot be an item of a list"),
        ({"tags": [" a"]}, "tags: ' a' cannot be an item of a list"),
        ({"headers": {"": "x"}}, "headers: has an entry without a name"),
        ({"slot": ""}, "slot: '' does not match [a-z0-9_]+"),
        ({"prefix": ""}, "prefix: may not be empty"),
        ({"numbers": []}, "numbers: may not be empty"),
    ],
)
def test_an_object_that_no_config_could_give_is_not_made(values: dict[str, Any], line: str) -> None:
    with pytest.raises(SettingsError) as caught:
        tail(**values)
    assert str(caught.value) == line


def test_secrets_are_never_shown() -> None:
    class Login(Settings):
        token: str = setting("It.", secret=True, pattern="[a-z]+")
        pin: int = setting("It.", secret=True, default=0, most=9)
        keys: list[str] = setting("They.", secret=True, default=())

    made = Login(token="hunter", keys=["hidden"])
    assert repr(made) == str(made) == "Login(token=***, pin=***, keys=***)"
    assert made.as_config() == {"token": "hunter", "pin": "0", "keys": "hidden"}
    assert problems(Login, token="HUNTER2", pin="1234", keys="hidden,,") == [
        "keys: the value cannot be an item of a list",
        "pin: the value is more than 9",
        "token: the value does not match [a-z]+",
    ]


# The specification and the documentation


def test_the_specification_says_what_a_host_can_check() -> None:
    found = Tail.parameters()
    assert list(found)[:3] == ["path", "batch-size", "poll"]
    assert found["path"] == Parameter("", "The file to follow.", validations=(Validation(ValidationType.REQUIRED),))
    assert found["batch-size"] == Parameter(
        "1000",
        "Records per read.",
        ParameterType.INT,
        (Validation(ValidationType.GREATER_THAN, "0"), Validation(ValidationType.LESS_THAN, "100001")),
    )
    assert found["poll"] == Parameter("100ms", "How long to wait for more.", ParameterType.DURATION)
    assert found["format"].validations == (Validation(ValidationType.INCLUSION, "raw,json"),)
    assert found["slot"].validations == (Validation(ValidationType.REGEX, "^(?:[a-z0-9_]+)$"),)
    assert found["strict"] == Parameter("false", "Refuse what is odd.", ParameterType.BOOL)
    assert found["numbers"] == Parameter("1,2", "Some.")
    assert found["headers.*"] == Parameter("", "Sent along.")
    assert found["sdk.batch.size"].default == "0"


def test_limits_that_are_allowed_themselves_are_translated_exactly() -> None:
    class Limits(Settings):
        number: float = setting("It.", least=0, most=1.7976931348623157e308)
        big: int = setting("It.", least=2**60, most=2**63 - 1)

    for config in ({"number": "0", "big": str(2**60)}, {"number": "1.7976931348623157e308", "big": str(2**63 - 1)}):
        assert Limits.parse(config).as_config().keys() == config.keys()
        assert parse_parameters(Limits.parameters(), config) == []
    found = parse_parameters(Limits.parameters(), {"number": "-1e-300", "big": "5"})
    assert [each.name for each in found] == ["big", "number"]


def test_the_defaults_of_the_specification_are_the_defaults() -> None:
    defaults = {name: each.default for name, each in Tail.parameters().items() if each.default}
    assert Tail.parse({"path": "x", **defaults}) == tail()


def test_the_documentation_is_a_table() -> None:
    lines = Tail.document().splitlines()
    assert lines[:4] == ["Follows one file.", "", "| name | type | default | description |", "|---|---|---|---|"]
    assert "| `path` | path | required | The file to follow. |" in lines
    assert "| `batch-size` | integer, at least 1, at most 100000 | `1000` | Records per read. |" in lines
    assert "| `poll` | duration | `100ms` | How long to wait for more. |" in lines
    assert "| `format` | one of raw, json | `raw` | What a line is. |" in lines
    assert "| `token` | text, secret |  | For the server. |" in lines
    assert r"| `tags` | list of text |  | What to call it \| them. |" in lines
    assert "| `headers.*` | map of text |  | Sent along. |" in lines
    assert len(lines) == 4 + len(Tail.parameters())


# Declarations


def declare(hint: Any, *bases: type, attribute: str = "x", **options: Any) -> type[Settings]:
    body = {"__annotations__": {attribute: hint}, attribute: setting("It.", **options)}
    return types.new_class("Made", bases or (Settings,), exec_body=lambda namespace: namespace.update(body))


@pytest.mark.parametrize(
    ("hint", "options", "why"),
    [
        (bytes, {}, "bytes is not a type"),
        (int | str, {}, "is not a type"),
        (list[list[str]], {}, "is not a type"),
        (list, {}, "list is not a type"),
        (dict[str, int], {}, "is not a type"),
        (list[str] | None, {"default": None}, "is not a type"),
        (Literal[1, 2], {}, "choices have to be texts"),
        (Literal["a,b"], {}, "without commas"),
        (list[str], {"default": []}, "can be changed"),
        (dict[str, str], {"default": {}}, "can be changed"),
        (dict[str, str], {"default": (("a", "b"),)}, "no other default"),
        (str | None, {}, "needs default=None"),
        (str | None, {"default": "a"}, "needs default=None"),
        (int, {"default": "5"}, "'5' is no integer"),
        (int, {"default": 5, "most": 4}, "5 is more than 4"),
        (int, {"least": 5, "most": 4}, "its least is more than its most"),
        (int, {"least": "1"}, "'1' is no limit for integer"),
        (str, {"least": 1}, "1 is no limit for text"),
        (str, {"pattern": "("}, "is no pattern"),
        (str, {"pattern": "(?=a)b"}, "Go does not understand"),
        (str, {"pattern": r"(a)\1"}, "Go does not understand"),
        (int, {"pattern": "a"}, "only text can have a pattern"),
        (str, {"name": "a b"}, "cannot be the name"),
        (str, {"name": ""}, "cannot be the name"),
        (str, {"attribute": "_x"}, "cannot be the name"),
        (str, {"attribute": "parse"}, "every Settings has that already"),
        ("Nowhere", {}, "not known when the program runs"),
    ],
)
def test_a_mistake_in_a_declaration_is_told_when_the_class_is_made(
    hint: Any, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(TypeError, match="Made") as caught:
        declare(hint, **options)
    assert why in str(caught.value)


@pytest.mark.parametrize("pattern", [r"\++", "[*+]+", r"\\1", "(?:a|b)?", "(?i)a", "a+?", "x+[a]+", r"\d{2}"])
def test_a_pattern_that_go_understands_is_taken(pattern: str) -> None:
    assert declare(str, pattern=pattern).parameters()["x"].validations[1].value == f"^(?:{pattern})$"


def test_a_pattern_means_what_it_means_in_go() -> None:
    made = declare(str, pattern=r"\d+|a")
    assert made.parse({"x": "12"}).as_config() == {"x": "12"}
    for text in ("٣", "12\n", "ab", "ba"):
        assert len(problems(made, x=text)) == 1


def test_two_settings_do_not_share_a_name() -> None:
    with pytest.raises(TypeError, match="x and y are both named 'x'"):
        declare(str, declare(str), attribute="y", name="x")
    with pytest.raises(TypeError, match=r"'x\.a' is also an entry of the map 'x'"):
        declare(str, declare(dict[str, str]), attribute="y", name="x.a")


def test_what_is_not_declared_with_setting_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Plain.x: declare it with setting"):

        class Plain(Settings):
            x: int = 5

    with pytest.raises(TypeError, match=r"Untyped.x: a setting needs a type"):

        class Untyped(Settings):
            x = setting("It.")

    with pytest.raises(TypeError, match=r"Changed.high: declare it again"):

        class Changed(Pair):
            high = 7


def test_a_class_may_have_constants_and_methods() -> None:
    class Constant(Settings):
        LIMIT: ClassVar[int] = 5
        x: int = setting("It.", default=1)

        def double(self) -> int:
            return 2 * self.x * self.LIMIT

    assert Constant().double() == 10
    assert list(Constant.parameters()) == ["x"]


def test_classes_are_inherited_and_mixed() -> None:
    class Batching(Settings):
        size: int = setting("How many.", default=0, name="sdk.batch.size")
        delay: timedelta = setting("How long.", default=timedelta(0), name="sdk.batch.delay")

    class Wide(Pair):
        high: int = setting("To, at most.", default=50)

    class Mixed(Batching, Wide):
        """Both."""

        name: str = setting("It.")

    made = Mixed.parse({"name": "n", "sdk.batch.size": "5"})
    assert made == Mixed(name="n", size=5)
    assert (made.low, made.high, made.size) == (0, 50, 5)
    assert list(Mixed.parameters()) == ["low", "high", "sdk.batch.size", "sdk.batch.delay", "name"]
    assert problems(Mixed, name="n", low="60") == ["low is above high"]
    assert problems(Pair) == ["high: is required"]
    assert "Both." not in Wide.document()


def test_the_nearest_declaration_counts_in_a_diamond() -> None:
    class Left(Pair):
        pass

    class Right(Pair):
        high: int = setting("To.", default=9)

    class Both(Left, Right):
        pass

    assert Both().high == 9  # type: ignore[call-arg] # mypy looks at Left first


# A host and a foreign plugin

REQUIRED = Validation(ValidationType.REQUIRED)
FOREIGN = {
    "path": Parameter(validations=(REQUIRED,)),
    "operations": Parameter("create", validations=(REQUIRED,)),
    "rate": Parameter(type=ParameterType.FLOAT, validations=(Validation(ValidationType.GREATER_THAN, "-1"),)),
    "count": Parameter(type=ParameterType.INT, validations=(Validation(ValidationType.LESS_THAN, "10"),)),
    "delay": Parameter("0", type=ParameterType.DURATION, validations=(Validation(ValidationType.GREATER_THAN, "-1"),)),
    "on": Parameter(type=ParameterType.BOOL),
    "level": Parameter("info", validations=(Validation(ValidationType.INCLUSION, "debug,info"),)),
    "user": Parameter(validations=(Validation(ValidationType.EXCLUSION, "root,admin"),)),
    "slot": Parameter(validations=(Validation(ValidationType.REGEX, "^[a-z0-9_]+$"),)),
    "greek": Parameter(validations=(Validation(ValidationType.REGEX, r"^\p{Greek}+$"),)),
    "options.*": Parameter(type=ParameterType.INT),
    "collections.*.type": Parameter(validations=(REQUIRED, Validation(ValidationType.INCLUSION, "raw,file"))),
    "collections.*.options.*": Parameter(),
}


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({}, []),
        ({"path": ""}, ["path: is required"]),
        ({"pth": "x"}, ["pth: no such setting; did you mean 'path'?"]),
        ({"rate": "fast"}, ["rate: 'fast' is no number"]),
        ({"rate": "-2"}, ["rate: '-2' is not greater than -1"]),
        ({"rate": "0x1p3", "count": " 9 ", "delay": "1ns", "on": "F"}, []),
        ({"rate": "NaN"}, ["rate: 'NaN' is not greater than -1"]),
        ({"count": "10"}, ["count: '10' is not less than 10"]),
        ({"count": "1.5"}, ["count: '1.5' is no integer"]),
        ({"delay": "5"}, ["delay: '5' is no duration, such as 300ms, 1.5s or 2h45m"]),
        ({"on": "yes"}, ["on: 'yes' is neither true nor false"]),
        ({"level": "loud"}, ["level: 'loud' is not one of debug, info"]),
        ({"user": "root"}, ["user: 'root' is one of root, admin"]),
        ({"slot": "A"}, ["slot: does not match ^[a-z0-9_]+$"]),
        ({"slot": " a "}, []),
        ({"greek": "latin"}, []),
        ({"options.a": "1", "options.b.c": "2"}, []),
        ({"options.a": "x"}, ["options.a: 'x' is no integer"]),
        ({"options..": "1", "options..a": "2", "options.\n": "3"}, []),
        ({"options.": "1"}, ["options.: no such setting; did you mean 'options.*'?"]),
        ({"collections.users.type": "raw", "collections.users.options.id": "int"}, []),
        ({"collections.users.options.id": "int"}, ["collections.users.type: is required"]),
        ({"collections.users.type": "xml"}, ["collections.users.type: 'xml' is not one of raw, file"]),
    ],
)
def test_a_host_checks_what_a_specification_tells(config: dict[str, str], found: list[str]) -> None:
    assert [str(each) for each in parse_parameters(FOREIGN, {"path": "x", **config})] == found


# For all values

TEXT = st.text(min_size=1)
ITEM = st.text().filter(lambda text: text and "," not in text and text == text.strip())
TAILS = st.builds(
    Tail,
    path=TEXT.filter(lambda text: "\0" not in text).map(Path),
    batch_size=st.integers(1, 100_000),
    poll=st.timedeltas(timedelta(0), timedelta(days=106_000)),
    format=st.sampled_from(["raw", "json"]),
    token=st.text(),
    tags=st.lists(ITEM),
    ratio=st.floats(0, 1),
    strict=st.booleans(),
    prefix=st.none() | TEXT,
    headers=st.dictionaries(TEXT, st.text()),
    slot=st.from_regex("[a-z0-9_]+", fullmatch=True),
    sdk_size=st.integers(-(2**63), 2**63 - 1),
    numbers=st.lists(st.integers(0, 2**63 - 1), min_size=1),
    drift=st.timedeltas(timedelta(hours=-1), timedelta(hours=1)),
)


@given(TAILS)
def test_what_is_written_parses_back_to_the_same(made: Tail) -> None:
    again = Tail.parse(made.as_config())
    assert again == made
    assert hash(again) == hash(made)
    assert again.as_config() == made.as_config()


@given(TAILS)
def test_a_host_never_refuses_what_the_connector_takes(made: Tail) -> None:
    assert parse_parameters(Tail.parameters(), made.as_config()) == []


@given(st.dictionaries(st.sampled_from([*Tail.parameters(), "headers.a"]) | st.text(), st.text()))
def test_any_config_is_parsed_or_refused_in_words(config: dict[str, str]) -> None:
    made = outcome(config)
    if isinstance(made, SettingsError):
        assert len(str(made).splitlines()) == len(made.problems) > 0
    else:
        assert Tail.parse(made.as_config()) == made
    for name, text in parse_parameters(FOREIGN, config):
        assert name in config or text == "is required"


NUMBERS = st.text("0123456789.eE+-_xhmsnuµ \n", max_size=12)


@given(st.sampled_from(["batch-size", "ratio", "poll", "drift", "numbers", "strict"]), NUMBERS)
def test_what_looks_like_a_number_is_one_or_is_refused(name: str, text: str) -> None:
    made = outcome({"path": "x", name: text})
    if isinstance(made, SettingsError):
        assert [each.name for each in made.problems] == [name]
    else:
        assert Tail.parse(made.as_config()) == made
        assert parse_parameters(Tail.parameters(), {"path": "x", name: text}) == []
