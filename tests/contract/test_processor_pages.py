"""The example on every processor's page runs, as `penstock test` runs it: the YAML of the page, through the real plan."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from penstock import testblocks
from penstock.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGES = sorted((Path(__file__).parents[2] / "docs" / "reference" / "processors").glob("*.md"))


def test_the_examples_of_all_pages_pass(tmp_path: Path, spark: SparkSession) -> None:
    pipelines: list[Pipeline] = []
    for page in PAGES:
        for text in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            file = tmp_path / f"{page.stem}.yaml"
            file.write_text(text)
            pipelines += Pipeline.from_files([file])
    assert len(pipelines) > 20
    verdicts = testblocks.run(pipelines, spark=spark)
    assert {v.test: v.failures for v in verdicts if not v.ok} == {}
    assert len(verdicts) == len(pipelines)
