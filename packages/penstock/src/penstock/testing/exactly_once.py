"""The conformance kit for destinations that deliver exactly once: subclass `ExactlyOnceTests` in your own tests.

    class TestMine(ExactlyOnceTests):
        def destination(self) -> MyDestination: ...
        def visible(self) -> list[str]: ...

It does what an engine does, and what becomes of one: batches that are staged and never prepared, commits that end at any step and are made
again by another process, tasks of a dead attempt that still write. The only module of Penstock that imports pytest.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from penstock import record
from penstock.errors import PenstockError
from penstock.native import (
    Answer,
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    Receipt,
    Refusal,
    Shape,
    Staged,
    Witnessed,
)
from penstock.testing import faults

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_STEPS = 200  # of one commit at which it is ended


class Ended(BaseException):
    """The process ends here, as far as the destination can tell."""


class ExactlyOnceTests:
    """Needs a fixture `spark`. Every test has a `folder` of its own, and a destination with nothing in it."""

    shape: ClassVar[Shape] = Shape.RAW
    fences: ClassVar[bool] = False  # it refuses an engine that was replaced
    keeps_order: ClassVar[bool] = True  # `visible` gives the records of a lane in their order

    folder: Path
    spark: SparkSession

    def destination(self) -> ExactlyOnceDestination[Any]:
        """A new object each time, as after a restart, for the same place: `self.folder` is there for it."""
        raise NotImplementedError

    def visible(self) -> Sequence[str]:
        """What readers see: the payloads, one for each time that a record is there."""
        raise NotImplementedError

    def rows(self, texts: Sequence[str]) -> DataFrame:
        """Rows with these payloads, in their order, and the columns that the destination asks for. This is for raw payloads."""
        return self.spark.createDataFrame(list(enumerate(texts)), f"{record.SEQ} long, {record.AFTER} string")

    def left(self) -> Sequence[str]:
        """Names of what is staged and not visible; none where that can't be known."""
        return ()

    @pytest.fixture(autouse=True)
    def _around(self, tmp_path: Path, spark: SparkSession) -> Iterator[None]:
        self.folder, self.spark = tmp_path, spark
        yield
        faults.install()

    # -- what is delivered ---------------------------------------------------------------------------------------------------

    def test_what_is_staged_nobody_sees(self) -> None:
        d = self._delivery()
        out = self._made()
        staged = self._stage(out, d, ["a", "b"])
        assert staged.rows == 2, "`Staged.rows` has to say how many were written"
        assert list(self.visible()) == [], "what is staged is not committed, and can be seen"
        assert out.find(d) is None, "`find` says that it is there"
        assert self._made().find(d) is None

    def test_a_commit_shows_all_of_it_and_find_knows(self) -> None:
        d = self._delivery()
        staged = self._stage(self._made(), d, ["a", "b", "c"])
        receipt = self._commit(self._made(), d, staged)
        assert receipt.written == 3
        self._shows(["a", "b", "c"])
        assert self._made().find(d) == receipt, "`find` has to give what `commit` has given, also to another process"

    def test_what_is_staged_can_be_written_down_and_read_again(self) -> None:
        staged = self._stage(self._made(), self._delivery(), ["a"])
        assert Staged.from_json(json.loads(json.dumps(staged.to_json()))) == staged

    def test_a_commit_that_is_made_again_changes_nothing(self) -> None:
        d = self._delivery()
        staged = self._stage(self._made(), d, ["a", "b"])
        first = self._commit(self._made(), d, staged)
        for _ in range(2):
            assert self._made().find(d) == first
        self._shows(["a", "b"])

    def test_batches_follow_each_other_and_lanes_do_not_mix(self) -> None:
        every = {"in": [], "in.2": []}  # type: dict[str, list[str]]
        for batch, lane in itertools.product((1, 2, 3), every):
            texts = [f"{lane} {batch} {n}" for n in range(3)]
            every[lane] += texts
            d = self._delivery(batch, lane)
            self._commit(self._made(), d, self._stage(self._made(), d, texts))
        for lane, texts in every.items():
            found = [text for text in self.visible() if text.startswith(f"{lane} ")]
            assert (found if self.keeps_order else sorted(found)) == texts, f"the records of {lane}"

    def test_a_witness_knows_what_is_there_and_changes_nothing(self) -> None:
        first, second = self._delivery(1), self._delivery(2)
        staged = self._stage(self._made(), first, ["a", "b"])
        done = Witnessed(first, staged, self._commit(self._made(), first, staged))
        more = self._stage(self._made(), second, ["c"])
        given = [done, Witnessed(second, more, None)]  # the second one is prepared
        for found in (list(self._made().witness(given, [first, second])) for _ in range(2)):
            assert not any(f.answer.wrong for f in found), f"`witness` calls something wrong that is not: {found}"
            assert Answer.AGREES not in [f.answer for f in found if f.batch == 2], "it is not there yet"
        self._shows(["a", "b"], "`witness` has changed something")
        lost = [done, Witnessed(second, more, Receipt(1))]  # as if it had been there
        told = [f.answer for f in self._made().witness(lost, [first, second]) if f.batch in (None, 2)]
        assert Answer.AGREES not in told, "`witness` says that something is there which is not"
        self._commit(self._made(), second, more)
        self._shows(["a", "b", "c"])

    def test_a_batch_without_records_is_one_as_well(self) -> None:
        d = self._delivery()
        staged = self._stage(self._made(), d, [])
        assert staged.rows == 0
        receipt = self._commit(self._made(), d, staged)
        assert receipt.written == 0
        assert self._made().find(d) == receipt
        self._shows([])

    # -- what ends ---------------------------------------------------------------------------------------------------------------

    def test_who_ends_at_any_step_of_a_commit_is_gone_on_for(self) -> None:
        steps = self._steps(self._delivery(1), ["0 a", "0 b"])
        every = ["0 a", "0 b"]
        for step in range(1, steps + 1):
            texts = [f"{step} a", f"{step} b"]
            d = self._delivery(step + 1)
            staged = self._stage(self._made(), d, texts)
            with self._ending_at(step):
                try:
                    self._made().commit(d, staged, _never)
                except Ended:
                    pass
            every += texts
            receipt = self._recovered(d, staged)
            assert receipt.written == 2
            self._shows(every, f"after an end at step {step} of {steps} of a commit, and recovery")

    def test_recovery_may_end_as_well(self) -> None:
        steps = self._steps(self._delivery(1), ["0"])
        d = self._delivery(2)
        staged = self._stage(self._made(), d, ["1"])
        for step in range(1, steps + 1):
            with self._ending_at(step):
                try:
                    self._recovered(d, staged)
                except Ended:
                    continue
        assert self._recovered(d, staged).written == 1
        self._shows(["0", "1"])

    def test_who_ends_while_staging_leaves_nothing_that_counts(self) -> None:
        d = self._delivery()
        for step in range(1, 4):
            with self._ending_at(step):
                try:
                    self._stage(self._made(), d, ["a", "b"], attempt=f"dead{step}")
                except Ended:
                    pass
        self._shows([], "nothing was committed")
        staged = self._stage(self._made(), d, ["a", "b"], attempt="alive")
        self._commit(self._made(), d, staged)
        self._shows(["a", "b"])

    # -- two at once -------------------------------------------------------------------------------------------------------------

    def test_of_two_attempts_only_the_one_that_was_prepared_is_there(self) -> None:
        d = self._delivery()
        made: dict[str, Staged] = {}

        def stage(name: str) -> None:
            made[name] = self._stage(self._made(), d, [f"{name} {n}" for n in range(3)], attempt=name)

        threads = [threading.Thread(target=stage, args=[name]) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 2, "two attempts can't stage at the same time"
        self._commit(self._made(), d, made["two"])
        self._shows(["two 0", "two 1", "two 2"])

    def test_a_dead_attempt_that_still_writes_does_no_harm(self) -> None:
        d = self._delivery()
        staged = self._stage(self._made(), d, ["a"], attempt="alive")
        self._stage(self._made(), d, ["late"], attempt="dead")
        self._commit(self._made(), d, staged)
        self._shows(["a"])
        self._stage(self._made(), d, ["later"], attempt="dead too")
        self._shows(["a"], "a dead attempt has staged after the commit")
        assert self._made().find(d) is not None
        self._made().discard(d)
        self._shows(["a"])

    def test_an_engine_that_was_replaced_commits_nothing(self) -> None:
        if not self.fences:
            pytest.skip("it does not say that it refuses an engine that was replaced (`fences`)")
        older, newer = self._delivery(1, fence=3), self._delivery(2, fence=4)
        staged = self._stage(self._made(), older, ["old"])
        self._commit(self._made(), newer, self._stage(self._made(), newer, ["new"]))
        with pytest.raises(PenstockError):
            self._made().commit(older, staged, _never)
        self._shows(["new"])

    def test_another_state_folder_begins_again(self) -> None:
        """Its engine is the first one there, whatever fences this destination has seen."""
        known, other = self._delivery(9, fence=9, epoch=7), self._delivery(1, fence=1, epoch=8)
        self._commit(self._made(), known, self._stage(self._made(), known, ["a"]))
        self._commit(self._made(), other, self._stage(self._made(), other, ["b"]))
        assert sorted(self.visible()) == ["a", "b"]

    # -- what is taken away --------------------------------------------------------------------------------------------------

    def test_what_is_discarded_is_gone_and_what_is_visible_stays(self) -> None:
        first, second = self._delivery(1), self._delivery(2)
        self._commit(self._made(), first, self._stage(self._made(), first, ["a"]))
        for attempt in ("one", "two"):
            self._stage(self._made(), second, ["b"], attempt=attempt)
        for _ in range(2):
            self._made().discard(second)
            self._made().discard(first)
        self._shows(["a"])
        assert self._made().find(first) is not None
        assert self._made().find(second) is None
        assert list(self.left()) == [], "something is left of what was discarded"

    def test_discarding_one_delivery_leaves_those_of_others(self) -> None:
        mine, other = self._delivery(1, "in"), self._delivery(1, "other")
        staged = self._stage(self._made(), mine, ["a"])
        self._stage(self._made(), other, ["b"])
        self._made().discard(other)
        self._commit(self._made(), mine, staged)
        self._shows(["a"])
        assert list(self.left()) == []

    # -- how -----------------------------------------------------------------------------------------------------------------

    def _made(self) -> ExactlyOnceDestination[Any]:
        made = self.destination()
        made.check()
        made.spark = self.spark
        return made

    def _delivery(self, batch: int = 1, lane: str = "in", fence: int = 3, epoch: int = 7) -> DeliveryId:
        name = f"{batch:08x}{epoch:08x}{sum(map(ord, lane)):016x}"
        return DeliveryId("p", lane, "out", batch, name, fence, epoch)

    def _stage(
        self, out: ExactlyOnceDestination[Any], d: DeliveryId, texts: Sequence[str], attempt: str = "attempt"
    ) -> Staged:
        rows = self.rows(texts)
        columns = [c for c in rows.columns if c in out.columns]
        given = rows.select(*columns)
        out.setup(self.spark, given.schema)
        more: dict[str, Any] = {"rows": given, "schema": given.schema, "shape": self.shape}
        return out.stage(Delivery(**vars(d), attempt=1, attempt_id=attempt, **more))

    def _commit(self, out: ExactlyOnceDestination[Any], d: DeliveryId, staged: Staged) -> Receipt:
        """As the engine does: what it finds it does not commit."""
        found = out.find(d)
        assert found is None, "`find` has found a delivery that was never committed"
        return out.commit(d, staged, _never)

    def _recovered(self, d: DeliveryId, staged: Staged) -> Receipt:
        out = self._made()
        found = out.find(d)
        if found is not None:
            out.discard(d)
        return found or out.commit(d, staged, _never)

    def _steps(self, d: DeliveryId, texts: Sequence[str]) -> int:
        """How many steps a commit has at which it can end."""
        staged = self._stage(self._made(), d, texts)
        seen = 0

        def count(point: str, detail: str) -> None:
            nonlocal seen
            del point, detail
            seen += 1

        with _hooked(count):
            self._commit(self._made(), d, staged)
        return min(seen, MOST_STEPS)

    @contextmanager
    def _ending_at(self, step: int) -> Iterator[None]:
        seen = 0

        def end(point: str, detail: str) -> None:
            nonlocal seen
            del point, detail
            seen += 1
            if seen == step:
                raise Ended

        with _hooked(end):
            yield

    def _shows(self, texts: Sequence[str], when: str = "") -> None:
        found = list(self.visible())
        if not self.keeps_order:
            found, texts = sorted(found), sorted(texts)
        assert found == list(texts), when or "what is visible is not what was committed"


@contextmanager
def _hooked(hook: Callable[[str, str], None]) -> Iterator[None]:
    faults.install(hook)
    try:
        yield
    finally:
        faults.install()


def _never(refusal: Refusal) -> bool:
    raise AssertionError(f"it has refused a record that is good: {refusal}")
