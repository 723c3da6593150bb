"""How Kafka is reached: the settings that source and destination share, what its two clients are told, and which errors are whose fault.

librdkafka (`confluent_kafka`, imported late) asks and plans in the engine; Spark's reader has Kafka's Java client. Both get the same
settings from here. No Spark.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, model_validator

from penstock.config import Settings
from penstock.errors import PenstockError, Retry, Stop

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

T = TypeVar("T")

ANSWER = 10.0  # seconds that an answer may take
PASSED = "client."  # settings that begin with it are the clients' own
# What both clients know by the same name, and nothing here relies on.
SHARED = frozenset(
    {
        "client.dns.lookup",
        "client.rack",
        "connections.max.idle.ms",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
        "socket.connection.setup.timeout.ms",
    }
)
_SERVER = re.compile(r"(?:[A-Z_]+://)?(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\],]+):([0-9]{1,5})")
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def listed(value: str) -> str:
    """Names with commas between them, as Conduit writes lists."""
    names = [name.strip() for name in value.split(",")]
    if not all(names):
        raise ValueError("must be names with commas between them")
    if len(set(names)) != len(names):
        raise ValueError("must name each once")
    return ",".join(names)


def _servers(value: str) -> str:
    for server in (names := listed(value)).split(","):
        found = _SERVER.fullmatch(server)
        if found is None or not 0 < int(found[2]) < 65536:
            raise ValueError("must be servers with their ports, `kafka-1:9092,kafka-2:9092`")
    return names


def _pem(kind: str) -> AfterValidator:
    def check(value: str) -> str:
        if f"-----BEGIN {kind}-----" not in value:
            hint = "; another form of key is turned into it by `openssl pkcs8 -topk8 -nocrypt`" if "KEY" in kind else ""
            raise ValueError(f"must be the text of a PEM file with BEGIN {kind}, such as `${{file:name.pem}}`{hint}")
        return value

    return AfterValidator(check)


_Certificate = Annotated[str, _pem("CERTIFICATE")]


class KafkaConnection(Settings):
    """Who is asked, and who asks. Names are those of Conduit's connector."""

    passed: ClassVar[frozenset[str]] = SHARED  # which `client.…` there may be

    servers: Annotated[str, AfterValidator(_servers)] = Field(
        description="Where to begin, with commas between them: `kafka-1:9092,kafka-2:9092`. The others are found through these."
    )
    client_id: str = Field(
        "penstock",
        alias="clientID",
        min_length=1,
        description="The name that Kafka's logs and quotas know this client by.",
    )
    tls: bool = Field(False, alias="tls.enabled", description="Connections are encrypted.")
    ca_cert: _Certificate | None = Field(
        None,
        alias="caCert",
        description="tls: who vouches for the servers, as PEM text: `${file:ca.pem}`. Default: whom the machine trusts. Where it is given,"
        " nobody else is trusted.",
    )
    client_cert: _Certificate | None = Field(
        None, alias="clientCert", description="tls: the client's own certificate, as PEM text."
    )
    client_key: Annotated[str, _pem("PRIVATE KEY")] | None = Field(
        None, alias="clientKey", repr=False, description="tls: its private key, as PEM text (PKCS #8), by reference."
    )
    insecure_skip_verify: bool = Field(
        False, alias="insecureSkipVerify", description="tls: take whatever certificate a server has."
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = Field(
        None, alias="saslMechanism", description="How the client says who it is. Default: not at all."
    )
    sasl_username: str | None = Field(None, alias="saslUsername", min_length=1, description="With `saslMechanism`.")
    sasl_password: str | None = Field(
        None,
        alias="saslPassword",
        min_length=1,
        repr=False,
        description="With `saslMechanism`; by reference: `${KAFKA_PASSWORD}`.",
    )
    client: Mapping[str, str] = Field(
        {},
        alias="client.…",
        description="A setting of Kafka's clients by its own name, such as `client.metadata.max.age.ms`.",
    )

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, given: Any) -> Any:
        """`client.x` is one of many."""
        if not isinstance(given, Mapping):
            return given
        own = {name: value for name, value in given.items() if isinstance(name, str) and name.startswith(PASSED)}
        own = {name: value for name, value in own.items() if name != "client.…"}
        for name in own:
            if name.removeprefix(PASSED) not in cls.passed:
                may = ", ".join(PASSED + known for known in sorted(cls.passed))
                raise ValueError(f"must not have {name!r}: of the clients' own settings there may be {may}")
        rest = {name: value for name, value in given.items() if name not in own}
        return {**rest, "client.…": {n.removeprefix(PASSED): str(v) for n, v in own.items()}} if own else rest

    @model_validator(mode="after")
    def _fits(self) -> KafkaConnection:
        if not self.tls and (self.ca_cert or self.client_cert or self.client_key or self.insecure_skip_verify):
            raise ValueError("must have `tls.enabled: true` where certificates are given")
        if (self.client_cert is None) != (self.client_key is None):
            raise ValueError("must have both `clientCert` and `clientKey`, or neither")
        given = {bool(self.sasl_mechanism), bool(self.sasl_username), bool(self.sasl_password)}
        if len(given) > 1:
            raise ValueError("must have all of `saslMechanism`, `saslUsername` and `saslPassword`, or none")
        return self

    @property
    def protocol(self) -> str:
        return ("SASL_" if self.sasl_mechanism else "") + ("SSL" if self.tls else "PLAINTEXT")

    def librdkafka(self) -> dict[str, Any]:
        """What clients of `confluent_kafka` are made with."""
        made: dict[str, Any] = {
            "bootstrap.servers": self.servers,
            "client.id": self.client_id,
            "security.protocol": self.protocol,
            "log_level": 0,  # errors are raised, and not printed
            "socket.connection.setup.timeout.ms": int(ANSWER * 1000),
            "reconnect.backoff.max.ms": 1000,
            "allow.auto.create.topics": False,
        }
        if self.ca_cert is not None:
            made["ssl.ca.pem"] = self.ca_cert
        if self.client_cert is not None:
            made |= {"ssl.certificate.pem": self.client_cert, "ssl.key.pem": self.client_key}
        if self.insecure_skip_verify:
            made |= {"enable.ssl.certificate.verification": False, "ssl.endpoint.identification.algorithm": "none"}
        if self.sasl_mechanism is not None:
            made["sasl.mechanism"] = self.sasl_mechanism
            made |= {"sasl.username": self.sasl_username, "sasl.password": self.sasl_password}
        return made | dict(self.client)

    def java(self) -> dict[str, str]:
        """What Kafka's Java client is told. Spark takes each name with `kafka.` before it."""
        made = {
            "bootstrap.servers": self.servers,
            "client.id": self.client_id,
            "security.protocol": self.protocol,
        }
        if self.ca_cert is not None:
            made |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ca_cert}
        if self.client_cert is not None and self.client_key is not None:
            made |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": self.client_cert}
            made["ssl.keystore.key"] = self.client_key
        if self.sasl_mechanism is not None:
            name, password = (_quoted(v or "") for v in (self.sasl_username, self.sasl_password))
            made["sasl.mechanism"] = self.sasl_mechanism
            made["sasl.jaas.config"] = f"{_MODULES[self.sasl_mechanism]} required username={name} password={password};"
        return made | dict(self.client)


def _quoted(text: str) -> str:
    """As a JAAS file wants it."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# -- clients -----------------------------------------------------------------------------------------------------------------------------


def refuse_without_client() -> None:
    """Said before anything is started."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError as e:
        raise Stop(
            "The connector `kafka` needs confluent-kafka",
            code="kafka.client",
            why=str(e),
            hint="pip install 'penstock[kafka]'",
        ) from e


class Heard:
    """What a client says aside, of connections: an answer that does not come has its reason here. From any thread."""

    def __init__(self) -> None:
        self._last: KafkaError | None = None
        self.serve: Callable[[], object] = lambda: None  # clients say it only when they are polled

    def __call__(self, error: KafkaError) -> None:
        """For `error_cb`. That all servers are down says less than why."""
        from confluent_kafka import KafkaError as E

        if error.code() != E._ALL_BROKERS_DOWN or self._last is None:
            self._last = error

    def forget(self) -> None:
        self._last = None

    @property
    def last(self) -> KafkaError | None:
        return self._last


@contextmanager
def connected(settings: KafkaConnection, heard: Heard | None = None) -> Iterator[None]:
    """Within it errors of `confluent_kafka` are what the caller should do."""
    refuse_without_client()
    from confluent_kafka import KafkaException

    try:
        yield
    except KafkaException as e:
        raise trouble(e.args[0], settings, heard) from e


def answered(future: Future[T], stop: threading.Event | None = None, timeout: float = ANSWER) -> T:
    """What a future of an `AdminClient` comes to. Ends early, with `Retry`, when `stop` is set."""
    until = time.monotonic() + timeout + 2.0  # it has a time-out of its own, which says more
    while stop is None or not stop.is_set():
        with suppress(NotYet):
            return future.result(0.2)
        if time.monotonic() > until:
            raise Retry("Kafka does not answer", code="kafka.connection", why=f"nothing came for {timeout:.0f} s")
    raise Retry("The work with Kafka was interrupted", code="kafka.connection")


def trouble(error: KafkaError, settings: KafkaConnection, heard: Heard | None = None) -> PenstockError:
    """What an error of librdkafka means. Its words never hold a password."""
    from confluent_kafka import KafkaError as E

    said = None
    if heard is not None and error.code() in _vague():
        heard.serve()
        said = heard.last
    code, words = error.code(), _words(error)
    if said is not None:
        code, words = said.code(), _words(said)
    where = settings.servers
    if code in (E._AUTHENTICATION, E.SASL_AUTHENTICATION_FAILED, E.UNSUPPORTED_SASL_MECHANISM, E.ILLEGAL_SASL_STATE):
        return Stop(
            f"Kafka at {where} does not let us in: {words}",
            code="kafka.access",
            hint="check `saslMechanism`, `saslUsername` and `saslPassword`",
        )
    if code in _authorization():
        return Stop(
            f"Kafka at {where} refuses: {words}",
            code="kafka.access",
            hint="the user needs the rights Describe and Read on the topics of a source, Write on those of a destination",
        )
    if code == E._SSL or words.startswith("SSL handshake failed"):
        return Stop(
            f"No encrypted connection to Kafka at {where}: {words}",
            code="kafka.tls",
            hint="check `tls.enabled`, `caCert`, `clientCert` and `clientKey`, and that the port is the one for TLS",
        )
    if code in (E.UNKNOWN_TOPIC_OR_PART, E._UNKNOWN_TOPIC, E._UNKNOWN_PARTITION, E.TOPIC_EXCEPTION):
        return Stop(
            f"Kafka at {where} does not know a topic or partition: {words}",
            code="kafka.unknown-topic",
            hint="correct the name, or create the topic",
        )
    if code in _passing() or error.retriable():
        return Retry(
            f"Kafka at {where} can't be reached, or does not answer: {words}",
            code="kafka.connection",
            hint="see that it runs, that `servers` is right, and that the addresses it advertises can be reached from here and from"
            " Spark's tasks",
        )
    return Stop(f"Kafka at {where} says: {words}", code="kafka.failed", why=f"its code is {error.name()}")


def _words(error: KafkaError) -> str:
    """Without the name of the connection, which librdkafka puts first, and its advice about its own settings."""
    text = re.sub(r"^(?:\[?[^\s]*(?:bootstrap|/[0-9]+|thrd:)[^\s]*\]?:? )+", "", error.str().strip()).partition("\n")[0]
    return re.sub(r"\s*\((?:after|install|add)[^()]*\)\s*$", "", text)


def _vague() -> tuple[int, ...]:
    from confluent_kafka import KafkaError as E

    return (E._TIMED_OUT, E._TRANSPORT, E._ALL_BROKERS_DOWN, E._TIMED_OUT_QUEUE, E._WAIT_COORD)


def _passing() -> tuple[int, ...]:
    from confluent_kafka import KafkaError as E

    return (
        *_vague(),
        E._RESOLVE,
        E._DESTROY,
        E._BAD_MSG,
        E.REQUEST_TIMED_OUT,
        E.BROKER_NOT_AVAILABLE,
        E.LEADER_NOT_AVAILABLE,
        E.NOT_LEADER_FOR_PARTITION,
        E.COORDINATOR_NOT_AVAILABLE,
        E.COORDINATOR_LOAD_IN_PROGRESS,
        E.NOT_COORDINATOR,
        E.NETWORK_EXCEPTION,
        E.KAFKA_STORAGE_ERROR,
        E.NOT_CONTROLLER,
    )


def _authorization() -> tuple[int, ...]:
    from confluent_kafka import KafkaError as E

    return (
        E.TOPIC_AUTHORIZATION_FAILED,
        E.GROUP_AUTHORIZATION_FAILED,
        E.CLUSTER_AUTHORIZATION_FAILED,
        E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    )
