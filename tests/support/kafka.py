"""A real Kafka broker for tests, and plain clients for oracles: nothing here imports Penstock.

The server's jars come from Maven Central, once, into the user's cache; `python -m tests.support.kafka` fetches them before the tests do.
One broker for each test process, started when it is first asked for; `Broker` makes more, for those who end it.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)

VERSION = "4.3.1"
_POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion><groupId>penstock</groupId><artifactId>kafka</artifactId><version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""
_JAVA = (
    "java",
    "-Xmx256m",
    "-Xss512k",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:-UsePerfData",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
)
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "num.network.threads": "1",
    "num.io.threads": "2",
    "num.replica.fetchers": "1",
    "background.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.cleaner.backoff.ms": "200",
    "log.retention.ms": "-1",  # tests choose timestamps
    "log.retention.check.interval.ms": "500",
    "broker.session.timeout.ms": "1500",  # a broker that was killed waits for its own end
    "broker.heartbeat.interval.ms": "300",
    "log.segment.delete.delay.ms": "0",
    "log.initial.task.delay.ms": "100",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "controlled.shutdown.enable": "false",
}


@cache
def broker() -> Broker:
    """The one that tests share. Skips where it can't be had."""
    return Broker()


_RUNNING: list[Broker] = []


def end_brokers() -> None:
    """A broker that nobody asks anything takes a tenth of a processor."""
    broker.cache_clear()
    while _RUNNING:
        _RUNNING.pop().stop()


@dataclass(frozen=True)
class Message:
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = 0  # milliseconds


@dataclass
class Broker:
    """One node that is broker and controller, in a folder and on ports of its own; started at once."""

    settings: Mapping[str, str] = field(default_factory=dict)  # of the server, beside and above those here
    listeners: str = "PLAINTEXT"  # the protocol of the port that clients use
    environment: Mapping[str, str] = field(default_factory=dict)
    java: Sequence[str] = ()  # further arguments of Java

    def __post_init__(self) -> None:
        self._jars = jars()
        _RUNNING.append(self)
        self.folder = Path(tempfile.mkdtemp(prefix="penstock-kafka-"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        atexit.register(self.stop)
        self._process: subprocess.Popen[bytes] | None = None
        self.port, self._controller, self._inner = _free_ports(3)  # the third for us, where clients need a password
        self.configure(self.settings)
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        cluster = "A" + cluster[1:]  # a name that begins with - would be an option
        self._java("kafka.tools.StorageTool", "format", "--standalone", "-t", cluster, "-c", str(self._config))
        self.start()

    @property
    def servers(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def configure(self, settings: Mapping[str, str]) -> None:
        """Counts from the next start on."""
        inner = self._inner if self.listeners != "PLAINTEXT" else 0
        clients = f"{self.listeners}://127.0.0.1:{self.port}"
        listeners = clients + (f",INNER://127.0.0.1:{inner}" if inner else "")
        made = {
            **_SETTINGS,
            "log.dirs": str(self.folder / "data"),
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{self._controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,INNER:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
            "SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
            "inter.broker.listener.name": "INNER" if inner else "PLAINTEXT",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{self._controller}",
            **settings,
        }
        self._config.write_text(
            "".join("{}={}\n".format(name, value.replace("\\", "\\\\")) for name, value in made.items())
        )

    def start(self, timeout: float = 90) -> None:
        """On the same port and data as before; returns when it answers."""
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env={**os.environ, **self.environment},
                preexec_fn=_die_with_parent,
            )
        until = time.monotonic() + timeout
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the broker did not start: {(self.folder / 'server.log').read_text()[-3000:]}")

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """As when the machine goes down."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """It still has its connections, and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    @property
    def _config(self) -> Path:
        return self.folder / "server.properties"

    def _end(self, number: int) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(number)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        """A port that is open is not enough: the controller has to be there, too."""
        port = self.port if self.listeners == "PLAINTEXT" else self._inner
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            with suppress(KafkaException):
                return bool(admin(f"127.0.0.1:{port}").list_topics(timeout=2).brokers)
            return False
        time.sleep(0.1)
        return False

    def _command(self, *arguments: str) -> list[str]:
        return [*_JAVA, *self.java, "-cp", f"{self._jars}/*", *arguments]

    def _java(self, *arguments: str) -> None:
        done = subprocess.run(self._command(*arguments), capture_output=True, text=True, check=False, cwd=self.folder)
        assert done.returncode == 0, done.stdout + done.stderr


# -- jars --------------------------------------------------------------------------------------------------------------------------------


@cache
def jars() -> Path:
    """The folder with the server's jars. Fetched once; skips the test where they can't be had."""
    made = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / f"kafka-server-{VERSION}"
    if made.is_dir():
        return made
    if (missing := next((name for name in ("mvn", "java") if shutil.which(name) is None), None)) is not None:
        pytest.skip(f"Kafka {VERSION} can't be had: {missing} is missing")
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".kafka-{VERSION}-", dir=made.parent) as aside:
        pom = Path(aside, "pom.xml")
        pom.write_text(_POM)
        command = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={aside}/jars"], capture_output=True, text=True, check=False, timeout=600
        )
        if done.returncode != 0:
            why = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stderr.strip()[-200:])
            pytest.skip(f"Kafka {VERSION} can't be had from Maven: {why}")
        with suppress(OSError):  # two that fetch at once fetch the same
            Path(aside, "jars").rename(made)
    return made


def _free_ports(n: int) -> list[int]:
    """Below those that the kernel gives to whoever connects: a broker that is down for a moment finds its own again."""
    found: list[int] = []
    while len(found) < n:
        port = random.SystemRandom().randrange(15_000, 32_000)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            if port not in found:
                found.append(port)
    return found


def _die_with_parent() -> None:
    """A test process that is killed must not leave a server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)


# -- plain clients -----------------------------------------------------------------------------------------------------------------------

_QUIET = {"log_level": 0}


def admin(servers: str, **more: Any) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, **_QUIET, **_dotted(more)})


def create_topic(servers: str, name: str, partitions: int = 1, **config: Any) -> str:
    """Settings with `_` for `.`: `cleanup_policy="compact"`. Returns the name; the topic is there for everybody."""
    made = NewTopic(name, partitions, 1, config={k: str(v) for k, v in _dotted(config).items()})
    a = admin(servers)
    a.create_topics([made])[name].result(30)
    _await(lambda: len(_partitions(a, name)) == partitions)
    return name


def delete_topic(servers: str, name: str) -> None:
    a = admin(servers)
    a.delete_topics([name])[name].result(30)
    _await(lambda: name not in a.list_topics(timeout=10).topics)


def add_partitions(servers: str, name: str, total: int) -> None:
    a = admin(servers)
    a.create_partitions([NewPartitions(name, total)])[name].result(30)
    _await(lambda: len(_partitions(a, name)) == total)


def configure_topic(servers: str, name: str, **config: Any) -> None:
    entries = [ConfigEntry(k, str(v), incremental_operation=AlterConfigOpType.SET) for k, v in _dotted(config).items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    a = admin(servers)  # one that nobody holds takes its futures with it
    a.incremental_alter_configs([resource])[resource].result(30)


def delete_records(servers: str, topic: str, before: Mapping[int, int]) -> None:
    """What retention does, at once: of each partition everything before an offset is gone."""
    wanted = [TopicPartition(topic, p, offset) for p, offset in before.items()]
    a = admin(servers)
    for future in a.delete_records(wanted).values():
        future.result(30)


Given = tuple[Any, ...]  # value; or key, value; or key, value, headers; or key, value, headers, timestamp


def produce(servers: str, topic: str, messages: Iterable[bytes | Given], partition: int = -1, **config: Any) -> None:
    """In this order; durable when it returns."""
    p = producer(servers, **config)
    send(p, topic, messages, partition)
    assert p.flush(60) == 0


def producer(servers: str, **config: Any) -> Producer:
    made = {"bootstrap.servers": servers, "linger.ms": 5, "enable.idempotence": True, **_QUIET, **_dotted(config)}
    return Producer(made)


def send(p: Producer, topic: str, messages: Iterable[bytes | Given], partition: int = -1) -> None:
    failed: list[Any] = []

    def told(error: Any, message: Any) -> None:
        if error is not None:
            failed.append(error)

    for message in messages:
        key, value, headers, timestamp, *_ = (
            (None, message, None, 0) if isinstance(message, bytes) else (*message, *(None, 0)[len(message) - 2 :])
        )
        more: dict[str, Any] = {"timestamp": timestamp} if timestamp else {}
        while True:
            try:
                p.produce(topic, value=value, key=key, headers=headers, partition=partition, on_delivery=told, **more)
            except BufferError:
                p.poll(0.1)
            else:
                break
        p.poll(0)
    assert not failed, failed


def transactional(servers: str, name: str, **config: Any) -> Producer:
    """A producer whose transactions are begun and ended by the test."""
    p = producer(servers, transactional_id=name, **config)
    p.init_transactions(30)
    return p


def read_committed(servers: str, topic: str, *, isolation: str = "read_committed") -> list[Message]:
    """All records of a topic up to its end as it is now: by partition, then by offset. A commit has returned a moment before all partitions
    show it, so transactions that are open get some time to end."""
    until = time.monotonic() + 3
    while _highs(servers, topic, "read_committed") != _highs(servers, topic, "read_uncommitted"):
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    c = _consumer(servers, isolation)
    try:
        found: list[Message] = []
        ends: dict[int, int] = {}
        for n in _partitions(c, topic):
            low, high = c.get_watermark_offsets(TopicPartition(topic, n), timeout=30)
            if low < high:
                ends[n] = high
        c.assign([TopicPartition(topic, n, 0) for n in ends])
        until = time.monotonic() + 60
        while any(c.position([TopicPartition(topic, n)])[0].offset < end for n, end in ends.items()):
            assert time.monotonic() < until, f"{topic} can't be read to its end: {ends}, {len(found)} read"
            for m in c.consume(1000, 0.2):
                assert m.error() is None, m.error()
                found.append(_message(m))
        # What came while it was read does not count.
        found = [m for m in found if m.offset < ends[m.partition]]
        return sorted(found, key=lambda m: (m.partition, m.offset))
    finally:
        c.close()


def _highs(servers: str, topic: str, isolation: str) -> list[int]:
    c = _consumer(servers, isolation)
    try:
        partitions = sorted(_partitions(c, topic))
        return [c.get_watermark_offsets(TopicPartition(topic, n), timeout=30, cached=False)[1] for n in partitions]
    finally:
        c.close()


def ends(servers: str, topic: str) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition, as readers of committed records see it."""
    c = _consumer(servers, "read_committed")
    try:
        return {
            n: c.get_watermark_offsets(TopicPartition(topic, n), timeout=30, cached=False)
            for n in _partitions(c, topic)
        }
    finally:
        c.close()


def committed(servers: str, group: str, topic: str) -> dict[int, int]:
    """What tools show of a group: its offset in each partition where it has one."""
    c = _consumer(servers, "read_committed", group)
    try:
        wanted = [TopicPartition(topic, n) for n in _partitions(c, topic)]
        return {p.partition: p.offset for p in c.committed(wanted, timeout=30) if p.offset >= 0}
    finally:
        c.close()


def _consumer(servers: str, isolation: str, group: str = "oracle") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "fetch.wait.max.ms": 20,
            **_QUIET,
        }
    )


def _message(m: Any) -> Message:
    headers = tuple((k, v) for k, v in m.headers() or ())
    return Message(m.partition(), m.offset(), m.key(), m.value(), headers, m.timestamp()[1])


def _partitions(client: Any, topic: str) -> list[int]:
    known = client.list_topics(topic, timeout=30).topics.get(topic)
    return sorted(known.partitions) if known is not None and known.error is None else []


def _dotted(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name.replace("_", "."): value for name, value in given.items()}


def _await(condition: Any, timeout: float = 30) -> None:
    until = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


if __name__ == "__main__":
    print(f"Kafka {VERSION}: {len(list(jars().iterdir()))} jars")
