"""What of the `kafka` source needs neither Kafka nor Spark: settings, shares, seqs, and what errors mean."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from penstock.connectors.kafka import planning
from penstock.connectors.kafka.connection import Heard, KafkaConnection, answered, trouble
from penstock.connectors.kafka.source_settings import KafkaSourceSettings, milliseconds
from penstock.errors import Retry, Stop
from penstock.native import Ranges

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----"
OLD_KEY = "-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----"


def settings(**more: Any) -> KafkaSourceSettings:
    what = {} if "pattern" in more else {"topics": "a"}
    return KafkaSourceSettings.model_validate({"servers": "k:9092", **what, **more})


# -- settings ----------------------------------------------------------------------------------------------------------------------------


def test_conduits_names_and_defaults() -> None:
    s = settings()
    assert (s.begins, s.names, s.group_id, s.protocol) == ("latest", ("a",), None, "PLAINTEXT")
    assert settings(readFromBeginning="true").begins == "earliest"
    assert settings(readFromBeginning="false").begins == "latest"
    assert settings(topics="a, b").names == ("a", "b")
    assert settings(servers="a:1, [::1]:2").servers == "a:1,[::1]:2"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"servers": "k"}, "with their ports"),
        ({"servers": "k:0"}, "with their ports"),
        ({"servers": "k:1,"}, "commas between"),
        ({"pattern": "("}, "regular expression"),
        ({"topics": "a/b"}, "names of topics"),
        ({"topics": "a,a"}, "each once"),
        ({"pattern": "x", "topics": "a"}, "and not both"),
        ({"start": "latest", "readFromBeginning": "true"}, "and not both"),
        ({"start": "offsets"}, "start-offsets"),
        ({"start-offsets": "a/0=1"}, "start: offsets"),
        ({"start": "offsets", "start-offsets": "a/0=1,a/0=2"}, "each once"),
        ({"start": "offsets", "start-offsets": "a=1"}, "offsets of partitions"),
        ({"start": "timestamp", "start-timestamp": "2026-01-31T12:00:00"}, "with its zone"),
        ({"retryGroupJoinErrors": "false"}, "no consumer group is joined"),
        ({"tls.enabled": "true", "insecureSkipVerify": "true"}, "caCert"),
        ({"caCert": CERTIFICATE}, "tls.enabled: true"),
        ({"tls.enabled": "true", "caCert": "/a/path.pem"}, "text of a PEM file"),
        ({"tls.enabled": "true", "clientCert": CERTIFICATE}, "or neither"),
        ({"tls.enabled": "true", "clientCert": CERTIFICATE, "clientKey": OLD_KEY}, "openssl pkcs8"),
        ({"saslUsername": "me"}, "or none"),
        ({"saslMechanism": "GSSAPI", "saslUsername": "me", "saslPassword": "x"}, "PLAIN"),
        ({"client.foo": "1"}, "must not have 'client.foo'"),
        ({"client.bootstrap.servers": "other:1"}, "must not have"),
        ({"poll": "1ms"}, "10ms"),
    ],
)
def test_what_can_not_be_meant_is_refused(more: dict[str, str], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        settings(**more)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_both_clients_are_told_the_same() -> None:
    s = settings(
        **{
            "tls.enabled": "true",
            "caCert": CERTIFICATE,
            "clientCert": CERTIFICATE,
            "clientKey": KEY,
            "saslMechanism": "SCRAM-SHA-512",
            "saslUsername": "me",
            "saslPassword": 'a"b\\c',
            "client.metadata.max.age.ms": "5",
        }
    )
    one, other = s.librdkafka(), s.java()
    for name in ("bootstrap.servers", "client.id", "security.protocol", "sasl.mechanism", "metadata.max.age.ms"):
        assert str(one[name]) == other[name]
    assert one["security.protocol"] == "SASL_SSL"
    assert (one["ssl.ca.pem"], one["ssl.key.pem"], one["sasl.password"]) == (CERTIFICATE, KEY, 'a"b\\c')
    assert (other["ssl.truststore.certificates"], other["ssl.keystore.key"]) == (CERTIFICATE, KEY)
    assert other["sasl.jaas.config"].endswith('ScramLoginModule required username="me" password="a\\"b\\\\c";')
    assert 'a"b' not in repr(s)
    assert "PRIVATE KEY" not in repr(s)


def test_moments() -> None:
    assert milliseconds("1700000000123") == 1700000000123
    assert milliseconds("2023-11-14T22:13:20.123Z") == milliseconds("2023-11-14T23:13:20.123+01:00") == 1700000000123
    assert milliseconds("1969-12-31T23:59:59Z") == -1000


# -- what goes into a batch --------------------------------------------------------------------------------------------------------------

places = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 5)), st.integers(0, 100), min_size=1)


@given(places, st.integers(1, 300), st.integers(0, 20))
def test_shares_are_full_and_fair(waiting: dict[tuple[str, int], int], most: int, turn: int) -> None:
    found = planning.shared(waiting, most, turn)
    assert sum(found.values()) == min(most, sum(waiting.values()))
    assert all(0 < n <= waiting[p] for p, n in found.items())
    short = [n for p, n in found.items() if n < waiting[p]]
    if short and most >= sum(1 for n in waiting.values() if n):
        assert max(found.values()) - min(short) <= 1  # nobody gets less than another one, unless that is all there is


def test_everybody_has_a_turn_where_there_is_not_enough_for_all() -> None:
    waiting = {("t", p): 100 for p in range(5)}
    seen, turn = set(), 0
    for _ in range(3):
        found = planning.shared(waiting, 2, turn)
        turn += len(found)
        seen |= set(found)
    assert seen == set(waiting)


@given(st.integers(0, 500), st.integers(0, 2**40), st.integers(1, 1000), st.integers(0, 1100))
def test_a_range_that_is_cut_has_each_offset_in_one_half(number: int, start: int, n: int, cut: int) -> None:
    r = planning.range_of("c", "id", ("t", 3), number, start, start + n, 10)
    assert planning.number_of(r) == number
    ranges = Ranges((r,), planning.next_number(r.base + n) << planning.SHIFT)
    halves = [planning.stretch_of(x) for half in ranges.split(r.base + cut) for x in half]
    assert halves[0].start == start
    assert halves[-1].end == start + n
    assert sum(s.offsets for s in halves) == n
    assert all(s.first == number << planning.SHIFT for s in halves)


def test_numbers_of_partitions_never_come_twice() -> None:
    assert planning.next_number(0) == 0
    assert planning.next_number(1 << planning.SHIFT) == 1
    assert planning.next_number((1 << planning.SHIFT) + 1) == 2


@pytest.mark.parametrize(
    ("partitions", "each", "tasks"), [(1, 5, 1), (4, 25, 1), (4, 5_000, 2), (4, 250_000, 4), (120, 1, 15), (3, 0, 1)]
)
def test_few_records_share_a_task(partitions: int, each: int, tasks: int) -> None:
    made = [planning.range_of("c", "i", ("t", p), p, 0, each, 1) for p in range(partitions)]
    assert planning.tasks([planning.stretch_of(r) for r in made]) == tasks


def test_seqs_are_looked_up_by_topic_and_partition() -> None:
    made = [planning.stretch_of(planning.range_of("c", "i", p, n, 5, 9, 1)) for n, p in enumerate([("a", 2), ("b", 0)])]
    assert planning.bases(made) == {"a": (None, None, 0), "b": (1 << planning.SHIFT,)}


# -- errors ------------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind", "named"),
    [
        (KafkaError._ALL_BROKERS_DOWN, Retry, "kafka.connection"),
        (KafkaError._RESOLVE, Retry, "kafka.connection"),
        (KafkaError.LEADER_NOT_AVAILABLE, Retry, "kafka.connection"),
        (KafkaError._AUTHENTICATION, Stop, "kafka.access"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Stop, "kafka.access"),
        (KafkaError._SSL, Stop, "kafka.tls"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Stop, "kafka.unknown-topic"),
        (KafkaError.INVALID_CONFIG, Stop, "kafka.failed"),
    ],
)
def test_errors_say_what_to_do(code: int, kind: type[Exception], named: str) -> None:
    connection = KafkaConnection.model_validate({"servers": "k:9092"})
    error = trouble(KafkaError(code, "words"), connection)
    assert type(error) is kind
    assert error.code == named
    assert "k:9092" in error.what
    assert "words" in error.what


def test_an_answer_that_does_not_come_has_the_reason_that_was_heard() -> None:
    connection = KafkaConnection.model_validate({"servers": "k:9092"})
    heard = Heard()
    heard.serve = lambda: heard(KafkaError(KafkaError._AUTHENTICATION, "wrong password"))
    error = trouble(KafkaError(KafkaError._TIMED_OUT, "timed out"), connection, heard)
    assert error.code == "kafka.access"
    heard(KafkaError(KafkaError._ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert heard.last is not None
    assert heard.last.str() == "wrong password"  # that all are down says less


def test_whoever_waits_can_be_interrupted() -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Retry, match="interrupted"):
        answered(Future(), stop)
