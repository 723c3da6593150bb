"""The delivery hash: fixed values that every machine and version must give, and what has to change it.

The first value can be made without Penstock: the text below through `b2sum -l 128`.

    ["orders","in",7,"out",["[\\"/in/a.txt\\",{\\"from\\":0,\\"mtime\\":1700000000000000000,\\"size\\":12,\\"to\\":12}]"]]
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace

import pytest

from penstock.plan.hashing import delivery_hash
from penstock.ranges import Range, Ranges

pytestmark = pytest.mark.contract("C8", reason="pure function; taking a part out of it is what the property tries")

A = Range("/in/a.txt", {"size": 12, "mtime": 1_700_000_000_000_000_000, "from": 0, "to": 12})
B = Range("/in/ü b.txt", {"size": 0, "mtime": -1, "from": 0, "to": 0})
NOT_UTF8 = Range("/in/\udcff.txt", {"size": 1, "mtime": 2, "from": 0, "to": 1})

GOLDEN = [
    (("orders", "in", 7, "out", (A,)), "aa8b535dd71951a926399f17daa60b4b"),
    (("orders", "in", 2**48 - 1, "out", (A, B)), "4bc6513a90d9358ee0f5c4778f2a8711"),
    (("a.b", "c", 0, "d-1", (NOT_UTF8,)), "7ccd7ec4f7ec0ad83b05e262f03c7fd2"),
]

CHILD = """
import json, sys
from penstock.plan.hashing import delivery_hash
from penstock.ranges import Range, Ranges
pipeline, lane, epoch, destination, ranges = json.loads(sys.argv[1])
print(delivery_hash(pipeline, lane, epoch, destination, Ranges(tuple(Range.from_json(r) for r in ranges))))
"""

Case = tuple[str, str, int, str, tuple[Range, ...]]


def hash_of(case: Case) -> str:
    pipeline, lane, epoch, destination, ranges = case
    return delivery_hash(pipeline, lane, epoch, destination, Ranges(ranges))


@pytest.mark.parametrize("case, expected", GOLDEN)
def test_a_known_delivery_has_its_known_hash(case: Case, expected: str) -> None:
    assert hash_of(case) == expected


@pytest.mark.parametrize(
    "environ", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONHASHSEED": "1"}, {"PYTHONHASHSEED": "2"}]
)
def test_another_process_with_another_locale_gives_the_same_hash(environ: Mapping[str, str]) -> None:
    pipeline, lane, epoch, destination, ranges = GOLDEN[1][0]
    given = json.dumps([pipeline, lane, epoch, destination, [r.to_json() for r in ranges]])
    command = [sys.executable, "-c", CHILD, given]
    child = subprocess.run(command, env={**os.environ, **environ}, capture_output=True, text=True, check=True)
    assert child.stdout.strip() == GOLDEN[1][1]


def test_a_hash_survives_the_ledgers_json() -> None:
    case, expected = GOLDEN[1]
    restored = Ranges.from_json(Ranges(case[4], next_seq=5).to_json())
    assert delivery_hash(*case[:4], restored) == expected


def test_the_order_in_which_ranges_were_listed_does_not_count() -> None:
    c = replace(A, strand="/in/c.txt")
    assert len({hash_of(("p", "l", 1, "d", order)) for order in itertools.permutations((A, B, c))}) == 1


def test_the_order_of_keys_in_a_position_does_not_count() -> None:
    turned = replace(A, position=dict(reversed(list(A.position.items()))))
    assert list(turned.position) != list(A.position)
    assert hash_of(("p", "l", 1, "d", (turned,))) == hash_of(("p", "l", 1, "d", (A,)))


def test_base_size_and_next_seq_are_not_identity() -> None:
    plain = delivery_hash("p", "l", 1, "d", Ranges((A,)))
    assert delivery_hash("p", "l", 1, "d", Ranges((replace(A, base=9, size=9),), next_seq=7, forget=("x",))) == plain


@pytest.mark.parametrize(
    "other",
    [
        ("orders2", "in", 7, "out", (A,)),
        ("orders", "in2", 7, "out", (A,)),
        ("orders", "in", 8, "out", (A,)),
        ("orders", "in", 7, "out2", (A,)),
        ("in", "orders", 7, "out", (A,)),
        ("orders", "out", 7, "in", (A,)),
        ("orders", "in", 7, "out", ()),
        ("orders", "in", 7, "out", (A, A)),
        ("orders", "in", 7, "out", (A, B)),
        ("orders", "in", 7, "out", (replace(A, strand="/in/A.txt"),)),
        ("orders", "in", 7, "out", (replace(A, strand="/in/a.txt "),)),
        *(("orders", "in", 7, "out", (replace(A, position={**A.position, key: 1}),)) for key in A.position),
        ("orders", "in", 7, "out", (replace(A, position={**A.position, "size": "12"}),)),
        ("orders", "in", 7, "out", (replace(A, position={**A.position, "more": None}),)),
        ("orders", "in", 7, "out", (replace(A, position={"size": 12}),)),
    ],
)
def test_any_other_difference_gives_another_hash(other: Case) -> None:
    assert hash_of(other) != GOLDEN[0][1]


@pytest.mark.parametrize(
    "one, other",
    [
        (("a.b", "c", 1, "d", (A,)), ("a", "b.c", 1, "d", (A,))),
        (("ab", "c", 1, "d", (A,)), ("a", "bc", 1, "d", (A,))),
        (("", "ab", 1, "d", (A,)), ("ab", "", 1, "d", (A,))),
        (("p", "l1", 1, "d", (A,)), ("p", "l", 11, "d", (A,))),
        (("p", "l", 11, "d", (A,)), ("p", "l", 1, "1d", (A,))),
        (("p", 'l","x', 1, "d", (A,)), ("p", "l", 1, "d", (A,))),
        (("p", "l", 1, 'd",["', (A,)), ("p", "l", 1, "d", (A,))),
        (("p", "l", 1, "d", (Range("a", {"b": "c"}),)), ("p", "l", 1, "d", (Range('a","b":"c', {}),))),
        (("p", "l", 1, "d", (Range("a", {"x": 12, "y": 3}),)), ("p", "l", 1, "d", (Range("a", {"x": 1, "y": 23}),))),
        (("p", "l", 1, "d", (Range("a", {}), Range("b", {}))), ("p", "l", 1, "d", (Range('a",{}]","["b', {}),))),
    ],
)
def test_a_border_moved_between_neighbouring_texts_gives_another_hash(one: Case, other: Case) -> None:
    assert hash_of(one) != hash_of(other)
