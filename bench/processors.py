"""Each processor's cost over pass-through, open and typed, in one Spark session: seconds for the same records, and their ratio.

`python -m bench processors`, or `python -m bench.processors LINES ROUNDS [NAME…]`. Open: JSON lines to a blackhole, decoded. Typed: Parquet
to a blackhole. Each round runs pass-through and every processor once, in turns forwards and backwards; medians are shown.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import FILES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AFTER = ".Payload.After"
# name → settings; a filter, an error and an expect get a condition or rule that no record, or half of them, meets
CHAINS: Mapping[str, Mapping[str, str]] = {
    "pass-through": {},
    "base64.decode": {"field": f"{AFTER}.code"},
    "base64.encode": {"field": f"{AFTER}.region"},
    "clone": {"count": "1"},
    "error": {"condition": "after.amount < 0"},
    "expect": {"rule": "after.amount >= 0"},
    "field.convert": {"field": f"{AFTER}.amount", "type": "string"},
    "field.exclude": {"fields": f"{AFTER}.pad"},
    "field.rename": {"mapping": f"{AFTER}.id:key"},
    "field.set": {"field": f"{AFTER}.region", "value": "us"},
    "field.set, template": {"field": f"{AFTER}.region", "value": "{{ upper .Payload.After.region }}"},
    "filter": {"condition": "after.amount < 50"},
    "filter, template": {"condition": "{{ lt .Payload.After.amount 50.0 }}"},
    "json.decode": {"field": f"{AFTER}.text"},
    "json.encode": {"field": AFTER},
    "omit": {"fields": "pad"},
    "opfilter": {"whitelist": "create"},
    "pick": {"fields": "id, amount"},
    "python": {"function": "penstock_bench_function:same"},
    "rename": {"fields": "id:key"},
    "sample": {"rate": "0.5"},
    "skip": {"field": "amount", "operator": ">=", "match": "50"},
    "split": {"field": f"{AFTER}.items"},
    "sql": {"expression": "after.amount * 2", "field": f"{AFTER}.double"},
    "sql, select": {"select": "after.id AS id, after.amount * 2 AS double"},
    "unwrap.opencdc": {"field": f"{AFTER}.record"},
}


def main(lines: int = 500_000, rounds: int = 3, names: tuple[str, ...] = tuple(CHAINS)) -> None:
    from penstock.engine import session

    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "penstock_bench_function.py").write_text("def same(r):\n    return r\n")
        write(root, lines)
        spark = session.start("local[*,4]", {}, root / "spark.log")
        try:
            for shape in ("open", "typed"):
                compare(spark, root, shape, rounds, names)
        finally:
            spark.stop()


def write(root: Path, lines: int) -> None:
    """The same records as JSON lines and as Parquet, with a field for each processor to work on."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for form in ("json", "parquet"):
        (root / form).mkdir()
    for n in range(FILES):
        records = [_record(n, i) for i in range(lines // FILES)]
        with (root / "json" / f"{n}.json").open("w") as f:
            f.writelines(json.dumps(r) + "\n" for r in records)
        pq.write_table(pa.Table.from_pylist(records), root / "parquet" / f"{n}.parquet")


def _record(n: int, i: int) -> dict[str, Any]:
    return {
        "id": f"{n}-{i:08d}",
        "amount": i % 100,
        "region": "eu",
        "pad": f"{i * 2654435761 % 2**32:08x}" * 4,
        "code": "cGVuc3RvY2s=",
        "text": '{"a": 1, "b": "two"}',
        "items": [1, 2],
        "record": '{"operation": "update", "metadata": {}, "payload": {"before": null, "after": {"id": 1}}}',
    }


def compare(spark: SparkSession, root: Path, shape: str, rounds: int, names: tuple[str, ...]) -> None:
    chosen = [n for n in names if _runs(root, shape, n)]
    seconds: dict[str, list[float]] = {name: [] for name in chosen}
    _timed(spark, root, shape, "pass-through")  # everything is loaded once
    for n in range(rounds):
        for name in chosen if n % 2 == 0 else reversed(chosen):
            seconds[name].append(_timed(spark, root, shape, name))
    base = statistics.median(seconds["pass-through"])
    for name in chosen:
        taken = statistics.median(seconds[name])
        print(f"  {shape:5} {name:20} {taken:6.2f} s, {taken / base:5.2f} of pass-through", flush=True)
    left = [n for n in names if n not in chosen]
    print(f"  {shape}: not measured here: {', '.join(left)}", flush=True)


def _runs(root: Path, shape: str, name: str) -> bool:
    from penstock.config import ConfigErrors

    try:
        _pipeline(root, shape, name).plan()
    except ConfigErrors:
        return False
    return True


def _pipeline(root: Path, shape: str, name: str) -> Any:
    from penstock import Pipeline

    form = "json" if shape == "open" else "parquet"
    p = Pipeline("bench").source("in", "files", path=root / form, format=form, settle="0s")
    p.guarantee("at-least-once").destination("out", "blackhole")
    if shape == "open":  # something looks inside, in every chain
        p.processor("look", "filter", condition="after.amount < 0")
    settings = dict(CHAINS[name])
    plugin = name.partition(",")[0]
    if plugin == "python":
        settings["path"] = str(root)
    condition = settings.pop("condition", "")
    return p if name == "pass-through" else p.processor("it", plugin, condition=condition, **settings)


def _timed(spark: SparkSession, root: Path, shape: str, name: str) -> float:
    with tempfile.TemporaryDirectory() as state:
        started = time.monotonic()
        _pipeline(root, shape, name).run(spark, state=state)
        return time.monotonic() - started


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), tuple(sys.argv[3:]) or tuple(CHAINS))
