"""The schemas of payloads: where they are kept, the service that gives them to plugins, and the client that asks it. A host runs the
service for all its plugins, on this machine only; plugins call it when the first payload needs it.

Schemas are never changed or removed: records that name them may lie in a log for long.
"""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Container
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import grpc

from penstock_protocol.pb.connutils.v1 import schema_service_pb2 as pb
from penstock_protocol.pb.schema.v1 import schema_pb2

TOKEN: Final = "conduit-connector-token"  # metadata of every call
NO_SUBJECT: Final = "schema subject not found"  # clients compare these texts
NO_VERSION: Final = "schema version not found"
INVALID: Final = "invalid schema"
FORMAT: Final = {"format": "penstock schemas", "version": 1}
PATIENCE: Final = 10.0  # seconds that a call may take
_SERVICE: Final = "connutils.v1.SchemaService"


class SchemaError(Exception):
    """`missing`: there is no such schema, or it is none: asking again is of no use. Otherwise the service has a problem, or is gone."""

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Schema:
    """`version` counts from 1 in its subject, `id` over all subjects. Always Avro."""

    subject: str
    version: int
    id: int
    text: str

    @property
    def data(self) -> bytes:
        return self.text.encode()


class Registry(ABC):
    """What both the store and the client are. May be used from several threads."""

    @abstractmethod
    def create(self, subject: str, data: bytes) -> Schema:
        """The same bytes in the same subject again are the same schema. SchemaError for what is no schema."""

    @abstractmethod
    def get(self, subject: str, version: int) -> Schema:
        """SchemaError where there is none."""


class Schemas(Registry):
    """In memory. `check` raises ValueError for what is no Avro schema: this layer does not know Avro."""

    def __init__(self, check: Callable[[bytes], None]) -> None:
        self._check = check
        self._lock = threading.Lock()
        self._subjects: dict[str, list[Schema]] = {}
        self._ids: dict[int, Schema] = {}
        self._known: dict[tuple[str, str], Schema] = {}

    def create(self, subject: str, data: bytes) -> Schema:
        try:
            text = data.decode()
            self._check(data)
        except ValueError as e:
            raise SchemaError(INVALID, missing=True) from e
        if not subject:
            raise SchemaError(INVALID, missing=True)
        with self._lock:
            found = self._known.get((subject, text))
            if found is None:
                found = Schema(subject, len(self._subjects.get(subject, ())) + 1, len(self._ids) + 1, text)
                self._keep(found)
                self._add(found)
            return found

    def get(self, subject: str, version: int) -> Schema:
        with self._lock:
            versions = self._subjects.get(subject)
            if versions is None:
                raise SchemaError(NO_SUBJECT, missing=True)
            if not 1 <= version <= len(versions):
                raise SchemaError(NO_VERSION, missing=True)
            return versions[version - 1]

    def by_id(self, number: int) -> Schema:
        with self._lock:
            if number not in self._ids:
                raise SchemaError(f"there is no schema with the id {number}", missing=True)
            return self._ids[number]

    def _add(self, schema: Schema) -> None:
        self._subjects.setdefault(schema.subject, []).append(schema)
        self._ids[schema.id] = schema
        self._known[schema.subject, schema.text] = schema

    def _keep(self, schema: Schema) -> None:
        """Before anybody hears of it."""

    def _load(self, path: Path, data: bytes) -> int:
        """From a file. How much of it is good."""
        good = 0
        lines = data.splitlines(keepends=True)
        for number, line in enumerate(lines, 1):
            try:
                self._load_line(path, json.loads(_whole(line)), first=number == 1)
            except (ValueError, TypeError, KeyError, AttributeError) as e:
                if number == len(lines):
                    break
                raise SchemaError(f"{path}, line {number}: it is damaged: {e}") from e
            good += len(line)
        return good

    def _load_line(self, path: Path, found: Any, *, first: bool) -> None:
        if first:
            if found["format"] != FORMAT["format"]:
                raise SchemaError(f"{path} holds no schemas")
            if found["version"] != FORMAT["version"]:
                raise SchemaError(f"{path} is of version {found['version']}, this program reads version 1")
            return
        schema = Schema(**found)
        if schema.id != len(self._ids) + 1 or schema.version != len(self._subjects.get(schema.subject, ())) + 1:
            raise ValueError("it does not follow the line before it")
        self._add(schema)


class StoredSchemas(Schemas):
    """In a file as well: a line of JSON each, after one that names the format. A schema is on disk before anybody hears of it, and a last
    line that was not written to its end is cut off. One process at a time."""

    def __init__(self, path: Path, check: Callable[[bytes], None]) -> None:
        """SchemaError, and the file as it was, if it is damaged or of a later version."""
        super().__init__(check)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._size = self._load(path, path.read_bytes())
            os.ftruncate(self._file, self._size)
            if not self._size:
                self._write(FORMAT)
                _sync_folder(path.parent)
        except BaseException:
            os.close(self._file)
            raise

    def close(self) -> None:
        os.close(self._file)

    def _keep(self, schema: Schema) -> None:
        try:
            self._write(asdict(schema))
        except OSError as e:
            raise SchemaError(f"the schema can't be stored: {e.strerror}") from e

    def _write(self, line: dict[str, Any]) -> None:
        data = json.dumps(line).encode() + b"\n"
        try:
            _write_all(self._file, data)
            os.fsync(self._file)
        except OSError:
            with suppress(OSError):
                os.ftruncate(self._file, self._size)  # the next one must not be appended to half of this one
            raise
        self._size += len(data)


def read_schemas(path: Path) -> Schemas:
    """What is in such a file, to be looked up: also while its owner writes, when a last line without its end is left out. Nothing is
    written. A file that is not there yet has none. SchemaError if it is damaged or of a later version."""
    made = Schemas(_only_read)
    with suppress(FileNotFoundError):
        made._load(path, path.read_bytes())
    return made


def _only_read(_: bytes) -> None:
    raise SchemaError("these schemas are only read: their owner makes new ones")


def _whole(line: bytes) -> bytes:
    if not line.endswith(b"\n"):
        raise ValueError("it has no end")
    return line


def _write_all(file: int, data: bytes) -> None:
    """A full disk may take a part before it says so."""
    while data:
        data = data[os.write(file, data) :]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class SchemaService:
    """Serves schemas to the plugins of this machine that know a token."""

    def __init__(self, schemas: Registry, tokens: Container[str] | Callable[[str], bool]) -> None:
        self._schemas = schemas
        self._known = tokens if callable(tokens) else tokens.__contains__
        self._server = grpc.server(ThreadPoolExecutor(4, "schemas"), options=[("grpc.so_reuseport", 0)])
        handlers = {
            "CreateSchema": self._handler(self._create, pb.CreateSchemaRequest, pb.CreateSchemaResponse),
            "GetSchema": self._handler(self._get, pb.GetSchemaRequest, pb.GetSchemaResponse),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self, grace: float = 1.0) -> None:
        self._server.stop(grace).wait()

    def _handler(self, call: Callable[[Any], Schema], request: Any, response: Any) -> Any:
        def answer(message: Any, context: grpc.ServicerContext) -> Any:
            self._admit(context)
            try:
                return response(schema=_message(call(message)))
            except SchemaError as e:
                context.abort(grpc.StatusCode.UNKNOWN, str(e))

        return grpc.unary_unary_rpc_method_handler(answer, request.FromString, response.SerializeToString)

    def _admit(self, context: grpc.ServicerContext) -> None:
        token = dict(context.invocation_metadata()).get(TOKEN)
        if token is None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"the call has no {TOKEN}")
        if not isinstance(token, str) or not self._known(token):
            context.abort(grpc.StatusCode.UNAUTHENTICATED, f"the {TOKEN} is not one that this host has given")

    def _create(self, request: pb.CreateSchemaRequest) -> Schema:
        if request.type != schema_pb2.Schema.TYPE_AVRO:
            raise SchemaError(INVALID, missing=True)
        return self._schemas.create(request.subject, request.bytes)

    def _get(self, request: pb.GetSchemaRequest) -> Schema:
        return self._schemas.get(request.subject, request.version)


def _message(schema: Schema) -> schema_pb2.Schema:
    return schema_pb2.Schema(
        subject=schema.subject,
        version=schema.version,
        id=schema.id,
        type=schema_pb2.Schema.TYPE_AVRO,
        bytes=schema.data,
    )


class SchemaClient(Registry):
    """Asks a service, once for each schema. Nothing is dialled before."""

    def __init__(self, target: str, token: str, timeout: float = PATIENCE) -> None:
        host, _, port = target.rpartition(":")
        self._target = f"localhost:{port}" if host in ("", "[::]", "0.0.0.0") else target  # every address: this machine
        self._token, self._timeout = token, timeout
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._versions: dict[tuple[str, int], Schema] = {}
        self._created: dict[tuple[str, bytes], Schema] = {}

    def create(self, subject: str, data: bytes) -> Schema:
        with self._lock:
            found = self._created.get((subject, data))
            if found is None:
                request = pb.CreateSchemaRequest(subject=subject, type=schema_pb2.Schema.TYPE_AVRO, bytes=data)
                found = self._call("CreateSchema", request, pb.CreateSchemaResponse)
                self._created[subject, data] = self._versions[subject, found.version] = found
            return found

    def get(self, subject: str, version: int) -> Schema:
        with self._lock:
            found = self._versions.get((subject, version))
            if found is None:
                request = pb.GetSchemaRequest(subject=subject, version=version)
                found = self._versions[subject, version] = self._call("GetSchema", request, pb.GetSchemaResponse)
            return found

    def close(self) -> None:
        with self._lock:
            if self._channel is not None:
                self._channel.close()
                self._channel = None

    def _call(self, name: str, request: Any, response: Any) -> Schema:
        if self._channel is None:
            options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 1000)]
            self._channel = grpc.insecure_channel(self._target, options=options)
        call = self._channel.unary_unary(
            f"/{_SERVICE}/{name}", type(request).SerializeToString, response_deserializer=response.FromString
        )
        try:
            found = call(request, timeout=self._timeout, metadata=((TOKEN, self._token),)).schema
        except grpc.RpcError as e:
            text = (e.details() if isinstance(e, grpc.Call) else None) or str(e)
            if text in (NO_SUBJECT, NO_VERSION, INVALID):
                raise SchemaError(text, missing=True) from e
            raise SchemaError(f"the schema service at {self._target} gives no answer: {text}") from e
        try:
            return Schema(found.subject, found.version, found.id, found.bytes.decode())
        except UnicodeDecodeError as e:
            raise SchemaError(INVALID, missing=True) from e
