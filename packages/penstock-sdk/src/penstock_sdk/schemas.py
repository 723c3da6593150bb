"""Payloads as Avro, with the schema service of the host. A source's records go through the `Encoder` on their way out, a destination's
through the `Decoder` on their way in. Only in plugin programs, and in hosts of such: within a process nothing is encoded.

A structured payload goes as plain structured data as long as that carries it unchanged. The first record of a collection that needs more
(a date, a decimal, bytes, an integer above 2^53) makes this and all later ones of the collection go as Avro, so that a consumer sees the
same types in all of them.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, NoReturn

from penstock_protocol import handshake
from penstock_protocol.process import NO_UTILITIES
from penstock_protocol.schemas import Registry, SchemaClient, SchemaError
from penstock_sdk.avro import AvroError, Codec, compiled
from penstock_sdk.avro_shapes import Shape
from penstock_sdk.errors import Rejected
from penstock_sdk.record import COLLECTION, Payload, Record
from penstock_sdk.wire import refuse, stepped

Part = Literal["key", "payload"]
SUBJECT: Final = "opencdc.{}.schema.subject"
VERSION: Final = "opencdc.{}.schema.version"
PARTS: Final[Mapping[Part, tuple[str, ...]]] = {"key": ("key",), "payload": ("before", "after")}
TYPES: Final = 8  # schemas for records of the same names, where a field has types that no union can hold
_KEYS: Final = {part: (SUBJECT.format(part), VERSION.format(part)) for part in PARTS}


def from_environment(environment: Mapping[str, str] | None = None) -> Registry | None:
    """The service of the host that has started this program; None where it has none. It is not dialled yet."""
    environment = os.environ if environment is None else environment
    target = environment.get(handshake.UTILITIES, "")
    return None if target in ("", NO_UTILITIES) else SchemaClient(target, environment.get(handshake.TOKEN, ""))


class _Kind:
    """One schema of a subject, and the shape that it was made of."""

    def __init__(self, shape: Shape, codec: Codec, version: int) -> None:
        self.shape, self.codec, self.version = shape, codec, version


class Encoder:
    """For the records of one source. Called by one thread."""

    def __init__(self, registry: Registry, connector_id: str, *, always: bool = False) -> None:
        self._registry, self._prefix, self._always = registry, f"{connector_id}:" if connector_id else "", always
        self._wanted: set[tuple[Part, str]] = set()
        self._kinds: dict[tuple[Part, str, frozenset[Any]], list[_Kind]] = {}

    def want(self, record: Record, path: str) -> bool:
        """From now on the part of the record that this path leads into goes as Avro, in all records of its collection. False: it did."""
        part: Part = "key" if path.startswith("key") else "payload"
        wanted = (part, record.metadata.get(COLLECTION, ""))
        if self._always or wanted in self._wanted:
            return False
        self._wanted.add(wanted)
        return True

    def encoded(self, records: Sequence[Record], place: int) -> Record:
        """The record at this place, as it is to be sent. A new schema fits those after it, too. `Rejected` names the field."""
        record = records[place]
        if (not self._always and not self._wanted) or type(record.metadata) is not dict:
            return record
        made = record
        for part in PARTS:
            if self._goes(record, part):
                made = self._encode(record, made, part, records, place)
        return made

    def _goes(self, record: Record, part: Part) -> bool:
        if not any(isinstance(getattr(record, name), dict) for name in PARTS[part]):
            return False
        return self._always or (part, record.metadata.get(COLLECTION, "")) in self._wanted

    def _encode(self, record: Record, made: Record, part: Part, records: Sequence[Record], place: int) -> Record:
        found = _present(record, part)
        for name, value in found.items():
            if not isinstance(value, dict):
                why = "the other one is structured and needs a schema, which is for both"
                refuse(name, value, why, "make both raw, or both structured")
        collection = record.metadata.get(COLLECTION, "")
        subject = f"{self._prefix}{collection + '.' if collection else ''}{part}"
        where = (part, collection, _names(found))
        kinds = self._kinds.setdefault(where, [])
        kind, encoded = _tried(kinds, found) or self._widened(kinds, found, subject, where, records[place + 1 :])
        if made is record:
            made = _copy(record)
        for name, data in encoded.items():
            setattr(made, name, data)
        subject_key, version_key = _KEYS[part]
        made.metadata[subject_key], made.metadata[version_key] = subject, str(kind.version)
        return made

    def _widened(
        self,
        kinds: list[_Kind],
        found: Mapping[str, Any],
        subject: str,
        where: tuple[Any, ...],
        ahead: Sequence[Record],
    ) -> tuple[_Kind, dict[str, bytes]]:
        """A schema that fits it as well as what came before; if there can be none, one of its own."""
        for place, kind in enumerate([*kinds, None][:TYPES]):
            try:
                shape = _wider(kind.shape if kind else Shape(), found)
            except AvroError as error:
                if kind is None or place == TYPES - 1:
                    _refuse(error)
                continue
            for other in ahead:
                values = _present(other, where[0]) if type(other.metadata) is dict else {}
                if values and other.metadata.get(COLLECTION, "") == where[1] and _names(values) == where[2]:
                    try:
                        shape = _wider(shape, values)
                    except AvroError:
                        continue  # when it is its turn
            made = self._made(shape, subject, found)
            kinds[place : place + 1] = [made]
            try:
                return made, {name: made.codec.encode(value) for name, value in found.items()}
            except AvroError as error:
                _refuse(error, found, made.codec)
        raise AssertionError("the last one is always tried")

    def _made(self, shape: Shape, subject: str, found: Mapping[str, Any]) -> _Kind:
        text = shape.schema()
        try:
            return _Kind(shape, compiled(text), self._registry.create(subject, text).version)
        except SchemaError as e:
            raise SchemaError(f"{', '.join(found)} can't be sent without a schema: {e}") from e


def _present(record: Record, part: Part) -> dict[str, Any]:
    return {name: value for name in PARTS[part] if (value := getattr(record, name)) is not None}


def _names(found: Mapping[str, Any]) -> frozenset[Any]:
    return frozenset(frozenset(value) for value in found.values() if isinstance(value, dict))


def _tried(kinds: list[_Kind], found: Mapping[str, Any]) -> tuple[_Kind, dict[str, bytes]] | None:
    for kind in kinds:
        try:
            return kind, {name: kind.codec.encode(value) for name, value in found.items()}
        except AvroError:
            continue
    return None


def _wider(shape: Shape, found: Mapping[str, Any]) -> Shape:
    """Another one: this one stays as it is if the values do not fit into it."""
    made = copy.deepcopy(shape)
    for name, value in found.items():
        try:
            made.widen(value)
        except AvroError as error:
            error.steps.append(name)
            raise
    return made


def _refuse(error: AvroError, found: Mapping[str, Any] | None = None, codec: Codec | None = None) -> NoReturn:
    if found is not None and codec is not None:  # find which of both it was
        for name, value in found.items():
            try:
                codec.encode(value)
            except AvroError as again:
                again.steps.append(name)
                error = again
                break
    steps = list(reversed(error.steps))
    path = str(steps[0])
    for step in steps[1:]:
        path = stepped(path, step)
    refuse(path, error.value, error.why, "send it as text, or send the payload as raw bytes")


def _copy(record: Record) -> Record:
    """What is sent of it: the author's own record stays as it is."""
    made = Record.__new__(Record)
    made.key, made.before, made.after = record.key, record.before, record.after
    made.operation, made.phase, made.timestamp = record.operation, record.phase, record.timestamp
    made._position, made._metadata = record.position, dict(record.metadata)
    made._namespace = made._locate = None
    return made


class Decoder:
    """For the records that come to one destination, or out of a plugin. May be used from several threads."""

    def __init__(self, registry: Registry | None) -> None:
        """None: the host has no schemas."""
        self._registry = registry
        self._codecs: dict[tuple[str, int], Codec] = {}

    def decode(self, record: Record) -> None:
        """In place. `Rejected` says which part does not fit its schema; SchemaError: the service has a problem, not the record."""
        metadata = record.metadata
        for part, (subject_key, version_key) in _KEYS.items():
            subject, version = metadata.get(subject_key), metadata.get(version_key)
            if subject is None or version is None:
                continue
            for name in PARTS[part]:
                value: Payload = getattr(record, name)
                if isinstance(value, bytes):
                    setattr(record, name, self._decoded(name, value, subject, version))

    def _decoded(self, name: str, data: bytes, subject: str, version: str) -> dict[str, Any]:
        if not (version.isascii() and version.isdigit() and len(version) < 10):
            _refuse_data(name, f"its schema {subject} has a version that is no number")
        try:
            found = self._codec(subject, int(version)).decode(data)
        except AvroError as error:
            step = ".".join(map(str, reversed(error.steps)))
            where = f"{name}.{step}" if step else name
            _refuse_data(where, f"the bytes do not fit schema {subject} version {version}: {error.why}")
        except SchemaError as error:
            if not error.missing:
                raise
            _refuse_data(name, f"schema {subject} version {version}: {error}")
        except ValueError as error:
            _refuse_data(name, f"schema {subject} version {version}: {error}")
        if not isinstance(found, dict):
            _refuse_data(name, f"schema {subject} version {version} is of no record")
        return found

    def _codec(self, subject: str, version: int) -> Codec:
        found = self._codecs.get((subject, version))
        if found is None:
            if self._registry is None:
                raise SchemaError("this host has no schema service", missing=True)
            found = self._codecs[subject, version] = compiled(self._registry.get(subject, version).data)
        return found


def _refuse_data(where: str, why: str) -> NoReturn:
    raise Rejected(f"{where} can't be read: {why}", code="wire.schema", where=where) from None
