"""P15: types go through plugin programs, source to destination, or are refused with the field's name."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock_protocol.interfaces import Ack, PluginError
from penstock_protocol.process import PluginProcess
from penstock_protocol.records import Records
from penstock_protocol.schemas import Schemas, SchemaService
from penstock_sdk import avro
from tests.support import typed_program

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.contract("P15", reason="values are compared; there is nothing to switch off")


class _Host:
    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.service = stack.enter_context(SchemaService(Schemas(avro.check), {"token"}))

    def start(self, **more: Any) -> PluginProcess:
        command = [sys.executable, typed_program.__file__]
        more = {"utilities": self.service.address, "token": "token", **more}
        process = PluginProcess(command, connector_id="p:c", environment={"PYTHONPATH": str(ROOT)}, **more)
        return self._stack.enter_context(process)

    def read(self, **config: str) -> Records:
        source = self.start().source()
        source.configure(config)
        source.open(b"")
        found: list[Records] = []
        while sum(map(len, found)) < 3:
            found.append(source.read(10))
        return Records.joined(found)

    def write(self, records: Records, path: Path, **more: Any) -> list[Ack]:
        destination = self.start(**more).destination()
        destination.configure({"path": str(path)})
        destination.open()
        destination.write(records)
        acks: list[Ack] = []
        while len(acks) < len(records):
            acks += destination.acks(10)
        return acks


@pytest.fixture
def host() -> Iterator[_Host]:
    with ExitStack() as stack:
        yield _Host(stack)


def test_every_type_goes_from_a_source_program_to_a_destination_program(host: _Host, tmp_path: Path) -> None:
    acks = host.write(host.read(), tmp_path / "seen")
    assert [(ack.position, ack.error) for ack in acks] == [(b"2", ""), (b"1", ""), (b"0", "")]
    expected = repr(({"id": 2**60}, typed_program.VALUES, typed_program.VALUES))
    assert (tmp_path / "seen").read_text().splitlines() == [expected] * 3


def test_what_has_no_form_is_refused_with_the_name_of_the_field(host: _Host) -> None:
    with pytest.raises(PluginError, match=r"before\.length"):
        host.read(bad="true")


def test_without_a_schema_service_the_record_is_refused_with_the_name_of_the_field(host: _Host) -> None:
    with ExitStack() as stack:
        source = stack.enter_context(
            PluginProcess(
                [sys.executable, typed_program.__file__], connector_id="p:c", environment={"PYTHONPATH": str(ROOT)}
            )
        ).source()
        source.configure({})
        source.open(b"")
        with pytest.raises(PluginError, match=r"key\.id"):
            while True:
                source.read(10)


def test_a_record_that_does_not_fit_its_schema_is_nacked_and_its_neighbours_are_not(
    host: _Host, tmp_path: Path
) -> None:
    first, second, third = list(host.read())
    second.payload.after.raw_data = second.payload.after.raw_data[:-1]
    third.metadata["opencdc.payload.schema.version"] = "7"
    acks = host.write(Records.of([second, first, third]), tmp_path / "seen")
    assert "after.time can't be read: the bytes do not fit schema p:c:t.payload version 1" in acks[0].error
    assert acks[1].error == ""
    assert "schema version not found" in acks[2].error
    assert len((tmp_path / "seen").read_text().splitlines()) == 1


def test_a_service_that_is_gone_is_no_fault_of_the_record(host: _Host, tmp_path: Path) -> None:
    records = host.read()
    host.service.close()
    with pytest.raises(PluginError, match=r"the schema service at .* gives no answer"):
        host.write(records, tmp_path / "seen")
