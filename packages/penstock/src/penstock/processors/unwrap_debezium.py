"""`unwrap.debezium`: a Debezium event becomes the change it is about.

`payload.before` and `payload.after` become the payloads, `op` the operation: `c` create, `u` and `$unset` update, `d` delete,
`r` snapshot; others, such as `t` and `m`, are nacks. The key becomes what it has in a field `payload`, else it stays. The position stays.

Metadata is kept and added to: `ts_ms` becomes `opencdc.readAt` in nanoseconds, the fields of `source` keep their names
(with dots where they are nested) and win over what was there, all others get the prefix `debezium.`. Numbers are
written as Go prints a double: 5, 1.5, 1e+06. The event is found in `field`: as an object, as raw JSON, or as JSON in a text; one without
`after`, `source` and `op` is a nack. It runs in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, ClassVar

from pydantic import Field, field_validator

from penstock import record
from penstock.config import Settings
from penstock.native import Example, Processor, Record, Rejected, Shape, Unsuitable, Where
from penstock.plan.gotext import printed, trim
from penstock.plan.unwrap import reference, unwrapped_key, wrapped

OPERATIONS = {"c": "create", "u": "update", "d": "delete", "r": "snapshot", "$unset": "update"}
READ_AT = "opencdc.readAt"


class UnwrapDebeziumSettings(Settings):
    field: str = Field(".Payload.After", description="Where the Debezium event is: a payload, or a field of one.")

    @field_validator("field")
    @classmethod
    def _is_reference(cls, value: str) -> str:
        value = trim(value) or ".Payload.After"
        if reference(value).root == record.KEY:
            raise ValueError("must be a payload, or a field of one")
        return value


class UnwrapDebezium(Processor[UnwrapDebeziumSettings]):
    uses = frozenset(
        {record.AFTER, record.BEFORE, record.KEY, record.OPERATION, record.METADATA, record.NAMESPACE},
    )
    code = "unwrap.invalid"
    example: ClassVar[Example] = Example(
        settings={},
        given={
            "key": b'{"payload": {"id": 7}}',
            "after": {
                "payload": {
                    "op": "u",
                    "before": {"id": 7, "n": 1},
                    "after": {"id": 7, "n": 2},
                    "source": {"db": "shop", "table": "orders"},
                    "ts_ms": 1700000000000,
                }
            },
        },
        gives={
            "operation": "update",
            "key": {"id": 7},
            "before": {"id": 7, "n": 1},
            "after": {"id": 7, "n": 2},
            "metadata": {"opencdc.readAt": "1700000000000000000", "db": "shop", "table": "orders"},
        },
    )

    def __init__(self, settings: UnwrapDebeziumSettings, processor_id: str) -> None:
        super().__init__(settings, processor_id)
        self.reference = reference(settings.field)

    def where(self, shape: Shape) -> Where:
        if shape is Shape.RAW and self.reference.root == record.AFTER and self.reference.path:
            raise Unsuitable("the payload is raw: it has no fields yet", "put json.decode before it")
        return Where.PYTHON

    def gives(self, shape: Shape) -> Shape:  # noqa: ARG002
        return Shape.OPEN

    def apply(self, r: Record) -> Record:
        event = wrapped(self.reference, r).get("payload")
        if not isinstance(event, dict):
            raise _bad(f"{self.reference} has no object in its field 'payload'")
        if missing := [name for name in ("after", "source", "op") if name not in event]:
            raise _bad(f"the event has no {' and no '.join(missing)}")
        operation = OPERATIONS.get(event["op"]) if isinstance(event["op"], str) else None
        if operation is None:
            raise _bad(f"its op is none of {', '.join(OPERATIONS)}")
        before, after = _payload(event, "before"), _payload(event, "after")
        added = dict(_metadata(event))
        r.key = unwrapped_key(r.key)
        r.operation, r.before, r.after = operation, before, after
        r.metadata.update(added)
        return r


def _payload(event: dict[str, Any], name: str) -> Any:
    value = event.get(name)
    if value is None or isinstance(value, dict):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    raise _bad(f"its {name} is {type(value).__name__}: it has to be an object or a text")


def _metadata(event: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in event.items():
        if name == "ts_ms":
            if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
                raise _bad("its ts_ms is not a number")
            yield READ_AT, str(_nanoseconds(int(value)))
        elif name not in ("after", "before", "op", "source"):
            yield from _flat(f"debezium.{name}", value)
    yield from _flat("", event["source"])  # the last, so it wins


def _nanoseconds(milliseconds: int) -> int:
    """In 64 bits, which is what Conduit has."""
    if not -(2**63) <= milliseconds < 2**63:
        milliseconds = -(2**63)
    return (milliseconds * 1_000_000 + 2**63) % 2**64 - 2**63


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _flat(f"{key}.{name}" if key else name, inner)
    elif value is not None:
        yield key, printed(value)


def _bad(what: str) -> Rejected:
    return Rejected(what, code="unwrap.invalid")
