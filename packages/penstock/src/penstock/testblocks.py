"""The `tests` of pipeline files: input records, what each destination should get, and what should be rejected.

Called by `penstock test`. All tests of all files run at the same time, through the plans that `run` would run, in one Spark.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from penstock.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.config.tests import TestConfig
    from penstock.ledger import Nack
    from penstock.pipeline import Pipeline
    from penstock.trial import Outcome


@dataclass(frozen=True)
class Verdict:
    pipeline: str
    test: str
    where: str  # file:line:column
    failures: tuple[str, ...]  # each a few lines; none = it passed

    @property
    def ok(self) -> bool:
        return not self.failures


@dataclass(frozen=True)
class _Block:
    pipeline: Pipeline
    test: TestConfig
    where: str
    source: str


def run(
    pipelines: Sequence[Pipeline], master: str | None = None, only: str = "", spark: SparkSession | None = None
) -> list[Verdict]:
    """Runs every test whose name holds `only`. Raises `UsageError` where there is none."""
    blocks = [b for p in pipelines for b in _blocks(p) if only in b.test.name]
    if not blocks:
        raise UsageError(
            "There is no test to run" + (f" whose name holds {only!r}" if only else ""),
            code="test.none",
            hint="add `tests:` to a pipeline: see docs/how-to/test-a-pipeline.md",
        )
    from penstock import trial

    plans = []
    for i, b in enumerate(blocks):
        records = [r.model_dump(by_alias=True, exclude_none=True) for r in b.test.input]
        plans.append(trial.with_records(b.pipeline.plan(), f"test-{i}", b.source, records, b.test.schema_))
    outcomes = trial.run(plans, spark, master or "local[*,4]")
    return [
        Verdict(b.pipeline.id, b.test.name, b.where, tuple(_judged(b.test, o)))
        for b, o in zip(blocks, outcomes, strict=True)
    ]


def _blocks(p: Pipeline) -> Iterator[_Block]:
    assembly = p.assembly()
    sources = [c.id for _, c in assembly.connectors("source")]
    destinations = [c.id for _, c in assembly.connectors("destination")]
    for i, test in enumerate(assembly.config.tests):
        path = (*assembly.path, "tests", i)
        where = assembly.loaded.where(*path) if assembly.loaded else ""
        source = test.source or (sources[0] if len(sources) == 1 else "")
        unknown = [name for name in test.expected(destinations) if name not in destinations]
        if source not in sources or unknown:
            what = (
                f"the test {test.name!r} names no source of the pipeline"
                if source not in sources
                else f"the test {test.name!r} expects records at {unknown[0]!r}, which is no destination"
            )
            raise UsageError(
                what, code="test.unknown-connector", where=where, hint=f"known: {', '.join(sources + destinations)}"
            )
        yield _Block(p, test, where, source)


def _judged(test: TestConfig, o: Outcome) -> Iterator[str]:
    error = o.result.error
    if error is not None and not (o.nacks and getattr(error, "code", "") == "gate.closed"):
        yield f"the pipeline stopped: {error}"
        return
    for name, wanted in test.expected(list(o.delivered)).items():
        given = [_shown(record, w) for record, w in _paired(o.delivered[name], wanted)]
        expected = [_expected(w) for w in wanted]
        if given != expected:
            yield f"{name} got something else:\n{_diff(expected, given)}"
    yield from _rejects(test, o.nacks)
    if test.filtered is not None:
        filtered = min((n for lane in o.result.lanes for n in lane.filtered.values()), default=0)
        if filtered != test.filtered:
            yield f"{filtered} records were filtered, {test.filtered} expected"


def _paired(
    given: Sequence[Mapping[str, Any]], wanted: Sequence[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    for i, record in enumerate(given):
        yield record, wanted[i] if i < len(wanted) else None


def _shown(record: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> dict[str, Any]:
    """Of a delivered record what the test speaks of; `after` where it says nothing."""
    from penstock.trial import opened

    names = list(wanted) if wanted else ["after"]
    shown = {}
    for name in names:
        value = record.get(name)
        if name == "metadata" and wanted is not None:
            value = {k: (value or {}).get(k) for k in wanted["metadata"]}
        elif wanted is None or isinstance(wanted[name], Mapping):
            value = opened(value)
        shown[name] = _comparable(value)
    return shown


def _expected(wanted: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _comparable(value) for name, value in wanted.items()}


def _comparable(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _comparable(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_comparable(v) for v in value]
    if isinstance(value, Decimal):
        return (
            int(value)
            if value == value.to_integral_value()
            else float(value)
            if Decimal(repr(float(value))) == value
            else str(value)
        )
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return repr(value) if isinstance(value, bytes) else value


def _rejects(test: TestConfig, nacks: Sequence[Nack]) -> Iterator[str]:
    """Every expected reject has a nack of its own, and no nack is left over."""
    left = list({(n.seq, n.part, n.node, n.code): n for n in nacks}.values())
    for wanted in test.rejects:
        found = next((n for n in left if _meets(n, wanted)), None)
        if found is None:
            yield f"no record was rejected as {wanted.shown()}"
        else:
            left.remove(found)
    for n in left:
        yield f"record {n.seq + 1} of the input was rejected by {n.node!r}: {n.error} ({n.code})"


def _meets(n: Nack, wanted: Any) -> bool:
    return (
        (wanted.node is None or n.node == wanted.node)
        and (wanted.code is None or n.code == wanted.code)
        and (wanted.error is None or wanted.error in n.error)
    )


def _diff(expected: Sequence[Any], given: Sequence[Any]) -> str:
    lines = difflib.unified_diff(_lines(expected), _lines(given), "expected", "delivered", lineterm="", n=3)
    return "\n".join(f"    {line}" for line in lines)


def _lines(records: Sequence[Any]) -> list[str]:
    return json.dumps(records, indent=2, ensure_ascii=False, sort_keys=True, default=str).splitlines()
