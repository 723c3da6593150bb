"""A share of the crash laboratory: fixed seeds, and every destination that needs no package of Spark. `make crash` runs all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import controls, scenes, work
from tests.lab.work import Piece
from tests.support.harness import Gateway

pytestmark = [pytest.mark.spark, pytest.mark.crash]

KILLS = {"files": 8, "lines": 5, "postgres": 6, "queue": 6, "three": 4, "deleting": 4, "chained": 5, "plugin": 5}


@pytest.fixture(scope="module")
def servers() -> Iterator[scenes.Servers]:
    made = scenes.Servers()
    yield made
    made.close()


@pytest.mark.contract("C1", "C4", "C5", "C12", "X1", safeguard="lines-note")
@pytest.mark.parametrize("name", KILLS)
def test_whatever_is_killed_every_record_is_there_once(
    name: str, tmp_path: Path, gateway: Gateway, servers: scenes.Servers
) -> None:
    found = work.run(Piece(name, KILLS[name], work.seed_of(7, name)), tmp_path, gateway, servers, print)
    assert found.clean, "\n".join(found.stories)
    assert found.kills >= KILLS[name], found


@pytest.mark.contract("C4", "C5", "X1", reason="the build is broken on purpose")
@pytest.mark.parametrize("build", controls.BUILDS)
def test_a_build_that_is_broken_is_found_out(
    build: str, tmp_path: Path, gateway: Gateway, servers: scenes.Servers
) -> None:
    piece = Piece(controls.BUILDS[build].scene, controls.KILLS, work.seed_of(7, build), broken=build)
    assert not work.run(piece, tmp_path, gateway, servers, print).clean


@pytest.mark.contract("C4", "C5", safeguard="lines-note")
def test_without_a_safeguard_the_same_kills_show(tmp_path: Path, gateway: Gateway, servers: scenes.Servers) -> None:
    piece = Piece("lines", controls.KILLS, work.seed_of(7, "lines-note"), off="lines-note")
    assert not work.run(piece, tmp_path, gateway, servers, print).clean
