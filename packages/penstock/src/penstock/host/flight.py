"""How the engine and Spark's tasks talk to a connector host: Arrow Flight on the loopback address. A token for each right: who may read
records may not stop the connector.

`DoGet` gives a range of the log; actions are `open`, `ack`, `status`, `stop` and `close`.
"""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.host import trouble
from penstock.host.source_host import SourceHost
from penstock.log import Lost, Reader, arrow

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
_RIGHT_OF_METHOD = {flight.FlightMethod.DO_GET: "read", flight.FlightMethod.DO_ACTION: "control"}


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
    def __init__(self, host: SourceHost, tokens: Mapping[str, str]) -> None:
        super().__init__("grpc://127.0.0.1:0", middleware={"guard": _Guard(tokens)})
        self._host = host
        self._actions: dict[str, Callable[[dict[str, Any]], Any]] = {
            "open": lambda _: self._host.open(),
            "ack": lambda found: self._host.ack(found["end"]),
            "status": lambda _: self._host.status(),
            "stop": lambda found: {"drained": self._host.stop(found["timeout"])},
            "close": lambda _: self._close(),
        }

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
        with Reader(self._host.folder) as reader:
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

    def _close(self) -> None:
        self._host.close()
        threading.Thread(target=self.shutdown, daemon=True).start()  # not from a call that it would wait for
