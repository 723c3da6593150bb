"""Dead letters: a destination of every lane, in the state folder. Staged, prepared and committed like any other.

    dead-letters/<pipeline>.<lane>/<batch>-<hash12>.parquet          what people and `dlq` read
    dead-letters/<pipeline>.<lane>/_staging/<hash>-<attempt id>.parquet

The tasks have written each nack as a line (`engine/aside.py`); here the engine reads the lines of a batch, few as a rule, and
writes one file. What became of a dead letter since (open, held, replayed, dropped) is in the ledger.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock import fs, record
from penstock.deadletters import About
from penstock.engine import aside
from penstock.engine.batch.context import Work, folder_name
from penstock.engine.batch.materialise import AsideFiles
from penstock.errors import AccountError, Stop
from penstock.ledger import Nack, Snapshot
from penstock.native import DeliveryId, ExactlyOnceDestination, Receipt, Refuse, Staged
from penstock.secrets import Secrets
from penstock.testing import faults
from penstock_sdk.record import record_id

Place = Callable[[int], tuple[bytes, dict[str, str]]]

CHUNK = 4096  # letters that are in memory at a time while they are written
COLUMNS = (
    ("id", "string"),
    ("source", "string"),
    ("seq", "int64"),
    ("part", "int32"),
    ("position", "binary"),
    ("destination", "string"),  # empty = every destination
    ("node", "string"),
    ("code", "string"),
    ("error", "string"),
    ("at", "int64"),  # milliseconds since 1970
    ("given", "string"),  # JSON: what the source gave
    ("form", "string"),  # JSON: what it was when it failed
)


@dataclass(frozen=True)
class Letter:
    """One dead letter, whole."""

    source: str
    destination: str
    position: bytes
    metadata: dict[str, str]
    dead: aside.Dead

    @property
    def key(self) -> tuple[int, int, str]:
        return self.dead.seq, self.dead.part, self.destination

    @property
    def id(self) -> str:
        return record_id(self.source, self.position, self.dead.part)

    def nack(self, **changes: Any) -> Nack:
        d = self.dead
        fields: dict[str, Any] = {"at": d.at, **changes}
        return Nack(d.seq, d.part, self.destination, self.id, self.position, d.node, d.code, d.error, **fields)

    def row(self) -> dict[str, Any]:
        d = self.dead
        return {
            "id": self.id,
            "source": self.source,
            "seq": d.seq,
            "part": d.part,
            "position": self.position,
            "destination": self.destination,
            "node": d.node,
            "code": d.code,
            "error": d.error,
            "at": d.at,
            "given": _json(self._with_place(d.given)),
            "form": _json(d.form),
        }

    def json(self) -> str:
        """For a dead letter queue: everything in one object."""
        d = self.dead
        value = {
            "id": self.id,
            "source": self.source,
            "seq": d.seq,
            "part": d.part,
            "destination": self.destination,
            "node": d.node,
            "code": d.code,
            "error": d.error,
            "at": d.at,
            "given": self._with_place(d.given),
            "form": d.form,
        }
        return _json(value) or ""

    def _with_place(self, given: dict[str, Any] | None) -> dict[str, Any] | None:
        if given is None:
            return None
        return {"position": aside.payload(self.position), "metadata": self.metadata, **given}


@dataclass(frozen=True)
class Places:
    """Where the records of a batch stand, and what their errors must not say."""

    locate: Place
    secrets: Secrets = field(default_factory=Secrets)

    def __call__(self, seq: int) -> tuple[bytes, dict[str, str]]:
        return self.locate(seq)


@dataclass(frozen=True)
class Letters:
    """The dead letters of one batch. They stay in the files of their tasks, and are read as often as they are needed."""

    source: str
    place: Place
    lines: tuple[tuple[str, AsideFiles], ...] = ()  # destination ("" = every) and where its lines are
    made: tuple[Letter, ...] = ()  # by the engine itself

    def __iter__(self) -> Iterator[Letter]:
        yield from self.made
        for destination, files in self.lines:
            for dead in read_dead(files):
                yield letter_of(self.source, destination, dead, self.place)

    def seqs(self) -> dict[str, list[int]]:
        """Per destination ("" = every) the records that were nacked, in order."""
        found: dict[str, set[int]] = {}
        for letter in self.made:
            found.setdefault(letter.destination, set()).add(letter.dead.seq)
        for destination, files in self.lines:
            found.setdefault(destination, set()).update(dead.seq for dead in read_dead(files))
        return {destination: sorted(seqs) for destination, seqs in found.items() if seqs}

    def with_code(self, code: str) -> list[int]:
        """The records that were nacked with this code."""
        return sorted({dead.seq for _, files in self.lines for dead in read_dead(files) if dead.code == code})

    def at(self, seq: int) -> Letter:
        return min((letter for letter in self if letter.dead.seq == seq), key=lambda letter: letter.key)


def letter_of(source: str, destination: str, dead: aside.Dead, place: Place) -> Letter:
    """A source that can't tell a record's place from its seq has sent its position along. What a task has written of the error
    may quote a setting."""
    if isinstance(place, Places) and place.secrets:
        cut = len(dead.error) >= aside.ERROR_CHARACTERS
        dead = msgspec.structs.replace(dead, error=place.secrets.hide(dead.error, cut=cut))
    position, metadata = place(dead.seq)
    if dead.given and "position" in dead.given:
        position = aside.unpack(dead.given["position"]) or b""
        metadata = dead.given.get("metadata") or {}
    return Letter(source, destination, position, metadata, dead)


def read_dead(files: AsideFiles) -> Iterator[aside.Dead]:
    for text in read_lines(files, aside.DEAD):
        yield aside.decode_dead(text)


def read_counts(files: AsideFiles) -> aside.Count:
    """Every line has to add up by itself: a row lost here and one too many there are no account."""
    total = aside.Count(0, 0, 0, 0, 0)
    for text in read_lines(files, aside.COUNT):
        count = aside.decode_count(text)
        if not count.balanced and faults.safeguard("account"):
            raise AccountError(
                "The numbers of a batch do not add up: a function gave another number of rows than it was given",
                code="account.mismatch",
                why=f"{count.read} rows in; {count.delivered} delivered, {count.filtered} filtered, {count.dead} nacked",
                hint="nothing of the batch was delivered; the function has to give one row for each row",
            )
        total += count
    return total


def read_lines(files: AsideFiles, outcome: str) -> Iterator[bytes | str]:
    import pyarrow.parquet as pq

    for path in files.files(outcome):
        if files.parquet:
            for batch in pq.ParquetFile(path).iter_batches(columns=[record.ASIDE]):
                yield from batch.column(0).to_pylist()
        else:
            with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as f:
                yield from f


class DeadLetters(ExactlyOnceDestination[None]):
    """The state folder's own. `stage` is not used: `write_letters` is, with what the batch's tasks have left."""

    def __init__(self, work: Work) -> None:
        super().__init__(None, "dead-letters")
        self.root = work.state / "dead-letters" / folder_name(work.lane)

    def write_letters(
        self, d: DeliveryId, attempt_id: str, letters: Iterable[Letter], about: About | None = None
    ) -> Staged:
        fs.make_folder(self.root / "_staging", 0o700)
        staged = self.root / "_staging" / f"{d.hash}-{attempt_id}.parquet"
        rows = write_parquet(staged, COLUMNS, (letter.row() for letter in letters), about.metadata() if about else None)
        return Staged(
            rows, staged.stat().st_size, {"staged": staged.name, "name": f"{d.batch:012d}-{d.hash[:12]}.parquet"}
        )

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        staged, final = self.root / "_staging" / s.manifest["staged"], self.root / s.manifest["name"]
        if not final.exists():
            if not staged.exists():
                raise Stop(
                    f"The dead letters of batch {d.batch} are gone",
                    code="dead-letters.gone",
                    where=str(staged),
                    hint="restore the state folder: it was changed by hand while a batch was prepared",
                )
            staged.rename(final)
        fs.fsync_folder(self.root)
        self.discard(d)
        return Receipt(s.rows, made=(final.name,))

    def find(self, d: DeliveryId) -> Receipt | None:  # noqa: ARG002
        return None  # `commit` is a rename that looks first

    def discard(self, d: DeliveryId) -> None:
        for path in (self.root / "_staging").glob(f"{d.hash}-*"):
            path.unlink(missing_ok=True)


def write_parquet(
    path: Path,
    columns: Iterable[tuple[str, str]],
    rows: Iterable[dict[str, Any]],
    metadata: dict[bytes, bytes] | None = None,
) -> int:
    """A small file, written by the engine itself, on disk when this returns. Returns how many rows it has."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {"int64": pa.int64(), "int32": pa.int32(), "string": pa.string(), "binary": pa.binary()}
    types["map"] = pa.map_(pa.string(), pa.string())
    schema = pa.schema([(name, types[type_]) for name, type_ in columns], metadata)
    written = 0
    with pq.ParquetWriter(path, schema) as writer:
        chunk: list[dict[str, Any]] = []

        def flush() -> None:
            nonlocal written
            if chunk:
                writer.write_table(pa.Table.from_pylist(chunk, schema=schema))
                written += len(chunk)
                chunk.clear()

        for row in rows:
            chunk.append(row)
            if len(chunk) >= CHUNK:
                flush()
                faults.reach("K9")
        flush()
        faults.reach("K9")
    fs.fsync_file(path)
    fs.fsync_folder(path.parent)
    return written


def queue_rows(letters: Iterable[Letter]) -> Iterator[dict[str, Any]]:
    """Dead letters as records, for a configured queue: the payload is the letter as JSON."""
    for letter in letters:
        d = letter.dead
        names = {"node": d.node, "code": d.code, "error": d.error, "destination": letter.destination}
        yield {
            record.SOURCE: letter.source,
            record.SEQ: d.seq,
            record.PART: d.part,
            record.POSITION: letter.position,
            record.METADATA: {**letter.metadata, **{f"penstock.dead-letter.{k}": v for k, v in names.items()}},
            record.AFTER: letter.json(),
        }


QUEUE_COLUMNS = (
    (record.SOURCE, "string"),
    (record.SEQ, "int64"),
    (record.PART, "int32"),
    (record.POSITION, "binary"),
    (record.METADATA, "map"),
    (record.AFTER, "string"),
)


def place_of(work: Work, s: Snapshot) -> Places:
    """Where a record stands, from its seq; a source that can't say gives nothing."""
    located = work.source.place(s.ranges)
    return Places(located if located is not None else lambda _: (b"", {}), work.secrets)


def _json(value: Any) -> str | None:
    return None if value is None else aside.encode(value).decode()
