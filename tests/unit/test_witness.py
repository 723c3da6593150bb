"""What follows from the last receipt that a destination has: which delivery agrees, and which one can't be told any more. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.native import Answer, DeliveryId, Finding, Receipt, Refusal, Staged, Witnessed
from penstock.native.destination import ExactlyOnceDestination, NativeDestination
from penstock.native.witness import Noted, by_last


def name(batch: int, *, destination: str = "out", epoch: int = 7) -> DeliveryId:
    return DeliveryId("p", "in", destination, batch, f"{destination}-{epoch}-{batch}", 3, epoch)


def delivery(batch: int, written: int | None = 5) -> Witnessed:
    """None: it is prepared."""
    return Witnessed(name(batch), Staged(written or 5), None if written is None else Receipt(written))


def noted(batch: int, written: int | None = 5, *, epoch: int = 7) -> Noted:
    receipt = None if written is None else Receipt(written)
    return Noted(name(batch, epoch=epoch).hash, batch, receipt, epoch)


def answers(deliveries: Sequence[Witnessed], receipt: Noted | None, *more: DeliveryId) -> dict[int, Answer]:
    known = [*(w.id for w in deliveries), *more]
    return {w.id.batch: finding.answer for w, finding in by_last(deliveries, known, receipt)}


def text(deliveries: Sequence[Witnessed], receipt: Noted | None) -> str:
    found = [finding.text for _, finding in by_last(deliveries, [w.id for w in deliveries], receipt)]
    return found[-1]


def test_the_newest_agrees_and_older_ones_are_not_known_any_more() -> None:
    found = answers([delivery(1), delivery(2), delivery(3)], noted(3))
    assert found == {1: Answer.UNKNOWN, 2: Answer.UNKNOWN, 3: Answer.AGREES}


def test_a_receipt_that_is_gone_is_missing() -> None:
    assert answers([delivery(1), delivery(2)], None)[2] is Answer.MISSING


def test_before_anything_was_delivered_there_is_no_receipt() -> None:
    assert answers([delivery(1, None)], None) == {1: Answer.WAITING}


def test_a_receipt_with_another_number_differs() -> None:
    assert answers([delivery(1)], noted(1, 4)) == {1: Answer.DIFFERS}
    assert "4 written" in text([delivery(1)], noted(1, 4))


def test_what_was_refused_counts() -> None:
    w = Witnessed(name(1), Staged(5), Receipt(4, refused=(Refusal(3, 0, "no"),)))
    assert answers([w], noted(1, 4)) == {1: Answer.DIFFERS}


def test_a_delivery_under_way_is_no_disagreement() -> None:
    """The destination has batch 2; the engine is about to write that down."""
    assert answers([delivery(1), delivery(2, None)], noted(2)) == {1: Answer.UNKNOWN, 2: Answer.VISIBLE}
    assert answers([delivery(1), delivery(2, None)], noted(1)) == {1: Answer.AGREES, 2: Answer.WAITING}


def test_a_delivery_that_stopped_is_there_in_part() -> None:
    assert answers([delivery(1, None)], noted(1, None)) == {1: Answer.VISIBLE}
    assert "in part" in text([delivery(1, None)], noted(1, None))
    assert answers([delivery(1)], noted(1, None)) == {1: Answer.DIFFERS}


def test_a_destination_that_was_put_back_is_behind() -> None:
    assert answers([delivery(1), delivery(2)], noted(1)) == {1: Answer.AGREES, 2: Answer.MISSING}
    assert "batch 1" in text([delivery(1), delivery(2)], noted(1))


def test_a_ledger_that_was_put_back_is_behind() -> None:
    assert answers([delivery(1)], noted(2)) == {1: Answer.DIFFERS}
    assert "the state folder is older" in text([delivery(1)], noted(2))


def test_a_receipt_of_another_state_folder_is_said_to_be_one() -> None:
    assert answers([delivery(5)], noted(9, epoch=8)) == {5: Answer.DIFFERS}
    assert "another state folder" in text([delivery(5)], noted(9, epoch=8))


def test_a_newer_delivery_with_other_settings_may_have_gone_to_the_same_place() -> None:
    assert answers([delivery(1)], noted(2), name(2)) == {1: Answer.UNKNOWN}


def test_a_receipt_that_is_no_json_differs() -> None:
    def broken() -> None:
        raise ValueError("half of it")

    assert answers([delivery(1)], Noted.read(broken)) == {1: Answer.DIFFERS}
    assert Noted.read(lambda: None) is None


class Finds(ExactlyOnceDestination[None]):
    """With nothing but `find`."""

    def __init__(self, *there: int) -> None:
        super().__init__(None, "out")
        self.there, self.asked = there, list[int]()

    def find(self, d: DeliveryId) -> Receipt | None:
        self.asked.append(d.batch)
        return Receipt(5) if d.batch in self.there else None


@pytest.mark.parametrize(("there", "answer"), [((3,), Answer.AGREES), ((), Answer.MISSING), ((4,), Answer.UNKNOWN)])
def test_a_destination_that_can_only_find_is_asked_for_the_newest(there: tuple[int, ...], answer: Answer) -> None:
    out = Finds(*there)
    deliveries = [delivery(1), delivery(2), delivery(3), delivery(4, None)]
    found = list(out.witness(deliveries, [w.id for w in deliveries]))
    assert found[2].answer is answer
    assert found[3].answer is (Answer.VISIBLE if there == (4,) else Answer.WAITING)
    assert set(out.asked) <= {3, 4}


def test_what_went_elsewhere_since_is_not_missing() -> None:
    [found] = Finds().witness([delivery(1)], [name(1), name(2)])
    assert found.answer is Answer.UNKNOWN


def test_a_destination_that_keeps_nothing_says_so() -> None:
    [found] = NativeDestination(None, "out").witness([delivery(1)], [name(1)])
    assert found == Finding(Answer.UNKNOWN, "it keeps nothing of what it was given, and can't be asked")
