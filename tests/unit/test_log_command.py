"""`penstock log` as people and programs use it: the real command on real logs, without Spark."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.cli import log_lines, log_names, log_records, log_tables
from penstock.engine.lock import StateFolder
from penstock.log import Mode, Offsets, Reader, Writer, compact
from penstock.log.format import HEADER_BYTES, Header
from penstock_sdk.record import Record
from tests.support.states import bytes_of, penstock, terminal

pytestmark = pytest.mark.thorough  # left out of the fast loop

SEED = "AABBAABBCACBAACB"  # the namespaces of the design's picture
AT = 1_700_000_000_000_000_000  # 2023-11-14T22:13:20Z


def logs(folder: Path) -> Path:
    return folder / ".penstock" / "logs"


def written(folder: Path, *records: Record, segment_bytes: int = 1 << 30) -> Path:
    """One append each, a second apart."""
    at = iter(range(AT, AT + 10**15, 10**9))
    with Writer(folder, segment_bytes=segment_bytes, clock=lambda: next(at)) as writer:
        for record in records:
            writer.append([record])
    return folder


def seed(folder: Path, name: str = "orders", text: str = SEED) -> Path:
    """The design's log, in segments of a few records."""
    records = [Record({"id": i}, namespace=key, position=b"p%d" % i) for i, key in enumerate(text)]
    return written(logs(folder) / name, *records, segment_bytes=600)


def said(folder: Path, *arguments: str) -> str:
    ended = penstock(folder, "log", *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def objects(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said(folder, *arguments, "--json").splitlines()]


def refused(folder: Path, *arguments: str, code: int = 2) -> str:
    ended = penstock(folder, "log", *arguments)
    assert ended.returncode == code, ended.stderr
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    assert "\x1b" not in ended.stderr
    return ended.stderr


def flip(file: Path, at: int) -> None:
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.seg"))


def damaged(folder: Path, offset: int) -> None:
    """The data of one entry."""
    with Reader(folder) as reader:
        [entry] = list(reader.entries(offset, offset + 1))
    head = entry.head  # type: ignore[union-attr]
    flip(entry.segment, head.next - 1)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """For those who only look."""
    folder = tmp_path_factory.mktemp("shop")
    with Offsets(seed(folder)) as offsets:
        offsets.ack("c0", range(13))
        offsets.ack("c1", [*range(14), 15])
    with Offsets(seed(folder, "done")) as offsets:
        offsets.ack("only", range(16))
    compact(logs(folder) / "done")
    written(logs(folder) / "empty")
    before = bytes_of(folder)
    yield folder
    assert bytes_of(folder) == before, "to look must change nothing"


# -- list -------------------------------------------------------------------------------------------------------------


def test_a_list_says_how_large_each_log_is_and_how_far_its_readers_are(shop: Path) -> None:
    ended = penstock(shop, "log", "list")
    assert ended.returncode == 0
    header, done, empty, orders = (re.split(r"  +", line) for line in ended.stdout.splitlines())
    assert header == ["LOG", "OFFSETS", "SIZE", "SEGMENTS", "READERS", "LAG", "LAST WRITE"]
    assert (done[:2], done[4:6]) == (["done", "0–15"], ["1", "0"])
    assert (empty[:2], empty[4:]) == (["empty", "none yet"], ["0", "–", "never"])
    assert (orders[:2], orders[3:6]) == (["orders", "0–15"], ["3", "2", "3"])
    assert orders[6].endswith(" d ago")
    assert "3 logs" in ended.stderr
    assert "penstock log show LOG" in ended.stderr


def test_programs_get_the_same(shop: Path) -> None:
    done, empty, orders = objects(shop, "list")
    assert (orders["log"], orders["first"], orders["end"], orders["segments"]) == ("orders", 0, 16, 3)
    assert (orders["readers"], orders["slowest"], orders["lag"], orders["lag_exact"]) == (2, "c0", 3, True)
    assert orders["last_write"] == "2023-11-14T22:13:35.000000000Z"
    assert orders["bytes"] == sum(path.stat().st_size for path in segments(logs(shop) / "orders"))
    assert (empty["end"], empty["last_write"], empty["lag"], done["error"]) == (0, None, None, None)


def test_one_log_that_can_not_be_read_does_not_hide_the_others(tmp_path: Path) -> None:
    flip(segments(seed(tmp_path, "bad"))[-1], 20)
    seed(tmp_path, "good")
    (logs(tmp_path) / "starting").mkdir()
    ended = penstock(tmp_path, "log", "list")
    assert ended.returncode == 1
    assert "[log.damaged]" in ended.stderr
    rows = ended.stdout.splitlines()[1:]
    assert [row.split("  ")[0] for row in rows] == ["bad", "good", "starting"]
    assert "can't be read" in rows[0]
    assert "0–15" in rows[1]
    assert "no segments" in rows[2]


def test_a_state_folder_without_logs_is_no_error(tmp_path: Path) -> None:
    (tmp_path / ".penstock" / "logs").mkdir(parents=True)
    ended = penstock(tmp_path, "log", "list")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert "No logs in .penstock." in ended.stderr
    assert penstock(tmp_path, "log", "verify").returncode == 0


def test_the_lag_of_a_reader_far_behind_is_said_to_be_a_bound(tmp_path: Path) -> None:
    folder = seed(tmp_path)
    with Offsets(folder) as offsets:
        offsets.ack("c0", [*range(3), *range(4, 10)])
    exact, quick = log_tables.followers(folder), log_tables.followers(folder, 2)
    assert (exact.exact, exact.readers[0].lag, exact.point) == (True, 7, 3)
    assert (quick.exact, quick.readers[0].pending) == (False, 3)
    assert quick.readers[0].lag >= 7


# -- show: which ------------------------------------------------------------------------------------------------------


def offsets_of(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"^ *(\d+)  ", text, re.MULTILINE)]


def test_from_and_to_are_both_shown(shop: Path) -> None:
    text = said(shop, "show", "orders", "--from", "9", "--to", "15")
    assert text.splitlines()[0].split() == ["OFFSET", "TIME", "NAMESPACE", "OP", "PAYLOAD"]
    assert text.splitlines()[1] == '     9  2023-11-14T22:13:29Z  A          create  {"id":9}'
    assert offsets_of(text) == [9, 10, 11, 12, 13, 14, 15]
    assert [line.split()[2] for line in text.splitlines()[1:]] == list(SEED[9:])


def test_a_log_is_named_by_its_name_or_by_its_path(shop: Path) -> None:
    text = said(shop, "show", "orders")
    assert said(shop, "show", ".penstock/logs/orders") == text
    assert said(shop, "show", str(logs(shop) / "orders")) == text
    assert said(logs(shop), "show", "orders") == text
    assert said(logs(shop) / "orders", "show", ".") == text
    assert said(shop.parent, "show", "orders", "--state", f"{shop.name}/.penstock") == text


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--from", "-3"], [13, 14, 15]),
        (["--from", "-100"], list(range(16))),
        (["--from", "-2", "--to", "7"], [6, 7]),
        (["--to", "1"], [0, 1]),
        (["--from", "14"], [14, 15]),
        (["--from", "14", "--to", "99"], [14, 15]),
        (["--from", "-2", "--namespace", "C"], [10, 14]),
        (["--namespace", "^[bC]$"], [8, 10, 14]),
        (["--namespace", ""], list(range(16))),
    ],
)
def test_a_part_is_shown(shop: Path, arguments: list[str], expected: list[int]) -> None:
    assert [found["offset"] for found in objects(shop, "show", "orders", *arguments)] == expected


def test_nothing_to_show_is_said_with_what_there_is(shop: Path) -> None:
    for name, arguments, there in (
        ("orders", ["--from", "16"], "offsets 0–15"),
        ("orders", ["--namespace", "nix"], "offsets 0–15"),
        ("empty", [], "no records yet"),
    ):
        ended = penstock(shop, "log", "show", name, *arguments)
        assert (ended.returncode, ended.stdout) == (0, "")
        assert f"No records to show. The log has {there}." in ended.stderr


def test_by_default_the_last_20_are_shown_and_how_to_see_more(tmp_path: Path) -> None:
    with Writer(logs(tmp_path) / "many") as writer:
        writer.append([Record({"n": n}) for n in range(5000)])
    ended = penstock(tmp_path, "log", "show", "many")
    assert offsets_of(ended.stdout) == list(range(4980, 5000))
    assert "the last 20 records; the log has offsets 0–4999" in ended.stderr
    assert "--from 0" in ended.stderr


@pytest.mark.parametrize("every", [1, 3, 70])
def test_the_last_ones_of_a_namespace_are_found_however_far_back(tmp_path: Path, every: int) -> None:
    with Writer(tmp_path / "log", segment_bytes=2000) as writer:
        for n in range(200):
            writer.append([Record({"n": n}, namespace="rare" if n % every == 0 else "other")])
    with Reader(tmp_path / "log") as reader:
        rare = [n for n in range(200) if n % every == 0]
        for many in (1, 2, 50):
            start = log_records.last(reader, many, reader.end, lambda name: name == "rare")
            assert [n for n in rare if n >= start] == rare[-many:]


def test_what_was_compacted_away_is_said(shop: Path) -> None:
    lines = said(shop, "show", "done").splitlines()
    kept = [int(line.split()[0]) for line in lines[1:] if "compacted" not in line]
    gone = [int(found) for found in re.findall(r"… (\d+) offsets? compacted away", "\n".join(lines))]
    assert kept[-1] == 15
    assert len(kept) + sum(gone) == 16
    assert gone
    assert "compacted" in lines[1]
    found = objects(shop, "show", "done")
    assert [one["offset"] for one in found] == kept


def test_compacted_offsets_are_counted_once_where_only_a_namespace_is_wanted(shop: Path) -> None:
    def gone(*arguments: str) -> list[int]:
        text = said(shop, "show", "done", "--from", "0", *arguments)
        return [int(found) for found in re.findall(r"… (\d+) offsets? compacted away", text)]

    assert sum(gone("--namespace", "B")) == sum(gone()) > 0
    assert len(gone("--namespace", "nix")) == 1


# -- show: records ----------------------------------------------------------------------------------------------------

ODD = Record(
    b"a\tb\x00\x1b[2J\nsecond\r\x9b31m",
    key=b"\xff\xfe",
    before={"\x1b[31m": "\x07"},
    operation="up\x1bdate",
    namespace="shop/ü \x1b]0;x\x07",
    metadata={"\x1bk": "\x9bv"},
    position=b"\x00\x1b[31m",
)
TYPED: dict[str, Any] = {
    "amount": Decimal("1234567890123456789.10"),
    "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 12, tzinfo=UTC),
    "bytes": b"\xff\x00",
    "nan": float("nan"),
    "big": 2**80,
    "half": "\ud800",
    "list": [{"x": Decimal("0.10")}],
}


ODD_HEX = "61 09 62 00 1b 5b 32 4a 0a 73 65 63 6f 6e 64 0d 9b 33 31 6d (20 bytes)"  # \x9b alone is no UTF-8


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("odd")
    written(
        logs(folder) / "odd",
        ODD,
        Record(TYPED, namespace="日本.注文", phase="copy", key={"id": 1}, timestamp=datetime(2024, 1, 1, tzinfo=UTC)),
        Record(None, before=b"as it was", key=b"k", operation="delete"),
        Record(None),
        Record({"text": "語" * 200, "emoji": "😀"}, namespace="a-very-long-namespace." * 5),
    )
    with Writer(logs(folder) / "odd") as writer:
        writer.append_batch(pa.RecordBatch.from_pydict({"id": [1, 2], "name": ["a", None]}), "columns", Mode.COPY)
        writer.append_batch(pa.RecordBatch.from_pydict({"after": ['{"x": 1}', "no JSON"]}), "columns")
    return folder


@pytest.mark.parametrize("more", [[], ["--full"], ["--json"]])
def test_nothing_in_a_record_can_drive_the_terminal(odd: Path, more: list[str]) -> None:
    text = said(odd, "show", "odd", *more)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert "\\x1b" in text or "\\u001b" in text
    ours = re.compile(r"\x1b\[[0-9;]*m")
    assert all(c.isprintable() or c == "\n" for c in ours.sub("", terminal(odd, "log", "show", "odd", *more)))


def test_a_line_has_the_key_and_what_the_record_is_now_or_was(odd: Path) -> None:
    lines = said(odd, "show", "odd").splitlines()
    assert lines[1].endswith("ff fe (2 bytes): " + ODD_HEX)
    assert '"amount":1234567890123456789.10' in lines[2]
    assert lines[2].split("  ")[-1].startswith('{"id":1}: {')
    assert re.search(r"  delete +k: was as it was$", lines[3])
    assert lines[4].endswith("–")
    assert lines[6].endswith('{"id":1,"name":"a"}')
    assert lines[9].endswith('{"after":"no JSON"}')


def test_programs_get_every_field(odd: Path) -> None:
    first, typed, deleted, nothing, _, columns, _, good, unfit = objects(odd, "show", "odd")
    assert first == {
        "offset": 0,
        "timestamp": "2023-11-14T22:13:20.000000000Z",
        "namespace": "shop/ü \x1b]0;x\x07",
        "phase": "sync",
        "operation": "up\x1bdate",
        "position": base64.b64encode(b"\x00\x1b[31m").decode(),
        "metadata": {"\x1bk": "\x9bv"},
        "record_timestamp": None,
        "key": {"base64": "//4="},
        "before": {"value": {"\x1b[31m": "\x07"}},
        "after": {"base64": base64.b64encode(b"a\tb\x00\x1b[2J\nsecond\r\x9b31m").decode()},
    }
    assert typed["after"]["value"] == {
        "amount": 1234567890123456789.10,
        "day": "2024-02-29",
        "at": "2024-02-29T12:00:00Z",
        "bytes": "/wA=",
        "nan": "NaN",
        "big": 2**80,
        "half": "\\ud800",
        "list": [{"x": 0.1}],
    }
    assert (typed["namespace"], typed["phase"], typed["record_timestamp"]) == (
        "日本.注文",
        "copy",
        "2024-01-01T00:00:00Z",
    )
    assert (deleted["before"], deleted["after"], nothing["after"]) == ({"text": "as it was"}, None, None)
    assert (columns["columns"], columns["phase"]) == ({"id": 1, "name": "a"}, "copy")
    assert good["after"] == {"value": {"x": 1}}
    assert (unfit["columns"], "after" in unfit) == ({"after": "no JSON"}, False)
    assert "1234567890123456789.10" in said(odd, "show", "odd", "--from", "1", "--to", "1", "--json")


def test_full_shows_everything_of_a_record(odd: Path) -> None:
    text = said(odd, "show", "odd", "--full")
    for part in (
        "offset 0  2023-11-14T22:13:20.000000000Z  shop/ü \\x1b]0;x\\x07  sync  up\\x1bdate",
        "key (binary, 2 bytes):",
        "\\x1bk: \\x9bv",
        "offset 1  2023-11-14T22:13:21.000000000Z  日本.注文  copy  create",
        "  timestamp: 2024-01-01T00:00:00+00:00",
        '      "day": "2024-02-29",',
        "before (text, 9 characters):",
        "語" * 200,
        "columns (structured):",
    ):
        assert part in text


def test_each_record_has_the_time_of_its_own_append(shop: Path) -> None:
    times = [found["timestamp"][17:19] for found in objects(shop, "show", "orders", "--to", "3")]
    assert times == ["20", "21", "22", "23"]


def test_a_terminal_of_80_columns_is_filled_and_not_overrun(odd: Path) -> None:
    from rich.cells import cell_len

    text = re.sub(r"\x1b\[[0-9;]*m", "", terminal(odd, "log", "show", "odd"))
    lines = text.splitlines()
    assert len([line for line in lines if "2023-" in line]) == 5
    assert max(map(cell_len, lines)) <= 80
    assert any("語" in line and line.endswith("…") for line in lines)


def test_colour_is_for_terminals_that_want_it(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32mcreate" in terminal(shop, "log", "show", "orders")
    assert "\x1b" not in said(shop, "show", "orders")
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in terminal(shop, "log", "show", "orders")


def test_a_stream_without_our_characters_gets_others(odd: Path) -> None:
    ended = penstock(odd, "log", "show", "odd", PYTHONIOENCODING="ascii")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.isascii()
    text = penstock(odd, "log", "show", "odd", "--json", PYTHONIOENCODING="ascii").stdout
    assert text.isascii()
    assert json.loads(text.splitlines()[1])["namespace"] == "日本.注文"


@pytest.mark.parametrize("data", [b"x" * 5_000_000, b"line\n" * 1_000_000, b"\xff" * 5_000_000], ids=["x", "n", "ff"])
def test_a_large_record_is_cut_unless_it_is_wanted_whole(tmp_path: Path, data: bytes) -> None:
    written(logs(tmp_path) / "big", Record(data))
    text = said(tmp_path, "show", "big")
    assert len(text) < 5000
    assert "5,000,000 bytes" in text
    [found] = objects(tmp_path, "show", "big")
    after = found["after"]
    assert (after["text"].encode() if "text" in after else base64.b64decode(after["base64"])) == data


def test_a_cut_through_a_character_is_no_reason_to_take_text_for_bytes() -> None:
    data = "ü語😀".encode() * 1000
    for room in range(20, 40):
        assert log_lines._brief(data, room).startswith("ü語😀")


# -- damage -----------------------------------------------------------------------------------------------------------


def test_damage_is_shown_in_its_place_and_everything_else_as_well(tmp_path: Path) -> None:
    folder = seed(tmp_path)
    damaged(folder, 12)
    damaged(folder, 3)
    ended = penstock(tmp_path, "log", "show", "orders", "--from", "0")
    assert ended.returncode == 1
    assert offsets_of(ended.stdout) == [n for n in range(16) if n not in (3, 12)]
    assert "offset 3: 1 record DAMAGED: the checksum of an entry's data is wrong" in ended.stdout.splitlines()[4]
    assert "[log.damaged]" in ended.stderr
    assert "at offset 3" in ended.stderr
    assert "\x1b[31moffset 3: " in terminal(tmp_path, "log", "show", "orders", "--from", "0")
    lines = [json.loads(line) for line in penstock(tmp_path, "log", "show", "orders", "--json").stdout.splitlines()]
    assert (lines[3]["offset"], lines[3]["count"], lines[3]["repaired"], "lost" in lines[3]) == (3, 1, False, True)
    assert lines[-1]["event"] == "error"
    assert penstock(tmp_path, "log", "show", "orders", "--from", "13").returncode == 0


def test_a_segment_that_can_not_be_opened_is_passed_and_said(tmp_path: Path) -> None:
    folder = seed(tmp_path)
    first, second, third = (int(path.name[:20]) for path in segments(folder))
    flip(segments(folder)[1], 20)
    ended = penstock(tmp_path, "log", "show", "orders", "--from", "0")
    assert ended.returncode == 1
    assert offsets_of(ended.stdout) == [*range(first, second), *range(third, 16)]
    assert f"offsets {second}–{third - 1}: {third - second} records DAMAGED" in ended.stdout
    segments(folder)[0].unlink()
    assert f"offsets 0–{second - 1}: " in penstock(tmp_path, "log", "show", "orders", "--from", "0").stdout


def test_verify_names_every_problem_and_repair_mends_them(tmp_path: Path) -> None:
    folder = seed(tmp_path)
    seed(tmp_path, "fine")
    with Offsets(folder) as offsets:
        offsets.ack("c0", range(5))
    assert said(tmp_path, "verify").splitlines() == [
        f"{name}: good. 16 records in 16 entries, 3 segments, 1.4 kB" for name in ("fine", "orders")
    ]
    damaged(folder, 3)
    damaged(folder, 12)
    flip(folder / "offsets", 40)
    ended = penstock(tmp_path, "log", "verify")
    assert ended.returncode == 1
    assert "fine: good." in ended.stdout
    assert "orders: 3 problems; 14 records" in ended.stdout
    assert re.search(r"0{20}\.seg, byte \d+: offset 3 \(1 record\): the checksum of an entry's data", ended.stdout)
    assert re.search(r"\.seg, byte \d+: offset 12 ", ended.stdout)
    assert "offsets, byte 0: its checksum is wrong" in ended.stdout
    assert "penstock log repair orders" in ended.stderr
    assert penstock(tmp_path, "log", "verify", "fine").returncode == 0
    [found] = map(json.loads, penstock(tmp_path, "log", "verify", "orders", "--json").stdout.splitlines())
    assert (found["good"], [p["offset"] for p in found["problems"]]) == (False, [3, 12, None])

    text = said(tmp_path, "repair", "orders")
    assert "lost: offset 3 (1 record)" in text
    assert "lost: offset 12 (1 record)" in text
    assert "every reader gets everything again" in text
    for kept in re.findall(r"kept: (.+)", text):
        assert (tmp_path / kept).exists()
    assert "2 records marked as lost by an earlier repair" in said(tmp_path, "verify", "orders")
    shown = said(tmp_path, "show", "orders", "--from", "0")
    assert "offset 3: 1 record lost (marked by repair): " in shown
    assert objects(tmp_path, "show", "orders", "--from", "3", "--to", "3")[0]["repaired"] is True
    assert said(tmp_path, "repair", "orders") == "orders: nothing to repair\n"


def test_repair_is_refused_while_the_log_is_being_written(tmp_path: Path) -> None:
    folder = seed(tmp_path)
    with Writer(folder):
        before = bytes_of(tmp_path)
        assert "[log.locked]" in refused(tmp_path, "repair", "orders")
        assert bytes_of(tmp_path) == before


# -- readers ----------------------------------------------------------------------------------------------------------


def test_offsets_say_how_far_each_reader_is_and_who_holds_compaction(shop: Path) -> None:
    lines = said(shop, "offsets", "orders").splitlines()
    rows = [re.split(r"  +", line)[:5] for line in lines[1:7]]
    assert lines[0].split("  ")[0] == "READER"
    assert rows == [
        ["c0", "A", "12", "13", "1"],
        ["c0", "B", "11", "15", "1"],
        ["c0", "C", "10", "14", "1"],
        ["c1", "A", "13", "–", "0"],
        ["c1", "B", "15", "–", "0"],
        ["c1", "C", "10", "14", "1"],
    ]
    assert lines[-1] == "c0 holds compaction: everything from offset 13 on is kept."
    [found] = objects(shop, "offsets", "orders")
    assert found["compaction"] == {"point": 13, "held_by": ["c0"]}
    assert [(r["reader"], r["pending"], r["lag"]) for r in found["readers"]] == [("c0", 13, 3), ("c1", 14, 1)]
    assert found["readers"][1]["namespaces"][2] == {"namespace": "C", "effective": 10, "pending": 14, "lag": 1}


def test_offsets_without_readers_or_with_nothing_pending(shop: Path) -> None:
    assert "No reader is known: everything is kept" in said(shop, "offsets", "empty")
    assert "No reader waits for anything" in said(shop, "offsets", "done")
    assert objects(shop, "offsets", "empty")[0]["compaction"] == {"point": None, "held_by": []}


def test_what_offsets_say_is_what_the_library_says(shop: Path) -> None:
    for name in ("orders", "done"):
        folder = logs(shop) / name
        offsets = Offsets(folder)
        for reader in log_tables.followers(folder).readers:
            assert reader.pending == offsets.pending(reader.name)
            assert reader.lag == offsets.lag(reader.name) == sum(place.lag for place in reader.places)
            effective = {place.namespace: place.effective for place in reader.places if place.effective is not None}
            assert effective == offsets.effective(reader.name)


def test_a_reader_is_forgotten_with_what_it_held(tmp_path: Path) -> None:
    folder = seed(tmp_path)
    with Offsets(folder) as offsets:
        offsets.ack("fast", range(15))
        offsets.ack("slow", range(4))
    error = refused(tmp_path, "forget", "orders", "slwo")
    assert "[log.unknown-reader]" in error
    assert "did you mean 'slow'?" in error
    assert said(tmp_path, "forget", "orders", "slow") == (
        "orders: forgot slow. It held everything from offset 4 on: 12 records not acknowledged.\n"
        "fast holds compaction: everything from offset 15 on is kept.\n"
    )
    assert [r["reader"] for r in objects(tmp_path, "offsets", "orders")[0]["readers"]] == ["fast"]


def test_compact_takes_away_what_is_acknowledged_and_says_so(tmp_path: Path) -> None:
    folder = seed(tmp_path)
    assert "no reader is known, so everything is kept" in said(tmp_path, "compact", "orders")
    with Offsets(folder) as offsets:
        offsets.register("c0")
    assert "nothing to take away in closed segments below offset 0" in said(tmp_path, "compact", "orders")
    with Offsets(folder) as offsets:
        offsets.ack("c0", range(16))
    size = sum(path.stat().st_size for path in segments(folder))
    text = said(tmp_path, "compact", "orders")
    freed = size - sum(path.stat().st_size for path in segments(folder))
    assert re.fullmatch(
        rf"orders: \d+ records below offset 16 taken away, {freed} bytes freed, 1 segment fewer\n", text
    )
    assert len(objects(tmp_path, "show", "orders")) < 16


PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "look-into-a-log.md"


@pytest.mark.parametrize("command", ["show orders --from 9 --to 11", "offsets orders", "list"])
def test_the_page_shows_what_the_command_shows(tmp_path: Path, command: str) -> None:
    """Times and the spaces beside them may differ."""
    with Offsets(seed(tmp_path)) as offsets:
        offsets.ack("c0", range(13))
        offsets.ack("c1", [*range(14), 15])
    [block] = re.findall(rf"```\n\$ penstock log {re.escape(command)}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    ended = penstock(tmp_path, "log", *command.split())

    def fixed(text: str) -> list[str]:
        text = re.sub(r"20\d\d-\d\d-\d\dT[0-9:]+Z|[\d,]+ (d|h|min|s) ago", "#", text)
        return [" ".join(line.split()) for line in text.strip().splitlines()]

    assert fixed(ended.stdout + ended.stderr) == fixed(block)


# -- which log --------------------------------------------------------------------------------------------------------


def test_an_unknown_name_is_answered_with_the_nearest_and_with_all(shop: Path) -> None:
    error = refused(shop, "show", "order")
    assert "[log.unknown] There is no log 'order' in .penstock" in error
    assert "did you mean 'orders'? there are: done, empty, orders" in error
    for name in ("", "nix", "..", "\x1b[31m", "ords*"):
        assert re.search(r"\[log\.(unknown|missing)\]", refused(shop, "show", name))


@pytest.mark.parametrize("command", ["show", "offsets", "verify", "repair", "compact"])
def test_what_is_no_log_is_said_to_be_none(tmp_path: Path, command: str) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    (tmp_path / "file").touch()
    before = sorted(tmp_path.rglob("*"))
    assert "the folder has no segments" in refused(tmp_path, command, "./photos")
    assert "it is a file; a log is a folder" in refused(tmp_path, command, "./file")
    assert "there is nothing" in refused(tmp_path, command, "./nothing")
    assert "[state.missing]" in refused(tmp_path, command, "photos")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_name_in_the_state_folder_goes_before_a_folder_that_is_called_the_same(tmp_path: Path) -> None:
    inside, here = seed(tmp_path, text="AB"), written(tmp_path / "orders", Record({"id": 1}))
    assert log_names.named(tmp_path / ".penstock", "orders").folder == inside
    assert len(objects(tmp_path, "show", "orders")) == 2
    assert len(objects(tmp_path, "show", "./orders")) == 1
    shutil.rmtree(inside)
    assert len(objects(tmp_path, "show", "orders")) == 1
    assert here.exists()


@pytest.mark.parametrize("command", ["show", "offsets", "verify", "repair", "compact"])
def test_a_log_of_a_newer_version_is_refused_untouched(tmp_path: Path, command: str) -> None:
    last = segments(seed(tmp_path))[-1]
    data = last.read_bytes()
    last.write_bytes(replace(Header.unpack(data), version=99).pack() + data[HEADER_BYTES:])
    before = bytes_of(tmp_path)
    error = refused(tmp_path, command, "orders", code=1)
    assert "[log.version]" in error
    assert "has version 99; this Penstock reads up to" in error
    assert "repair" not in error
    assert bytes_of(tmp_path) == before


def test_a_state_folder_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    seed(tmp_path)
    state = StateFolder(tmp_path / ".penstock")
    state.open()
    state.close()
    assert penstock(tmp_path, "log", "list").returncode == 0
    (tmp_path / ".penstock" / "VERSION").write_text("penstock state 99\n")
    assert "[state.version]" in refused(tmp_path, "list")


@pytest.mark.parametrize(
    "arguments, code, text",
    [
        (["--namespace", "("], "usage.regex", "position 0"),
        (["--from", "5", "--to", "3"], "usage.range", "--from 5 is after --to 3"),
        (["--to", "-1"], "", "--to"),
        (["--from", "x"], "", "--from"),
    ],
)
def test_a_bad_option_is_refused(shop: Path, arguments: list[str], code: str, text: str) -> None:
    error = refused(shop, "show", "orders", *arguments)
    assert code in error
    assert text in error


# -- streams ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", ["", "--json", "--full", "--follow", "--follow --json"])
def test_a_reader_that_goes_away_ends_it(tmp_path: Path, more: str) -> None:
    with Writer(logs(tmp_path) / "many") as writer:
        writer.append([Record({"n": n, "text": "x" * 100}) for n in range(5000)])
    line = f"{Path(sys.executable).with_name('penstock')} log show many --from 0 {more} | head -1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", line], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0
    assert len(ended.stdout.splitlines()) == 1
    assert "Traceback" not in ended.stderr
    assert "Broken" not in ended.stderr


@pytest.mark.parametrize("arguments", [["list"], ["show", "orders"], ["offsets", "orders"], ["verify"]])
def test_spark_is_never_loaded(shop: Path, arguments: list[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", "log", *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=shop)
    assert ended.returncode == 0
    loaded = {line.rpartition("|")[2].strip().split(".")[0] for line in ended.stderr.splitlines()}
    assert "penstock" in loaded
    assert loaded.isdisjoint({"pyspark", "py4j", "pandas"})


def test_help_loads_no_arrow(tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "penstock.cli.main", "log", "show", "--help"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ended.returncode == 0
    assert not re.search(r"\bpyarrow\b", ended.stderr)


# Says on stderr what a command does to files below the state folder, other than to read them. Also for root, who may write everywhere.
AUDIT = """
import os, sys

def hook(event, args):
    if event == "open" and ".penstock" in str(args[0]) and isinstance(args[2], int):
        if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            print("CHANGES", event, args[0], file=sys.stderr)
        else:
            print("READS", args[0], file=sys.stderr)
    elif event in ("fcntl.flock", "fcntl.lockf", "os.rename", "os.remove", "os.truncate", "os.mkdir", "os.link"):
        print("CHANGES", event, file=sys.stderr)

from penstock.cli.log import log
sys.addaudithook(hook)
log()
"""


def audited(folder: Path, *arguments: str) -> str:
    ended = subprocess.run([sys.executable, "-c", AUDIT, *arguments], cwd=folder, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "READS" in ended.stderr
    return ended.stderr


@pytest.mark.parametrize("arguments", [["list"], ["show", "orders"], ["offsets", "orders"], ["verify"]])
def test_looking_takes_no_lock_and_opens_nothing_for_writing(shop: Path, arguments: list[str]) -> None:
    assert "CHANGES" not in audited(shop, *arguments)


def test_the_control_of_that_sees_locks_and_writes(tmp_path: Path) -> None:
    with Offsets(seed(tmp_path)) as offsets:
        offsets.ack("c0", range(16))
    found = audited(tmp_path, "compact", "orders")
    assert "CHANGES fcntl.flock" in found
    assert "compaction.lock" in found
