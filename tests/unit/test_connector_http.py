"""The `http` destination against real servers: every status, every way in which a server or a network can misbehave."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from penstock.connectors.http import connection
from penstock.connectors.http import connector as module
from penstock.connectors.http.address import is_public, parse_url
from penstock.connectors.http.connector import connector
from penstock.connectors.http.destination import HttpDestination
from penstock.connectors.http.outcome import excerpt, retry_after
from penstock.connectors.http.settings import HttpDestinationSettings
from penstock_protocol import handshake
from penstock_protocol.interfaces import Ack
from penstock_protocol.process import PluginProcess
from penstock_sdk import Batch, Context, Record, Rejected, Retry, SettingsError, Stop
from penstock_sdk.destination_plugin import DestinationAdapter
from penstock_sdk.wire import to_records

Answer = tuple[int, dict[str, str], bytes]


@dataclass
class Got:
    path: str
    headers: dict[str, str]
    body: bytes
    peer: int


@dataclass
class Server:
    """Answers with what `answer` says, and keeps what it got."""

    port: int = 0
    got: list[Got] = field(default_factory=list)
    answer: Callable[[Got], Answer | int] = lambda _: 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/in"

    def bodies(self) -> list[bytes]:
        return [each.body for each in self.got]


@contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None: ...

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got = Got(self.path, {k.lower(): v for k, v in self.headers.items()}, body, self.client_address[1])
            server.got.append(got)
            said = server.answer(got)
            status, headers, text = (said, {}, b"") if isinstance(said, int) else said
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_PUT = do_PATCH = do_POST  # noqa: N815

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None: ...

    real = Quiet(("127.0.0.1", 0), Handler)
    if tls is not None:
        real.socket = tls.wrap_socket(real.socket, server_side=True)
    server.port = real.server_address[1]
    thread = threading.Thread(target=real.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        real.shutdown()
        thread.join()
        real.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def make() -> Iterator[Callable[..., HttpDestination]]:
    made: list[HttpDestination] = []

    def make(url: str, resolver: Any = None, **settings: str) -> HttpDestination:
        config = {"url": url, **{name.replace("_", "-"): value for name, value in settings.items()}}
        destination = HttpDestination(HttpDestinationSettings.parse(config), Context("p:c"))
        if resolver is not None:
            destination.resolver = resolver
        made.append(destination)
        destination.open()
        return destination

    yield make
    for each in made:
        each.context.stopping.set()
        each.close()


Make = Callable[..., HttpDestination]


def records(count: int, first: int = 1) -> list[Record]:
    return [Record(b"%d" % n, position=b"%d" % n, source="s") for n in range(first, first + count)]


def batch(count: int, first: int = 1) -> Batch:
    return Batch(records(count, first), "d1")


def status_of(bad: dict[bytes, int]) -> Callable[[Got], Answer | int]:
    return lambda got: bad.get(got.body, 200)


# -- what is sent ---------------------------------------------------------------------------------------------------------------


def test_each_record_is_a_request_in_order_with_its_id_over_one_connection(server: Server, make: Make) -> None:
    given = batch(20)
    make(server.url, token="s3cret-token", **{"headers.X-Team": "blue"}).write(given)
    assert server.bodies() == [b"%d" % n for n in range(1, 21)]
    assert [got.headers["idempotency-key"] for got in server.got] == [record.id for record in given]
    first = server.got[0].headers
    assert first["authorization"] == "Bearer s3cret-token"
    assert (first["x-team"], first["penstock-delivery"]) == ("blue", "d1")
    assert first["content-type"] == "application/octet-stream"
    assert len({got.peer for got in server.got}) == 1


def test_a_batch_is_one_request_and_its_key_is_the_same_when_it_comes_again(server: Server, make: Make) -> None:
    destination = make(server.url, requests="batch")
    for given in (batch(10_000), batch(10_000), batch(3)):
        destination.write(given)
    assert server.got[0].body.splitlines() == [b"%d" % n for n in range(1, 10_001)]
    keys = [got.headers["idempotency-key"] for got in server.got]
    assert keys[0] == keys[1] != keys[2]
    assert server.got[0].headers["content-type"] == "application/x-ndjson"


def test_ids_of_two_pipelines_differ_though_the_host_names_no_source(server: Server) -> None:
    for name in ("one:c", "two:c"):
        adapter = DestinationAdapter(HttpDestination, Context(name))
        adapter.configure({"url": server.url})
        adapter.open()
        adapter.write(to_records([Record(b"x", position=b"1")]))
        assert [ack.error for ack in adapter.acks(10)] == [""]
        adapter.teardown()
    assert len({got.headers["idempotency-key"] for got in server.got}) == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"body": "json"}, [b'{"a":"\xc3\xa4"}', b"[1,\n 2]"]),
        ({"body": "json", "requests": "batch"}, [b'{"a":"\xc3\xa4"}\n[1,  2]\n']),
        ({"body": "json", "requests": "batch", "batch": "array"}, [b'[{"a":"\xc3\xa4"},[1,  2]]']),
    ],
)
def test_bodies(server: Server, make: Make, settings: dict[str, str], expected: list[bytes]) -> None:
    make(server.url, **settings).write(Batch([Record({"a": "ä"}, position=b"1"), Record(b" [1,\n 2]", position=b"2")]))
    assert server.bodies() == expected


def test_a_whole_record_as_json(server: Server, make: Make) -> None:
    given = Record(None, before=b"\xff", key={"id": 1}, position=b"p", operation="delete", namespace="t")
    make(server.url, body="record").write(Batch([given]))
    assert json.loads(server.got[0].body) == {
        "position": "cA==",
        "operation": "delete",
        "metadata": {"opencdc.collection": "t"},
        "key": {"id": 1},
        "payload": {"before": "/w==", "after": None},
    }


def test_a_record_without_the_form_is_refused_by_name_and_costs_no_other(server: Server, make: Make) -> None:
    unfit = [{"a": [{"b": float("nan")}]}, {"when": datetime.now(UTC)}, b"{", b"NaN", None]
    given = [Record(after, position=b"x") for after in unfit]  # type: ignore[arg-type]
    with pytest.raises(Rejected) as raised:
        make(server.url, body="json", requests="batch").write(Batch([*given, Record({"n": 1}, position=b"y")]))
    why = raised.value.records
    assert set(why) == {0, 1, 2, 3, 4}
    assert "a[0].b is nan" in why[0]
    assert "when is of type datetime" in why[1]
    assert "no payload" in why[4]
    assert server.bodies() == [b'{"n":1}\n']


def test_a_body_of_20_mb_arrives(server: Server, make: Make) -> None:
    large = bytes(20 << 20)
    make(server.url).write(Batch([Record(large, position=b"1")]))
    assert server.got[0].body == large


# -- statuses -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [200, 201, 202, 204])
def test_a_good_status_delivers(server: Server, make: Make, status: int) -> None:
    server.answer = lambda _: status
    make(server.url).write(batch(2))
    assert len(server.got) == 2


@pytest.mark.parametrize("status", [400, 409, 413, 422, 418])
def test_a_bad_record_is_refused_alone_with_the_servers_words(server: Server, make: Make, status: int) -> None:
    server.answer = lambda got: (status, {}, b"no \x1b[31m\n" + b"x" * 500) if got.body == b"2" else 200
    with pytest.raises(Rejected) as raised:
        make(server.url).write(batch(3))
    assert list(raised.value.records) == [1]
    text = raised.value.records[1]
    assert text.startswith(f"the server answered with {status}: no [31m xxx")
    assert len(text) < 250
    assert server.bodies() == [b"1", b"2", b"3"]


@pytest.mark.parametrize("status", [401, 403, 404, 405, 415, 304])
def test_a_status_that_no_record_is_to_blame_for_stops(server: Server, make: Make, status: int) -> None:
    server.answer = lambda _: status
    with pytest.raises(Stop, match=f"answered with {status}"):
        make(server.url).write(batch(3))
    assert len(server.got) == 1


def test_the_lists_of_statuses_can_be_changed(server: Server, make: Make) -> None:
    server.answer = status_of({b"1": 404, b"2": 500})
    with pytest.raises(Rejected) as raised:
        make(server.url, reject_on="404,500", retry_on="429").write(batch(3))
    assert list(raised.value.records) == [0, 1]


@pytest.mark.parametrize("status", [408, 425, 429, 500, 503])
def test_what_is_transient_is_tried_again_and_what_was_delivered_is_not(
    server: Server, make: Make, status: int
) -> None:
    failing = {b"2": 400, b"3": status}
    server.answer = lambda got: failing.get(got.body, 200)
    destination = make(server.url)
    with pytest.raises(Retry, match=str(status)):
        destination.write(batch(4))
    del failing[b"3"]
    with pytest.raises(Rejected) as raised:
        destination.write(batch(4))  # a host that makes the batch anew
    assert list(raised.value.records) == [1]
    sent = server.bodies()
    assert (sent.count(b"1"), sent.count(b"2"), sent.count(b"4")) == (1, 1, 1)
    assert sent[-2:] == [b"3", b"4"]


def test_another_batch_with_the_same_positions_is_sent_as_a_whole(server: Server, make: Make) -> None:
    server.answer = status_of({b"2": 500})
    destination = make(server.url)
    with pytest.raises(Retry):
        destination.write(batch(2))
    server.answer = lambda _: 200
    destination.write(Batch(records(2), "d2"))
    assert server.bodies()[-2:] == [b"1", b"2"]


def test_a_server_that_lets_through_a_few_at_a_time_gets_all_in_one_write(server: Server, make: Make) -> None:
    seen: list[bytes] = []

    def answer(got: Got) -> int:
        seen.append(got.body)
        return 429 if len(seen) % 3 == 0 else 200

    server.answer = answer
    make(server.url).write(batch(30))  # more refusals than the SDK would try again
    assert [body for n, body in enumerate(seen, 1) if n % 3] == [b"%d" % n for n in range(1, 31)]


def test_one_bad_record_of_a_batch_is_found_and_no_accepted_half_is_sent_twice(server: Server, make: Make) -> None:
    accepted: list[bytes] = []

    def answer(got: Got) -> int:
        lines = got.body.splitlines()
        if b"700" in lines or b"3" in lines:
            return 422
        accepted.extend(lines)
        return 200

    server.answer = answer
    with pytest.raises(Rejected) as raised:
        make(server.url, requests="batch").write(batch(1000))
    assert list(raised.value.records) == [2, 699]
    assert accepted == [b"%d" % n for n in range(1, 1001) if n not in (3, 700)]
    assert len(server.got) < 50


def test_trouble_between_halves_keeps_what_was_accepted(server: Server, make: Make) -> None:
    accepted: list[bytes] = []
    down = [True]

    def answer(got: Got) -> int:
        lines = got.body.splitlines()
        if len(lines) > 4:
            return 413
        if b"5" in lines and down[0]:
            return 503
        accepted.extend(lines)
        return 200

    server.answer = answer
    destination = make(server.url, requests="batch")
    given = batch(8)
    with pytest.raises(Retry, match="503"):
        destination.write(given)
    down[0] = False
    destination.write(given)
    assert accepted == [b"%d" % n for n in range(1, 9)]


def test_retry_after() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    for text, seconds in {
        "7": 7.0,
        "999999": 60.0,
        "Tue, 01 Jan 2030 00:00:09 GMT": 9.0,
        "Mon, 01 Jan 2029 00:00:00 GMT": 0.0,
        "Fri, 01 Jan 2100 00:00:00 GMT": 60.0,
        "-3": 0.0,
        "soon": 0.0,
        "": 0.0,
    }.items():
        assert retry_after({"retry-after": text}, 60.0, now) == seconds, text


def test_a_wait_that_the_server_asks_for_ends_with_a_stop(server: Server, make: Make) -> None:
    server.answer = lambda _: (429, {"Retry-After": "3600"}, b"")
    destination = make(server.url, longest_wait="1h")
    threading.Timer(0.2, destination.context.stopping.set).start()
    with pytest.raises(Retry, match="429"):
        destination.write(batch(1))


def test_secrets_are_in_no_error(server: Server, make: Make) -> None:
    server.answer = lambda got: (400, {}, f"bad key {got.headers['authorization']} {got.headers['x-key']}".encode())
    settings = {"user": "me", "password": "pass-canary", "headers.X-Key": "key-canary"}
    destination = make(server.url, **settings)
    with pytest.raises(Rejected) as raised:
        destination.write(batch(1))
    said = str(raised.value) + repr(destination.settings)
    assert "canary" not in said
    assert server.got[0].headers["authorization"].removeprefix("Basic ") not in said
    assert excerpt(b"a\x00b\r\nc\x7f", ()) == "a b c"


# -- order ----------------------------------------------------------------------------------------------------------------------


def test_with_concurrency_records_of_one_key_stay_in_order(server: Server, make: Make) -> None:
    given = [Record(b"%d" % n, key=b"k%d" % (n % 7), position=b"%d" % n) for n in range(200)]
    make(server.url, concurrency="4").write(Batch(given))
    arrived = [int(body) for body in server.bodies()]
    assert sorted(arrived) == list(range(200))
    for key in range(7):
        of_key = [n for n in arrived if n % 7 == key]
        assert of_key == sorted(of_key)
    assert 1 < len({got.peer for got in server.got}) <= 4


def test_with_concurrency_trouble_of_one_sends_nothing_twice(server: Server, make: Make) -> None:
    failing = {b"10": 503}
    server.answer = lambda got: failing.get(got.body, 200)
    destination = make(server.url, concurrency="3")
    given = Batch(records(40))
    with pytest.raises(Retry):
        destination.write(given)
    failing.clear()
    destination.write(given)
    sent = server.bodies()
    assert [sent.count(b"%d" % n) for n in range(1, 41) if n != 10] == [1] * 39


# -- the network ----------------------------------------------------------------------------------------------------------------


@contextmanager
def scripted(*scripts: Callable[[socket.socket, bytes], None]) -> Iterator[tuple[str, list[bytes]]]:
    """A server of which each connection, in turn, does what its script says with the first request that it got. The last script stays."""
    got: list[bytes] = []
    ended = threading.Event()
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.05)

    def serve() -> None:
        count = 0
        while not ended.is_set():
            try:
                connection = listening.accept()[0]
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(0.05)
                data = b""
                while not ended.is_set() and b"\r\n\r\n" not in data:
                    try:
                        data += connection.recv(65536)
                    except TimeoutError:
                        continue
                got.append(data)
                try:
                    scripts[min(count, len(scripts) - 1)](connection, data)
                except OSError:
                    pass
                count += 1

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/", got
    finally:
        ended.set()
        thread.join()
        listening.close()


def says(text: bytes) -> Callable[[socket.socket, bytes], None]:
    def said(connection: socket.socket, _: bytes) -> None:
        connection.settimeout(30)  # on a busy machine a long text takes its time
        connection.sendall(text)

    return said


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 20",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 " + b"1" * 100_000,
    ],
)
def test_half_an_answer_is_none(make: Make, answer: bytes) -> None:
    with scripted(says(answer), says(OK)) as (url, got):
        destination = make(url)
        given = batch(1)
        with pytest.raises(Retry):
            destination.write(given)
        destination.write(given)
        keys = [line for data in got for line in data.split(b"\r\n") if line.startswith(b"Idempotency-Key")]
        assert len(keys) == 2
        assert len(set(keys)) == 1  # it may have been handled: the receiver can tell


def test_a_connection_that_the_server_has_dropped_is_noticed_before_anything_is_sent(make: Make) -> None:
    """The server says that it keeps the connection, and closes it: each request is sent exactly once."""
    with scripted(says(OK)) as (url, got):
        destination = make(url)
        for n in range(1, 6):
            destination.write(batch(1, n))
            kept = next(iter(destination._sessions[0]._kept.values()))
            kept._socket.settimeout(10)
            assert kept._socket.recv(1, socket.MSG_PEEK) == b""  # the end has arrived
        assert [data.rpartition(b"\r\n")[2] for data in got] == [b"%d" % n for n in range(1, 6)]


def test_hints_before_the_answer_and_a_long_answer(make: Make) -> None:
    hints = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    long = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (1 << 20)
    last = OK.replace(b"OK\r\n", b"OK\r\nConnection: close\r\n")  # else the next request may meet its end
    with scripted(says(hints + last), says(long)) as (url, got):
        destination = make(url)
        destination.write(batch(1))
        destination.write(batch(1, 2))
        assert len(got) == 2


def test_a_server_that_hangs_or_drips_is_given_up_after_the_timeout_in_total(make: Make) -> None:
    def drip(connection: socket.socket, _: bytes) -> None:
        while True:
            connection.sendall(b"H")
            with suppress(TimeoutError):
                connection.recv(1)
                return  # it has hung up

    def hang(connection: socket.socket, _: bytes) -> None:
        connection.settimeout(30)
        connection.recv(1)

    with scripted(hang, drip) as (url, _):
        destination = make(url, timeout="300ms")
        for _ in range(2):
            with pytest.raises(Retry, match=r"longer than 0.3 s"):
                destination.write(batch(1))


def test_a_stop_ends_the_wait_for_an_answer(make: Make) -> None:
    def hang(connection: socket.socket, _: bytes) -> None:
        connection.settimeout(30)
        destination.context.stopping.set()
        connection.recv(1)

    with scripted(hang) as (url, _):
        destination = make(url, timeout="10m")
        with pytest.raises(Retry, match="when the connector was stopped"):
            destination.write(batch(5))


def test_nobody_listens_and_no_such_name(make: Make) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Retry, match="refused"):
        make(f"http://127.0.0.1:{port}/").write(batch(1))

    def nowhere(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(-2, "unknown name")

    with pytest.raises(Retry, match="not found"):
        make("http://nowhere.example/", nowhere).write(batch(1))


# -- redirects ------------------------------------------------------------------------------------------------------------------


def redirecting(server: Server, status: int, location: str) -> None:
    server.answer = lambda got: (status, {"Location": location}, b"") if got.path == "/in" else 200


@pytest.mark.parametrize("status", [301, 302, 303])
def test_a_redirect_that_would_lose_the_record_is_never_followed(server: Server, make: Make, status: int) -> None:
    redirecting(server, status, "/there")
    with pytest.raises(Stop, match="without the record"):
        make(server.url, follow_redirects="true").write(batch(1))
    assert len(server.got) == 1


def test_redirects_are_followed_only_if_wanted(server: Server, make: Make) -> None:
    redirecting(server, 308, "/there")
    with pytest.raises(Stop, match="follow-redirects"):
        make(server.url).write(batch(1))
    make(server.url, follow_redirects="true", token="t0ken").write(batch(1))
    assert [(got.path, got.body) for got in server.got[1:]] == [("/in", b"1"), ("/there", b"1")]
    assert server.got[-1].headers["authorization"] == "Bearer t0ken"
    redirecting(server, 307, "/in")
    with pytest.raises(Stop, match="more than 5 times"):
        make(server.url, follow_redirects="true").write(batch(1))


def test_another_origin_gets_no_credentials(server: Server, make: Make) -> None:
    with serving() as other:
        redirecting(server, 307, f"http://127.0.0.1:{other.port}/there")
        settings = {"follow_redirects": "true", "token": "t0ken", "headers.X-Key": "k3y"}
        make(server.url, **settings).write(batch(1))
        assert other.bodies() == [b"1"]
        assert not {"authorization", "x-key"} & other.got[0].headers.keys()
        assert "idempotency-key" in other.got[0].headers


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.2:{port}/x",
        "http://localhost:{port}/x",
        "http://[::1]:{port}/x",
        "http://[::ffff:127.0.0.1]:{port}/x",
        "http://0.0.0.0:{port}/x",
        "http://10.1.2.3/x",
        "http://169.254.169.254/latest",
        "http://rebinds.example:{port}/x",
        "http://mixed.example/x",
        "//2130706434:{port}/x",
        "ftp://example.com/x",
        "file:///etc/passwd",
        "http://user:pw@93.184.216.34/",
    ],
)
def test_no_redirect_leads_to_what_is_not_public(server: Server, make: Make, target: str) -> None:
    """The configured host is a public name (in its resolver's eyes): no target may be reached, nor even connected to."""
    names = {"rebinds.example": ["127.0.0.2"], "mixed.example": ["93.184.216.34", "127.0.0.2"]}
    names |= {"2130706434": ["127.0.0.2"], "localhost": ["127.0.0.2"], "configured.example": ["127.0.0.1"]}
    redirecting(server, 307, target.format(port=server.port))
    destination = make(
        f"http://configured.example:{server.port}/in", lambda host, _: names.get(host, [host]), follow_redirects="true"
    )
    with pytest.raises(Stop, match=r"not public|not followed"):
        destination.write(batch(1))
    assert len(server.got) == 1


def test_a_name_that_changes_is_connected_to_where_it_was_looked_at(
    server: Server, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Public when it is asked for first. Whoever asks again, to connect, would be led to the server inside."""
    asked: list[str] = []
    connected: list[tuple[str, int]] = []

    def resolver(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if host == "configured.example" or asked.count(host) > 1 else ["93.184.216.34"]

    def connect(made: socket.socket, address: tuple[str, int], deadline: Any) -> None:
        connected.append(address)
        if address[0] != "127.0.0.1":
            raise ConnectionRefusedError(111, "nobody is there")
        really(made, address, deadline)

    really = connection._connect
    monkeypatch.setattr(connection, "_connect", connect)
    redirecting(server, 307, f"http://changes.example:{server.port}/x")
    with pytest.raises(Retry, match="nobody is there"):
        make(f"http://configured.example:{server.port}/in", resolver, follow_redirects="true").write(batch(1))
    assert asked == ["configured.example", "changes.example"]
    assert connected == [("127.0.0.1", server.port), ("93.184.216.34", server.port)]
    assert len(server.got) == 1


def test_which_addresses_are_public() -> None:
    assert all(map(is_public, ["93.184.216.34", "1.1.1.1", "2606:4700:4700::1111"]))
    private = (
        "127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 169.254.1.1 100.64.0.1 0.0.0.0 255.255.255.255 224.0.0.1 240.0.0.1 "
    )
    private += (
        "::1 :: fe80::1 fe80::1%eth0 fc00::1 fec0::1 ff02::1 ::ffff:1.1.1.1 ::1.1.1.1 64:ff9b::7f00:1 2002:7f00:1::"
    )
    assert [address for address in private.split() if is_public(address)] == []


# -- TLS ------------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    folder = tmp_path_factory.mktemp("tls")
    key, made = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    command += ["-keyout", str(key), "-out", str(made), "-days", "2", "-subj", "/CN=test"]
    subprocess.run([*command, "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return made, key


def test_https_with_an_authority_of_our_own(certificate: tuple[Path, Path], make: Make) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    with serving(tls) as server:
        url = f"https://127.0.0.1:{server.port}/in"
        destination = make(url, tls_ca=str(certificate[0]))
        destination.write(batch(20))
        destination.write(Batch([Record(bytes(2 << 20), position=b"x")]))
        assert len({got.peer for got in server.got}) == 1
        with pytest.raises(Stop, match="not trusted"):
            make(url).write(batch(1))
        other = make(f"https://other.example:{server.port}/", lambda *_: ["127.0.0.1"], tls_ca=str(certificate[0]))
        with pytest.raises(Stop, match="not trusted"):
            other.write(batch(1))
        assert len(server.got) == 21


def test_a_file_of_authorities_that_is_none(make: Make, tmp_path: Path) -> None:
    with pytest.raises(Stop, match="tls-ca"):
        make("https://example.com/", tls_ca=str(tmp_path / "missing"))


# -- settings -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"url": "ftp://x/"}, "neither with http"),
        ({"url": "http://me:canary@x/"}, "do not belong into it"),
        ({"url": "http://x/a b"}, "space"),
        ({"url": "http:///x"}, "no host"),
        ({"url": "http://x:99999/"}, "no URL"),
        ({"url": "http://x/", "headers.Host": "y"}, "set by the connector"),
        ({"url": "http://x/", "headers.A b": "y"}, "can't be the name"),
        ({"url": "http://x/", "headers.A": "canary\r\nB: c"}, "characters"),
        ({"url": "http://x/", "token": "canary\n"}, "characters"),
        ({"url": "http://x/", "token": "canary", "user": "x"}, "only one"),
        ({"url": "http://x/", "requests": "batch", "batch": "array"}, "an array is JSON"),
        ({"url": "http://x/", "requests": "batch", "concurrency": "2"}, "concurrency"),
        ({"url": "http://x/", "stop-on": "40"}, "no status"),
        ({"url": "http://x/", "tls-ca": "/x"}, "not https"),
        ({}, "is required"),
    ],
)
def test_bad_settings_are_refused_without_showing_secrets(config: dict[str, str], said: str) -> None:
    with pytest.raises(SettingsError) as raised:
        HttpDestinationSettings.parse(config)
    assert said in str(raised.value)
    assert "canary" not in str(raised.value)


def test_urls() -> None:
    url = parse_url("https://Bücher.example:8443/a%20b/ü?q=1&r=%2F#part")
    assert str(url.origin) == "https://xn--bcher-kva.example:8443"
    assert url.target == "/a%20b/%C3%BC?q=1&r=%2F"
    assert parse_url("http://[::1]").origin.authority == "[::1]"


@pytest.mark.parametrize("dialect", [2, 1])
def test_it_runs_as_a_program(server: Server, monkeypatch: pytest.MonkeyPatch, dialect: int) -> None:
    monkeypatch.setattr(handshake, "DIALECTS", (dialect,))
    server.answer = status_of({b"2": 422})
    with PluginProcess([sys.executable, str(module.__file__)], connector_id="p:c") as process:
        destination = process.destination()
        destination.configure({"url": server.url})
        destination.open()
        destination.write(to_records(records(3)))
        acks: list[Ack] = []
        while len(acks) < 3:
            acks += destination.acks(10)
        destination.teardown()
    assert [(ack.position, ack.error[:27]) for ack in acks] == [
        (b"1", ""),
        (b"2", "the server answered with 42"),
        (b"3", ""),
    ]


def test_it_says_what_it_is() -> None:
    specification = connector.specification()
    assert (specification.name, specification.version) == ("http", "0.1.0")
    assert all(parameter.description for parameter in specification.destination.values())
