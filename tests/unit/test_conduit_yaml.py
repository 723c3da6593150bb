"""Row Y1, files: every pipeline file that the real Conduit was given means the same here, or is refused with a code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.config import ConfigErrors, PipelineConfig, ProcessorConfig, expand, expand_settings, load
from tests.support.conduit import DIFFERENT, EQUAL, REFUSED, Verdict, cases, judge

CASES = cases("yaml")


@pytest.mark.contract("Y1", reason="every case has the real Conduit's own result beside it")
@pytest.mark.parametrize("case", CASES, ids=[f"{c['id']}-{c['group']}" for c in CASES])
def test_a_file_means_what_it_means_to_conduit(case: dict[str, Any], tmp_path: Path) -> None:
    judge(case, judged(case, tmp_path / "p.yaml"))


def judged(case: Mapping[str, Any], file: Path) -> Verdict:
    file.write_bytes(case["yaml"].encode())
    refused = "parse_error" in case or any("validate_error" in p for p in case["pipelines"])
    try:
        loaded = load(file, case["env"], runnable=False)
    except ConfigErrors as e:
        return Verdict(EQUAL) if refused else Verdict(REFUSED, e.problems[0].code, str(e))
    if refused:
        return Verdict(DIFFERENT, detail="Conduit refuses it")
    ours = [meaning(p, case["env"]) for one in loaded for p in one.pipelines]
    theirs = [conduits(p["enriched"]) for p in case["pipelines"]]
    return Verdict(EQUAL) if ours == theirs else Verdict(DIFFERENT, detail=f"{ours} instead of {theirs}")


def meaning(p: PipelineConfig, env: Mapping[str, str]) -> dict[str, Any]:
    """A pipeline as Conduit shows it, with the ids and the defaults that it fills in."""
    queue = p.dead_letter_queue
    return {
        "ID": p.id,
        "Status": p.status,
        "Name": p.name or p.id,
        "Description": p.description,
        "Connectors": [
            {
                "ID": f"{p.id}:{c.id}",
                "Type": c.type,
                "Plugin": c.plugin,
                "Name": c.name or c.id,
                "Settings": expand_settings(c.settings, env),
                "Processors": [processor(x, f"{p.id}:{c.id}", env) for x in c.processors],
            }
            for c in p.connectors
        ],
        "Processors": [processor(x, p.id, env) for x in p.processors],
        "DLQ": {
            "Plugin": queue.plugin,
            "Settings": expand_settings(queue.settings, env),
            "WindowSize": queue.window_size,
            "WindowNackThreshold": queue.window_nack_threshold,
        },
    }


def processor(p: ProcessorConfig, prefix: str, env: Mapping[str, str]) -> dict[str, Any]:
    return {
        "ID": f"{prefix}:{p.id}",
        "Plugin": p.plugin,
        "Settings": expand_settings(p.settings, env),
        "Workers": p.workers,
        "Condition": expand(p.condition, env),
    }


def conduits(enriched: Mapping[str, Any]) -> dict[str, Any]:
    """Without the dead letter queue that it fills in where none is written: here they are in the state folder."""
    queue = dict(enriched["DLQ"])
    if (queue["Plugin"], queue["Settings"]) == ("builtin:log", {"level": "warn", "message": "record delivery failed"}):
        queue |= {"Plugin": None, "Settings": {}}
    connectors = [
        {**c, "Settings": c["Settings"] or {}, "Processors": [_whole(p) for p in c["Processors"] or []]}
        for c in enriched["Connectors"] or []
    ]
    processors = [_whole(p) for p in enriched["Processors"] or []]
    return {**enriched, "Connectors": connectors, "Processors": processors, "DLQ": queue}


def _whole(p: Mapping[str, Any]) -> dict[str, Any]:
    return {**p, "Settings": p["Settings"] or {}}


def test_every_case_of_the_table_exists() -> None:
    """A row about a case that is gone proves nothing."""
    from tests.support.conduit import table

    known = {c["id"] for c in CASES}
    assert {case for case in table() if case.startswith("y-")} <= known
