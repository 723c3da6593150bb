"""The log of a hosted source beside the `penstock run` that fills and reads it: whoever looks sees it grow, and nobody notices."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.pipeline import Pipeline, run
from tests.support.states import bytes_of, penstock

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

PENSTOCK = str(Path(sys.executable).with_name("penstock"))
PATIENCE = 120.0

PIPELINE = """
version: "2.2"
pipelines:
  - id: shop
    connectors:
      - {id: in, type: source, plugin: "builtin:chaos", settings: {rate: "200", records: "1000000", size: "25"}}
      - {id: out, type: destination, plugin: files, settings: {path: ./out, format: text}}
      - {id: eu, type: destination, plugin: files, settings: {path: ./eu, format: text}}
"""


def said(folder: Path, *arguments: str) -> str:
    ended = penstock(folder, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def source(folder: Path) -> dict[str, Any]:
    [found] = json.loads(said(folder, "pipelines", "show", "shop", "--json"))["sources"]
    return dict(found)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A real run, that has delivered something."""
    (tmp_path / "p.yaml").write_text(PIPELINE)
    child = subprocess.Popen(
        [PENSTOCK, "run", "p.yaml"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background are deaf to Ctrl-C
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not list((tmp_path / "eu").glob("*.txt")):
            assert child.poll() is None, child.stderr and child.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield child
    finally:
        child.kill()
        child.wait()


def test_looking_at_the_log_of_a_running_pipeline(tmp_path: Path, running: subprocess.Popen[str]) -> None:
    ends = []
    for _ in range(2):
        [listed] = [json.loads(line) for line in said(tmp_path, "log", "list", "--json").splitlines()]
        assert (listed["log"], listed["readers"], listed["error"]) == ("shop.in", 2, None)
        lines = [json.loads(line) for line in said(tmp_path, "log", "show", "shop.in", "--json").splitlines()]
        assert [line["offset"] for line in lines] == list(range(lines[0]["offset"], lines[0]["offset"] + 20))
        offsets = json.loads(said(tmp_path, "log", "offsets", "shop.in", "--json"))
        assert [reader["reader"] for reader in offsets["readers"]] == ["eu", "out"]  # the destinations
        assert "shop.in: good." in said(tmp_path, "log", "verify")
        log = source(tmp_path)["log"]
        assert log["errors"] == []
        assert log["end"] - log["taken"] == log["behind"]
        assert all(n >= log["behind"] for n in log["unacked"].values())
        ends += [listed["end"], lines[-1]["offset"] + 1, offsets["end"], log["end"]]
    assert ends == sorted(ends)
    assert ends[-1] > ends[0], "it has grown meanwhile"
    text = said(tmp_path, "log", "offsets", "shop.in")
    assert "READER" in text
    assert "hold" in text
    assert "an engine is running" in said(tmp_path, "pipelines", "show", "shop")
    assert penstock(tmp_path, "log", "repair", "shop.in").returncode == 2  # it is being written
    assert running.poll() is None
    running.send_signal(signal.SIGINT)
    assert running.wait(PATIENCE) == 0
    found = source(tmp_path)
    assert (found["log"]["behind"], found["log"]["unacked"]) == (0, {"eu": 0, "out": 0})
    assert found["read"] == found["acked"] == found["log"]["end"]
    assert "No reader waits for anything" in said(tmp_path, "log", "offsets", "shop.in")


def test_what_a_source_sends_again_is_counted_and_shown(tmp_path: Path, spark: SparkSession) -> None:
    state = tmp_path / ".penstock"
    for records in (100, 150):
        p = Pipeline("shop").source("in", "chaos", records=records, resend=30).destination("out", "blackhole")
        run([p], spark=spark, state=state, idle=1.0).raise_for_error()
    before = bytes_of(state)
    text = said(tmp_path, "pipelines", "show", "shop")
    assert ", offsets 0–149, last written " in text
    assert "    behind: nothing\n    sent again by the source: 30 records, not logged twice\n" in text
    assert source(tmp_path)["log"]["resent"] == 30
    assert bytes_of(state) == before
