"""URLs and addresses: what a URL means, where a name points, and which addresses a redirect may lead to. `find` asks the resolver; all else
here only decides. Used by `session`."""

from __future__ import annotations

import ipaddress
import queue
import re
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

PORTS = {"http": 80, "https": 443}
_UNSAFE = re.compile(r"[\x00-\x20\x7f]")
_KEPT = "%/:=&?~#+!$,;'@()*[]|^"
# Addresses that hold an IPv4 address: NAT64, 6to4, Teredo. What they lead to is not what they look like.
_TUNNELS = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32", "::/96")))

Resolver = Callable[[str, int], Sequence[str]]


@dataclass(frozen=True, slots=True)
class Origin:
    """Whom one talks to: credentials never leave it."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Url:
    origin: Origin
    target: str  # path and query, as they are in the request


def parse_url(text: str) -> Url:
    """ValueError says what is wrong, without the URL in it: there may be a secret."""
    if _UNSAFE.search(text):
        raise ValueError("there is a space or a control character in it")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError("it is no URL") from None
    if parts.scheme not in PORTS:
        raise ValueError("it begins neither with http:// nor with https://")
    if parts.username is not None or parts.password is not None:
        raise ValueError("name and password do not belong into it: set user and password")
    host = _host(parts.hostname or "")
    if port == 0:
        raise ValueError("its port is 0")
    target = quote(parts.path or "/", _KEPT) + (f"?{quote(parts.query, _KEPT)}" if parts.query else "")
    return Url(Origin(parts.scheme, host, port or PORTS[parts.scheme]), target)


def _host(name: str) -> str:
    name = name.rstrip(".").lower()
    try:
        made = name if name.isascii() else name.encode("idna").decode()
    except UnicodeError:
        made = ""
    if not re.fullmatch(r"[a-z0-9_.:%-]+", made):
        raise ValueError("it has no host")
    return made


def target_of(base: Url, location: str) -> Url:
    """Where a redirect leads. ValueError as above, and for a way from https to http."""
    authority = str(base.origin)
    url = parse_url(urljoin(f"{authority}{base.target}", location))
    if base.origin.scheme == "https" and url.origin.scheme == "http":
        raise ValueError("it leads from https to http")
    return url


def is_public(address: str) -> bool:
    """Whether anybody could reach it from anywhere. Forms of one address in another are none that a server needs."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if found.is_multicast or not found.is_global or found.is_reserved:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        return not (found.is_site_local or found.ipv4_mapped or any(found in tunnel for tunnel in _TUNNELS))
    return True


def is_local_name(host: str) -> bool:
    return host == "localhost" or host.endswith(".localhost")


def find(host: str, port: int) -> Sequence[str]:
    """The addresses of a name, in the resolver's order. Blocks as long as the resolver does."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def found_within(
    resolver: Resolver, host: str, port: int, wait: Callable[[Callable[[float], bool]], None]
) -> Sequence[str]:
    """The same in a thread, so that nobody has to wait longer than they want: `wait` is given what waits for so many seconds and says
    whether it was enough, and raises when it has had enough."""
    answers: queue.Queue[Any] = queue.Queue(1)

    def ask() -> None:
        try:
            answers.put(resolver(host, port))
        except Exception as error:
            answers.put(error)
        done.set()

    done = threading.Event()
    threading.Thread(target=ask, name="resolver", daemon=True).start()
    wait(done.wait)
    answer = answers.get()
    if isinstance(answer, Exception):
        raise answer
    return list(answer)
