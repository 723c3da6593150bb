"""Kafka to Kafka, where engine and broker are killed at random and at named points: every record is there once, in its order."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import kafka
from tests.support.harness import Gateway
from tests.support.kafka_cases import Between, with_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.crash]

# Of K6a, in its order: taken, fenced, read, written, committed, noted.
POINTS = [
    *(("K6a", nth) for nth in range(1, 7)),
    *((point, 1) for point in ("K1", "K2", "K6", "ledger:prepare", "K7", "K8", "ledger:done", "done", "ack", "acked")),
]


@pytest.fixture(scope="session")
def spark(spark: SparkSession) -> SparkSession:
    return with_package(spark)


@pytest.fixture(scope="module")
def broker() -> Iterator[kafka.Broker]:
    made = kafka.Broker()
    yield made
    made.stop()


def harass(case: Between, gateway: Gateway, broker: kafka.Broker, *, kills: int, seed: int) -> Counter[str]:
    """Kills until `kills` landed, then runs to the end. Returns where engines died and how often the broker did."""
    chance, landed = random.Random(seed), Counter[str]()
    for _ in range(3 * kills + 10):
        if sum(n for what, n in landed.items() if what != "broker") >= kills:
            break
        point, nth = chance.choice(POINTS)
        group, with_broker = chance.random() < 0.2, chance.random() < 0.25
        case.gateway = None if group else gateway
        case.issue_more(chance.randrange(5, 25))
        by_chance = chance.random() < 0.3
        running = case.start(kill_at=None if by_chance else point, kill_nth=nth, kill_after="K2", kill_group=group)
        if (by_chance or with_broker) and running.await_point("K2"):
            time.sleep(chance.random() * 0.4)
            if with_broker:
                broker.kill()
                landed["broker"] += 1
            if by_chance:
                running.kill(group=group)
            if with_broker:
                time.sleep(chance.random())
                broker.start()
        ended = running.wait()
        if ended.killed:
            landed[f"{ended.last or 'start'}{' with its JVM' if group else ''}"] += 1
    case.gateway = gateway
    case.finish()
    return landed


def _campaign(tmp_path: Path, gateway: Gateway, broker: kafka.Broker, *, kills: int, seed: int) -> Counter[str]:
    case = Between(tmp_path / "case", gateway, servers=broker.servers)
    landed = harass(case, gateway, broker, kills=kills, seed=seed)
    print(f"\n{len(case.issued)} records, {landed}")
    assert sum(n for what, n in landed.items() if what != "broker") >= kills, landed
    assert case.wrong() == [], landed
    return landed


@pytest.mark.contract(
    "C4", "C5", "S5", "S6", "X1", "X5", safeguard="kafka-tail: its control is below; engine and broker are killed"
)
def test_kills_of_engine_and_broker_cost_nothing(
    tmp_path: Path, spark: SparkSession, gateway: Gateway, broker: kafka.Broker
) -> None:
    """The share that runs in CI."""
    landed = _campaign(tmp_path, gateway, broker, kills=8, seed=4)
    assert landed["broker"] >= 1


@pytest.mark.long
@pytest.mark.contract("C4", "C5", "S5", "S6", "X1", "X5", safeguard="kafka-tail: its control is below")
def test_a_hundred_kills_of_engine_and_broker_cost_nothing(
    tmp_path: Path, spark: SparkSession, gateway: Gateway, broker: kafka.Broker
) -> None:
    landed = _campaign(tmp_path, gateway, broker, kills=100, seed=7)
    assert landed["broker"] >= 10


@pytest.mark.contract("C5", "C19", "X1", safeguard="kafka-tail")
@pytest.mark.parametrize("off", [(), ("kafka-tail",)])
def test_what_was_committed_and_not_noted_is_found_again(
    tmp_path: Path, spark: SparkSession, gateway: Gateway, broker: kafka.Broker, off: tuple[str, ...]
) -> None:
    case = Between(tmp_path / "case", gateway, servers=broker.servers)
    case.issue_more(30)
    for _ in range(2):
        assert case.run(kill_at="K6a", kill_nth=5, off=off).killed
    case.finish(off=off)
    if off:
        assert any(n > 1 for n in case.found().values())
    else:
        assert case.wrong() == []


@pytest.mark.contract("C6", "C7", "C8", reason="hashes and ranges are compared over attempts, with what came meanwhile")
def test_a_delivery_keeps_its_hash_and_its_ranges_over_attempts(
    tmp_path: Path, spark: SparkSession, gateway: Gateway, broker: kafka.Broker
) -> None:
    case = Between(tmp_path / "case", gateway, servers=broker.servers)
    case.issue_more(5)
    assert case.run(kill_at="K2").killed
    [(ranges,)] = case.rows("SELECT ranges FROM snapshot")
    case.issue_more(5)
    assert case.run(kill_at="K7").killed
    assert case.rows("SELECT ranges FROM snapshot") == [(ranges,)]
    [(first,)] = case.rows("SELECT hash FROM delivery WHERE destination = 'out'")
    case.finish()
    headers = [dict(m.headers)["penstock.hash"] for m in kafka.read_committed(case.servers, case.to)]
    assert headers.count(str(first).encode()) == 15
    assert len(set(headers)) == 2
    assert case.wrong() == []


BAD = "    processors: [{id: bad, plugin: error, condition: \"after LIKE 'p1:3:%'\"}]\n"


@pytest.mark.contract("X4", reason="the control is that of `files`: nacks are kept by the ledger, whatever is read")
@pytest.mark.parametrize("reverse", [False, True])
def test_a_delivery_keeps_the_nacks_of_the_attempt_that_was_prepared(
    tmp_path: Path, spark: SparkSession, gateway: Gateway, broker: kafka.Broker, reverse: bool
) -> None:
    case = Between(tmp_path / "case", gateway, servers=broker.servers, processors="" if reverse else BAD)
    case.issue_more(10)
    assert case.run(kill_at="K8").killed
    case.processors = BAD if reverse else ""
    case.configure()
    case.finish()
    assert case.wrong(without=frozenset() if reverse else frozenset({"p1:3"})) == []
    assert case.rows("SELECT count(*) FROM nack") == [(0 if reverse else 1,)]
