"""Row Y1, the table of docs/conduit.md: its shares are counted, its codes exist, its cases are real."""

from __future__ import annotations

import re

import pytest

from tests.support.conduit import ROOT, cases, table

FILES = {"files": "yaml", "conditions": "conditions", "processors": "processors"}


def _shares() -> dict[str, tuple[int, int, int]]:
    listed = table()
    found = {}
    for name, file in FILES.items():
        verdicts = [listed.get(case["id"], "equal").split()[0] for case in cases(file)]
        found[name] = (verdicts.count("equal"), verdicts.count("different"), verdicts.count("refused"))
    return found


@pytest.mark.contract("Y1", reason="the shares are counted from the table that the cases are judged by")
def test_the_shares_are_those_of_the_table() -> None:
    text = (ROOT / "docs" / "conduit.md").read_text()
    written = {
        name: tuple(map(int, numbers))
        for name, *numbers in re.findall(
            r"^\| (files|conditions|processors) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.M
        )
    }
    assert written == _shares()
    assert sum(map(sum, _shares().values())) == 1256


def test_every_case_in_the_table_is_there() -> None:
    known = {case["id"] for file in FILES.values() for case in cases(file)}
    assert set(table()) <= known


def test_every_refusal_has_a_code_that_is_documented() -> None:
    errors = (ROOT / "docs" / "reference" / "errors.md").read_text()
    text = (ROOT / "docs" / "conduit.md").read_text()
    codes = set(re.findall(r"refused: ([a-z-]+\.[a-z-]+)", text))
    assert len(codes) > 10
    assert [code for code in codes if f"| `{code}` |" not in errors] == []
