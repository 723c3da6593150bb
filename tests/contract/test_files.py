"""`files` with text lines: what is read, byte for byte, and what is refused."""

from __future__ import annotations

import gzip
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import record
from penstock.connectors.files.settings import FilesSourceSettings
from penstock.connectors.files.source import FilesSource
from penstock.engine import session
from penstock.native import Known, Limits
from penstock.pipeline import Pipeline, run
from penstock.summary import Summary
from penstock.testing import faults
from tests.support import oracle
from tests.support.harness import Case, age

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

MakeCase = Callable[..., Case]


def _run(root: Path, spark: SparkSession, condition: str = "", **source: Any) -> Summary:
    pipeline = (
        Pipeline("p").source("in", "files", path=root / "in", **source).destination("out", "files", path=root / "out")
    )
    if condition:
        pipeline.processor("x", "filter", condition=condition)
    return run([pipeline], spark=spark, state=root / "state")


HOSTILE = {
    "crlf.txt": b"a\r\nb\r\n",
    "lone cr.txt": b"a\rb\n",
    "empty lines.txt": b"\n\n\nx\n\n",
    "invalid utf8.txt": b"\xff\xfe\x80\nok\n",
    "nul.txt": b"a\0b\n\0\n",
    "no end.txt": b"first\nlast",
    "empty.txt": b"",
    "only newline.txt": b"\n",
    "ü %20 [a] {b} #.txt": "ünïcode \u2028 line\n".encode(),
    "wild*card?.txt": b"w\n",
    "back\\slash.txt": b"s\n",
    "long.txt": b"x" * 5_000_000 + b"\n",
}


@pytest.mark.parametrize("condition", ["", "seq < 0"])
def test_hostile_lines_and_names_arrive_byte_for_byte(tmp_path: Path, spark: SparkSession, condition: str) -> None:
    (tmp_path / "in").mkdir()
    for name, content in HOSTILE.items():
        (tmp_path / "in" / name).write_bytes(content)
    (tmp_path / "in" / "bom.txt").write_bytes(b"\xef\xbb\xbfafter a bom\n")
    (tmp_path / "in" / "packed.gz").write_bytes(gzip.compress(b"from gz 1\nfrom gz 2\n"))
    for skipped in (".hidden", "_under", "x.tmp", "y.part"):
        (tmp_path / "in" / skipped).write_text("must not be read\n")
    age(tmp_path / "in")
    _run(tmp_path, spark, condition).raise_for_error()
    expected = [
        line for c in HOSTILE.values() for line in (c if c.endswith(b"\n") or not c else c + b"\n").split(b"\n")[:-1]
    ]
    expected += [b"after a bom", b"from gz 1", b"from gz 2"]
    found = [line for p in oracle.outputs(tmp_path / "out") for line in p.read_bytes().split(b"\n")[:-1]]
    assert sorted(found) == sorted(expected)


def test_seq_is_a_function_of_the_file_alone(tmp_path: Path, spark: SparkSession) -> None:
    """Whatever else is in the batch, however blocks are cut into tasks: equal seq and position, rising along the file."""
    oracle.write_inputs(tmp_path / "in", 3, 6000)
    age(tmp_path / "in")
    lane = session.for_lane(spark)
    for name in ("spark.sql.files.maxPartitionBytes", "spark.sql.files.openCostInBytes"):
        lane.conf.set(name, "32k")
    source = FilesSource(FilesSourceSettings(path=str(tmp_path / "in")), "in")
    whole = source.available(Known({}, 0, set()), Limits())
    assert whole is not None

    def rows(ranges: Any) -> dict[str, tuple[int, bytes]]:
        frame = source.frame(lane, ranges, record.COLUMNS)
        return {r.after: (r.seq, bytes(r.position)) for r in frame.select("after", "seq", "position").collect()}

    together = rows(whole)
    assert len(together) == 18_000
    assert len({seq for seq, _ in together.values()}) == 18_000
    for r in whole:
        alone = rows(type(whole)((r,), whole.next_seq))
        assert {k: together[k] for k in alone} == alone
        in_order = sorted(alone, key=lambda line: int(line.split(":")[1]))
        assert [alone[line][0] for line in in_order] == sorted(seq for seq, _ in alone.values())
        assert min(seq for seq, _ in alone.values()) >= r.base


@pytest.mark.parametrize("files", [3, 100])
def test_more_files_than_a_map_literal_holds_have_their_seq_too(
    tmp_path: Path, spark: SparkSession, files: int
) -> None:
    issued = oracle.write_inputs(tmp_path / "in", files, 3)
    age(tmp_path / "in")
    _run(tmp_path, spark, "seq is null or position is null or metadata['penstock.file'] is null").raise_for_error()
    assert oracle.judge(issued, tmp_path / "out").clean


@pytest.mark.contract("S5", reason="order is looked at; there is nothing to switch off but one partition per block")
def test_lines_of_a_file_keep_their_order_over_blocks_and_coalesced_groups(tmp_path: Path, spark: SparkSession) -> None:
    issued = oracle.write_inputs(tmp_path / "in", 60, 200)  # more blocks than 16 per core: they are grouped
    age(tmp_path / "in")
    _run(tmp_path, spark).raise_for_error()
    assert len(oracle.outputs(tmp_path / "out")) < 60
    assert oracle.judge(issued, tmp_path / "out").clean


@pytest.mark.contract("T22", reason="files are known by name, size and time: there is no watermark to switch off")
def test_an_old_file_that_arrives_late_is_read(tmp_path: Path, spark: SparkSession) -> None:
    issued = oracle.write_inputs(tmp_path / "in", 1, 5)
    age(tmp_path / "in")
    _run(tmp_path, spark).raise_for_error()
    issued += oracle.write_inputs(tmp_path / "in", 1, 5, first=1)
    month_ago = time.time() - 30 * 86400
    os.utime(tmp_path / "in" / "f00001.txt", (month_ago, month_ago))
    _run(tmp_path, spark).raise_for_error()
    assert oracle.judge(issued, tmp_path / "out").clean


@pytest.mark.contract("T22", reason="`on-change: ignore` is the control: the same file is then not reported")
def test_a_file_that_changed_after_it_was_read_is_reported(tmp_path: Path, spark: SparkSession) -> None:
    oracle.write_inputs(tmp_path / "in", 1, 5)
    age(tmp_path / "in")
    _run(tmp_path, spark).raise_for_error()
    with open(tmp_path / "in" / "f00000.txt", "a") as f:
        f.write("one more\n")
    age(tmp_path / "in", 30)
    [result] = _run(tmp_path, spark).pipelines
    assert "f00000.txt has changed after it was read" in str(result.error)
    _run(tmp_path, spark, on_change="ignore").raise_for_error()
    assert len(oracle.delivered(tmp_path / "out")) == 5
    _run(tmp_path, spark, on_change="reread").raise_for_error()
    assert len(oracle.delivered(tmp_path / "out")) == 11


@pytest.mark.contract("T23", safeguard="settle")
def test_a_file_that_is_being_written_is_taken_only_when_it_is_whole(tmp_path: Path, spark: SparkSession) -> None:
    for name, off in (("kept", []), ("control", ["settle", "unchanged"])):
        root = tmp_path / name
        (root / "in").mkdir(parents=True)

        def write(path: Path) -> None:
            with open(path, "w", buffering=1) as f:
                for n in range(15):
                    f.write(f"f00000:{n}:{'x' * 20}\n")
                    time.sleep(0.1)

        faults.install(off=off)
        writer = threading.Thread(target=write, args=(root / "in" / "f00000.txt",))
        writer.start()
        while not (root / "in" / "f00000.txt").exists():
            time.sleep(0.01)
        try:
            result = _run(root, spark, settle="500ms")
        finally:
            writer.join()
        verdict = oracle.judge([f"f00000:{n}" for n in range(15)], root / "out")
        if name == "kept":
            result.raise_for_error()
            assert verdict.clean, verdict
        else:
            assert not result.ok or verdict.missing


CHANGES: dict[str, Callable[[Path], object]] = {
    "appended to": lambda p: p.write_bytes(p.read_bytes() + b"more\n"),
    "deleted": lambda p: p.unlink(),
    "replaced": lambda p: p.write_bytes(b"f" * p.stat().st_size),
    "cut off": lambda p: p.write_bytes(p.read_bytes()[:-30]),
}


@pytest.mark.crash
@pytest.mark.contract("T23", safeguard="unchanged")
@pytest.mark.parametrize("change", CHANGES)
def test_an_input_that_changes_between_snapshot_and_read_fails_the_batch_by_name(
    make_case: MakeCase, change: str
) -> None:
    case = make_case("case", max_files=2)
    case.issue(files=2)
    assert case.run(kill_at="K2").killed
    path = case.inp / "f00001.txt"
    content, stat = path.read_bytes(), path.stat()
    CHANGES[change](path)
    ended = case.run()
    assert ended.returncode == 1
    assert "f00001.txt changed after it was taken" in ended.summary["error"]
    assert oracle.outputs(case.out) == []
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    case.finish()
    assert case.verdict().clean

    if change != "deleted":
        control = make_case("control", max_files=2)
        control.issue(files=2)
        assert control.run(kill_at="K2").killed
        CHANGES[change](control.inp / "f00001.txt")
        ended = control.run(off=("unchanged",))
        assert "changed after it was taken" not in str(ended.summary["error"])


@pytest.mark.crash
def test_with_reread_a_changed_input_is_taken_as_it_is_now(make_case: MakeCase) -> None:
    case = make_case("case", max_files=2, source=", on-change: reread")
    case.issue(files=2)
    assert case.run(kill_at="K2").killed
    (case.inp / "f00001.txt").unlink()
    case.issued = [i for i in case.issued if not i.startswith("f00001")]
    case.finish()
    assert case.verdict().clean
    assert case.rows("SELECT state FROM snapshot ORDER BY batch") == [("dropped",), ("done",)]


@pytest.mark.contract("T23", reason="the file is named and nothing is delivered; isolating it is the gate's work")
@pytest.mark.parametrize("damage", ["cut off", "garbage behind it"])
def test_a_damaged_gz_is_named_and_nothing_of_its_batch_is_delivered(
    tmp_path: Path, spark: SparkSession, damage: str
) -> None:
    (tmp_path / "in").mkdir()
    good = gzip.compress("".join(f"line {n} {os.urandom(20).hex()}\n" for n in range(5000)).encode())
    (tmp_path / "in" / "bad.gz").write_bytes(good[:-500] if damage == "cut off" else good + b"\0garbage")
    age(tmp_path / "in")
    [result] = _run(tmp_path, spark).pipelines
    assert result.status == "degraded"
    assert "bad.gz can't be read to its end" in str(result.error)
    assert oracle.outputs(tmp_path / "out") == []


@pytest.mark.parametrize("policy", ["move", "delete"])
def test_files_are_put_away_after_the_ack_also_after_a_crash(tmp_path: Path, spark: SparkSession, policy: str) -> None:
    issued = oracle.write_inputs(tmp_path / "in", 2, 5)
    age(tmp_path / "in")

    class Crash(Exception):
        pass

    def crash(point: str, detail: str) -> None:
        if point == "ack":
            raise Crash

    faults.install(crash)
    settings: dict[str, Any] = {"after_ack": policy, "batch": {"max-files": 1}} | (
        {"move_to": tmp_path / "done"} if policy == "move" else {}
    )
    assert not _run(tmp_path, spark, **settings).ok
    faults.install()
    _run(tmp_path, spark, **settings).raise_for_error()
    assert list((tmp_path / "in").iterdir()) == []
    if policy == "move":
        assert sorted(p.name for p in (tmp_path / "done").iterdir()) == ["f00000.txt", "f00001.txt"]
    assert oracle.judge(issued, tmp_path / "out").clean
