"""`files` as a destination, from the manifest on: what is published, what is left alone, what is said when it can't be."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from penstock.connectors.files.destination import LINE_BREAK, NO_PAYLOAD, FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.errors import AccountError, Stop
from penstock.native import Delivery, DeliveryId, Receipt, Refusal, Shape, Staged
from penstock.testing import faults

HASH = "0123456789abcdef0123456789abcdef"


def made(root: Path) -> FilesDestination:
    return FilesDestination(FilesDestinationSettings(path=str(root)), "out")


def delivery(batch: int = 1, *, pipeline: str = "p", lane: str = "in", hash: str = HASH) -> DeliveryId:
    return DeliveryId(pipeline, lane, "out", batch, hash, fence=3)


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
    return Delivery(d.pipeline, d.lane, d.destination, d.batch, d.hash, d.fence, attempt=1, attempt_id=attempt_id)


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
    assert FilesDestination.unfit_payload(payload) == why


def test_it_takes_raw_and_open_payloads_and_looks_at_nothing_else() -> None:
    assert FilesDestination.shapes == {Shape.RAW, Shape.OPEN}
    assert FilesDestination.columns == {"after"}
    assert not FilesDestination.may_refuse
