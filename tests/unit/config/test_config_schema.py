"""The JSON Schema of a file: it is made of the same models, and knows what each plugin takes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from click.testing import CliRunner
from pydantic import Field

from penstock.cli.schema import schema as command
from penstock.config import Duration, Settings, Size
from penstock.config.model import (
    BatchConfig,
    ConnectorConfig,
    DeadLetterQueueConfig,
    Model,
    PipelineConfig,
    ProcessorConfig,
)
from penstock.config.schema import json_schema
from penstock.config.tests import RecordConfig, RejectConfig, TestConfig

MODELS = (
    BatchConfig,
    ConnectorConfig,
    DeadLetterQueueConfig,
    PipelineConfig,
    ProcessorConfig,
    RejectConfig,
    TestConfig,
)


class Example(Settings):
    path: str = Field(description="Where it is.")
    mode: Literal["fast", "slow"] = "fast"
    follow: bool = False
    max_rows: int = Field(10, gt=0)
    buffer: Size = 0
    every: Duration = 1.5
    options: dict[str, str] = Field({})


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return json_schema({"source": {"example": Example}, "processor": {"p": Example}, "destination": {"log": Settings}})


def _all(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        yield node
    for child in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _all(child)


def test_it_is_json_and_every_reference_in_it_leads_somewhere(made: dict[str, Any]) -> None:
    assert json.loads(json.dumps(made)) == made
    references = {node["$ref"] for node in _all(made) if isinstance(node.get("$ref"), str)}
    assert "#/definitions/PipelineConfig" in references
    for reference in references:
        assert reference.removeprefix("#/definitions/") in made["definitions"]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_it_has_every_key_with_a_description_and_no_other_is_allowed(made: dict[str, Any], model: type[Model]) -> None:
    definition = made["definitions"][model.__name__]
    assert set(definition["properties"]) == {field.alias for field in model.model_fields.values()}
    assert all(value.get("description") for value in definition["properties"].values())
    assert definition["additionalProperties"] is False


def test_a_record_is_a_mapping_or_text(made: dict[str, Any]) -> None:
    record, text = made["definitions"]["RecordConfig"]["anyOf"]
    assert set(record["properties"]) == {field.alias for field in RecordConfig.model_fields.values()}
    assert text["type"] == "string"


def test_it_uses_only_words_of_its_dialect(made: dict[str, Any]) -> None:
    of_pydantic = {"gt", "ge", "lt", "le", "$defs", "prefixItems"}
    properties = {id(node["properties"]) for node in _all(made) if isinstance(node.get("properties"), dict)}
    assert [node for node in _all(made) if id(node) not in properties and of_pydantic & set(node)] == []


def test_a_plugin_is_offered_and_brings_its_settings(made: dict[str, Any]) -> None:
    connector = made["definitions"]["ConnectorConfig"]
    assert connector["properties"]["plugin"]["examples"] == ["example", "log"]
    assert connector["allOf"][0] == {
        "if": {
            "properties": {"plugin": {"enum": ["example", "builtin:example"]}, "type": {"const": "source"}},
            "required": ["plugin", "type"],
        },
        "then": {"properties": {"settings": {"$ref": "#/definitions/source.example"}}, "required": ["settings"]},
    }
    assert "required" not in connector["allOf"][1]["then"]
    assert "type" not in made["definitions"]["ProcessorConfig"]["allOf"][0]["if"]["properties"]
    assert made["definitions"]["DeadLetterQueueConfig"]["properties"]["plugin"]["examples"] == ["log"]


def test_settings_are_text_or_what_yaml_takes_for_something_else(made: dict[str, Any]) -> None:
    example = made["definitions"]["source.example"]
    properties = example["properties"]
    assert set(properties) == {"path", "mode", "follow", "max-rows", "buffer", "every"}
    assert list(example["patternProperties"]) == ["^options\\."]
    assert properties["path"] == {"type": ["string", "number", "boolean", "null"], "description": "Where it is."}
    assert properties["mode"]["anyOf"][0] == {"enum": ["fast", "slow"]}
    assert {True, "yes"} <= set(properties["follow"]["anyOf"][0]["enum"])
    assert (properties["max-rows"]["type"], properties["max-rows"]["exclusiveMinimum"]) == (["integer", "string"], 0)
    assert properties["every"]["default"] == "1.5s"
    assert example["required"] == ["path"]


def test_numbers_that_must_be_written_out_are_numbers(made: dict[str, Any]) -> None:
    assert made["definitions"]["ProcessorConfig"]["properties"]["workers"]["type"] == "integer"
    assert made["definitions"]["DeadLetterQueueConfig"]["properties"]["window-size"]["minimum"] == 0


def test_the_command_prints_it_or_writes_it(tmp_path: Path) -> None:
    printed = CliRunner().invoke(command, [])
    assert printed.exit_code == 0
    found = json.loads(printed.output)
    assert {"source.files", "destination.files", "processor.filter"} <= set(found["definitions"])
    file = tmp_path / "penstock.schema.json"
    assert CliRunner().invoke(command, ["-o", str(file)]).output == ""
    assert json.loads(file.read_text()) == found


def test_a_file_that_can_not_be_written_is_an_error_without_a_stack_trace(tmp_path: Path) -> None:
    ended = CliRunner().invoke(command, ["-o", str(tmp_path / "no" / "x.json")])
    assert ended.exit_code == 1
    assert "cannot write" in ended.output


def test_the_command_needs_no_spark() -> None:
    code = "import sys; from penstock.cli.schema import _settings; _settings(); print('pyspark' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
