"""`run(spark=…)` on a session the caller brings, as a notebook or an orchestrator does. In a child: one session per JVM."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.harness import age

pytestmark = pytest.mark.spark

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from penstock import Pipeline

root, speculation = sys.argv[1:]
spark = SparkSession.builder.master("local[2]").config("spark.speculation", speculation).getOrCreate()
spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
pipeline = Pipeline("p").source("in", "files", path=f"{root}/in").destination("out", "files", path=f"{root}/out")
print(pipeline.run(spark, state=f"{root}/state").to_json()["pipelines"][0]["sources"]["in"]["acked"])
print(spark.conf.get("spark.sql.session.timeZone"), spark.range(3).count())
"""


def _run(root: Path, speculation: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", SCRIPT, str(root), speculation]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_a_plain_session_is_used_and_left_as_it_was(tmp_path: Path) -> None:
    issued = oracle.write_inputs(tmp_path / "in", 2, 10)
    age(tmp_path / "in")
    ended = _run(tmp_path, "false")
    assert ended.stdout.splitlines() == ["20", "Asia/Tokyo 3"], ended.stderr
    assert oracle.judge(issued, tmp_path / "out").clean


def test_a_session_that_contradicts_a_promise_is_refused_by_the_settings_name(tmp_path: Path) -> None:
    oracle.write_inputs(tmp_path / "in", 1, 1)
    ended = _run(tmp_path, "true")
    assert ended.returncode != 0
    assert "spark.speculation=true contradicts what Penstock promises" in ended.stderr
    assert not (tmp_path / "out").exists() or oracle.outputs(tmp_path / "out") == []
