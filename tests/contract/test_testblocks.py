"""Tests beside pipelines run through the real plan: what passes, what fails and how that is shown. Sources are never read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import testblocks
from penstock.errors import UsageError
from penstock.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

HEAD = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
"""
SHAPES = {
    "text": ("text", "", "      - {id: decode, plugin: json.decode}\n"),
    "json": ("json", "", ""),
    "json-schema": ("json", ", schema: 'id STRING, n INT'", ""),
    "csv": ("csv", ", schema: 'id STRING, n INT'", ""),
    "csv-text": ("csv", "", ""),
    "parquet": ("parquet", "", ""),
}
TESTS = """\
    tests:
      - name: passes
        input:
          - after: {id: a, n: 1}
          - after: {id: b, n: 2}
          - after: {id: c, n: 3}
        expect:
          - after: {id: a, n: 1, mark: x}
        rejects:
          - {node: bad, error: two}
        filtered: 1
      - name: fails
        input:
          - after: {id: a, n: 1}
          - after: {id: b, n: 2}
        expect:
          - after: {id: a, n: 1, mark: y}
        filtered: 3
"""


def _pipeline(path: Path, text: str) -> Pipeline:
    path.write_text(text)
    return Pipeline.from_file(path)


def test_every_format_of_a_source_can_be_tested(tmp_path: Path, spark: SparkSession) -> None:
    pipelines = []
    for name, (form, more, first) in SHAPES.items():
        tests = TESTS.replace("{id: a, n: 1", "{id: a, n: '1'") if name == "csv-text" else TESTS
        text = f"""{HEAD}      - {{id: in, type: source, plugin: files, settings: {{path: ./nowhere, format: {form}{more}}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: {tmp_path}/out, format: json}}}}
    processors:
{first}      - {{id: three, plugin: filter, condition: after.n = 3}}
      - {{id: bad, plugin: error, condition: after.n = 2, settings: {{message: two}}}}
      - {{id: mark, plugin: field.set, settings: {{field: .Payload.After.mark, value: x}}}}
{tests}"""
        pipelines.append(_pipeline(tmp_path / f"{name}.yaml", text))
    verdicts = testblocks.run(pipelines, spark=spark)
    assert [(v.test, v.failures) for v in verdicts if v.test == "passes" and v.failures] == []
    for v in verdicts:
        if v.test == "fails":
            shown = "\n".join(v.failures)
            assert '-      "mark": "y"' in shown
            assert '+      "mark": "x"' in shown
            assert "record 2 of the input was rejected by 'bad': two" in shown
            assert "0 records were filtered, 3 expected" in shown
            assert v.where.endswith(":9") or ":" in v.where
    assert not (tmp_path / "out").exists()


def test_each_destination_and_source_has_expectations_of_its_own(tmp_path: Path, spark: SparkSession) -> None:
    text = f"""{HEAD}      - {{id: a, type: source, plugin: files, settings: {{path: ./nowhere, format: json}}}}
      - id: b
        type: source
        plugin: files
        settings: {{path: ./nowhere-else, format: json}}
        processors: [{{id: from-b, plugin: field.set, settings: {{field: .Payload.After.from, value: b}}}}]
      - {{id: x, type: destination, plugin: files, settings: {{path: {tmp_path}/x, format: json}}}}
      - id: y
        type: destination
        plugin: files
        settings: {{path: {tmp_path}/y, format: json}}
        processors: [{{id: only-y, plugin: filter, condition: after.n = 1}}]
    processors:
      - {{id: who, plugin: field.set, settings: {{field: .Metadata.who, value: me}}}}
      - {{id: del, plugin: field.set, settings: {{field: .Operation, value: delete}}, namespaces: gone}}
    tests:
      - name: from a
        source: a
        input: [{{after: {{n: 1}}, namespace: gone}}, {{after: {{n: 2}}}}]
        expect:
          x:
            - {{after: {{n: 1}}, operation: delete, metadata: {{who: me, opencdc.collection: gone}}}}
            - {{after: {{n: 2}}, operation: create}}
          y: [{{after: {{n: 2}}}}]
      - name: from b
        source: b
        input: [{{after: {{n: 1}}}}]
        expect: {{x: [{{after: {{n: 1, from: b}}}}], y: []}}
"""
    verdicts = testblocks.run([_pipeline(tmp_path / "p.yaml", text)], spark=spark)
    assert [v.failures for v in verdicts] == [(), ()]


def test_a_test_that_names_what_is_not_there_is_refused(tmp_path: Path) -> None:
    connectors = f"""      - {{id: a, type: source, plugin: files, settings: {{path: ./nowhere}}}}
      - {{id: x, type: destination, plugin: files, settings: {{path: {tmp_path}/x}}}}
"""
    with pytest.raises(UsageError, match="no test"):
        testblocks.run([_pipeline(tmp_path / "p.yaml", HEAD + connectors)])
    good = HEAD + connectors + "    tests: [{name: t, input: [line], expect: [line]}]\n"
    with pytest.raises(UsageError, match="whose name holds 'other'"):
        testblocks.run([_pipeline(tmp_path / "q.yaml", good)], only="other")
    for bad in ("source: z", "expect: {z: []}"):
        text = HEAD + connectors + f"    tests: [{{name: t, input: [line], {bad}}}]\n"
        with pytest.raises(UsageError, match="z"):
            testblocks.run([_pipeline(tmp_path / "r.yaml", text)])
