"""The `tests` of a pipeline: records that go in, and what `penstock test` expects of them. Plain frozen data.

Here values are typed as YAML 1.2 says (`1` is a number, `"1"` a text, integers are exact), and nothing is expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from penstock.config.base import Model, Written


def _payload(value: object) -> object:
    if not isinstance(value, dict | str | None):
        raise ValueError("must be a mapping (structured) or text (raw)")  # noqa: TRY004 - pydantic reports a ValueError
    return value


Payload = Annotated[dict[str, Any] | str | None, BeforeValidator(_payload)]
_FORM = "A mapping is structured, text is raw."


class RecordConfig(Model):
    """A record. Where one is expected, only what is written is compared. A text is a record with that payload."""

    after: Payload = Field(None, description=f"The payload. {_FORM}")
    before: Payload = Field(None, description=f"The payload before a change. {_FORM}")
    key: Payload = Field(None, description=f"What identifies it at its source. {_FORM}")
    metadata: dict[str, str] = Field({}, description="Names and texts.")
    operation: Literal["create", "update", "delete", "snapshot"] = Field(
        "create", description="What happened to it at its source."
    )
    namespace: str | None = Field(
        None, description="What it belongs to, e.g. a table; the same as the metadata key opencdc.collection."
    )
    position: str | None = Field(None, description="Where it stands in its source. Without it its place in the list.")

    @model_validator(mode="before")
    @classmethod
    def _text_is_a_payload(cls, data: object) -> object:
        return {"after": data} if isinstance(data, str) else data


class RejectConfig(Model):
    """A nack that is expected. What is left out may be anything."""

    node: str | None = Field(None, description="The id of the processor or destination.")
    code: str | None = Field(None, description="The error's code.")
    error: str | None = Field(None, description="A part of the error's text.")

    def shown(self) -> str:
        given = self.model_dump(exclude_none=True)
        return ", ".join(f"{name} {value!r}" for name, value in given.items()) or "anything"


def _by_destination(given: object) -> object:
    return {"": given} if isinstance(given, list) else given


class TestConfig(Model):
    """`expect` has the key "" where just a list was given."""

    __test__: ClassVar[bool] = False  # no test of ours

    name: str = Field("", description="What is shown. `penstock test -k TEXT` runs those whose name holds a text.")
    source: str | None = Field(
        None, description="The id of the source that the records come from. Needed where there are several."
    )
    schema_: str | None = Field(
        None,
        alias="schema",
        description="The fields of the payloads as Spark writes them, e.g. `id BIGINT`, where the source gives typed ones.",
    )
    input: tuple[RecordConfig, ...] = Field(description="The records that go in. A text is a raw payload.")
    expect: Annotated[dict[str, tuple[RecordConfig, ...]], BeforeValidator(_by_destination)] = Field(
        {},
        description="Destination → the records that it gets, in order; with one destination just the list. Of a record only"
        " what is written is compared.",
    )
    rejects: tuple[RejectConfig, ...] = Field(
        (), description="The nacks that are expected, in any order. Any other fails the test."
    )
    filtered: Written | None = Field(None, description="How many records are dropped on purpose. Left out: any number.")

    def expected(self, destinations: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
        """By destination id, of each record what was written. A list alone is for the first of these destinations."""
        only = next(iter(destinations), "")
        return {
            name or only: [r.model_dump(by_alias=True, exclude_unset=True) for r in records]
            for name, records in self.expect.items()
        }
