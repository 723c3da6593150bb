"""What a pipeline has made of hostile cases, read with plain tools: files, `json`, pyarrow. Nothing of Penstock is imported.

`judge` holds what is really there against what the cases say: every payload byte for byte, every dead letter by file, place,
code and words, every count of the run's summary. Its result is a list of what is wrong.
"""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from penstock.testing.hostile import Case, Delivered, Filtered, Nacked, Unreadable

UNREADABLE = "files.unreadable-file"
At = Literal["same", "json"]


@dataclass
class Expected:
    """What cases come to at one destination."""

    payloads: Counter[Any] = field(default_factory=Counter)
    dead: dict[str, list[tuple[int | None, Nacked]]] = field(default_factory=dict)  # by path: place and why
    filtered: int = 0

    @property
    def delivered(self) -> int:
        return self.payloads.total()

    @property
    def nacked(self) -> int:
        return sum(map(len, self.dead.values()))

    @property
    def read(self) -> int:
        return self.delivered + self.filtered + self.nacked


def expected(cases: Mapping[Path, Case], at: At) -> Expected:
    """Of cases, by the folders they were written to."""
    found = Expected()
    for folder, case in cases.items():
        first = 1 if case.format == "csv" and case.settings.get("header") != "false" else 0  # the header has place 0
        for name, outcomes in case.outcomes.items():
            for place, outcome in enumerate(outcomes, first):
                why = _why(outcome, at)
                if isinstance(outcome, Filtered):
                    found.filtered += 1
                elif why is not None:
                    where = None if isinstance(outcome, Unreadable) else place
                    found.dead.setdefault(str(folder / name), []).append((where, why))
                elif isinstance(outcome, Delivered):
                    found.payloads[_expected_payload(outcome, at)] += 1
    return found


def _why(outcome: Any, at: At) -> Nacked | None:
    if isinstance(outcome, Unreadable):
        return Nacked(UNREADABLE, outcome.says)
    if isinstance(outcome, Nacked):
        return outcome
    json_only = outcome.json if at == "json" and isinstance(outcome, Delivered) else None
    return json_only if isinstance(json_only, Nacked) else None


def _expected_payload(outcome: Delivered, at: At) -> Any:
    fields = outcome.json if at == "json" and outcome.json is not None else outcome.payload
    return frozen(fields)


def judge(
    cases: Mapping[Path, Case],
    at: At,
    payloads: Iterable[Any],
    letters: Sequence[Mapping[str, Any]],
    counts: Mapping[str, int],
) -> list[str]:
    """What is wrong at one destination: its payloads, its dead letters, and what the summary says of it (`read`, `delivered`,
    `filtered`, `dead_lettered`)."""
    want = expected(cases, at)
    there = Counter(frozen(p) for p in payloads)
    wrong = [f"missing {n}: {shown(p)}" for p, n in (want.payloads - there).items()]
    wrong += [f"not expected {n}: {shown(p)}" for p, n in (there - want.payloads).items()]
    wrong += _judge_letters(want, letters)
    said = {"read": want.read, "delivered": want.delivered, "filtered": want.filtered, "dead_lettered": want.nacked}
    wrong += [f"the summary says {name} {counts[name]}, not {n}" for name, n in said.items() if counts[name] != n]
    if counts["read"] != counts["delivered"] + counts["filtered"] + counts["dead_lettered"]:
        wrong.append(f"the account does not hold: {dict(counts)}")
    return wrong


def out_of_order(cases: Iterable[Case], at: At, payloads: Iterable[Any]) -> list[str]:
    """Cases whose records do not follow each other as they did in their file. `payloads` are in the order of a reader."""
    there = [frozen(p) for p in payloads]
    found = []
    for case in cases:
        for name, outcomes in case.outcomes.items():
            delivered = [o for o in outcomes if isinstance(o, Delivered) and _why(o, at) is None]
            once = [
                p for o in delivered if there.count(p := _expected_payload(o, at)) == 1
            ]  # others can't be told apart
            wanted = set(once)
            if [p for p in there if p in wanted] != once:
                found.append(f"{case.name}/{name}: its records are out of order")
    return found


def _judge_letters(want: Expected, letters: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    found: dict[str, list[tuple[int, str, str]]] = {}
    for letter in sorted(letters, key=lambda x: x["seq"]):
        path, _, number = bytes(letter["position"]).decode().rpartition("#")
        found.setdefault(path, []).append((int(number), letter["code"], letter["error"]))
    for path in sorted(found.keys() | want.dead.keys()):
        here, there = want.dead.get(path, []), found.get(path, [])
        if len(here) != len(there):
            yield f"{path}: {len(there)} dead letters, not {len(here)}: {[x[0] for x in there]} {shown(there)}"
            continue
        for (place, why), (was, code, error) in zip(here, there, strict=True):
            if place not in (None, was) or code != why.code or why.says not in error:
                yield f"{path}: {why} at {place}; found {code} at {was}: {error[:200]}"


# -- what is there ------------------------------------------------------------------------------------------------------------


def files_of(folder: Path) -> list[Path]:
    """What a reader sees: not what is hidden or staged."""
    found = (p for p in folder.rglob("*") if p.is_file())
    return sorted(p for p in found if not any(x.startswith(("_", ".")) for x in p.relative_to(folder).parts))


def lines_of(path: Path) -> list[bytes]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    assert not data or data.endswith(b"\n"), f"{path} ends in the middle of a line"
    return data.split(b"\n")[:-1]


def csv_of(path: Path) -> list[bytes]:
    """The records of a CSV file behind its header; a line break in quotes is part of one."""
    records: list[bytes] = []
    whole = True
    for line in lines_of(path):
        if whole:
            records.append(line)
        else:
            records[-1] += b"\n" + line
        whole = records[-1].count(b'"') % 2 == 0
    return records[1:]


def payloads_of(folder: Path, format: str) -> list[Any]:
    found: list[Any] = []
    for path in files_of(folder):
        if format == "parquet":
            found += rows_of(path)
        else:
            found += csv_of(path) if format == "csv" else lines_of(path)
    return found


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The rows of a Parquet file. Text is looked at as bytes first: it need not be UTF-8."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    columns = []
    for column in table.columns:
        texts = column.type == pa.string()
        columns.append([_text(v) for v in column.cast(pa.binary()).to_pylist()] if texts else column.to_pylist())
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _text(value: bytes | None) -> str | bytes | None:
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return value


def letters_of(state: Path, pipeline: str = "*") -> list[dict[str, Any]]:
    """Every dead letter in a state folder, or those of one pipeline."""
    import pyarrow.parquet as pq

    paths = sorted((state / "dead-letters").glob(f"{pipeline}.*/*.parquet"))
    return [row for path in paths for row in pq.read_table(path).to_pylist()]


def parsed(line: bytes) -> Any:
    """A line of JSON with every digit, in a form that can be compared."""
    return json.loads(line, parse_float=Decimal)


def frozen(value: Any) -> Any:
    """Equal values are equal here, also NaN, and a number is equal to itself as a decimal."""
    if isinstance(value, Mapping):
        return tuple((k, frozen(v)) for k, v in value.items())
    if isinstance(value, list):
        return ("list", *map(frozen, value))
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value if math.isinf(value) else Decimal(repr(value))
    return value


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:200]}… ({len(text)})"
