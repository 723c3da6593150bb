"""The bytes of a log: what the page says, what a stranger's decoder reads, and what logs of every version hold."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from penstock.log import LogVersion, Lost, Mode, Offsets, Reader, Rows, Writer, batches, compact
from penstock.log import format as library
from penstock.log.offsets import load
from penstock.log.repair import repair
from penstock.log.verify import verify
from penstock_sdk.record import Record
from scripts import golden_log
from tests.support import log_decoder
from tests.support.pages import DOCS, blocks

PAGE = DOCS / "formats" / "commit-log.md"
GOLDEN = Path(__file__).parents[1] / "data" / "log"
VERSIONS = ("v1", "v2")
GOLDEN_DIGEST = "988c8ad19eba331569a22b52a809dd955bd53c04a3a168d36943cb97f7473cfa"


def _decoded(folder: Path) -> list[log_decoder.Entry]:
    """Of all segments that count, in order."""
    return [e for info in Reader(folder).segments() for e in log_decoder.decode(info.path.read_bytes())]


def _fields(record: Record) -> dict[str, Any]:
    names = ("after", "before", "key", "position", "operation", "namespace", "phase", "metadata", "timestamp")
    return {name: getattr(record, name) for name in names}


def _content(folder: Path) -> dict[int, Any]:
    """By offset: the record's fields, or why it is lost."""
    made: dict[int, Any] = {}
    for found in Reader(folder).read(0):
        if isinstance(found, Lost):
            made.update(dict.fromkeys(range(found.offset, found.end), found.why))
        else:
            made.update(enumerate(map(_fields, found.records()), found.offset))
    return made


# -- the page --------------------------------------------------------------------------------------------------------------


def _example() -> bytes:
    """Of the block on the page, the bytes that begin each line."""
    (block,) = [b for b in blocks(PAGE, "text") if "50 45 4e 53" in b.text]
    found = [re.match(r"(?:[0-9a-f]{2} )*[0-9a-f]{2}(?=  |$)", line) for line in block.text.splitlines()]
    return b"".join(bytes.fromhex(m[0]) for m in found if m)


def _table(title: str) -> list[tuple[int, int, str]]:
    """Offset, width and field of each row of the first table below a title; a row without a fixed place ends it."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n#", 1)[0]
    return [(int(at), int(w), f) for at, w, f in re.findall(r"^\| (\d+) \| (\d+) \| `?([\w ]+)`? \|", section, re.M)]


def test_the_example_on_the_page_is_what_the_page_says() -> None:
    data = _example()
    ((offset, count, kind, timestamp, mode, key, payload),) = log_decoder.decode(data)
    assert (offset, count, kind, timestamp, mode, key) == (7, 1, 0, 1_700_000_000_000_000_000, 1, b"ab")
    record = batches.unpack(payload, key.decode(), Mode(mode))
    assert _fields(record) == _fields(Record(b"hi", namespace="ab"))


def test_the_library_writes_the_example_to_the_byte(tmp_path: Path) -> None:
    data = _example()
    header = library.Header(bytes(range(16)), 7)
    payload = batches.pack(Record(b"hi", namespace="ab"))
    crc = library.data_crc(header.seed, payload)
    head = library.pack_head(
        header.seed, 64, library.Kind.RECORD, 7, 1, 7, 1_700_000_000_000_000_000, Mode.SYNC, b"ab", len(payload), crc
    )
    assert (header.pack() + head + payload).hex(" ") == data.hex(" ")
    (tmp_path / f"{7:020d}.seg").write_bytes(data)
    (lost, rows) = Reader(tmp_path, on_damage="skip").read(0)  # the seven before it are in a segment that is not there
    assert isinstance(lost, Lost)
    assert isinstance(rows, Rows)
    assert (lost.count, rows.offset, rows.timestamp) == (7, 7, 1_700_000_000_000_000_000)


@pytest.mark.parametrize(
    "title, size",
    [("The segment header", 64), ("The wrapper", 28), ("The head of an index", 64), ("The two slots", 32)],
)
def test_the_rows_of_a_table_follow_each_other(title: str, size: int) -> None:
    rows = _table(title)
    assert [at for at, _, _ in rows] == [sum(w for _, w, _ in rows[:i]) for i in range(len(rows))]
    assert sum(width for _, width, _ in rows) == size


def test_the_header_can_be_read_by_the_table_alone() -> None:
    packed = library.Header(bytes(range(16)), 7, 2, 3, 400, 50, 60).pack()
    found = {field: packed[at : at + width] for at, width, field in _table("The segment header")}
    numbers = {
        name: int.from_bytes(found[name], "big")
        for name in ("version", "generation", "base", "covers", "holes", "length")
    }
    assert numbers == {"version": 2, "generation": 3, "base": 7, "covers": 400, "holes": 50, "length": 60}
    assert (found["magic"], found["log id"]) == (b"PENSTLOG", bytes(range(16)))
    assert int.from_bytes(found["checksum"], "big") == google_crc32c.value(packed[:60])


def test_the_index_on_disk_is_what_the_tables_say(tmp_path: Path) -> None:
    with Writer(tmp_path) as writer:
        writer.append([Record(b"a"), Record(b"b")])
        log_id = bytes.fromhex(writer.log_id)
    data = (tmp_path / f"{0:020d}.index").read_bytes()
    head = {field: data[at : at + width] for at, width, field in _table("The head of an index")}
    assert (head["magic"], head["log id"]) == (b"PENSTIDX", log_id)
    assert int.from_bytes(head["checksum"], "big") == log_decoder.crc32c(data[:60])
    slots = []
    for start in (64, 96):
        slot = {field: data[start + at : start + at + width] for at, width, field in _table("The two slots")}
        numbers = {name: int.from_bytes(value, "big") for name, value in slot.items()}
        if numbers["checksum"] == log_decoder.crc32c(log_id + bytes(12) + data[start : start + 28]):
            slots.append((numbers["serial"], numbers["position"], numbers["offset"]))
    assert max(slots)[1:] == ((tmp_path / f"{0:020d}.seg").stat().st_size, 2)


# -- the decoder -----------------------------------------------------------------------------------------------------------


def test_the_decoder_is_short_and_a_stranger() -> None:
    source = Path(log_decoder.__file__).read_text()
    tree = ast.parse(source)
    imports = [n for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom)]
    names = {a.name if isinstance(n, ast.Import) else n.module for n in imports for a in n.names}
    assert names == {"__future__", "struct", "collections.abc"}
    documented = [n for n in ast.walk(tree) if isinstance(n, ast.Module | ast.FunctionDef) and ast.get_docstring(n)]
    other = {line for n in imports for line in range(n.lineno, (n.end_lineno or 0) + 1)}
    for node in documented:
        other |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    lines = [line for number, line in enumerate(source.splitlines(), 1) if line.strip() and number not in other]
    assert len(lines) <= 30


def test_its_checksum_is_the_one_that_others_call_crc_32c() -> None:
    assert log_decoder.crc32c(b"123456789") == 0xE3069283
    assert log_decoder.crc32c(b"456789", log_decoder.crc32c(b"123")) == google_crc32c.value(b"123456789")


def _write(folder: Path, **options: Any) -> None:
    with Writer(folder, **options) as writer:
        for i in range(12):
            writer.append([Record(b"%d" % i, namespace="a"), Record({"n": i}, namespace="ü", phase="copy")])
            writer.append([Record(b"b%d" % j, phase="complete", key={"j": j}) for j in range(10)])
            writer.append_batch(batches.to_arrow([Record({"x": j}, operation="update") for j in range(5)]), "a")


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("compacted", [False, True])
def test_the_decoder_and_the_reader_agree_in_everything(tmp_path: Path, compression: Any, compacted: bool) -> None:
    _write(tmp_path, segment_bytes=6_000, compression=compression)
    whole = _content(tmp_path)
    if compacted:
        with Offsets(tmp_path) as offsets:
            offsets.ack("r", range(100))
        assert compact(tmp_path).removed > 50
    reader = Reader(tmp_path)
    assert len(reader.segments()) > 1
    theirs = [(e.head, bytes(e.data)) for e in reader.entries(0) if not isinstance(e, Lost)]
    ours = _decoded(tmp_path)
    assert ours == [(h.offset, h.count, h.kind, h.timestamp, h.mode, h.key, data) for h, data in theirs]
    assert {e[2] for e in ours} == {0, 1}
    assert {e[4] for e in ours} == {0, 1, 2}
    assert {e[5] for e in ours} == {b"a", "ü".encode(), b""}
    assert {o for e in ours for o in range(e[0], e[0] + e[1])} == _content(tmp_path).keys()
    assert _records(ours) == _content(tmp_path)
    assert all(whole[offset] == fields for offset, fields in _content(tmp_path).items())


def _records(entries: list[log_decoder.Entry]) -> dict[int, Any]:
    """From what the decoder gives, with another MessagePack and Arrow's own reader."""
    import msgspec
    import pyarrow as pa

    made: dict[int, Any] = {}
    for offset, _, kind, _, mode, key, data in entries:
        if kind == 0:
            names = {"p": "position", "o": "operation", "m": "metadata", "k": "key", "b": "before", "a": "after"}
            rows = [{names[k]: v for k, v in msgspec.msgpack.decode(data).items()}]
        else:
            rows = pa.ipc.open_stream(data).read_all().to_pylist(maps_as_pydicts="strict")
        for i, row in enumerate(rows):
            payloads = {n: json.loads(v) if isinstance(v := row.get(n), str) else v for n in ("key", "before", "after")}
            record = Record(
                **{**row, **payloads}, namespace=key.decode() or None, phase=("copy", "sync", "complete")[mode]
            )
            made[offset + i] = _fields(record)
    return made


# -- logs of every version -------------------------------------------------------------------------------------------------


@pytest.fixture(params=VERSIONS)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of the log that is in the repository."""
    return Path(shutil.copytree(GOLDEN / request.param, tmp_path / request.param))


def _expected() -> dict[int, dict[str, str]]:
    return {row.pop("offset"): row for row in json.loads((GOLDEN / "expected.json").read_text(encoding="utf-8"))}


def _assert_golden(folder: Path) -> None:
    content, usual = _content(folder), _fields(Record())
    expected = _expected()
    for offset, wanted in expected.items():
        found = content.pop(offset)
        if "lost" in wanted:
            assert found == wanted["lost"]
        else:
            assert {name: repr(value) for name, value in found.items() if value != usual[name]} == wanted
    assert all(offset > max(expected) for offset in content)


def _versions(folder: Path) -> list[int]:
    return [info.header.version for info in Reader(folder).segments()]


def test_every_version_has_a_golden_log() -> None:
    assert [f"v{n}" for n in range(1, library.VERSION + 1)] == list(VERSIONS)
    assert set(_versions(GOLDEN / "v1")) == {1}
    assert set(_versions(GOLDEN / "v2")) == {2}


def test_todays_reader_reads_a_golden_log(golden: Path) -> None:
    _assert_golden(golden)
    reader = Reader(golden)
    assert (reader.first, reader.end, len(_expected())) == (0, 19, 19)
    assert reader.count() == 19  # the one that is lost has to be accounted for, too
    assert {name: rows.offset for name, rows in reader.last().items()} == {"": 16, "shop.orders": 18, "shop.people": 17}
    states = load(golden)
    assert (states["mail"].frontier, states["mail"].namespaces["shop.orders"]) == (5, 4)
    assert states["mail"].ranges == ((6, 8),)
    found = verify(golden)
    assert (found.problems, found.records, found.lost) == ([], 18, 1)


def test_the_decoder_reads_a_golden_log(golden: Path) -> None:
    entries = _decoded(golden)
    assert [o for e in entries for o in range(e[0], e[0] + e[1])] == list(range(19))
    assert {e[2] for e in entries} == {0, 1, 2}
    stamped = [e[3] for e in entries if e[2] != 2]
    assert stamped == sorted(stamped)
    assert stamped[0] == 1_700_000_000_000_000_000
    times = {e[0]: e[3] for e in entries}
    assert all(
        r.timestamp == times[r.offset] for r in Reader(golden).read(0) if isinstance(r, Rows) and r.offset in times
    )


def test_a_writer_continues_a_golden_log_in_the_current_version(golden: Path) -> None:
    before = {file.name: file.read_bytes() for file in golden.glob("*.seg")}
    with Writer(golden) as writer:
        assert writer.recovered.cut == 0
        assert writer.append([Record(b"new", namespace="shop.orders")]) == range(19, 20)
    _assert_golden(golden)
    assert _content(golden)[19]["after"] == b"new"
    assert _versions(golden)[-1] == library.VERSION
    if golden.name != f"v{library.VERSION}":
        assert {name: (golden / name).read_bytes() for name in before} == before
        assert (golden / f"{19:020d}.seg").exists()


def test_a_writer_that_finds_an_old_active_segment_without_entries_replaces_it(golden: Path) -> None:
    header = next(iter(Reader(golden).segments())).header
    empty = golden / f"{19:020d}.seg"
    empty.write_bytes(golden_log.header(header.version, header.log_id, 19))
    with Writer(golden) as writer:
        assert writer.append([Record(b"new")]) == range(19, 20)
    _assert_golden(golden)
    assert Reader(golden).segments()[-1].header.version == library.VERSION


@pytest.mark.parametrize("through, last", [(12, {4, 12}), (18, {16, 17, 18})])
def test_compaction_brings_a_golden_log_to_the_current_version(golden: Path, through: int, last: set[int]) -> None:
    with Writer(golden, segment_bytes=100) as writer:
        writer.append([Record(b"new", namespace="shop.orders")])
    with Offsets(golden) as offsets:
        offsets.ack_through("mail", through)
    kept = {o: fields for o, fields in _content(golden).items() if o > through or o in last}
    assert compact(golden).removed == through + 1 - len(last)
    assert {i.header.version for i in Reader(golden).segments() if i.header.base <= through} == {library.VERSION}
    assert _content(golden) == kept
    assert {o for e in _decoded(golden) for o in range(e[0], e[0] + e[1])} == kept.keys()
    assert verify(golden).problems == []


def _hashes(folder: Path) -> dict[str, str]:
    """Of everything but the locks: whoever asks for one makes its file."""
    files = (f for f in folder.iterdir() if f.suffix != ".lock")
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def _make_newer(folder: Path, segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    data[8:10] = (library.VERSION + 1).to_bytes(2, "big")
    data[60:64] = google_crc32c.value(bytes(data[:60])).to_bytes(4, "big")
    segment.write_bytes(data)
    for left in (".new", ".compact", ".repair"):
        (folder / f"{3:020d}{left}").write_bytes(b"what a newer one was at")


@pytest.mark.parametrize("which", [0, 1, -1], ids=["first", "closed", "active"])
@pytest.mark.parametrize("use", [Reader, Writer, verify, repair, compact], ids=lambda f: f.__name__)
def test_a_log_of_a_newer_version_is_refused_untouched(golden: Path, use: Callable[[Path], object], which: int) -> None:
    _make_newer(golden, sorted(golden.glob("*.seg"))[which])
    before = _hashes(golden)
    with pytest.raises(LogVersion) as raised:
        use(golden)
    assert f"has version {library.VERSION + 1}" in str(raised.value)
    assert _hashes(golden) == before


def test_a_golden_log_stays_as_it_is(tmp_path: Path) -> None:
    """Whoever makes it anew by accident is told."""
    found = {f"{v}/{file}": digest for v in VERSIONS for file, digest in sorted(_hashes(GOLDEN / v).items())}
    assert hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest() == GOLDEN_DIGEST
