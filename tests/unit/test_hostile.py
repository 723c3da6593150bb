"""The hostile cases themselves, and their judge: what is called damaged is damaged, and the judge sees every kind of wrong. No Spark."""

from __future__ import annotations

import gzip
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.testing import hostile
from penstock.testing import hostile_judge as judge
from penstock.testing.hostile import Case, Delivered, Filtered, Nacked, Unreadable

CASES = hostile.cases()


def case_of(name: str) -> Case:
    [found] = [c for c in CASES if c.name == name]
    return found


def test_cases_have_names_of_their_own_and_an_outcome_for_every_file() -> None:
    assert len({c.name for c in CASES}) == len(CASES) > 100
    assert {c.format for c in CASES} == {"text", "json", "csv", "parquet"}
    for case in CASES:
        assert case.name.startswith(f"{case.format}-")
        assert case.files.keys() == case.outcomes.keys()
        for outcomes in case.outcomes.values():
            assert not any(isinstance(o, Unreadable) for o in outcomes) or len(outcomes) == 1


def test_a_format_has_its_own_cases_and_only_the_long_ones_are_left_out() -> None:
    assert all(c.format == "csv" for c in hostile.cases("csv"))
    assert {c.name for c in hostile.cases(long=True)} - {c.name for c in CASES} == {"text-50-mb-line"}


@pytest.mark.parametrize("format", ["text", "json", "csv"])
@pytest.mark.parametrize("what", ["bom", "crlf", "lone-cr", "nul", "invalid-utf8", "empty-file", "too-large", "names"])
def test_formats_of_lines_have_what_can_be_in_any_line(format: str, what: str) -> None:
    assert case_of(f"{format}-{what}")


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_lines_and_outcomes_are_as_many(case: Case) -> None:
    """A case that leaves a record out would let a reader lose it."""
    for name, outcomes in case.outcomes.items():
        if case.format == "parquet":
            readable = not any(isinstance(o, Unreadable) for o in outcomes)
            assert not readable or pq.ParquetFile(pa.BufferReader(case.files[name])).metadata.num_rows == len(outcomes)
        elif not name.endswith((".gz", ".zst")) and "multi-line" not in case.settings:
            content = case.files[name].removeprefix(b"\xef\xbb\xbf")
            lines = content.count(b"\n") + (content[-1:] not in (b"\n", b""))
            header = case.format == "csv" and case.settings.get("header") != "false" and lines > 0
            if not any(isinstance(o, Unreadable) for o in outcomes):
                assert lines - header == len(outcomes)


def test_what_is_called_damaged_is_damaged() -> None:
    packed = case_of("text-packed")
    for name, content in packed.files.items():
        if name.endswith(".gz") and content and isinstance(next(iter(packed.outcomes[name]), None), Unreadable):
            with pytest.raises((EOFError, gzip.BadGzipFile)):
                gzip.decompress(content)
    damaged = case_of("parquet-damaged")
    for content in damaged.files.values():
        with pytest.raises((pa.ArrowException, OSError)):
            pq.read_table(pa.BufferReader(content))


def test_files_are_written_as_they_are_with_their_times(tmp_path: Path) -> None:
    for case in CASES:
        paths = hostile.write(case, tmp_path / case.name)
        assert {str(p.relative_to(tmp_path / case.name)): p.read_bytes() for p in paths} == case.files
    clock = case_of("text-clock")
    assert [p.name for p in hostile.write(clock, tmp_path / "again")] == [
        "before.txt",
        "epoch.txt",
        "now.txt",
        "future.txt",
    ]
    assert os.stat(tmp_path / "again" / "before.txt").st_mtime < 0


def test_cases_and_judge_import_nothing_of_penstock() -> None:
    """An oracle that shared code with what it judges would share its mistakes."""
    for path in Path(hostile.__file__).parent.glob("hostile*.py"):
        imported = re.findall(r"^\s*(?:from|import) ([\w.]+)", path.read_text(), re.MULTILINE)
        assert not [
            m for m in imported if m.startswith(("penstock", "pyspark")) and not m.startswith("penstock.testing")
        ]


# -- the judge --------------------------------------------------------------------------------------------------------------------

SMALL = Case(
    "small",
    "csv",
    {"a.csv": b"", "b.csv": b""},
    {"a.csv": (Delivered(b"1,a", {"id": "1"}), Filtered(), Nacked("c.d", "field v")), "b.csv": (Unreadable("no"),)},
)
FOLDER = Path("/in/small")
LETTERS = [
    {"position": b"/in/small/a.csv#3", "seq": 3, "code": "c.d", "error": "the field v is odd"},
    {"position": b"/in/small/b.csv#0", "seq": 9, "code": "files.unreadable-file", "error": "no"},
]
COUNTS = {"read": 4, "delivered": 1, "filtered": 1, "dead_lettered": 2}


def verdict(payloads: list[Any], letters: list[dict[str, Any]], **counts: int) -> list[str]:
    return judge.judge({FOLDER: SMALL}, "same", payloads, letters, {**COUNTS, **counts})


def test_the_judge_is_content_with_what_is_stated() -> None:
    assert verdict([b"1,a"], LETTERS) == []


def changed(i: int, **changes: Any) -> list[dict[str, Any]]:
    return [{**x, **changes} if n == i else x for n, x in enumerate(LETTERS)]


@pytest.mark.parametrize(
    ("payloads", "letters", "counts"),
    [
        ([], LETTERS, {}),
        ([b"1,a", b"1,a"], LETTERS, {}),
        ([b"1,b"], LETTERS, {}),
        ([b"1,a"], LETTERS[:1], {}),
        ([b"1,a"], [*LETTERS, LETTERS[0]], {}),
        ([b"1,a"], changed(0, code="x.y"), {}),
        ([b"1,a"], changed(0, error="the field w is odd"), {}),
        ([b"1,a"], changed(0, position=b"/in/small/a.csv#2"), {}),
        ([b"1,a"], changed(1, position=b"/in/small/c.csv#0"), {}),
        ([b"1,a"], LETTERS, {"read": 5}),
        ([b"1,a"], LETTERS, {"filtered": 0, "dead_lettered": 3}),
    ],
)
def test_the_judge_sees_whatever_differs(
    payloads: list[Any], letters: list[dict[str, Any]], counts: dict[str, int]
) -> None:
    assert verdict(payloads, letters, **counts) != []


def test_the_judge_sees_records_out_of_order() -> None:
    lines = (Delivered(b"a"), Delivered(b"b"), Delivered(b""), Delivered(b""))
    case = Case("order", "text", {"x": b"a\nb\n\n\n"}, {"x": lines})
    assert judge.out_of_order([case], "same", [b"other", b"a", b"", b"b", b""]) == []
    assert judge.out_of_order([case], "same", [b"b", b"", b"a"]) == ["order/x: its records are out of order"]


def test_what_is_written_is_read_with_plain_tools(tmp_path: Path) -> None:
    (tmp_path / "_penstock").mkdir()
    (tmp_path / "_penstock" / "x.csv").write_text("h\nstaged\n")
    (tmp_path / "a.csv").write_bytes(b'id,v\n1,"a\nb"\n2,"say ""hi"""\n')
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"id,v\n3,c\n"))
    assert judge.payloads_of(tmp_path, "csv") == [b'1,"a\nb"', b'2,"say ""hi"""', b"3,c"]
    assert judge.parsed(b'{"v":0.1234567890123456789}')["v"] != judge.parsed(b'{"v":0.12345678901234568}')["v"]
