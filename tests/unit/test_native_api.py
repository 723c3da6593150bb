"""The public interfaces: what is declared is there, and what is there is declared. None of it loads Spark."""

from __future__ import annotations

import subprocess
import sys
import types

import pytest

import penstock
import penstock.native as native
from penstock.native import (
    Delivery,
    DeliveryId,
    ExactlyOnceDestination,
    NativeDestination,
    Receipt,
    Refusal,
    Refuse,
    Staged,
)


def _defined(module: types.ModuleType) -> set[str]:
    """Public names of a module, without its own submodules."""
    return {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and not (isinstance(value, types.ModuleType))
    }


def test_everything_that_native_defines_is_declared_and_the_other_way_round() -> None:
    assert sorted(native.__all__) == sorted(_defined(native))


def test_the_list_of_native_is_sorted_and_names_nothing_twice() -> None:
    assert list(native.__all__) == sorted(set(native.__all__), key=lambda name: (not name.isupper(), name))


def test_everything_that_the_package_declares_is_there() -> None:
    """Each is imported when it is asked for."""
    assert dir(penstock) == sorted(penstock.__all__)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        _ = penstock.nothing


def test_being_exactly_once_is_being_that_class() -> None:
    assert issubclass(ExactlyOnceDestination, NativeDestination)
    public = {name for name in vars(ExactlyOnceDestination) if not name.startswith("_")}
    promise = {"stage", "commit", "find", "discard"}
    short_cut = {"lines", "staging_folder", "adopt"}  # for those whose staged form is lines of text
    assert public == promise | short_cut | {"write", "witness"}


def test_exactly_once_gives_more_where_less_is_asked_for() -> None:
    """`write` stages and commits; nothing stops it there."""
    calls: list[str] = []

    class D(ExactlyOnceDestination[None]):
        def stage(self, d: Delivery) -> Staged:
            calls.append("stage")
            return Staged(3)

        def commit(self, d: DeliveryId, s: Staged, refuse: Refuse) -> Receipt:
            calls.append("commit")
            assert refuse(Refusal(1, 0, "no"))
            return Receipt(s.rows)

    delivery = Delivery("p", "in", "out", 1, "h", 1, 7, attempt=1, attempt_id="a")
    assert D(None, "out").write(delivery, lambda _: True) == Receipt(3)
    assert calls == ["stage", "commit"]


def test_an_author_need_not_write_what_has_a_default() -> None:
    d: ExactlyOnceDestination[None] = ExactlyOnceDestination(None, "out")
    d.check()
    delivery = Delivery("p", "in", "out", 1, "h", 1, 7, attempt=1, attempt_id="a")
    assert d.lines(delivery, {}) is None
    for shape in native.Shape:
        assert d.unfit({}, shape, None) is None  # type: ignore[arg-type]
        assert d.processors_for(shape) == ()
    for payload in (b"anything", {"any": "thing"}, None):
        assert d.unfit_payload(payload) is None
    assert d.shapes == frozenset(native.Shape)
    assert not d.may_refuse
    for call in (lambda: d.stage(None), lambda: d.find(None), lambda: d.discard(None)):  # type: ignore[arg-type]
        with pytest.raises(NotImplementedError):
            call()


def test_an_author_of_a_source_need_not_write_what_has_a_default() -> None:
    s: native.NativeSource[None] = native.NativeSource(None, "in")
    s.check()
    ranges = native.Ranges(())
    assert s.shape is native.Shape.RAW
    assert s.processors == ()
    assert not s.lines
    assert s.locate(ranges) is None
    assert s.promised(ranges) is s.count(ranges) is None
    assert s.evidence() == {}
    assert s.acked(ranges) == ()
    assert s.idle()
    with pytest.raises(NotImplementedError):
        s.available(native.Known({}, 0, set()), native.Limits())


def test_an_author_of_a_processor_need_not_write_what_has_a_default() -> None:
    p: native.Processor[None] = native.Processor(None, "p")
    p.open()
    assert p.typed is None
    assert p.raises
    for last in (False, True):
        assert p.on_payload(last=last) is None
    assert p.on_batch() is None
    assert all(p.gives(shape) is shape for shape in native.Shape)


@pytest.mark.parametrize("module", ["penstock", "penstock.native", "penstock.cli.main", "penstock.engine.supervisor"])
def test_importing_loads_no_spark(module: str) -> None:
    script = f"import sys, {module}; print(sorted(m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j')))"
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "value",
    [
        Receipt(3),
        Receipt(1, 2, {"bad": 4}, ("a", "ü")),
        Receipt(1, refused=(Refusal(7, 0, "no"), Refusal(7, 1, "ü", "x.y"))),
    ],
)
def test_a_receipt_survives_json(value: Receipt) -> None:
    assert Receipt.from_json(value.to_json()) == value


@pytest.mark.parametrize("value", [Staged(3), Staged(1, 2, [{"staged": "a", "name": "b"}])])
def test_what_was_staged_survives_json(value: Staged) -> None:
    assert Staged.from_json(value.to_json()) == value


def test_where_a_delivery_stopped_is_not_part_of_its_receipt() -> None:
    """The ledger keeps only receipts of deliveries that ended."""
    assert Receipt.from_json(Receipt(1, stopped_at=5).to_json()) == Receipt(1)
