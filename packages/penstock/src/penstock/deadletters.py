"""Reads dead letters back from the state folder's Parquet files; `engine/batch/deadletter.py` writes them.

For commands that look. Only the one row that is asked for is kept, and files are never changed. The format:
docs/formats/dead-letters.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec

from penstock.ledger import Nack

_decode = msgspec.json.Decoder(float_hook=Decimal).decode  # with all digits

_ROWS = 64  # decoded at a time: records may be large
_KEY = ["seq", "part", "destination"]
_ABOUT = b"penstock"  # in a file's metadata: JSON of `About`


@dataclass(frozen=True)
class Kept:
    """A record as it was given and as it failed; or why that can't be shown."""

    given: Any = None
    form: Any = None
    missing: str = ""


@dataclass(frozen=True)
class About:
    """What the records of a file were when their source gave them; written into its metadata."""

    shape: str = ""  # of the payload
    schema: str = ""  # of typed columns, as Spark writes it in JSON
    ranges: str = ""  # of the batch, as the ledger has them

    def metadata(self) -> dict[bytes, bytes]:
        return {_ABOUT: msgspec.json.encode(vars(self))}


@dataclass(frozen=True)
class Found:
    """A dead letter as its file has it: `record` is what was asked for of it, parsed; None where that is nothing."""

    seq: int
    part: int
    position: bytes
    record: Any


def folder(pipeline: str, source: str) -> str:
    """The folder of a lane: a dot inside an id is encoded, so that a.b + c and a + b.c stay apart."""
    return ".".join(part.replace(".", "%2E") for part in (pipeline, source))


def kept(state: Path, pipeline: str, source: str, nack: Nack, staged: Iterable[str] = ()) -> Kept:
    """The record of a dead letter: from the ledger while it is held, else from the files of its batch. `staged`: names of files
    that a running or killed engine has not moved to their place yet."""
    if nack.record is not None:
        return _held(nack.record)
    root = state / "dead-letters" / folder(pipeline, source)
    try:
        files = _files(root, nack.batch, staged)
    except OSError as e:
        return Kept(missing=f"{root} can't be read: {e.strerror}")
    if not files:
        return Kept(
            missing=f"the file with it, {root}/{nack.batch:012d}-….parquet, is not there: it was removed or moved"
        )
    try:
        import pyarrow as pa
    except ImportError:
        return Kept(missing=f"it is in {files[0]}; to read it: pip install 'penstock[spark]'")
    for path in files:
        try:
            row = _row(path, (nack.seq, nack.part, nack.destination)) or _row(path, (nack.seq, 0, ""))
        except (OSError, pa.ArrowException, KeyError) as e:
            return Kept(missing=f"{path} can't be read: {str(e).strip() or type(e).__name__}")
        if row is not None:
            return Kept(_parsed(row["given"]), _parsed(row["form"]))
    return Kept(missing=f"{' and '.join(map(str, files))} does not have it: the state folder was changed by hand")


def all_kept(
    state: Path, pipeline: str, source: str, nacks: Iterable[Nack], staged: Iterable[str] = ()
) -> Iterator[tuple[Nack, Kept]]:
    """The same of many of one batch, each file read once; those that can't be shown last."""
    left = {(n.seq, n.part, n.destination): n for n in nacks}
    for key in [key for key, n in left.items() if n.record is not None]:
        nack = left.pop(key)
        yield nack, _held(nack.record or "")
    root = state / "dead-letters" / folder(pipeline, source)
    batch = next((n.batch for n in left.values()), 0)
    for path in _files(root, batch, staged) if left else ():
        for row in _rows(path):
            nack_ = left.pop((row["seq"], row["part"], row["destination"]), None)
            if nack_ is not None:
                yield nack_, Kept(_parsed(row["given"]), _parsed(row["form"]))
    for nack in left.values():
        yield nack, kept(state, pipeline, source, nack, staged)


def find(
    state: Path,
    pipeline: str,
    source: str,
    batch: int,
    keys: Iterable[tuple[int, int]],
    destination: str,
    what: str,
) -> Iterator[Found]:
    """What a replay needs: `given` or `form` of these dead letters of one batch. One of a destination that failed only in a replay has
    its record under another part or destination: of the whole record, what was given is the same."""
    wanted = dict.fromkeys(keys, False)
    seqs = {seq for seq, _ in wanted}
    others: dict[int, dict[str, Any]] = {}
    for path in _files(state / "dead-letters" / folder(pipeline, source), batch, ()):
        for row in _rows(path, ["position", *dict.fromkeys(("given", what))]):
            if row["seq"] not in seqs:
                continue
            key = row["seq"], row["part"]
            if row["destination"] == destination and not wanted.get(key, True):
                wanted[key] = True
                yield Found(*key, row["position"], _with_metadata(row, what))
            else:
                others[row["seq"]] = row
    for (seq, part), done in wanted.items():
        if not done and what == "given" and seq in others:
            yield Found(seq, part, others[seq]["position"], _record(others[seq][what]))


def _with_metadata(row: dict[str, Any], what: str) -> Any:
    """A form has metadata only where a processor has looked at them: else they are what was given."""
    found = _record(row[what])
    if found is not None and what != "given" and "metadata" not in found:
        found["metadata"] = (_record(row["given"]) or {}).get("metadata")
    return found


def _record(text: str | None) -> Any:
    found = _parsed(text)
    return found if isinstance(found, dict) and "repr" not in found else None


def about(state: Path, pipeline: str, source: str, batch: int) -> About:
    """Of the records of a batch; nothing where a file does not say."""
    import pyarrow.parquet as pq

    for path in _files(state / "dead-letters" / folder(pipeline, source), batch, ()):
        metadata = pq.read_schema(path).metadata or {}
        if _ABOUT in metadata:
            return About(**msgspec.json.decode(metadata[_ABOUT]))
    return About()


def _rows(path: Path, columns: Iterable[str] = ("given", "form")) -> Iterator[dict[str, Any]]:
    """None of a file that can't be read: `kept` says why."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        return
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=_ROWS, columns=[*_KEY, *columns]):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException, KeyError):
        return


def _files(root: Path, batch: int, staged: Iterable[str]) -> list[Path]:
    """A batch has several files when destinations refused records late."""
    found = [*sorted(root.glob(f"{batch:012d}-*.parquet")), *(root / "_staging" / Path(name).name for name in staged)]
    return [path for path in found if path.exists()]


def _held(text: str) -> Kept:
    try:
        letter = _decode(text)
        return Kept(letter.get("given"), letter.get("form"))
    except (msgspec.DecodeError, AttributeError):
        return Kept(missing="what the ledger holds of it is no JSON object")


def _row(path: Path, key: tuple[int, int, str]) -> dict[str, Any] | None:
    """First the small columns, to find it; then the record, from its row group alone."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            at = 0
            for batch in file.iter_batches(row_groups=[group], columns=_KEY):
                for found in zip(*(batch.column(name).to_pylist() for name in _KEY), strict=True):
                    if found == key:
                        return _nth(file, group, at)
                    at += 1
    return None


def _nth(file: Any, group: int, at: int) -> dict[str, Any] | None:
    for batch in file.iter_batches(batch_size=_ROWS, row_groups=[group], columns=["given", "form"]):
        if at < batch.num_rows:
            row: dict[str, Any] = batch.slice(at, 1).to_pylist()[0]
            return row
        at -= batch.num_rows
    return None


def _parsed(text: str | None) -> Any:
    """JSON as a rule; what is none is shown as it is."""
    if text is None:
        return None
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return {"repr": text}
