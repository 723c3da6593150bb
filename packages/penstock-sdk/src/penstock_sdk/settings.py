"""Typed settings, declared once: parsing, checks, documentation and the specification all come from the one declaration. Connector
authors subclass `Settings`; the SDK parses what a host sends.
Nothing here does I/O, so it runs anywhere.

On the wire a config is text. A setting that is missing or empty has its default, so a value that reads as empty but is not the
default could not be sent: the constructor refuses it. That is why `parse(x.as_config()) == x` holds for every object there is.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import FrozenInstanceError, dataclass
from datetime import timedelta
from types import NoneType, UnionType
from typing import (
    Any,
    ClassVar,
    Literal,
    Self,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)

from penstock_protocol.interfaces import Parameter, ParameterType, Validation, ValidationType
from penstock_sdk.kinds import KINDS, TEXT, Kind
from penstock_sdk.problems import Problem, SettingsError, clipped, unknown

# A declaration, as written and as understood.

_REQUIRED: Any = object()  # in the place of a default


@dataclass(frozen=True, kw_only=True)
class _Declared:
    description: str
    default: Any
    least: Any
    most: Any
    pattern: str | None
    secret: bool
    name: str | None


def setting(
    description: str,
    *,
    default: Any = _REQUIRED,
    least: Any = None,
    most: Any = None,
    pattern: str | None = None,
    secret: bool = False,
    name: str | None = None,
) -> Any:
    """Declares a setting. No default: it is required. `least` and `most` are allowed values; a duration is at least 0 if nothing else
    is said. `pattern` has to match the whole text, and is understood by Go as well. For a list, they are about each item. `name` is
    the name on the wire; otherwise it is the attribute's, with hyphens."""
    return _Declared(
        description=description, default=default, least=least, most=most, pattern=pattern, secret=secret, name=name
    )


Shape = Literal["one", "list", "map"]
_NOT_GO = re.compile(r"\(\?(?:[=!>(]|<[=!]|P=)|\\[1-9Z]|[*+?}]\+")  # what Go's expressions have not
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


@dataclass(frozen=True, kw_only=True)
class _Setting:
    name: str
    description: str
    shape: Shape
    kind: Kind
    optional: bool = False
    choices: tuple[str, ...] = ()
    default: Any = _REQUIRED
    least: Any = None
    most: Any = None
    pattern: re.Pattern[str] | None = None
    secret: bool = False

    @property
    def wire_name(self) -> str:
        return f"{self.name}.*" if self.shape == "map" else self.name

    def take(self, config: Mapping[str, str]) -> Any:
        """Its value in a config. ValueError says what is wrong with it."""
        if self.shape == "map":
            start = f"{self.name}."
            found: Any = {key.removeprefix(start): text for key, text in config.items() if key.startswith(start)}
        else:
            text = config.get(self.name, "")
            if not isinstance(text, str):
                raise ValueError("has to be given as text")
            if not text:
                found = self.default
            elif self.shape == "list":
                found = [self._one(item.strip(), read=True) for item in text.split(",")]
            else:
                found = self._one(text, read=True)
        if found is _REQUIRED or (found == {} and self.default is _REQUIRED):
            raise ValueError("is required")
        return self.vet(found)

    def vet(self, value: Any) -> Any:
        """The value as it is kept: lists and maps are copied. ValueError: it is not allowed, or has no text that reads back as the same."""
        made: Any
        if value is None and self.optional:
            return None
        if self.shape == "map":
            made = self._vet_map(value)
        elif self.shape == "list":
            made = self._vet_list(value)
        else:
            made = self._one(value)
        if (made == "" or made in ([], {})) and made != self.default:
            raise ValueError("is required" if self.default is _REQUIRED else "may not be empty")
        return made

    def _vet_map(self, value: Any) -> dict[str, str]:
        if not isinstance(value, Mapping) or not all(isinstance(t, str) for pair in value.items() for t in pair):
            raise ValueError(f"{self._shown(value)} is no map of texts")
        if "" in value:
            raise ValueError("has an entry without a name")
        return {key: self._one(text) for key, text in value.items()}

    def _vet_list(self, value: Any) -> list[Any]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{self._shown(value)} is no list")  # noqa: TRY004
        made = [self._one(item) for item in value]
        for text in map(self.kind.write, made):
            if not text or "," in text or text != text.strip():
                raise ValueError(f"{self._shown(text)} cannot be an item of a list")
        return made

    def _one(self, value: Any, read: bool = False) -> Any:
        try:
            made = self.kind.vet(self.kind.read(value) if read else value)
            if self.choices:
                made = made.strip()
            self._limit(made)
        except ValueError as error:
            raise ValueError(f"{self._shown(value)} {error}") from None
        return made

    def _limit(self, value: Any) -> None:
        if self.least is not None and value < self.least:
            raise ValueError(f"is less than {self.kind.write(self.least)}")
        if self.most is not None and value > self.most:
            raise ValueError(f"is more than {self.kind.write(self.most)}")
        if self.choices and value not in self.choices:
            raise ValueError(f"is not one of {', '.join(self.choices)}")
        if self.pattern and not self.pattern.fullmatch(value):
            raise ValueError(f"does not match {self.pattern.pattern}")

    def _shown(self, value: Any) -> str:
        return "the value" if self.secret else clipped(repr(value))

    def write(self, value: Any) -> str:
        if value is None or value is _REQUIRED or self.shape == "map":
            return ""
        return ",".join(map(self.kind.write, value)) if self.shape == "list" else self.kind.write(value)

    def parameter(self) -> Parameter:
        kind = self.kind.wire if self.shape == "one" else ParameterType.STRING
        return Parameter(self.write(self.default), self.description, kind, tuple(self._validations()))

    def _validations(self) -> Iterable[Validation]:
        if self.default is _REQUIRED and self.shape != "map":
            yield Validation(ValidationType.REQUIRED)  # with a star it would be required of every entry
        if self.shape == "one" and self.kind.ordered in (int, float):  # hosts cannot compare durations
            if self.least is not None and (bound := _beyond(self.least, -1)):
                yield Validation(ValidationType.GREATER_THAN, bound)
            if self.most is not None and (bound := _beyond(self.most, 1)):
                yield Validation(ValidationType.LESS_THAN, bound)
        if self.shape == "one" and self.choices:
            yield Validation(ValidationType.INCLUSION, ",".join(self.choices))
        if self.shape != "list" and self.pattern:
            yield Validation(ValidationType.REGEX, f"^(?:{self.pattern.pattern})$")

    def row(self) -> str:
        label = f"one of {', '.join(self.choices)}" if self.choices else self.kind.label
        label = {"one": label, "list": f"list of {label}", "map": f"map of {label}"}[self.shape]
        if self.kind.ordered:
            label += f", at least {self.kind.write(self.least)}" if self.least not in (None, timedelta(0)) else ""
            label += f", at most {self.kind.write(self.most)}" if self.most is not None else ""
        default = (
            "required" if self.default is _REQUIRED else self.write(self.default) and f"`{self.write(self.default)}`"
        )
        cells = (f"`{self.wire_name}`", label + ", secret" * self.secret, default, self.description)
        return f"| {' | '.join(' '.join(cell.replace('|', chr(92) + '|').split()) for cell in cells)} |"


def _beyond(bound: float, direction: int) -> str:
    """The next value outside, as text: the protocol's limits are not allowed themselves, and are doubles. Empty: there is none."""
    if type(bound) is int and abs(bound) < 2**53:
        return str(bound + direction)
    outside = math.nextafter(float(bound), direction * math.inf)
    return repr(outside) if math.isfinite(outside) else ""


def _understood(attribute: str, hint: Any, declared: _Declared) -> _Setting:
    """Checks a declaration. ValueError says what is wrong with it."""
    shape, kind, optional, choices = _type(hint)
    name = attribute.replace("_", "-") if declared.name is None else declared.name
    if not _NAME.fullmatch(name) or attribute.startswith("_"):
        raise ValueError(f"{name!r} cannot be the name of a setting")
    limits = (declared.least, declared.most)
    for limit in limits:
        if (
            limit is not None
            and (kind.ordered is None or not isinstance(limit, kind.ordered))
            and not (kind.ordered is float and type(limit) is int)
        ):
            raise ValueError(f"{limit!r} is no limit for {kind.label}")
    least = timedelta(0) if kind.ordered is timedelta and declared.least is None else declared.least
    if None not in (least, declared.most) and least > declared.most:
        raise ValueError("its least is more than its most")
    made = _Setting(
        name=name,
        description=declared.description,
        shape=shape,
        kind=kind,
        optional=optional,
        choices=choices,
        least=None if least is None else kind.vet(least),
        most=None if declared.most is None else kind.vet(declared.most),
        pattern=_pattern(declared.pattern, kind, choices),
        secret=declared.secret,
    )
    return _Setting(**{**vars(made), "default": _default(made, declared.default)})


def _type(hint: Any) -> tuple[Shape, Kind, bool, tuple[str, ...]]:
    arguments = get_args(hint)
    if get_origin(hint) in (Union, UnionType) and len(arguments) == 2 and NoneType in arguments:
        shape, kind, _, choices = _type(next(each for each in arguments if each is not NoneType))
        if shape == "one":
            return shape, kind, True, choices
    elif hint == dict[str, str]:
        return "map", TEXT, False, ()
    elif get_origin(hint) is list:
        shape, kind, optional, choices = _type(arguments[0])
        if shape == "one" and not optional:
            return "list", kind, False, choices
    elif get_origin(hint) is Literal:
        if all(isinstance(each, str) and each and each == each.strip() and "," not in each for each in arguments):
            return "one", TEXT, False, arguments
        raise ValueError("its choices have to be texts, not empty, without commas and without space around them")
    elif isinstance(hint, type) and hint in KINDS:
        return "one", KINDS[hint], False, ()
    raise ValueError(
        f"{getattr(hint, '__name__', None) if isinstance(hint, type) else hint} is not a type that a setting can have"
    )


def _pattern(pattern: str | None, kind: Kind, choices: tuple[str, ...]) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    if kind is not TEXT or choices:
        raise ValueError("only text can have a pattern")
    bare = re.sub(r"\\[^1-9Z]|\[\^?\]?[^\]]*\]", "x", pattern)  # without what stands for itself
    if _NOT_GO.search(bare):
        raise ValueError(f"Go does not understand the pattern {pattern}")
    try:
        return re.compile(pattern, re.ASCII)  # as in Go
    except re.error as error:
        raise ValueError(f"{pattern} is no pattern: {error}") from None


def _default(made: _Setting, default: Any) -> Any:
    if made.optional and default is not None:
        raise ValueError("what may be None needs default=None: nothing else could make it None")
    if default is _REQUIRED or (made.optional and default is None):
        return default
    if isinstance(default, list | dict | set | bytearray):
        raise ValueError("its default can be changed, and would change for all: use () or a tuple")  # noqa: TRY004
    if made.shape == "map":
        if default != ():
            raise ValueError("a map has no other default than ()")
        return {}
    if default in ("", ()):
        made = _Setting(**{**vars(made), "default": [] if made.shape == "list" else ""})  # nothing is allowed then
    return made.vet(default)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(setting,))
class Settings:
    """Subclass it and declare each setting as `name: type = setting("What it is for.")`. The class's docstring is documentation too.

    Types: str, int, float, bool, Path, timedelta, Literal of texts; each of them with `| None`, or in a list (commas on the wire);
    and dict[str, str], from keys such as `headers.X`. Objects cannot be changed, and never show a secret when they are printed.
    """

    _settings: ClassVar[Mapping[str, _Setting]] = {}  # by attribute

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        inherited: dict[str, _Setting] = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= vars(base).get("_own", {})
        cls._own = _declared(cls, inherited)
        cls._settings = inherited | cls._own
        _check_names(cls)

    _own: ClassVar[Mapping[str, _Setting]] = {}  # declared in this class itself

    def __init__(self, **values: Any) -> None:
        if unknown := values.keys() - self._settings.keys():
            raise TypeError(f"{type(self).__name__} has no {', '.join(sorted(unknown))}")
        initial = {attribute: each.default for attribute, each in self._settings.items()} | values
        if missing := [attribute for attribute, value in initial.items() if value is _REQUIRED]:
            raise TypeError(f"{type(self).__name__} needs {', '.join(missing)}")
        problems = []
        for attribute, each in self._settings.items():
            try:
                object.__setattr__(self, attribute, each.vet(initial[attribute]))
            except ValueError as error:
                problems.append(Problem(each.name, str(error)))
        if problems:
            raise SettingsError(problems)

    def check(self) -> Iterable[str] | None:
        """For subclasses: what is wrong with settings that are good one by one. `parse` calls it last; ValueError is one problem."""
        return None

    @classmethod
    def parse(cls, config: Mapping[str, str]) -> Self:
        """What a host has sent. `SettingsError` tells all problems at once."""
        problems = [unknown(name, cls.parameters()) for name in config if not cls._knows(name)]
        values = {}
        for attribute, each in cls._settings.items():
            try:
                values[attribute] = each.take(config)
            except ValueError as error:
                problems.append(Problem(each.name, str(error)))
        if not problems:
            made = cls(**values)
            problems = [Problem("", " ".join(text.split())) for text in _checked(made)]
        if problems:
            raise SettingsError(problems)
        return made

    @classmethod
    def _knows(cls, name: str) -> bool:
        maps = (f"{each.name}." for each in cls._settings.values() if each.shape == "map")
        return name.startswith(tuple(maps)) or any(each.wire_name == name for each in cls._settings.values())

    @classmethod
    def parameters(cls) -> dict[str, Parameter]:
        """For the specification."""
        return {each.wire_name: each.parameter() for each in cls._settings.values()}

    @classmethod
    def document(cls) -> str:
        """Markdown: the docstring and a table."""
        head = ["| name | type | default | description |", "|---|---|---|---|"]
        table = "\n".join([*head, *(each.row() for each in cls._settings.values())])
        return "\n\n".join([*([inspect.cleandoc(cls.__doc__)] if cls.__doc__ else []), table]) + "\n"

    def as_config(self) -> dict[str, str]:
        """The text that parses back to this, secrets included."""
        config: dict[str, str] = {}
        for attribute, each in self._settings.items():
            value = getattr(self, attribute)
            if each.shape == "map":
                config |= {f"{each.name}.{key}": text for key, text in value.items()}
            elif text := each.write(value):
                config[each.name] = text
        return config

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"cannot change {name}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and all(getattr(other, a) == getattr(self, a) for a in self._settings)

    def __hash__(self) -> int:
        return hash((type(self), frozenset(self.as_config().items())))

    def __repr__(self) -> str:
        shown = (f"{a}={'***' if each.secret else repr(getattr(self, a))}" for a, each in self._settings.items())
        return f"{type(self).__name__}({', '.join(shown)})"


def _declared(cls: type[Settings], inherited: Mapping[str, _Setting]) -> dict[str, _Setting]:
    """The settings of a class's own body, which is left without them."""
    annotations = inspect.get_annotations(cls)
    for attribute, value in [pair for base in cls.__mro__ for pair in vars(base).items()]:
        if isinstance(value, _Declared) and (attribute not in annotations or vars(cls).get(attribute) is not value):
            raise TypeError(f"{cls.__name__}.{attribute}: a setting needs a type, and a class that is a Settings")
    for attribute in vars(cls).keys() & inherited.keys():
        if not isinstance(vars(cls)[attribute], _Declared):
            raise TypeError(f"{cls.__name__}.{attribute}: declare it again with setting(...) to change it")
    try:
        hints = get_type_hints(cls)
    except Exception as error:
        raise TypeError(f"{cls.__name__}: a type is not known when the program runs: {error}") from error
    made = {}
    for attribute in annotations:
        if get_origin(hints[attribute]) is ClassVar or hints[attribute] is ClassVar:
            continue
        declared = vars(cls).get(attribute)
        if not isinstance(declared, _Declared):
            raise TypeError(f"{cls.__name__}.{attribute}: declare it with setting(...)")
        if hasattr(Settings, attribute):
            raise TypeError(
                f"{cls.__name__}.{attribute}: every Settings has that already; use another attribute and name="
            )
        try:
            made[attribute] = _understood(attribute, hints[attribute], declared)
        except ValueError as error:
            raise TypeError(f"{cls.__name__}.{attribute}: {error}") from None
        delattr(cls, attribute)
    return made


def _check_names(cls: type[Settings]) -> None:
    seen: dict[str, str] = {}
    for attribute, each in cls._settings.items():
        if each.name in seen:
            raise TypeError(f"{cls.__name__}: {seen[each.name]} and {attribute} are both named {each.name!r}")
        seen[each.name] = attribute
    for each in cls._settings.values():
        if inside := [name for name in seen if each.shape == "map" and name.startswith(f"{each.name}.")]:
            raise TypeError(f"{cls.__name__}: {inside[0]!r} is also an entry of the map {each.name!r}")


def _checked(made: Settings) -> list[str]:
    found: list[str] = []
    try:
        answer = made.check()
        for text in [answer] if isinstance(answer, str) else answer or ():
            found.append(text)  # noqa: PERF402 - what came before an error counts
    except ValueError as error:
        found.append(str(error) or "check failed")
    return found
