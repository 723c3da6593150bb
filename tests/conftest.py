"""Shared by all tests: one Spark session per test process, and cases whose children attach to its JVM."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

from penstock.testing import faults
from tests.support import zygote
from tests.support.harness import Case, Gateway, end_children

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# Spark's workers are this Python, also where a test has not started Spark itself; and children are forked while nothing of this changes.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

# How quick a machine is says nothing about what is tested.
hypothesis.settings.register_profile("any", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("any")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from penstock.engine import session

    made = session.start("local[2,4]", {}, tmp_path_factory.mktemp("spark") / "spark.log")
    yield made
    made.stop()


@pytest.fixture(scope="session")
def gateway(spark: SparkSession) -> Gateway:
    """Port and secret of the tests' own JVM, for children to attach to."""
    parameters = spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
    zygote.begin()
    return parameters.port, parameters.auth_token


@pytest.fixture
def case(tmp_path: Path, gateway: Gateway) -> Case:
    """A pipeline from files to files whose children use the tests' JVM: killing one leaves its tasks running."""
    return Case(tmp_path / "case", gateway)


@pytest.fixture
def make_case(tmp_path: Path, gateway: Gateway) -> Callable[..., Case]:
    """Several cases in one test, e.g. the promise and its control."""

    def make(name: str, **options: Any) -> Case:
        return Case(tmp_path / name, gateway, **options)

    return make


# What takes longest first: else one of two processes has the campaigns of kills before it when the other one has nothing left to do.
_ORDER = {name: n for n, name in enumerate(("crash", "integration", "contract", "conformance", "property", "unit"))}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A contract test names the safeguard that its control switches off, or says why it has none."""
    items.sort(key=lambda item: _ORDER.get(item.path.parent.name, len(_ORDER)))
    for item in items:
        for mark in item.iter_markers("contract"):
            if not mark.args or not (mark.kwargs.get("safeguard") or mark.kwargs.get("reason")):
                raise pytest.UsageError(f"{item.nodeid}: @contract needs rows, and a safeguard or a reason")


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Servers end with the file whose tests have asked for them."""
    support = sys.modules.get("tests.support.kafka")
    if support is not None and (nextitem is None or nextitem.path != item.path):
        support.end_brokers()


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    faults.install()
    end_children()
