"""The class that authors subclass in their own tests. The only module of the SDK that imports pytest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from penstock_protocol.server import Served
from penstock_sdk.connector import Connector
from penstock_sdk.testing.bench import Setup
from penstock_sdk.testing.kit import CHECKS, PATIENCE, RECORDS, Kit
from penstock_sdk.testing.results import Check
from penstock_sdk.testing.subjects import Inside, Program, Subject


class ConnectorTests(Setup):
    """Subclass it as `TestSomething`, name the connector or the command that starts it or both, and say with the methods of `Setup` where
    it can read and write. Each check is a test of its own; one that says nothing about the connector is skipped with its reason."""

    connector: ClassVar[Connector | Served | None] = None
    command: ClassVar[Sequence[str] | None] = None
    environment: ClassVar[Mapping[str, str]] = {}  # that the program gets
    records: ClassVar[int] = RECORDS
    patience: ClassVar[float] = PATIENCE  # seconds that any one thing may take

    folder: Path  # empty, and for one check alone
    _kits: ClassVar[dict[tuple[type, str], Kit]] = {}

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "conformance_check" in metafunc.fixturenames:
            ways = [way for way, there in (("here", self.connector), ("program", self.command)) if there is not None]
            cases = [(way, check) for way in ways for check in CHECKS]
            names = [check.name if len(ways) == 1 else f"{way}-{check.name}" for way, check in cases]
            metafunc.parametrize(("conformance_way", "conformance_check"), cases, ids=names)

    def test_conformance(self, conformance_way: str, conformance_check: Check, tmp_path: Path) -> None:
        self.folder = tmp_path
        key = (type(self), conformance_way)
        if key not in self._kits:
            self._kits[key] = Kit(self._subject(conformance_way), records=self.records, patience=self.patience)
        result = self._kits[key].run(conformance_check, self)
        if result.state == "not checked":
            pytest.skip(result.reason)
        if result.state == "failed":
            pytest.fail(
                "\n".join([f"{conformance_check.name}: {conformance_check.about}", *result.lines()]), pytrace=False
            )

    def _subject(self, way: str) -> Subject:
        if way == "here":
            assert self.connector is not None
            return Inside(self.connector)
        assert self.command is not None
        connector = self.connector if isinstance(self.connector, Connector) else None
        return Program(self.command, self.environment, connector)
