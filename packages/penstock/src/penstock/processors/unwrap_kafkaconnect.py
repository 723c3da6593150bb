"""`unwrap.kafkaconnect`: a Kafka Connect record, with its `schema` and `payload`, becomes the record it is about.

`payload` becomes `.Payload.After`, there is no `.Payload.Before`, and the operation is `create`. The key is unwrapped too: it becomes
what it has in a field `payload`, else it stays. Metadata and position stay. The record is found in `field`: as an object, as
raw JSON, or as JSON in a text; one without an object in `payload` is a nack. It runs in Python.
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Example, Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.gotext import trim
from penstock.plan.unwrap import reference, unwrapped_key, wrapped


class UnwrapKafkaconnectSettings(Settings):
    field: str = Field(".Payload.After", description="Where the Kafka Connect record is: a payload, or a field of one.")

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        value = trim(value) or ".Payload.After"
        if reference(value).root == record.KEY:
            raise ValueError("must be a payload, or a field of one")
        return value


class UnwrapKafkaconnect(Processor[UnwrapKafkaconnectSettings]):
    uses = frozenset({record.AFTER, record.BEFORE, record.KEY, record.OPERATION})
    example: ClassVar[Example] = Example(
        settings={},
        given={"key": b'{"payload": {"id": 7}}', "after": {"schema": {}, "payload": {"id": 7, "name": "x"}}},
        gives={"key": {"id": 7}, "after": {"id": 7, "name": "x"}, "operation": "create"},
    )

    def __init__(self, settings: UnwrapKafkaconnectSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field)

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.OPEN

    def apply(self, r: Record) -> Record:
        payload = wrapped(self.reference, r).get("payload")
        if not isinstance(payload, dict):
            raise Rejected(f"{self.reference} has no object in its field 'payload'", code="unwrap.invalid")
        r.key = unwrapped_key(r.key)
        r.before, r.after, r.operation = None, payload, "create"
        return r
