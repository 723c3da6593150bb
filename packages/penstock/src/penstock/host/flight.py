"""How the engine and Spark's tasks talk to a connector host: Arrow Flight on the loopback address. A token for each right: who may read
records may not stop the connector.

Of a source `DoGet` gives a range of the log; actions are `open`, `ack`, `stop`, `delete` and `close`. To a destination `DoExchange` brings
rows, and says what became of them; actions are `begin`, `look`, `finish`, `decide`, `delete` and `close`.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyarrow import flight

from penstock.host import trouble
from penstock.log import Lost, Reader, arrow

if TYPE_CHECKING:
    from penstock.host.destination_host import DestinationHost
    from penstock.host.source_host import SourceHost

HEADER = "authorization"
ROWS = pa.schema(
    [
        ("offset", pa.int64()),
        ("namespace", pa.string()),
        ("mode", pa.int8()),
        ("timestamp", pa.int64()),
        ("rows", pa.binary()),
    ]
)
_RIGHT_OF_METHOD = {
    flight.FlightMethod.DO_GET: "read",
    flight.FlightMethod.DO_EXCHANGE: "write",
    flight.FlightMethod.DO_ACTION: "control",
}
ANSWER = pa.schema([("answer", pa.string())])
Actions = Mapping[str, Callable[[dict[str, Any]], Any]]
Exchange = Callable[[dict[str, Any], Iterator[pa.RecordBatch]], dict[str, Any]]


class _Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    def __init__(self, tokens: Mapping[str, str]) -> None:
        super().__init__()
        self._tokens = tokens

    def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:
        token = self._tokens.get(_RIGHT_OF_METHOD.get(info.method, ""), "")
        given = next(iter(headers.get(HEADER, [])), "")
        if not token or not hmac.compare_digest(given, f"Bearer {token}"):
            raise flight.FlightUnauthenticatedError("this host does not know the token, or it is for something else")


class HostServer(flight.FlightServerBase):  # type: ignore[misc]
    """`actions` is what the host does by name; `close` ends the server as well."""

    def __init__(
        self,
        host: Any,
        tokens: Mapping[str, str],
        actions: Actions,
        log: Path | None = None,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__("grpc://127.0.0.1:0", middleware={"guard": _Guard(tokens)})
        self._host, self._log, self._exchange = host, log, exchange
        self._actions: Actions = {**actions, "close": lambda _: self._close()}

    def do_action(self, context: Any, action: flight.Action) -> Iterator[flight.Result]:  # noqa: ARG002
        """An error of the connector is an answer, too: Flight's own errors lose their parts on the way."""
        call = self._actions.get(action.type)
        if call is None:
            raise flight.FlightServerError(f"there is no action {action.type!r}")
        try:
            answer = {"ok": call(json.loads(action.body.to_pybytes() or b"{}"))}
        except Exception as e:
            answer = {"error": trouble.to_json(e)}
        yield flight.Result(json.dumps(answer).encode())

    def do_get(self, context: Any, ticket: flight.Ticket) -> flight.FlightDataStream:  # noqa: ARG002
        """A range of the log: each row has several records as an Arrow stream of their own, since payloads differ in their columns."""
        found = json.loads(ticket.ticket)
        return flight.GeneratorStream(ROWS, self._rows(found["start"], found["end"]))

    def _rows(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        if self._log is None:
            raise flight.FlightServerError("a destination has no log")
        with Reader(self._log) as reader:
            for rows in reader.read(start, end):
                if isinstance(rows, Lost):
                    raise flight.FlightServerError(f"offsets {rows.offset} to {rows.end - 1} can't be read: {rows.why}")
                row = (
                    rows.offset,
                    rows.namespace,
                    int(rows.mode),
                    rows.timestamp,
                    arrow.write(rows.rows, None).to_pybytes(),
                )
                yield pa.RecordBatch.from_arrays(
                    [pa.array([v], f.type) for v, f in zip(row, ROWS, strict=True)], schema=ROWS
                )

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002
        """Rows of one partition of a delivery. The answer comes when all of them are settled, or one can't be."""
        if self._exchange is None:
            raise flight.FlightServerError("a source takes no rows")
        answer = self._exchange(json.loads(descriptor.command), (chunk.data for chunk in reader))
        writer.begin(ANSWER)
        writer.write_batch(pa.RecordBatch.from_arrays([pa.array([json.dumps(answer)])], schema=ANSWER))

    def abort(self) -> None:
        self._host.abort()

    def _close(self) -> None:
        self._host.close()
        threading.Thread(target=self.shutdown, daemon=True).start()  # not from a call that it would wait for


def source_server(host: SourceHost, tokens: Mapping[str, str]) -> HostServer:
    actions: Actions = {
        "open": lambda found: host.open(found["settled"]),
        "ack": lambda found: host.ack(found["end"], {int(at): why for at, why in found["refused"].items()}),
        "stop": lambda _: host.stop(),
        "delete": lambda _: host.delete(),
    }
    return HostServer(host, tokens, actions, log=host.folder)


def destination_server(host: DestinationHost, tokens: Mapping[str, str]) -> HostServer:
    actions: Actions = {
        "begin": lambda found: host.begin(**found),
        "look": lambda found: host.look(**found),
        "finish": lambda found: host.finish(**found),
        "decide": lambda found: host.decide(**found),
        "delete": lambda _: host.delete(),
    }
    return HostServer(host, tokens, actions, exchange=host.exchange)
