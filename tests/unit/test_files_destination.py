"""`files` as a destination, from the manifest on: what is published, what is left alone, what is said when it can't be."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import random
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.connectors.files.writing import LINE_BREAK, NO_PAYLOAD, NOT_AN_OBJECT
from penstock.errors import AccountError, Stop
from penstock.native import Delivery, DeliveryId, Receipt, Refusal, Shape, Staged
from penstock.testing import faults
from tests.support.forgetful import Forgetful

HASH = "0123456789abcdef0123456789abcdef"


def made(root: Path) -> FilesDestination:
    return FilesDestination(FilesDestinationSettings(path=str(root)), "out")


def delivery(batch: int = 1, *, pipeline: str = "p", lane: str = "in", hash: str = HASH) -> DeliveryId:
    return DeliveryId(pipeline, lane, "out", batch, hash, fence=3, epoch=7)


def folder_of(d: DeliveryId) -> str:
    """Where a lane has its things, written down a second time: people and other versions rely on it."""
    return f"{d.pipeline.replace('.', '%2E')}.{d.lane.replace('.', '%2E')}"


def stage(root: Path, d: DeliveryId, *texts: str, attempt: str = "attempt") -> Staged:
    """What `stage` leaves, made by hand."""
    folder = root / "_penstock" / folder_of(d) / d.hash / attempt
    folder.mkdir(parents=True)
    manifest = []
    for n, text in enumerate(texts):
        path = folder / f"part-{n:05d}-x.txt"
        path.write_text(text)
        name = f"{folder_of(d)}-{d.batch:012d}-{n:05d}-{d.hash[:12]}.txt"
        manifest.append({"staged": str(path.relative_to(root)), "name": name, "bytes": len(text.encode())})
    return Staged(sum(t.count("\n") for t in texts), sum(map(len, texts)), manifest)


def never(refusal: Refusal) -> bool:
    """A folder of text refuses no record while it commits: what it can't hold was nacked before."""
    raise AssertionError(refusal)


def test_what_was_staged_survives_a_power_cut_however_deep_its_folders_are(tmp_path: Path) -> None:
    """Spark makes a folder per outcome and, in it, one per stretch of a file."""
    for seed in range(20):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = Forgetful(root)
        faults.install(disk.hook)
        try:
            d = Delivery(**vars(delivery()), attempt=1, attempt_id="attempt")
            out = made(root)
            files = [out.staging_folder(d) / f"_outcome=delivered/_order={n}/part-0000{n}-x.txt" for n in range(3)]
            for path in files:
                path.parent.mkdir(parents=True)
                path.write_text("a\n")
            staged = out.adopt(d, files, 3, 6)
        finally:
            faults.install()
        disk.crash(random.Random(seed).randrange)
        assert [(root / f["staged"]).read_text() for f in staged.manifest] == ["a\n"] * 3


def visible(root: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in root.iterdir() if p.is_file()}


def under(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


# -- commit ---------------------------------------------------------------------------------------------------------


def test_what_the_manifest_names_becomes_visible_whole_and_nothing_else(tmp_path: Path) -> None:
    d = delivery(batch=7)
    staged = stage(tmp_path, d, "a\nb\n", "c\n")
    (tmp_path / staged.manifest[0]["staged"]).with_name("part-00009-not-in-the-manifest.txt").write_text("no\n")
    receipt = made(tmp_path).commit(d, staged, never)
    assert visible(tmp_path) == {
        "p.in-000000000007-00000-0123456789ab.txt": "a\nb\n",
        "p.in-000000000007-00001-0123456789ab.txt": "c\n",
    }
    assert receipt == Receipt(3, made=tuple(sorted(visible(tmp_path))))


def test_after_the_commit_only_the_receipt_is_left_behind_the_scenes(tmp_path: Path) -> None:
    d = delivery()
    staged = stage(tmp_path, d, "a\n")
    stage(tmp_path, d, "of a dead attempt\n", attempt="another")
    made(tmp_path).commit(d, staged, never)
    assert under(tmp_path / "_penstock") == ["p.in", "p.in/receipt.json"]


def test_the_receipt_says_batch_hash_fence_and_what_was_made(tmp_path: Path) -> None:
    d = delivery(batch=2)
    receipt = made(tmp_path).commit(d, stage(tmp_path, d, "a\n"), never)
    note = json.loads((tmp_path / "_penstock" / "p.in" / "receipt.json").read_text())
    assert note == {"version": 1, "batch": 2, "hash": HASH, "fence": 3, "receipt": receipt.to_json()}


def test_an_empty_manifest_is_committed_too(tmp_path: Path) -> None:
    d = delivery()
    destination = made(tmp_path)
    destination.check()
    assert destination.commit(d, Staged(0, 0, []), never) == Receipt(0)
    assert destination.find(d) == Receipt(0)
    assert visible(tmp_path) == {}


def test_a_commit_that_is_made_again_changes_nothing(tmp_path: Path) -> None:
    d = delivery()
    staged = stage(tmp_path, d, "a\n", "b\n")
    first = made(tmp_path).commit(d, staged, never)
    before = visible(tmp_path), under(tmp_path)
    assert made(tmp_path).commit(d, staged, never) == first
    assert (visible(tmp_path), under(tmp_path)) == before


def test_a_commit_knows_nothing_but_its_manifest(tmp_path: Path) -> None:
    """As it is after a year in the ledger: through JSON, by an instance that never staged anything."""
    d = delivery()
    staged = Staged.from_json(json.loads(json.dumps(stage(tmp_path, d, "ä\n").to_json())))
    made(tmp_path).commit(d, staged, never)
    assert list(visible(tmp_path).values()) == ["ä\n"]


def test_a_file_that_a_consumer_took_away_is_not_missed(tmp_path: Path) -> None:
    d = delivery()
    staged = stage(tmp_path, d, "a\n", "b\n")

    class Killed(BaseException):
        pass

    def hook(point: str, detail: str) -> None:
        if point == "K6a":
            raise Killed

    faults.install(hook)
    with pytest.raises(Killed):
        made(tmp_path).commit(d, staged, never)
    faults.install()
    [(name, text)] = visible(tmp_path).items()
    (tmp_path / name).unlink()
    receipt = made(tmp_path).commit(d, staged, never)
    assert sorted([text, *visible(tmp_path).values()]) == ["a\n", "b\n"]
    assert receipt.made == tuple(f["name"] for f in staged.manifest)


# -- when it can't be published -------------------------------------------------------------------------------------


def test_staging_that_was_removed_by_hand_stops_and_says_what_to_restore(tmp_path: Path) -> None:
    d = delivery()
    staged = stage(tmp_path, d, "a\n", "b\n")
    folder = (tmp_path / staged.manifest[0]["staged"]).parent
    os.rename(folder, tmp_path / "_removed")
    with pytest.raises(Stop) as caught:
        made(tmp_path).commit(d, staged, never)
    assert caught.value.code == "files.publish"
    assert staged.manifest[0]["staged"] in caught.value.why
    assert visible(tmp_path) == {}
    assert made(tmp_path).find(d) is None
    os.rename(tmp_path / "_removed", folder)
    made(tmp_path).commit(d, staged, never)
    assert sorted(visible(tmp_path).values()) == ["a\n", "b\n"]


def test_staging_removed_by_hand_between_two_renames_stops_too(tmp_path: Path) -> None:
    d = delivery()
    staged = stage(tmp_path, d, "a\n", "b\n")
    first = staged.manifest[0]
    os.rename(tmp_path / first["staged"], tmp_path / first["name"])
    shutil.rmtree((tmp_path / first["staged"]).parent)
    with pytest.raises(Stop):
        made(tmp_path).commit(d, staged, never)
    assert list(visible(tmp_path).values()) == ["a\n"]
    assert made(tmp_path).find(d) is None


def test_a_name_that_is_taken_by_a_folder_stops_and_goes_on_once_it_is_gone(tmp_path: Path) -> None:
    d = delivery()
    staged = stage(tmp_path, d, "a\n", "b\n", "c\n")
    (tmp_path / staged.manifest[1]["name"]).mkdir()
    with pytest.raises(Stop) as caught:
        made(tmp_path).commit(d, staged, never)
    assert caught.value.code == "files.publish"
    assert made(tmp_path).find(d) is None
    (tmp_path / staged.manifest[1]["name"]).rmdir()
    made(tmp_path).commit(d, staged, never)
    assert sorted(visible(tmp_path).values()) == ["a\n", "b\n", "c\n"]


@pytest.mark.parametrize("below", ["out", "a/b/out"])
def test_a_folder_that_can_not_be_made_is_said_before_anything_starts(tmp_path: Path, below: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Stop) as caught:
        made(tmp_path / "file" / below).check()
    assert caught.value.code == "files.not-writable"


def test_the_check_makes_the_folder_and_leaves_nothing_in_it(tmp_path: Path) -> None:
    made(tmp_path / "a" / "out").check()
    assert under(tmp_path) == ["a", "a/out", "a/out/_penstock"]


# -- find and discard -----------------------------------------------------------------------------------------------


def test_a_delivery_is_found_once_it_is_committed_and_not_before(tmp_path: Path) -> None:
    d = delivery()
    destination = made(tmp_path)
    assert destination.find(d) is None
    staged = stage(tmp_path, d, "a\n")
    assert destination.find(d) is None
    receipt = destination.commit(d, staged, never)
    assert made(tmp_path).find(d) == receipt


def test_the_receipt_is_the_last_deliverys(tmp_path: Path) -> None:
    first, second = delivery(1, hash="1" * 32), delivery(2, hash="2" * 32)
    destination = made(tmp_path)
    destination.commit(first, stage(tmp_path, first, "a\n"), never)
    receipt = destination.commit(second, stage(tmp_path, second, "b\n", "c\n"), never)
    assert destination.find(first) is None
    assert destination.find(second) == receipt
    assert len(visible(tmp_path)) == 3


def test_discarded_staging_is_gone_with_all_attempts_and_nothing_else_is(tmp_path: Path) -> None:
    kept, discarded = delivery(1, hash="1" * 32), delivery(2, hash="2" * 32)
    destination = made(tmp_path)
    destination.commit(kept, stage(tmp_path, kept, "visible\n"), never)
    before = visible(tmp_path), under(tmp_path)
    stage(tmp_path, discarded, "a\n", attempt="one")
    stage(tmp_path, discarded, "b\n", attempt="two")
    for _ in range(2):
        destination.discard(discarded)
        assert (visible(tmp_path), under(tmp_path)) == before
    assert destination.find(kept) is not None


def test_another_lanes_files_are_never_touched(tmp_path: Path) -> None:
    ours, theirs = delivery(), delivery(lane="other")
    destination = made(tmp_path)
    others = stage(tmp_path, theirs, "theirs\n")
    (tmp_path / "p.in-notes.txt").write_text("a person's")
    (tmp_path / "_penstock" / "p.in").mkdir()
    destination.commit(ours, stage(tmp_path, ours, "ours\n"), never)
    destination.discard(ours)
    assert (tmp_path / others.manifest[0]["staged"]).read_text() == "theirs\n"
    assert destination.find(theirs) is None
    destination.commit(theirs, others, never)
    assert destination.find(ours) is not None
    assert sorted(visible(tmp_path).values()) == ["a person's", "ours\n", "theirs\n"]


def test_dots_in_ids_do_not_bring_two_lanes_together(tmp_path: Path) -> None:
    """Even under one hash and batch number each lane has staging, names and receipt of its own."""
    one, other = delivery(pipeline="a.b", lane="c"), delivery(pipeline="a", lane="b.c")
    destination = made(tmp_path)
    staged, others = stage(tmp_path, one, "one\n"), stage(tmp_path, other, "other\n")
    destination.commit(one, staged, never)
    assert destination.find(other) is None
    destination.discard(one)
    destination.commit(other, others, never)
    assert destination.find(one) is not None
    assert visible(tmp_path) == {
        "a%2Eb.c-000000000001-00000-0123456789ab.txt": "one\n",
        "a.b%2Ec-000000000001-00000-0123456789ab.txt": "other\n",
    }


def test_names_sort_in_the_order_of_delivery(tmp_path: Path) -> None:
    destination = made(tmp_path)
    batches = [1, 2, 9, 10, 99, 100, 99_999, 1_000_000]
    for batch in batches:
        d = delivery(batch, hash=f"{-batch & (1 << 128) - 1:032x}")  # later ones have lower hashes
        destination.commit(d, stage(tmp_path, d, *(f"{batch}/{n}\n" for n in range(11))), never)
    texts = [text.strip() for _, text in sorted(visible(tmp_path).items())]
    assert texts == [f"{batch}/{n}" for batch in batches for n in range(11)]


# -- staging that the engine writes as lines ---------------------------------------------------------------------------


def attempt_at(d: DeliveryId, attempt_id: str = "attempt") -> Delivery:
    return Delivery(**vars(d), attempt=1, attempt_id=attempt_id)


def lines(folder: Path, *texts: str) -> list[Path]:
    """What the engine leaves: one file per task, some of them empty."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"part-{n:05d}-x.txt" for n in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return paths


def test_an_attempt_has_a_staging_folder_of_its_own_that_is_not_there_yet(tmp_path: Path) -> None:
    destination = made(tmp_path)
    folder = destination.staging_folder(attempt_at(delivery(), "one"))
    assert folder == tmp_path / "_penstock" / "p.in" / HASH / "one"
    assert folder.parent.is_dir()
    assert not folder.exists()
    assert destination.staging_folder(attempt_at(delivery(), "two")) != folder


def test_adopted_files_are_named_in_the_order_given_and_empty_ones_are_left_out(tmp_path: Path) -> None:
    destination, d = made(tmp_path), attempt_at(delivery(batch=3))
    a, empty, b = lines(destination.staging_folder(d) / "_outcome=delivered", "a\n", "", "b\nc\n")
    staged = destination.adopt(d, [b, empty, a], 3, 6)
    assert (staged.rows, staged.bytes) == (3, 6)
    assert [(f["name"], f["bytes"]) for f in staged.manifest] == [
        ("p.in-000000000003-00000-0123456789ab.txt", 4),
        ("p.in-000000000003-00001-0123456789ab.txt", 2),
    ]
    assert visible(tmp_path) == {}
    destination.commit(d, staged, never)
    assert [text for _, text in sorted(visible(tmp_path).items())] == ["b\nc\n", "a\n"]


def test_nothing_is_adopted_from_a_batch_without_output(tmp_path: Path) -> None:
    destination, d = made(tmp_path), attempt_at(delivery())
    destination.staging_folder(d).mkdir()
    assert destination.adopt(d, [], 0, 0) == Staged(0, 0, [])


@pytest.mark.contract("C12", safeguard="account")
@pytest.mark.parametrize("size", [3, 5])
def test_staged_files_of_another_size_than_the_batch_are_not_adopted(tmp_path: Path, size: int) -> None:
    destination, d = made(tmp_path), attempt_at(delivery())
    paths = lines(destination.staging_folder(d), "a\n", "b\n")
    with pytest.raises(AccountError) as caught:
        destination.adopt(d, paths, 2, size)
    assert caught.value.code == "files.staged"
    assert caught.value.why == f"2 lines of {size} bytes went in; 2 lines of 4 bytes are staged"
    faults.install(off=["account"])
    assert destination.adopt(d, paths, 2, size).bytes == 4


def test_adopted_files_and_their_folders_are_fsynced_before_they_are_named(tmp_path: Path) -> None:
    destination, d = made(tmp_path), attempt_at(delivery())
    paths = lines(destination.staging_folder(d) / "_outcome=delivered", "a\n", "b\n")
    synced: set[str] = set()
    faults.install(lambda point, detail: synced.add(detail) if point == "fsync" else None)
    destination.adopt(d, paths, 2, 4)
    folder = tmp_path / "_penstock" / "p.in" / HASH
    expected = [*paths, folder / "attempt" / "_outcome=delivered", folder / "attempt", folder]
    assert {str(p) for p in expected} <= synced


# -- what it can't hold --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload, why",
    [
        (b"", None),
        (b"a line", None),
        (b"carriage\rreturn", None),
        (b"\xff\xfe", None),
        (None, NO_PAYLOAD),
        (b"two\nlines", LINE_BREAK),
        (b"\n", LINE_BREAK),
        (b"ends\n", LINE_BREAK),
    ],
)
def test_what_is_no_single_line_does_not_fit(payload: bytes | None, why: str | None) -> None:
    assert form().unfit_payload(payload) == why


@pytest.mark.parametrize(
    "payload, why",
    [
        ({}, None),
        ({"text": "two\nlines"}, None),  # as JSON that is one line
        (b'{"a":1}', None),
        (None, NO_PAYLOAD),
        (b"", NOT_AN_OBJECT),
        (b"null", NOT_AN_OBJECT),
        (b"[]", NOT_AN_OBJECT),
        (b"a line", NOT_AN_OBJECT),
        (b'{"a":', NOT_AN_OBJECT),
        (b'{"a":1}{}', NOT_AN_OBJECT),
        (b'{"a":"\xff"}', NOT_AN_OBJECT),
        (b"{" * 100_000, NOT_AN_OBJECT),
        (b'{"a":\n1}', LINE_BREAK),
        (b'{"a":1}\n', LINE_BREAK),
        ('{"a":1}', None),
        ("text", NOT_AN_OBJECT),
        ('{"a":\n1}', LINE_BREAK),
    ],
)
def test_what_is_no_object_does_not_fit_lines_of_json(payload: Any, why: str | None) -> None:
    assert form(format="json").unfit_payload(payload) == why


@pytest.mark.parametrize("payload", [{}, {"text": "two\nlines"}, "a line"])
def test_an_open_payload_is_one_line_of_text_whatever_it_holds(payload: Any) -> None:
    assert form().unfit_payload(payload) is None


@pytest.mark.parametrize("format", ["text", "json"])
def test_what_tells_a_payload_that_does_not_fit_travels_to_sparks_tasks(format: str) -> None:
    unfit = pickle.loads(pickle.dumps(form(format=format).unfit_payload))
    assert unfit(None) == NO_PAYLOAD


# -- formats -------------------------------------------------------------------------------------------------------------


def form(**settings: Any) -> FilesDestination:
    return FilesDestination(FilesDestinationSettings(path="/out", **settings), "out")


@pytest.mark.parametrize(
    "format, shapes",
    [
        ("text", {Shape.RAW, Shape.OPEN}),
        ("json", {Shape.OPEN, Shape.TYPED}),
        ("csv", {Shape.TYPED}),
        ("parquet", {Shape.TYPED}),
    ],
)
def test_each_format_takes_its_payloads_and_looks_at_nothing_else(format: str, shapes: set[Shape]) -> None:
    destination = form(format=format)
    assert destination.shapes == shapes
    assert destination.columns == {"after"}
    assert not destination.may_refuse
    assert form().shapes == {Shape.RAW, Shape.OPEN}  # one instance's format is not another's


def test_a_path_with_values_looks_at_what_it_names_and_at_the_records_identity() -> None:
    destination = FilesDestination(FilesDestinationSettings(path="/out/{namespace}/{metadata.k}"), "out")
    assert destination.columns == {"after", "namespace", "metadata", "seq", "part"}
    assert destination.root == Path("/out")
    assert form().columns == {"after"}


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_open_payloads_are_given_the_schema_of_the_destination(format: str) -> None:
    destination = form(format=format, schema="x INT, y STRING")
    [last] = destination.processors_for(Shape.OPEN)
    assert last.gives(Shape.OPEN) is Shape.TYPED
    assert last.typed is not None
    assert last.typed.ddl == "STRUCT<`x` INT, `y` STRING>"
    assert destination.processors_for(Shape.TYPED) == ()
    assert destination.processors_for(Shape.RAW) == ()
    assert form(format=format).processors_for(Shape.OPEN) == ()


@pytest.mark.parametrize(
    "settings, extension",
    [
        ({}, ".txt"),
        ({"compression": "none"}, ".txt"),
        ({"compression": "gzip"}, ".txt.gz"),
        ({"format": "json"}, ".jsonl"),
        ({"format": "json", "compression": "gzip"}, ".jsonl.gz"),
        ({"format": "csv"}, ".csv"),
        ({"format": "csv", "compression": "gzip"}, ".csv.gz"),
        ({"format": "parquet"}, ".snappy.parquet"),
        ({"format": "parquet", "compression": "none"}, ".parquet"),
        ({"format": "parquet", "compression": "gzip"}, ".gzip.parquet"),
        ({"format": "parquet", "compression": "zstd"}, ".zstd.parquet"),
    ],
)
def test_the_name_says_what_a_file_is(tmp_path: Path, settings: dict[str, Any], extension: str) -> None:
    destination = FilesDestination(FilesDestinationSettings(path=str(tmp_path), **settings), "out")
    d = attempt_at(delivery())
    path = staged_file(destination, d, settings, [{"a": 1}])
    held = path.stat().st_size if settings.get("compression") != "gzip" else 8
    staged = destination.adopt(d, [path], 1, held)
    assert [f["name"] for f in staged.manifest] == [f"p.in-000000000001-00000-0123456789ab{extension}"]


def staged_file(
    destination: FilesDestination, d: Delivery, settings: dict[str, Any], rows: list[dict[str, Any]]
) -> Path:
    """What Spark leaves in a format: lines of JSON, whatever the format of lines, or rows of Parquet."""
    folder = destination.staging_folder(d)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "part-00000-x"
    text = "".join(json.dumps(row) + "\n" for row in rows).encode().replace(b" ", b"")
    if settings.get("format") == "parquet":
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema([("a", pa.int64())])), path)
    elif settings.get("compression") == "gzip":
        path.write_bytes(gzip.compress(text))
    else:
        path.write_bytes(text)
    return path


@pytest.mark.contract("C12", safeguard="account")
@pytest.mark.parametrize(
    "settings, rows, size, why",
    [
        ({"compression": "gzip"}, 2, 17, "2 lines of 17 bytes went in; 16 bytes are staged"),
        ({"format": "csv"}, 2, 15, "2 lines of 15 bytes went in; 2 lines of 16 bytes are staged"),
        ({"format": "parquet"}, 3, 16, "3 rows went in; 2 rows are staged in 1 files"),
    ],
)
def test_staged_files_of_any_format_that_hold_something_else_are_not_adopted(
    tmp_path: Path, settings: dict[str, Any], rows: int, size: int, why: str
) -> None:
    destination = FilesDestination(FilesDestinationSettings(path=str(tmp_path), **settings), "out")
    d = attempt_at(delivery())
    path = staged_file(destination, d, settings, [{"a": 1}, {"a": 2}])
    with pytest.raises(AccountError) as caught:
        destination.adopt(d, [path], rows, size)
    assert (caught.value.code, caught.value.why) == ("files.staged", why)
    faults.install(off=["account"])
    destination.adopt(d, [path], rows, size)
    faults.install()
    assert destination.adopt(d, [path], 2, 16).rows == 2


@pytest.mark.parametrize("settings", [{}, {"compression": "gzip"}, {"format": "csv"}, {"format": "parquet"}])
def test_a_file_that_holds_nothing_is_not_published_in_any_format(tmp_path: Path, settings: dict[str, Any]) -> None:
    destination = FilesDestination(FilesDestinationSettings(path=str(tmp_path), **settings), "out")
    d = attempt_at(delivery())
    path = staged_file(destination, d, settings, [])
    assert destination.adopt(d, [path], 0, 0).manifest == []


@pytest.mark.parametrize("packed", [False, True])
def test_every_file_of_csv_begins_with_its_header_unless_told_otherwise(tmp_path: Path, packed: bool) -> None:
    from pyspark.sql.types import LongType, StringType, StructType

    fields = StructType().add("id", LongType()).add('a "quoted", name', StringType())
    schema = StructType().add("after", fields)
    text = b'1,"x"\n2,\n'
    for header in (True, False):
        root = tmp_path / str(header)
        compression = "gzip" if packed else None
        given = FilesDestinationSettings(path=str(root), format="csv", header=header, compression=compression)
        destination, d = FilesDestination(given, "out"), replace(attempt_at(delivery()), schema=schema)
        folder = destination.staging_folder(d)
        folder.mkdir(parents=True)
        paths = [folder / "part-00000-x", folder / "part-00001-x", folder / "part-00002-x"]
        for path, held in zip(paths, [text, b"", text], strict=True):
            path.write_bytes(gzip.compress(held) if packed else held)
        staged = destination.adopt(d, paths, 4, 2 * len(text))
        assert staged.bytes == sum(f["bytes"] for f in staged.manifest)
        destination.commit(d, staged, never)
        made = [p.read_bytes() for p in sorted(root.iterdir()) if p.is_file()]
        assert len(made) == 2
        head = b'id,"a ""quoted"", name"\n' if header else b""
        assert [gzip.decompress(m) if packed else m for m in made] == [head + text] * 2


def test_records_go_to_the_folders_that_the_staged_ones_name(tmp_path: Path) -> None:
    destination = FilesDestination(FilesDestinationSettings(path=f"{tmp_path}/{{namespace}}/x"), "out")
    d = attempt_at(delivery())
    staging = destination.staging_folder(d)
    # Spark has put % before what a name can't hold; what is left is the folder, whose values are encoded once
    [a] = lines(staging / "_folder=orders%2Fx", "a\n")
    [b] = lines(staging / "_folder=a%252Fb%2Fx", "b\n")
    staged = destination.adopt(d, [a, b], 2, 4)
    destination.commit(d, staged, never)
    found = {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*.txt")}
    assert found == {
        "orders/x/p.in-000000000001-00000-0123456789ab.txt": "a\n",
        "a%2Fb/x/p.in-000000000001-00001-0123456789ab.txt": "b\n",
    }
    assert visible(tmp_path) == {}
