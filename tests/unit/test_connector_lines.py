"""`lines`: every line once, over rotation, truncation, restarts and all of them at random."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.connectors.lines.connector import connector
from penstock.connectors.lines.source import LinesSource
from penstock_protocol.process import PluginProcess
from penstock_sdk import Context, Record, Stop
from penstock_sdk.source_plugin import SourceAdapter
from penstock_sdk.wire import from_records

SERVE = "import sys; from penstock_sdk import serve; from penstock.connectors.lines.connector import connector; sys.exit(serve(connector))"
Open = Callable[..., LinesSource]


@pytest.fixture
def open_() -> Iterator[Open]:
    made: list[LinesSource] = []

    def opened(path: Path, position: bytes | None = None, **more: str) -> LinesSource:
        config = {
            "path": str(path),
            "poll": "1ms",
            "rotation-grace": "0",
            **{k.replace("_", "-"): v for k, v in more.items()},
        }
        source = LinesSource(LinesSource.settings_type.parse(config), Context())  # type: ignore[arg-type]
        made.append(source)
        source.open(position, {})
        return source

    yield opened
    for source in made:
        source.close()


def _all(source: LinesSource, most: int = 1000) -> list[Record]:
    """Everything that is there now. Two looks in vain: one may only have noticed something."""
    found: list[Record] = []
    empty = 0
    while empty < 2:
        got = source.read(most, 0.003)
        assert len(got) <= most
        found += got
        empty = 0 if got else empty + 1
    return found


def _texts(records: list[Record]) -> list[bytes]:
    assert len({r.position for r in records}) == len(records)
    return [r.after for r in records if isinstance(r.after, bytes)]


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def test_only_a_newline_ends_a_line_and_bytes_stay_as_they_are(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"\xef\xbb\xbfa\r\n\nb\x00\xff\x0b\xe2\x80\xa8c\n")
    assert _texts(_all(open_(path))) == [b"\xef\xbb\xbfa\r", b"", b"b\x00\xff\x0b\xe2\x80\xa8c"]


def test_a_line_is_never_cut_in_two(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"one\ntw")
    source = open_(path)
    assert _texts(_all(source)) == [b"one"]
    _append(path, b"o")
    assert _all(source) == []
    _append(path, b"\nthree\n")
    assert _texts(_all(source)) == [b"two", b"three"]


def test_every_position_resumes_right_behind_its_line(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    lines = [b"line %d %s" % (n, b"x" * (n * 7 % 90)) for n in range(60)]
    path.write_bytes(b"\n".join(lines) + b"\n")
    records = _all(open_(path), 7)
    assert _texts(records) == lines
    for i in (0, 1, 5, 30, 58, 59):
        again = _all(open_(path, records[i].position))
        assert [r.position for r in again] == [r.position for r in records[i + 1 :]]


def test_the_rest_of_a_rotated_file_comes_before_the_new_one(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n")
    source = open_(path)
    assert _texts(_all(source)) == [b"a", b"b"]
    _append(path, b"c\nd")
    path.rename(tmp_path / "log.1")
    assert _texts(_all(source)) == [b"c"]  # there is nothing to leave it for
    path.write_bytes(b"")
    assert _all(source) == []
    _append(path, b"e\n")
    assert _texts(_all(source)) == [b"d", b"e"]


def test_several_rotations_between_two_reads_lose_nothing(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"0\n")
    source = open_(path)
    first = _all(source)
    for n in range(1, 5):
        for k in range(9, 0, -1):
            if (old := tmp_path / f"log.{k}").exists():
                old.rename(tmp_path / f"log.{k + 1}")
        path.rename(tmp_path / "log.1")
        path.write_bytes(b"%d\n" % n)
    assert _texts(_all(source)) == [b"1", b"2", b"3", b"4"]
    assert _texts(_all(open_(path, first[0].position))) == [b"1", b"2", b"3", b"4"]  # and while it was down


def test_truncation_is_noticed_by_size_and_by_what_stands_there(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old 1\nold 2\n")
    source = open_(path)
    records = _all(source)
    path.write_bytes(b"new\n")
    records += _all(source)
    path.write_bytes(b"longer than before\n")
    records += _all(source)
    path.write_bytes(b"LONGER than before\n")  # the same size
    os.utime(path, ns=(1, 1))
    records += _all(source)
    assert _texts(records) == [b"old 1", b"old 2", b"new", b"longer than before", b"LONGER than before"]


@pytest.mark.parametrize("down", [False, True])
def test_the_rest_is_read_from_the_copy_that_copytruncate_makes(tmp_path: Path, open_: Open, down: bool) -> None:
    path = tmp_path / "log"
    lines = [b"line %03d of the first" % n for n in range(20)]
    path.write_bytes(b"\n".join(lines[:10]) + b"\n")
    source = open_(path)
    records = _all(source)
    if down:
        source.close()
    _append(path, b"\n".join(lines[10:]) + b"\n")
    (tmp_path / "log.1").write_bytes(path.read_bytes())
    os.truncate(path, 0)
    _append(path, b"after\n")
    source = open_(path, records[-1].position) if down else source
    assert _texts(records + _all(source)) == [*lines, b"after"]


def test_rotation_while_it_was_down_is_followed_by_inode(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "app.log"
    path.write_bytes(b"a\nb\nc\n")
    records = _all(open_(path))
    path.rename(tmp_path / "anything")
    path.write_bytes(b"d\n")
    assert _texts(_all(open_(path, records[0].position))) == [b"b", b"c", b"d"]


def test_what_is_gone_stops_it_and_says_what_is_compressed(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"a\nb\n")
    position = _all(open_(path))[0].position
    path.unlink()
    (tmp_path / "log.1.gz").write_bytes(b"...")
    source = open_(path, position)
    assert _all(source) == []  # not there: it may come
    path.write_bytes(b"something else\n")
    with pytest.raises(Stop, match=r"(?s)up to byte 2 .*log\.1\.gz.*on-loss"):
        _all(source)
    with pytest.raises(Stop):
        open_(path, position)
    again = _all(open_(path, position, on_loss="continue"))
    assert _texts(again) == [b"something else"]
    assert again[0].position != position


def test_bytes_that_were_seen_and_truncated_stop_it(
    tmp_path: Path, open_: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.connectors.lines.reader.BLOCK", 16)
    path = tmp_path / "log"
    path.write_bytes(b"0123456\n" * 10)
    source = open_(path)
    assert len(source.read(1, 0)) == 1
    path.write_bytes(b"")
    with pytest.raises(Stop, match="64 bytes of it had not been read"):
        _all(source)


def test_from_end_skips_what_is_there_but_cuts_no_line(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"old\nha")
    source = open_(path, **{"from": "end"})
    _append(path, b"lf\nnew\n")
    assert _texts(_all(source)) == [b"half", b"new"]
    missing = tmp_path / "missing"
    source = open_(missing, **{"from": "end"})
    assert _all(source) == []
    missing.write_bytes(b"first\n")
    assert _texts(_all(source)) == [b"first"]


def test_a_line_that_is_too_long_stops_or_comes_in_pieces(tmp_path: Path, open_: Open) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"ok\n" + b"x" * 10 + b"y" * 10 + b"z" * 3 + b"\nexactly 10\nafter\n")
    source = open_(path, max_line_bytes="10")
    assert _texts(list(source.read(10, 0))) == [b"ok"]
    with pytest.raises(Stop, match="the line at byte 3 is longer than 10 bytes"):
        _all(source)
    records = _all(open_(path, max_line_bytes="10", long_lines="split"))
    assert _texts(records) == [b"ok", b"x" * 10, b"y" * 10, b"zzz", b"exactly 10", b"after"]
    pieces = [r.metadata.get("lines.piece") for r in records]
    assert pieces == [None, "first", "middle", "last", None, None]
    for i, record in enumerate(records):
        again = _all(open_(path, record.position, max_line_bytes="10", long_lines="split"))
        assert [(r.after, r.metadata.get("lines.piece")) for r in again] == [
            (r.after, piece) for r, piece in zip(records[i + 1 :], pieces[i + 1 :], strict=True)
        ]


def test_an_endless_line_eats_no_memory(tmp_path: Path, open_: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.connectors.lines.reader.BLOCK", 64)
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1000)
    records = _all(open_(path, max_line_bytes="100", long_lines="split"))
    assert [len(t) for t in _texts(records)] == [100] * 9  # the last 100 are a line that may still end
    _append(path, b"\n")
    assert _texts(_all(open_(path, records[-1].position, max_line_bytes="100", long_lines="split"))) == [b"x" * 100]


def test_what_is_no_file_is_refused(tmp_path: Path, open_: Open) -> None:
    with pytest.raises(Stop, match="is a folder"):
        open_(tmp_path)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(Stop, match="is a FIFO"):
        open_(tmp_path / "fifo")
    with pytest.raises(Stop, match="no position of `lines`"):
        open_(tmp_path / "log", b"17")


def test_a_stop_is_noticed_while_it_waits(tmp_path: Path, open_: Open) -> None:
    source = open_(tmp_path / "missing", poll="1h")
    source.context.stopping.set()
    assert list(source.read(1, 3600)) == []


class _World:
    """A writer that appends, rotates, truncates with a copy and removes; it knows what it wrote."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.path, self.folder, self.rng, self.n = folder / "log", folder, rng, 0
        self.written: list[bytes] = []
        self.pending = b""

    def append(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.n += 1
            self.pending += b"line %d %s" % (self.n, b"." * self.rng.randint(0, 200))
            if self.rng.random() < 0.2:  # the rest of the line comes with the next
                _append(self.path, self.pending)
                self.written.append(self.pending)
                self.pending = b""
                _append(self.path, b"\n")
                continue
            self.written.append(self.pending)
            _append(self.path, self.pending + b"\n")
            self.pending = b""

    def rotate(self) -> None:
        if not self.path.exists() or not self.path.stat().st_size:
            return
        self._shift()
        self.path.rename(self.folder / "log.1")

    def copytruncate(self) -> None:
        if self.path.exists() and self.path.stat().st_size:
            self._shift()
            (self.folder / "log.1").write_bytes(self.path.read_bytes())
            os.truncate(self.path, 0)

    def _shift(self) -> None:
        for k in range(60, 0, -1):
            if (old := self.folder / f"log.{k}").exists():
                old.rename(self.folder / f"log.{k + 1}")


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_to_the_file_each_line_comes_once_and_in_order(tmp_path: Path, open_: Open, seed: int) -> None:
    """One kind of rotation per run, as logs have; restarts from the last ack, with lines read and not acked."""
    rng = random.Random(seed)
    world = _World(tmp_path, rng)
    turn = world.rotate if seed % 2 else world.copytruncate
    world.append()
    source = open_(world.path)
    acked = list(source.read(1, 0))  # without a position a restart knows of no older file
    for _ in range(60):
        what = rng.random()
        if what < 0.4:
            world.append()
        elif what < 0.55:
            if not seed % 2:  # between a copy and the next, somebody has looked
                acked += _all(source)
            turn()
            world.append()
        elif what < 0.85:
            acked += source.read(rng.randint(1, 4), 0)
        else:
            source.read(3, 0)  # given, never acked
            source.close()
            source = open_(world.path, acked[-1].position)
    acked += _all(source)
    assert _texts(acked) == world.written


def test_as_a_program_and_built_in_it_is_the_same(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"%d\n" % n for n in range(2500)))
    config = {"path": str(path)}
    assert connector.source is not None
    built_in = SourceAdapter(connector.source)
    with PluginProcess([sys.executable, "-c", SERVE], connector_id="p:c") as process:
        found = []
        for source in (built_in, process.source()):
            source.configure(config)
            source.open(b"")
            records: list[Record] = []
            while len(records) < 2500:
                records += from_records(source.read(10))
            source.ack([r.position for r in records[:1000]])
            source.teardown()
            found.append([(r.after, r.position) for r in records])
    assert found[0] == found[1]
    assert [after for after, _ in found[0]] == [b"%d" % n for n in range(2500)]
