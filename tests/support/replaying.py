"""Pipelines whose bad records are mended later, for tests of replays. Run by children, and inside the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from penstock import Pipeline, Record, Reject

BAD = (":2", ":7")


def mended(root: str | Path) -> Path:
    """While this file is there, the processor has no fault any more."""
    return Path(root) / "mended"


def _strict(root: Path) -> Any:
    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        if r.after["id"].endswith(BAD) and not mended(root).exists():
            return Reject("the processor has a fault", "my.fault")
        return r

    return f


def two(root: str) -> list[Pipeline]:
    """Two destinations; the fault is before both."""
    folder = Path(root)
    p = (
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 2})
        .processor("decode", "json.decode")
    )
    p.processor("strict", _strict(folder)).processor("encode", "json.encode")
    p.destination("one", "files", path=folder / "one").destination("two", "files", path=folder / "two")
    return [p.dead_letter_queue(window=0)]


def one_of_two(root: str) -> list[Pipeline]:
    """Two destinations; the fault is in what is for the second alone."""
    folder = Path(root)
    p = (
        Pipeline("p")
        .source("in", "files", path=folder / "in", batch={"max-files": 2})
        .processor("decode", "json.decode")
    )
    p.destination("one", "files", path=folder / "one").destination("two", "files", path=folder / "two")
    p.processor("encode-one", "json.encode", on="one")
    p.processor("strict", _strict(folder), on="two").processor("encode-two", "json.encode", on="two")
    return [p.dead_letter_queue(window=0)]


def one_alone(root: str) -> list[Pipeline]:
    """The second destination was taken out."""
    folder = Path(root)
    alone = Pipeline("p").source("in", "files", path=folder / "in", batch={"max-files": 2})
    alone.processor("decode", "json.decode").destination("one", "files", path=folder / "one")
    return [alone.processor("encode-one", "json.encode", on="one").dead_letter_queue(window=0)]


def in_parts(root: str) -> list[Pipeline]:
    """Each record becomes three, and the second of them is bad at first."""
    folder = Path(root)

    def split(r: Record) -> Any:
        assert isinstance(r.after, dict)
        return [r.derive(after={**r.after, "k": k}) for k in range(3)]

    def second(r: Record) -> Any:
        assert isinstance(r.after, dict)
        return Reject("the second") if r.after["k"] == 1 and not mended(folder).exists() else r

    p = Pipeline("p").source("in", "files", path=folder / "in").processor("decode", "json.decode")
    p.processor("split", split).processor("second", second).processor("encode", "json.encode")
    p.destination("one", "files", path=folder / "one").destination("two", "files", path=folder / "two")
    return [p.dead_letter_queue(window=0)]


def typed(root: str) -> list[Pipeline]:
    """From Parquet to Parquet: payloads with types."""
    folder = Path(root)
    p = Pipeline("p").source("in", "files", path=folder / "in", format="parquet")
    rule = "true" if mended(folder).exists() else "after.n % 5 != 2"
    p.processor("rule", "expect", rule=rule, **{"on-fail": "reject"})
    return [p.destination("one", "files", path=folder / "one", format="parquet").dead_letter_queue(window=0)]


def hosted(root: str) -> list[Pipeline]:
    """From a source in a process of its own, through its log, to one destination in Spark and one in a process of its own."""
    folder = Path(root)
    p = Pipeline("p").guarantee("at-least-once").source("in", "lines", path=folder / "in.jsonl")
    p.processor("decode", "json.decode").processor("strict", _strict(folder)).processor("encode", "json.encode")
    p.destination("one", "files", path=folder / "one").destination("two", "file", path=folder / "two.jsonl")
    return [p.dead_letter_queue(window=0)]


def million(root: str) -> list[Pipeline]:
    """A large batch with a bad record in every thousand, two destinations."""
    folder = Path(root)

    def f(r: Record) -> Any:
        assert isinstance(r.after, dict)
        return Reject("the processor has a fault") if r.after["n"] % 1000 == 7 and not mended(folder).exists() else r

    p = Pipeline("p").source("in", "files", path=folder / "in", batch={"max-records": 1_000_000})
    p.processor("decode", "json.decode").processor("f", f).processor("encode", "json.encode")
    p.destination("one", "files", path=folder / "one").destination("two", "files", path=folder / "two")
    return [p.dead_letter_queue(window=0)]
