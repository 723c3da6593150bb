"""Our own destinations pass the kit for those that deliver exactly once, and destinations that do not deliver exactly once fail it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock import fs
from penstock.connectors.files.destination import FilesDestination
from penstock.connectors.files.settings import FilesDestinationSettings
from penstock.connectors.lines.destination import LinesDestination
from penstock.connectors.lines.destination_settings import LinesDestinationSettings
from penstock.connectors.postgres.destination import PostgresDestination
from penstock.connectors.postgres.settings import PostgresDestinationSettings
from penstock.connectors.queue.destination import QueueDestination
from penstock.connectors.queue.settings import QueueDestinationSettings
from penstock.log import Reader, Rows
from penstock.native import Delivery, DeliveryId, ExactlyOnceDestination, Receipt, Refuse, Shape, Staged
from penstock.testing.exactly_once import ExactlyOnceTests
from tests.support import postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark


class TestFiles(ExactlyOnceTests):
    def destination(self) -> FilesDestination:
        return FilesDestination(FilesDestinationSettings(path=str(self.folder / "out")), "out")

    def visible(self) -> Sequence[str]:
        files = sorted(p for p in (self.folder / "out").iterdir() if p.is_file())
        return [line for path in files for line in path.read_text().splitlines()]

    def left(self) -> Sequence[str]:
        return [str(p) for p in (self.folder / "out" / "_penstock").glob("*/*/*")]


class TestLines(ExactlyOnceTests):
    fences = True

    def destination(self) -> LinesDestination:
        return LinesDestination(LinesDestinationSettings(path=str(self.folder / "out.txt")), "out")

    def visible(self) -> Sequence[str]:
        return (self.folder / "out.txt").read_text().splitlines()

    def left(self) -> Sequence[str]:
        return [str(p) for p in (self.folder / ".out.txt.penstock").glob("*/*/*")]


class TestQueue(ExactlyOnceTests):
    fences = True

    def destination(self) -> QueueDestination:
        return QueueDestination(QueueDestinationSettings(path=str(self.folder / "orders")), "out")

    def visible(self) -> Sequence[str]:
        with Reader(self.folder / "orders") as reader:
            found = [rows.records() for rows in reader.read(0) if isinstance(rows, Rows)]
        return [r.after.decode() for records in found for r in records if isinstance(r.after, bytes)]

    def left(self) -> Sequence[str]:
        return [str(p) for p in (self.folder / ".orders.penstock").glob("*/*/*")]


class TestPostgres(ExactlyOnceTests):
    shape = Shape.TYPED
    fences = True

    def _name(self) -> str:
        return "t" + hashlib.sha256(str(self.folder).encode()).hexdigest()[:12]

    def destination(self) -> PostgresDestination:
        settings = {"url": postgres.url(), "table": self._name(), "create": True, "bookkeeping": f"b{self._name()}"}
        return PostgresDestination(PostgresDestinationSettings.model_validate(settings), "out")

    def rows(self, texts: Sequence[str]) -> DataFrame:
        given = [(n, 0, "create", None, (text,)) for n, text in enumerate(texts)]
        kind = "struct<text: string>"
        return self.spark.createDataFrame(given, f"seq long, part int, operation string, before {kind}, after {kind}")

    def visible(self) -> Sequence[str]:
        if not postgres.rows("SELECT to_regclass(%s) IS NOT NULL", self._name())[0][0]:
            return []
        return [text for (text,) in postgres.rows(f"SELECT text FROM {self._name()} ORDER BY ctid")]

    def left(self) -> Sequence[str]:
        tables = postgres.rows("SELECT tablename FROM pg_tables WHERE schemaname = %s", f"b{self._name()}")
        return [name for (name,) in tables if name.startswith("s_")]


# -- those that are wrong ----------------------------------------------------------------------------------------------------


class Folder(ExactlyOnceDestination[Path]):
    """Right, as simple as can be: a delivery is a file, under the name of its hash."""

    columns = frozenset({"after"})

    def _staging(self, d: Delivery) -> Path:
        return self.settings / "staged" / f"{d.hash}.{d.attempt_id}"

    def _final(self, d: DeliveryId) -> Path:
        return self.settings / "out" / f"{d.lane} {d.batch:05} {d.hash}"

    def stage(self, d: Delivery) -> Staged:
        assert d.rows is not None
        texts = [row[0] for row in d.rows.collect()]
        for folder in ("staged", "out"):
            (self.settings / folder).mkdir(exist_ok=True)
        fs.replace(self._staging(d), "".join(f"{text}\n" for text in texts).encode())
        return Staged(len(texts), manifest=self._staging(d).name)

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        staged = self.settings / "staged" / s.manifest
        if staged.exists():
            fs.replace(self._final(d), staged.read_bytes())
        self.discard(d)
        return Receipt(s.rows)

    def find(self, d: DeliveryId) -> Receipt | None:
        path = self._final(d)
        return Receipt(len(path.read_text().splitlines())) if path.exists() else None

    def discard(self, d: DeliveryId) -> None:
        for path in (self.settings / "staged").glob(f"{d.hash}.*"):
            path.unlink(missing_ok=True)


class SeenTooEarly(Folder):
    def stage(self, d: Delivery) -> Staged:
        staged = super().stage(d)
        shutil.copy(self._staging(d), self._final(d))
        return staged


class Forgetful(Folder):
    def find(self, d: DeliveryId) -> Receipt | None:
        del d
        return None


class Believing(Folder):
    """Takes what is staged for delivered."""

    def find(self, d: DeliveryId) -> Receipt | None:
        return Receipt(2) if list((self.settings / "staged").glob(f"{d.hash}.*")) else super().find(d)


class Appending(Folder):
    """Without the hash: what is made again is there twice."""

    def _final(self, d: DeliveryId) -> Path:
        return self.settings / "out" / d.lane

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        with self._final(d).open("ab") as file:
            file.write((self.settings / "staged" / s.manifest).read_bytes())
        fs.fsync_file(self._final(d))
        fs.replace(self.settings / f"{d.hash}.done", str(s.rows).encode())
        return Receipt(s.rows)

    def find(self, d: DeliveryId) -> Receipt | None:
        path = self.settings / f"{d.hash}.done"
        return Receipt(int(path.read_text())) if path.exists() else None


class OneStage(Folder):
    """All attempts of a delivery in one place."""

    def _staging(self, d: Delivery) -> Path:
        return self.settings / "staged" / f"{d.hash}.staged"


class Thorough(Folder):
    """Takes away what is visible, too."""

    def discard(self, d: DeliveryId) -> None:
        super().discard(d)
        self._final(d).unlink(missing_ok=True)

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        del refuse
        (self.settings / "staged" / s.manifest).rename(self._final(d))
        return Receipt(s.rows)


class Untidy(Folder):
    def discard(self, d: DeliveryId) -> None:
        pass


class Greedy(Folder):
    """Discards what others have staged."""

    def discard(self, d: DeliveryId) -> None:
        del d
        shutil.rmtree(self.settings / "staged", ignore_errors=True)
        (self.settings / "staged").mkdir()


class Boastful(Folder):
    def stage(self, d: Delivery) -> Staged:
        staged = super().stage(d)
        return Staged(staged.rows + 1, manifest=staged.manifest)


class Unwritable(Folder):
    """What it has staged can't be written down."""

    def stage(self, d: Delivery) -> Staged:
        return Staged(super().stage(d).rows, manifest=self._staging(d).name.encode())

    def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
        return super().commit(d, Staged(s.rows, manifest=s.manifest.decode()), refuse)


class Mixing(Folder):
    """All lanes in one file, without their names: the batch number alone tells deliveries apart."""

    def _final(self, d: DeliveryId) -> Path:
        return self.settings / "out" / f"{d.batch:05}"


class TestFolder(ExactlyOnceTests):
    kind: type[Folder] = Folder

    def destination(self) -> ExactlyOnceDestination[Any]:
        return self.kind(self.folder, "out")

    def visible(self) -> Sequence[str]:
        files = sorted((self.folder / "out").glob("*"))
        return [line for path in files for line in path.read_text().splitlines()]

    def left(self) -> Sequence[str]:
        return [str(p) for p in (self.folder / "staged").glob("*")]


WRONG: dict[type[Folder], str] = {
    SeenTooEarly: "what_is_staged_nobody_sees",
    Forgetful: "a_commit_shows_all_of_it_and_find_knows",
    Believing: "what_is_staged_nobody_sees",
    Appending: "who_ends_at_any_step_of_a_commit_is_gone_on_for",
    OneStage: "a_dead_attempt_that_still_writes_does_no_harm",
    Thorough: "what_is_discarded_is_gone_and_what_is_visible_stays",
    Untidy: "what_is_discarded_is_gone_and_what_is_visible_stays",
    Greedy: "discarding_one_delivery_leaves_those_of_others",
    Boastful: "what_is_staged_nobody_sees",
    Unwritable: "what_is_staged_can_be_written_down_and_read_again",
    Mixing: "batches_follow_each_other_and_lanes_do_not_mix",
}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_destination_that_is_wrong_fails_the_check_that_is_about_it(
    kind: type[Folder], tmp_path: Path, spark: Any
) -> None:
    case = TestFolder()
    case.kind, case.folder, case.spark = kind, tmp_path, spark
    with pytest.raises((AssertionError, TypeError, FileNotFoundError)):
        getattr(case, f"test_{WRONG[kind]}")()
