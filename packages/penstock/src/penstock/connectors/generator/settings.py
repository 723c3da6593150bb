"""Settings of `generator`: Conduit's names and defaults, and two of our own. No Spark.

Conduit's names hold dots, and some are free (`format.options.<field>`, `collections.<name>.…`). Those are gathered before the
model is made; what is wrong with one is said at the name that the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import (
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from penstock.config import Duration, Settings
from penstock.connectors.generator import template
from penstock.connectors.generator.template import FIELD_TYPES, Pieces

OPERATIONS = ("create", "update", "delete", "snapshot")
OPTION = "format.options."
COLLECTION = "collections."

_BATCH = "must be left out: say how much goes into a batch under `batch:` of the connector, e.g. `max-bytes: 64m`"
_SCHEMA = "must be left out: payloads are not encoded with a schema here"
# What Conduit takes and this source does not, and what to write instead.
_REFUSED = {
    "sdk.batch.size": _BATCH,
    "sdk.batch.delay": _BATCH,
    "sdk.schema.extract.type": _SCHEMA,
    "sdk.schema.extract.key.subject": _SCHEMA,
    "sdk.schema.extract.payload.subject": _SCHEMA,
    "sdk.schema.context.enabled": _SCHEMA,
    "sdk.schema.context.name": _SCHEMA,
    "format.options": "must be one setting per field, such as `format.options.id: int`",
    "fields": "must be one setting per field, such as `format.options.id: int`",
    "collections": "must be settings of their own, such as `collections.users.format.type: raw`",
}
_MUST_BE_OFF = ("sdk.schema.extract.key.enabled", "sdk.schema.extract.payload.enabled")
_NAMED = re.compile(r"collections\.([^.]+)\.(.+)", re.DOTALL)


def _listed(value: object) -> object:
    """`create,update` as Conduit writes it. One that is named twice comes twice as often."""
    names = tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value
    if not isinstance(names, tuple | list) or not names or not set(names) <= set(OPERATIONS):
        raise ValueError(f"must be one or more of {', '.join(OPERATIONS)}, with commas between them")
    return tuple(names)


class Collection(Settings):
    """What the records of one collection look like."""

    format_type: Literal["raw", "structured", "file"] | None = Field(
        None, alias="format.type", description="What payloads are: raw JSON text, an object, or the bytes of a file."
    )
    options: dict[str, str] = Field(
        {},
        alias="format.options",
        description="`raw` and `structured`: the type of a field: `int`, `string`, `bool`, `duration` or `time`. `file`:"
        " `format.options.path` is the file.",
    )
    template: str | None = Field(
        None,
        min_length=1,
        description="The text of a raw payload, with placeholders such as `{seq}`; instead of `format.options`.",
    )
    operations: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        ("create",),
        description="One or more of `create`, `update`, `delete`, `snapshot`, with commas; each record has one of them, by chance.",
    )

    @model_validator(mode="wrap")
    @classmethod
    def _gather(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(data, Mapping):
            return handler(data)
        plain, problems = _gathered(cls, data)
        try:
            made = handler(plain)
        except ValidationError as e:
            # what is said of the whole may only follow from what is wrong with a part
            problems += [p for p in _relocated(e) if p.get("loc") or not problems]
        if problems:
            raise ValidationError.from_exception_data(cls.__name__, problems, hide_input=True)
        return made

    @field_validator("template")
    @classmethod
    def _is_template(cls, value: str | None) -> str | None:
        if value is not None:
            template.parse(value)
        return value

    @model_validator(mode="after")
    def _one_format(self) -> Self:
        if self.template is not None:
            if self.format_type not in (None, "raw"):
                raise ValueError("must have `format.type: raw` where there is a `template`")
            if self.options:
                raise ValueError("must have `template` or `format.options.*`, not both")
        elif self.format_type is None:
            if (problem := self._without_format()) is not None:
                raise ValueError(problem)
        elif self.format_type == "file" and not self.options.get("path"):
            raise ValueError("must have `format.options.path` where `format.type` is file")
        return self

    def _without_format(self) -> str | None:
        return "must have `format.type`, or a `template`"

    @property
    def path(self) -> str | None:
        """The file that is every payload."""
        return self.options["path"] if self.format_type == "file" else None

    def pieces(self) -> Pieces:
        """What payloads are made of, where they are not a file."""
        return template.of_fields(self.options) if self.template is None else template.parse(self.template)


class GeneratorSourceSettings(Collection):
    """Makes records: for trying a pipeline, for tests, for measuring.

    The same settings give the same records, every time. A `format.type`, a `template` or a collection is needed.
    Placeholders of a template: `{seq}`, `{int:1..100}`, `{float:0..9.99}`, `{bool}`, `{word}`, `{uuid}`, `{choice:a|b|c}`,
    `{time}`.

    The settings of a collection that stand here are those of records without a collection.
    """

    record_count: int = Field(
        0, alias="recordCount", ge=0, description="How many records in all, over all runs; `0` is no end."
    )
    rate: float = Field(0.0, ge=0, allow_inf_nan=False, description="Records per second at most; `0` is no limit.")
    read_time: Duration = Field(
        0.0, alias="readTime", description="The time for one record; Conduit's older way to say `rate`."
    )
    sleep_time: Duration = Field(
        0.0, alias="burst.sleepTime", description="The pause between bursts; `0s` is no pause."
    )
    generate_time: Duration = Field(
        1.0, alias="burst.generateTime", description="How long a burst is, where there are pauses."
    )
    seed: int = Field(0, ge=-(2**63), lt=2**63, description="Another number makes other records.")
    collections: dict[str, Collection] = Field(
        {},
        description="`format.type`, `format.options.…`, `operations` and `template` of the records of a collection. Collections take"
        " turns.",
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.rate and self.read_time:
            raise ValueError("must have `rate` or `readTime`, not both")
        if self.sleep_time and not self.generate_time:
            raise ValueError("must have a `burst.generateTime` above 0s where there is a `burst.sleepTime`")
        if len({c.format_type == "structured" for _, c in self.parts}) > 1:
            raise ValueError(
                "must have `structured` payloads in every collection or in none: use two sources, or `raw` and json.decode"
            )
        return self

    def _without_format(self) -> str | None:
        if not self.collections:
            return "must have `format.type`, or a `template`, or `collections.<name>.format.type`"
        if self.options or "operations" in self.model_fields_set:
            return "must have `format.type` for records without a collection, or `collections.<name>.` before each name"
        return None

    @property
    def parts(self) -> tuple[tuple[str, Collection], ...]:
        """Every collection by its name, in the order in which they take turns; the one without a name is first."""
        own = [("", self)] if self.format_type is not None or self.template is not None else []
        return (*own, *sorted(self.collections.items()))

    @property
    def records_per_second(self) -> float:
        return 1 / self.read_time if self.read_time else self.rate


def _gathered(cls: type[Collection], data: Mapping[str, Any]) -> tuple[dict[str, Any], list[InitErrorDetails]]:
    """The settings as the model has them, and what is wrong with the free ones."""
    plain: dict[str, Any] = {}
    options: dict[str, Any] = {}
    named: dict[str, dict[str, Any]] = {}
    problems: list[InitErrorDetails] = []
    top = "collections" in cls.model_fields
    for name, value in data.items():
        if name in _REFUSED and (top or name == "format.options"):
            problems.append(_problem(name, _REFUSED[name]))
        elif top and name in _MUST_BE_OFF:
            if value != "false":
                problems.append(
                    _problem(name, "must be false or left out: payloads are not encoded with a schema here")
                )
        elif name.startswith(OPTION):
            options[name.removeprefix(OPTION)] = value
        elif top and (match := _NAMED.fullmatch(name)):
            named.setdefault(match[1], {})[match[2]] = value
        else:
            plain[name] = value
    problems += _option_problems(options, plain.get("format.type"))
    if options:
        plain["format.options"] = options
    made = {}
    for name, settings in named.items():
        try:
            made[name] = Collection.model_validate(settings, by_alias=True, by_name=False)
        except ValidationError as e:
            problems += _relocated(e, COLLECTION + name)
    if made:
        plain["collections"] = made
    return plain, problems


def _option_problems(options: Mapping[str, Any], format_type: object) -> Iterator[InitErrorDetails]:
    for name, value in options.items():
        if format_type == "file":
            if name != "path":
                yield _problem(
                    OPTION + name, "must be left out: a file is taken whole, and has only `format.options.path`"
                )
        elif not name.strip() or "." in name:
            yield _problem(OPTION + name, "must name a field without a dot; write others in a `template`")
        elif value not in FIELD_TYPES:
            yield _problem(OPTION + name, f"must be a type: {', '.join(FIELD_TYPES)}")


def _problem(name: str, what: str) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError("generator", cast("Any", what)), loc=(name,), input=None)


def _relocated(e: ValidationError, before: str = "") -> Iterator[InitErrorDetails]:
    """The same problems under the names that the user wrote."""
    for one in e.errors(include_input=False, include_url=False, include_context=False):
        loc = one["loc"]
        if before:
            loc = (f"{before}.{loc[0]}", *loc[1:]) if loc else (before,)
        type_, message = cast("Any", one["type"]), cast("Any", one["msg"])
        yield InitErrorDetails(type=PydanticCustomError(type_, message), loc=loc, input=None)
