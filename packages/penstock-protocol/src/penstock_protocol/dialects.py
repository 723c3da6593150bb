"""The two dialects side by side: what a message of each says in the words of `interfaces`. The only place that knows what differs.

The first dialect has `Start` for `Open`, one record and one ack per message, and numbers the fields of a parameter differently.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock_protocol.interfaces import Ack, Parameter, ParameterType, Specification, Validation, ValidationType
from penstock_protocol.pb.connector.v1 import destination_pb2 as destination_v1
from penstock_protocol.pb.connector.v1 import source_pb2 as source_v1
from penstock_protocol.pb.connector.v1 import specifier_pb2 as specifier_v1
from penstock_protocol.pb.connector.v2 import destination_pb2 as destination_v2
from penstock_protocol.pb.connector.v2 import source_pb2 as source_v2
from penstock_protocol.pb.connector.v2 import specifier_pb2 as specifier_v2
from penstock_protocol.records import Records

UNARY = ("Configure", "Open", "Stop", "Teardown", "LifecycleOnCreated", "LifecycleOnUpdated", "LifecycleOnDeleted")


class Dialect:
    """One of them. `Source` and `Destination` hold the messages of the calls by the names that the second dialect gives them."""

    number: int
    Source: Any
    Destination: Any
    Specifier: Any
    open_name = "Open"

    def method(self, service: str, call: str) -> str:
        return f"/connector.v{self.number}.{service}/{self.open_name if call == 'Open' else call}"

    def message(self, role: Any, call: str) -> Any:
        """The class that holds `Request` and `Response` of a call."""
        if call.startswith("Lifecycle"):
            return getattr(role.Lifecycle, call.removeprefix("Lifecycle"))
        return getattr(role, self.open_name if call == "Open" else call)

    def specification(self, response: Any) -> Specification:
        raise NotImplementedError

    def specify(self, specification: Specification) -> Any:
        raise NotImplementedError

    def ack_requests(self, positions: Sequence[bytes]) -> Iterator[Any]:
        """Messages to a source."""
        raise NotImplementedError

    def acked(self, request: Any) -> Sequence[bytes]:
        raise NotImplementedError

    def record_messages(self, records: Records, most: int) -> Iterator[bytes]:
        """Messages with these records, each of at most so many bytes where that can be."""
        raise NotImplementedError

    def ack_responses(self, acks: Sequence[Ack]) -> Iterator[Any]:
        """Messages from a destination."""
        raise NotImplementedError

    def acks(self, responses: Iterable[Any]) -> list[Ack]:
        raise NotImplementedError


ACKS = 1000  # positions in a message, at most: a plugin need not take more than 4 MB at once


class First(Dialect):
    number = 1
    Source, Destination, Specifier = source_v1.Source, destination_v1.Destination, specifier_v1.Specifier
    open_name = "Start"

    def specification(self, response: Any) -> Specification:
        return _specification(response)

    def specify(self, specification: Specification) -> Any:
        return _filled(self.Specifier.Specify.Response(), specification)

    def ack_requests(self, positions: Sequence[bytes]) -> Iterator[Any]:
        return (self.Source.Run.Request(ack_position=position) for position in positions)

    def acked(self, request: Any) -> Sequence[bytes]:
        return [request.ack_position]

    def record_messages(self, records: Records, most: int) -> Iterator[bytes]:  # noqa: ARG002 - there is nothing to cut
        return (record.data for record in records.single())

    def ack_responses(self, acks: Sequence[Ack]) -> Iterator[Any]:
        return (self.Destination.Run.Response(ack_position=ack.position, error=ack.error) for ack in acks)

    def acks(self, responses: Iterable[Any]) -> list[Ack]:
        return [Ack(response.ack_position, response.error) for response in responses]


class Second(Dialect):
    number = 2
    Source, Destination, Specifier = source_v2.Source, destination_v2.Destination, specifier_v2.Specifier

    def specification(self, response: Any) -> Specification:
        return _specification(response.specification)

    def specify(self, specification: Specification) -> Any:
        made = self.Specifier.Specify.Response()
        _filled(made.specification, specification)
        made.specification.SetInParent()
        return made

    def ack_requests(self, positions: Sequence[bytes]) -> Iterator[Any]:
        for start in range(0, len(positions), ACKS):
            yield self.Source.Run.Request(ack_positions=positions[start : start + ACKS])

    def acked(self, request: Any) -> Sequence[bytes]:
        return list(request.ack_positions)

    def record_messages(self, records: Records, most: int) -> Iterator[bytes]:
        return (part.data for part in records.parts(most))

    def ack_responses(self, acks: Sequence[Ack]) -> Iterator[Any]:
        response = self.Destination.Run.Response
        if acks:
            yield response(acks=[response.Ack(position=ack.position, error=ack.error) for ack in acks])

    def acks(self, responses: Iterable[Any]) -> list[Ack]:
        return [Ack(ack.position, ack.error) for response in responses for ack in response.acks]


DIALECTS: Mapping[int, Dialect] = {1: First(), 2: Second()}


def _specification(found: Any) -> Specification:
    return Specification(
        name=found.name,
        version=found.version,
        summary=found.summary,
        description=found.description,
        author=found.author,
        source={name: _parameter(p) for name, p in sorted(found.source_params.items())},
        destination={name: _parameter(p) for name, p in sorted(found.destination_params.items())},
    )


def _parameter(found: Any) -> Parameter:
    validations = [Validation(ValidationType(v.type), v.value) for v in found.validations if v.type in _VALIDATIONS]
    if getattr(found, "required", False) and Validation(ValidationType.REQUIRED) not in validations:
        validations.insert(0, Validation(ValidationType.REQUIRED))
    kind = ParameterType(found.type) if found.type in _TYPES else ParameterType.STRING  # one that came later
    return Parameter(found.default, found.description, kind, tuple(validations))


_TYPES = frozenset(ParameterType)
_VALIDATIONS = frozenset(ValidationType)


def _filled(message: Any, given: Specification) -> Any:
    message.name, message.version, message.summary = given.name, given.version, given.summary
    message.description, message.author = given.description, given.author
    for target, parameters in ((message.source_params, given.source), (message.destination_params, given.destination)):
        for name, parameter in parameters.items():
            _fill(target[name], parameter)
    return message


def _fill(message: Any, parameter: Parameter) -> None:
    message.default, message.description, message.type = parameter.default, parameter.description, parameter.type
    for validation in parameter.validations:
        message.validations.add(type=validation.type, value=validation.value)
        if validation.type is ValidationType.REQUIRED and "required" in message.DESCRIPTOR.fields_by_name:
            message.required = True
