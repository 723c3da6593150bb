"""How a host and the plugin program that it starts find each other: variables in the environment, and one line that the program prints.

The names and values are those of hashicorp's go-plugin and of the connectors that are built on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

COOKIE = "CONDUIT_PLUGIN_MAGIC_COOKIE"
COOKIE_VALUE = "204e8e812c3a1bb73b838928c575b42a105dd2e9aa449be481bc4590486df53f"
VERSIONS = "PLUGIN_PROTOCOL_VERSIONS"
SOCKETS = "PLUGIN_UNIX_SOCKET_DIR"
UTILITIES = "CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET"
TOKEN = "CONDUIT_CONNECTOR_TOKEN"
CONNECTOR_ID = "CONDUIT_CONNECTOR_ID"
LOG_LEVEL = "CONDUIT_CONNECTOR_LOG_LEVEL"
MAX_MESSAGE = "CONDUIT_CONNECTOR_MAX_RECEIVE_RECORD_SIZE"

CORE = 1
DIALECTS = (2, 1)  # which of them we speak, the best first
DEFAULT_MAX_MESSAGE = 4 << 20


@dataclass(frozen=True, slots=True)
class Handshake:
    """The line: where the plugin listens, and which dialect it speaks."""

    dialect: int
    network: str  # unix or tcp
    address: str

    @property
    def target(self) -> str:
        """As gRPC wants it."""
        return f"unix://{self.address}" if self.network == "unix" else self.address

    def line(self) -> str:
        return f"{CORE}|{self.dialect}|{self.network}|{self.address}|grpc|"

    @staticmethod
    def parse(line: str) -> Handshake:
        """ValueError, with what is wrong, for anything else than a handshake that we can go on with."""
        parts = line.strip().split("|")
        if len(parts) < 4:
            raise ValueError(f"it printed {line.strip()[:100]!r} where the handshake should be")
        core, dialect, network, address = parts[:4]
        if core != str(CORE):
            raise ValueError(f"it speaks version {core[:20]!r} of the plugin protocol, this host version {CORE}")
        if dialect not in map(str, DIALECTS):
            raise ValueError(f"it speaks dialect {dialect[:20]!r} of the connector protocol, this host 1 and 2")
        if network not in ("unix", "tcp") or not address:
            raise ValueError(f"it listens on {network[:20]!r}, which is neither unix nor tcp")
        if len(parts) > 4 and parts[4] not in ("", "grpc"):
            raise ValueError(f"it speaks {parts[4][:20]!r}, not grpc")
        if len(parts) > 5 and parts[5]:
            raise ValueError("it wants TLS, which is of no use between a process and its child")
        return Handshake(int(dialect), network, address)


@dataclass(frozen=True, slots=True)
class Invitation:
    """What a host tells a plugin program through its environment."""

    connector_id: str
    utilities: str  # where the schema service listens; never empty
    token: str
    log_level: str = "info"
    max_message: int = DEFAULT_MAX_MESSAGE
    sockets: str = ""  # folder for its socket
    dialects: Sequence[int] = ()  # which may be spoken, where it is not all that we know

    def environment(self) -> dict[str, str]:
        made = {
            COOKIE: COOKIE_VALUE,
            VERSIONS: ",".join(map(str, self.dialects or DIALECTS)),
            "PLUGIN_MIN_PORT": "10000",
            "PLUGIN_MAX_PORT": "25000",
            UTILITIES: self.utilities,
            TOKEN: self.token,
            CONNECTOR_ID: self.connector_id,
            LOG_LEVEL: self.log_level,
            MAX_MESSAGE: str(self.max_message),
        }
        return {**made, SOCKETS: self.sockets} if self.sockets else made


def dialect(environment: Mapping[str, str]) -> int:
    """The one that a plugin speaks: the best that both know. A host that says nothing that can be read gets the oldest one."""
    offered = {part.strip() for part in environment.get(VERSIONS, "").split(",")}
    return next((d for d in DIALECTS if str(d) in offered), min(DIALECTS))


def max_message(environment: Mapping[str, str]) -> int:
    """The largest message that a plugin takes, in bytes."""
    text = environment.get(MAX_MESSAGE, "")
    return int(text) if text.isascii() and text.isdigit() else DEFAULT_MAX_MESSAGE
