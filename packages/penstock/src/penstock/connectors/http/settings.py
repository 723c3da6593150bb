"""Settings of `http`, declared once. No I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Literal

from penstock.connectors.http.address import parse_url
from penstock_sdk import Settings, setting

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")  # what fits into a header, as latin-1
OURS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "connection", "idempotency-key", "expect", "te"}
    | {"trailer", "upgrade", "proxy-authorization", "penstock-delivery"}
)
_STATUS = "[2-5](xx|[0-9][0-9])"


class HttpDestinationSettings(Settings):
    """Sends records to a URL, one request for each or one for many.

    A record is delivered when the server has answered with a status from 200 to 299. At least once: after a crash, or when an answer got
    lost, a request comes again, with the same `Idempotency-Key`.
    """

    url: str = setting(
        "Where to: http or https. Name and password do not belong into it; errors show host and port only."
    )
    method: Literal["POST", "PUT", "PATCH"] = setting("The method of every request.", default="POST")
    requests: Literal["record", "batch"] = setting(
        "One request per record, or one per batch. A batch that is refused is halved until the bad record is alone.",
        default="record",
    )
    body: Literal["payload", "json", "record"] = setting(
        "What is sent of a record: its payload as it is (JSON, if it is structured), its payload as JSON (refused if it "
        "is none), or all of it as JSON: position, operation, metadata, key, payload.",
        default="payload",
    )
    batch: Literal["array", "lines"] = setting(
        "How records become the body of one request per batch: a JSON array, or a line each.", default="lines"
    )
    content_type: str = setting("The body's media type. Empty: what fits the body.", default="")
    headers: dict[str, str] = setting("Headers of every request. They are not shown in logs.", default=(), secret=True)
    token: str = setting("A bearer token.", default="", secret=True)
    user: str = setting("Name for basic authentication.", default="")
    password: str = setting("Password for basic authentication.", default="", secret=True)
    timeout: timedelta = setting(
        "How long one request may take in total, from connecting to the end of the answer.",
        default=timedelta(seconds=30),
        least=timedelta(milliseconds=1),
    )
    connect_timeout: timedelta = setting(
        "How long finding the address and connecting may take.",
        default=timedelta(seconds=10),
        least=timedelta(milliseconds=1),
    )
    concurrency: int = setting(
        "Requests at the same time, for one request per record. 1: strictly in order. More: only records with the same "
        "key stay in order.",
        default=1,
        least=1,
        most=256,
    )
    retry_on: list[str] = setting(
        "Statuses after which a request is tried again. The first list that names a status decides (`retry-on`, "
        "`reject-on`, `stop-on`), a status itself before its hundred.",
        default=("408", "425", "429", "5xx"),
    )
    reject_on: list[str] = setting("Statuses that mean: this record is bad. It is nacked.", default=("4xx",))
    stop_on: list[str] = setting(
        "Statuses that no record is to blame for, all would fail alike: the pipeline stops.",
        default=("401", "402", "403", "404", "405", "406", "407", "410", "411", "415", "426"),
    )
    longest_wait: timedelta = setting(
        "The longest time that a server can ask us to wait (Retry-After).", default=timedelta(minutes=1)
    )
    follow_redirects: bool = setting(
        "Follow 307 and 308, five times at most, to public addresses and to the host of `url` only. 301, 302 and 303 are "
        "never followed: the record would get lost on the way.",
        default=False,
    )
    tls_ca: Path | None = setting(
        "A file with the certificates (PEM) of those who may vouch for the server, instead of the system's.",
        default=None,
    )

    def check(self) -> Iterable[str]:
        try:
            url = parse_url(self.url)
        except ValueError as error:
            yield f"url: {error}"  # never the value: people put passwords into it
        else:
            if self.tls_ca is not None and url.origin.scheme != "https":
                yield "tls-ca: the url is not https"
        if self.requests == "batch" and self.body == "payload" and self.batch == "array":
            yield "batch: an array is JSON, payloads as they are need not be: take lines, or the body json or record"
        if self.requests == "batch" and self.concurrency > 1:
            yield "concurrency: it is for one request per record"
        yield from self._wrong_headers()
        yield from self._wrong_credentials()
        for name, statuses in (("retry-on", self.retry_on), ("reject-on", self.reject_on), ("stop-on", self.stop_on)):
            yield from (
                f"{name}: {each[:20]!r} is no status, such as 404 or 4xx"
                for each in statuses
                if not re.fullmatch(_STATUS, each)
            )

    def _wrong_headers(self) -> Iterable[str]:
        if not _VALUE.fullmatch(self.content_type):
            yield "content-type: it has characters that can't be in a header"
        for name, value in self.headers.items():
            if not _TOKEN.fullmatch(name):
                yield f"headers: {name[:40]!r} can't be the name of a header"
            elif name.lower() in OURS:
                yield f"headers: {name} is set by the connector"
            if not _VALUE.fullmatch(value):
                yield f"headers: {name[:40]!r} has characters that can't be in a header"

    def _wrong_credentials(self) -> Iterable[str]:
        ways = [bool(self.token), bool(self.user), any(name.lower() == "authorization" for name in self.headers)]
        if sum(ways) > 1:
            yield "token, user and the header Authorization: only one of them"
        if self.password and not self.user:
            yield "password: there is no user"
        if ":" in self.user:
            yield "user: it can't have a colon in it"
        if not _VALUE.fullmatch(self.token) or self.token != self.token.strip():
            yield "token: it has characters that can't be in a header"
