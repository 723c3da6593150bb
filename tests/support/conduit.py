"""What the real Conduit did (`tests/data/conduit/`, made by it), read into records, and the table of `docs/conduit.md`.

Every case is judged: equal, different or refused. Whatever is not equal has to stand in the table by its id.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from penstock.plan.gotext import parse_time
from penstock_sdk.record import Record

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data" / "conduit"
EQUAL, DIFFERENT, REFUSED = "equal", "different", "refused"
_ID = re.compile(r"\b[pcy]-[0-9a-f]{12}\b")


@dataclass(frozen=True)
class Verdict:
    kind: str  # EQUAL, DIFFERENT or REFUSED
    code: str = ""  # of a refusal
    detail: str = ""

    @property
    def short(self) -> str:
        return f"{self.kind} {self.code}".strip()


@cache
def cases(name: str) -> tuple[dict[str, Any], ...]:
    """The lines of one file. A plain number is a double, as its README says."""
    lines = (DATA / f"{name}.jsonl").read_text().splitlines()
    return tuple(json.loads(line, parse_int=float) for line in lines)


@cache
def table() -> Mapping[str, str]:
    """Case id → `different` or `refused CODE`, from the tables of docs/conduit.md (last but one column, then the ids)."""
    found: dict[str, str] = {}
    for line in (ROOT / "docs" / "conduit.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 3 or not line.startswith("|"):
            continue
        for case in _ID.findall(cells[-1]):
            assert case not in found, f"{case} stands twice in docs/conduit.md"
            found[case] = cells[-2].replace("`", "").replace(":", "")
    return found


def judge(case: Mapping[str, Any], verdict: Verdict) -> None:
    """Fails unless the table says the same."""
    listed = table().get(case["id"], EQUAL)
    assert verdict.short == listed, f"{case['id']}: here {verdict.short} ({verdict.detail}); docs/conduit.md: {listed}"


def record_of(given: Mapping[str, Any], *, whole: bool) -> Record:
    """With `whole` doubles that are whole numbers become integers, as they would be decoded from JSON here."""
    payload = given.get("payload") or {}
    return Record(
        _data(payload.get("after"), whole),
        before=_data(payload.get("before"), whole),
        key=_data(given.get("key"), whole),
        position=base64.b64decode(given["position"]) if given.get("position") else b"",
        operation=given["operation"],
        metadata=dict(given["metadata"] or {}),
        source="in",
        seq=1,
    )


def _data(d: Any, whole: bool) -> Any:
    if d is None:
        return None
    if "raw" in d:
        return base64.b64decode(d["raw"])
    value = value_of(d["structured"], whole=whole)
    assert isinstance(value, dict | Opaque)
    return value


def value_of(v: Any, *, whole: bool) -> Any:
    if isinstance(v, float):
        return int(v) if whole and v.is_integer() and abs(v) < 2**53 and math.copysign(1, v) * (v or 1) > 0 else v
    if isinstance(v, list):
        return [value_of(x, whole=whole) for x in v]
    if not isinstance(v, dict):
        return v
    if v.get("$go") == "uint8":
        return int(v["v"], 16)
    if set(v) == {"$structureddata"}:
        return value_of(v["$structureddata"], whole=whole)
    if len(v) == 1:
        [(tag, inner)] = v.items()
        if tag in ("$int", "$int32", "$int64", "$uint64"):
            return int(inner)
        if tag == "$f64":
            return float(inner.replace("+Inf", "inf").replace("-Inf", "-inf"))
        if tag == "$bytes":
            return base64.b64decode(inner)
        if tag == "$str64":
            return base64.b64decode(inner).decode(errors="surrogateescape")
        if tag == "$time":
            return parse_time(inner)
        if tag == "$map":
            return {_key(k): value_of(x, whole=whole) for k, x in inner}
        if tag in ("$deep", "$go"):
            return Opaque(tag, inner)
    return {k: value_of(x, whole=whole) for k, x in v.items()}


def _key(key: Any) -> str:
    return key if isinstance(key, str) else str(value_of(key, whole=False))


@dataclass(frozen=True)
class Opaque:
    """Something the vectors only name."""

    tag: str
    what: Any


def same_record(ours: Record, theirs: Mapping[str, Any]) -> str:
    """Empty where they are equal, else what is not."""
    expected = record_of(theirs, whole=False)
    for name in ("position", "operation", "metadata", "key", "before", "after"):
        a, b = getattr(ours, name), getattr(expected, name)
        if not same(a, b):
            return f"{name}: {a!r} instead of {b!r}"
    return ""


def same(ours: Any, theirs: Any) -> bool:
    """A double there may be an integer here, if it is the same number."""
    if isinstance(theirs, Opaque):
        return True  # what it is named for is compared by its JSON text, where there is one
    if isinstance(theirs, dict):
        return isinstance(ours, dict) and ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in ours)
    if isinstance(theirs, list):
        listed = isinstance(ours, list | tuple) and len(ours) == len(theirs)
        return listed and all(same(a, b) for a, b in zip(ours, theirs, strict=True))
    if isinstance(theirs, bool) or isinstance(ours, bool) or theirs is None:
        return ours is theirs
    if isinstance(theirs, float):
        if math.isnan(theirs):
            return isinstance(ours, float) and math.isnan(ours)
        signs = not isinstance(ours, float) or math.copysign(1, ours) == math.copysign(1, theirs)
        return isinstance(ours, int | float) and ours == theirs and signs
    return type(ours) is type(theirs) and bool(ours == theirs)


def same_records(ours: Sequence[Record], theirs: Sequence[Mapping[str, Any]]) -> str:
    if len(ours) != len(theirs):
        return f"{len(ours)} records instead of {len(theirs)}"
    return next((why for a, b in zip(ours, theirs, strict=True) if (why := same_record(a, b))), "")


def ways(case: Mapping[str, Any]) -> Iterator[bool]:
    """Both readings of its numbers: as doubles, and as the integers that JSON gives here."""
    yield False
    if re.search(r"[0-9]", json.dumps(case.get("inputs") or case.get("record"))):
        yield True
