"""Kafka with TLS, passwords and rights, both ways: who is let in reads and writes, who is not is told why, and loses nothing."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from penstock.pipeline import Pipeline, run
from tests.support import kafka
from tests.support.kafka_cases import with_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engine.supervisor import PipelineResult

pytestmark = pytest.mark.spark

PASSWORD = 'se"cret'
STORE = "changeit"


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    return with_package(spark)


@dataclass
class Guarded:
    """A broker with TLS, users and rights, and a port of its own for those who look after it."""

    broker: kafka.Broker
    ca: str

    @property
    def inner(self) -> str:
        return f"127.0.0.1:{self.broker._inner}"

    def allow(self, user: str, kind: ResourceType, name: str, *operations: AclOperation) -> None:
        bindings = [
            AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", o, AclPermissionType.ALLOW)
            for o in operations
        ]
        a = kafka.admin(self.inner)  # one that nobody holds takes its futures with it
        for future in a.create_acls(bindings).values():
            future.result(30)

    def client(self, user: str, **more: Any) -> dict[str, Any]:
        given = {"servers": self.broker.servers, "tls.enabled": True, "caCert": self.ca}
        return {**given, "saslMechanism": "PLAIN", "saslUsername": user, "saslPassword": PASSWORD, **more}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("tls")
    store, ca = folder / "store.p12", _certificate(folder / "store.p12")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    users = " ".join(f'user_{name}="se\\\\"cret"' for name in ("me", "reader"))
    settings = {
        "ssl.keystore.location": str(store),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE,
        "ssl.key.password": STORE,
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required username="x" password="x" {users};'.replace(
            "\\\\", "\\"
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    made = kafka.Broker(settings=settings, listeners="SASL_SSL")
    yield Guarded(made, ca)
    made.stop()


def _certificate(store: Path) -> str:
    """One that vouches for itself; returns it as PEM."""
    common = ["-alias", "broker", "-keystore", str(store), "-storepass", STORE, "-storetype", "PKCS12"]
    make = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-ext", "SAN=ip:127.0.0.1", "-validity", "30"]
    subprocess.run(["keytool", *make, *common], check=True, capture_output=True)
    shown = subprocess.run(["keytool", "-exportcert", "-rfc", *common], check=True, capture_output=True, text=True)
    return shown.stdout


def _pipeline(guarded: Guarded, user: str, given: str, to: str, **more: Any) -> Pipeline:
    client = guarded.client(user, **more)
    p = Pipeline("p").source("in", "kafka", topics=given, start="earliest", **client)
    return p.destination("out", "kafka", topic=to, format="payload", **client)


def _ran(p: Pipeline, tmp_path: Path, spark: SparkSession) -> PipelineResult:
    return run([p], once=True, state=tmp_path / "state", spark=spark).pipelines[0]


def _topics(guarded: Guarded, name: str) -> tuple[str, str]:
    given, to = (kafka.create_topic(guarded.inner, f"{name}-{way}") for way in ("in", "out"))
    kafka.produce(guarded.inner, given, [f"{n}".encode() for n in range(20)])
    return given, to


def _found(guarded: Guarded, to: str) -> list[str]:
    return [(m.value or b"").decode() for m in kafka.read_committed(guarded.inner, to)]


EVERYTHING = (AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE)


def test_with_tls_and_a_password_records_go_from_topic_to_topic(
    tmp_path: Path, spark: SparkSession, guarded: Guarded
) -> None:
    given, to = _topics(guarded, "all")
    for name in (given, to):
        guarded.allow("me", ResourceType.TOPIC, name, *EVERYTHING, AclOperation.DESCRIBE_CONFIGS)
    for kind in (ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP):
        guarded.allow("me", kind, "*", *EVERYTHING)
    result = _ran(_pipeline(guarded, "me", given, to), tmp_path, spark)
    assert result.error is None, result.error
    assert _found(guarded, to) == [f"{n}" for n in range(20)]


def test_who_may_not_write_is_told_which_right_is_missing_and_goes_on_when_it_is_there(
    tmp_path: Path, spark: SparkSession, guarded: Guarded
) -> None:
    given, to = _topics(guarded, "read")
    guarded.allow("reader", ResourceType.TOPIC, given, AclOperation.READ, AclOperation.DESCRIBE)
    guarded.allow("reader", ResourceType.TOPIC, to, AclOperation.DESCRIBE, AclOperation.READ)
    guarded.allow("reader", ResourceType.GROUP, "*", *EVERYTHING)
    p = _pipeline(guarded, "reader", given, to)
    error = _ran(p, tmp_path, spark).error
    assert error is not None
    assert (error.code, "transactional ids" in (error.hint or "")) == ("kafka.write", True), error
    assert PASSWORD not in str(error)
    guarded.allow("reader", ResourceType.TRANSACTIONAL_ID, "*", AclOperation.WRITE, AclOperation.DESCRIBE)
    error = _ran(p, tmp_path, spark).error
    assert error is not None
    assert (error.code, "allow Write" in (error.hint or "")) == ("kafka.write", True), str(error)
    assert _found(guarded, to) == []
    guarded.allow("reader", ResourceType.TOPIC, to, AclOperation.WRITE)
    result = _ran(p, tmp_path, spark)
    assert result.error is None, result.error
    assert _found(guarded, to) == [f"{n}" for n in range(20)]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"caCert": None}, "kafka.tls"),
        ({"saslPassword": "wrong"}, "kafka.access"),
        ({"tls.enabled": False, "caCert": None}, "kafka.connection"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    tmp_path: Path, spark: SparkSession, guarded: Guarded, change: dict[str, Any], code: str
) -> None:
    client = {name: v for name, v in {**guarded.client("me"), **change}.items() if v is not None}
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("a\n")
    p = Pipeline("p").source("in", "files", path=folder, settle="0s")
    p.destination("out", "kafka", topic="t", format="payload", **client)
    error = _ran(p, tmp_path, spark).error
    assert error is not None
    assert error.code == code, error
    assert error.hint
    assert "wrong" not in str(error)
