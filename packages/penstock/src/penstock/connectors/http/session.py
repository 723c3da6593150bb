"""Requests to one URL: connections that are kept, redirects that are followed or not, and what is sent to whom. One per thread.

The rule for redirects: to the configured host, or to a name all of whose addresses are public. The address that was looked at is the one
that is connected to, so that a name which changes its mind in between changes nothing.
"""

from __future__ import annotations

import base64
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.connectors.http.address import (
    Origin,
    Resolver,
    Url,
    find,
    found_within,
    is_local_name,
    is_public,
    parse_url,
    target_of,
)
from penstock.connectors.http.connection import Answer, Connection, Deadline, Trouble
from penstock.connectors.http.settings import HttpDestinationSettings
from penstock_sdk import Stop

MOST_REDIRECTS = 5
MOST_KEPT = 4  # connections, to one origin each
FOLLOWED = (307, 308)
TURNED = (301, 302, 303)


@dataclass(frozen=True, slots=True)
class Request:
    body: bytes
    key: str  # Idempotency-Key: equal whenever the same is sent again
    delivery: str = ""


class Session:
    def __init__(
        self,
        settings: HttpDestinationSettings,
        content_type: str,
        tls: ssl.SSLContext | None,
        stopping: threading.Event,
        resolver: Resolver = find,
    ) -> None:
        self._settings, self._tls, self._stopping, self._resolver = settings, tls, stopping, resolver
        self.url = parse_url(settings.url)
        self._content_type = content_type
        self._private = _lines({**settings.headers, **credentials(settings)})  # for the configured origin only
        self._kept: dict[Origin, Connection] = {}
        self._home: frozenset[str] = frozenset()  # the addresses of the configured host

    def close(self) -> None:
        while self._kept:
            self._kept.popitem()[1].close()

    def send(self, request: Request) -> Answer:
        """`Trouble`: it may be sent again, and may have been handled. `Stop`: none can be sent."""
        url = self.url
        deadline = Deadline(self._settings.timeout.total_seconds(), self._stopping)
        for _ in range(MOST_REDIRECTS + 1):
            answer = self._exchange(url, request, deadline)
            if answer.status not in (*FOLLOWED, *TURNED) or "location" not in answer.headers:
                return answer
            url = self._next(url, answer)
        raise Stop(f"{self.url.origin} redirects more than {MOST_REDIRECTS} times")

    def _next(self, url: Url, answer: Answer) -> Url:
        said = f"{url.origin} answers with {answer.status}, a redirect"
        if answer.status in TURNED:
            raise Stop(
                f"{said} that makes another request of this one, without the record",
                hint="set url to where the server really is",
            )
        try:
            target = target_of(url, answer.headers["location"])
        except ValueError as error:
            raise Stop(f"{said} that is not followed", why=f"of its target: {error}") from None
        if not self._settings.follow_redirects:
            raise Stop(
                f"{said} to {target.origin}", hint="set url to where the server really is, or follow-redirects to true"
            )
        return target

    def _exchange(self, url: Url, request: Request, deadline: Deadline) -> Answer:
        connection = self._kept.pop(url.origin, None)
        if connection is not None and not connection.is_fresh():
            connection.close()
            connection = None
        if connection is None:
            connection = self._connect(url.origin, deadline)
        reusable = False
        try:
            answer, reusable = connection.exchange(
                self._settings.method, self._head(url, request), request.body, deadline
            )
        finally:
            if reusable:
                self._keep(url.origin, connection)
            else:
                connection.close()
        return answer

    def _keep(self, origin: Origin, connection: Connection) -> None:
        while len(self._kept) >= MOST_KEPT:
            self._kept.pop(next(iter(self._kept))).close()
        self._kept[origin] = connection

    def _connect(self, origin: Origin, deadline: Deadline) -> Connection:
        short = deadline.capped(self._settings.connect_timeout.total_seconds())
        last: Trouble | None = None
        for address in self._addresses(origin, short):
            try:
                return Connection(origin, address, self._tls if origin.scheme == "https" else None, short)
            except Trouble as error:
                last = error
            except ssl.SSLCertVerificationError as error:
                raise Stop(
                    f"the certificate of {origin} is not trusted",
                    why=error.verify_message,
                    hint="tls-ca names a file with the certificates of those who vouch for it",
                ) from error
        raise last or Trouble("its name has no address")

    def _addresses(self, origin: Origin, deadline: Deadline) -> Sequence[str]:
        try:
            found = found_within(self._resolver, origin.host, origin.port, deadline.wait)
        except OSError as error:
            raise Trouble(f"its name is not found ({error.strerror or error})") from error
        if origin.host == self.url.origin.host:
            self._home = frozenset(found)
        elif self._home.issuperset(found):
            pass  # another name of the same machine
        elif is_local_name(origin.host) or not all(map(is_public, found)):
            raise Stop(f"{self.url.origin} redirects to {origin}, which is not public: not followed")
        return found

    def _head(self, url: Url, request: Request) -> bytes:
        lines = _lines(
            {
                "Host": url.origin.authority,
                "User-Agent": "penstock-http/0.1.0",
                "Accept": "*/*",
                "Content-Type": self._content_type,
                "Content-Length": str(len(request.body)),
                "Idempotency-Key": request.key,
                **({"Penstock-Delivery": request.delivery} if request.delivery else {}),
            }
        )
        private = self._private if url.origin == self.url.origin else b""
        return f"{self._settings.method} {url.target} HTTP/1.1\r\n".encode() + lines + private + b"\r\n"


def _lines(headers: dict[str, str]) -> bytes:
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode("latin-1")


def credentials(settings: HttpDestinationSettings) -> dict[str, str]:
    if settings.token:
        return {"Authorization": f"Bearer {settings.token}"}
    if settings.user:
        pair = base64.b64encode(f"{settings.user}:{settings.password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}
