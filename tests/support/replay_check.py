"""What a connector on our SDK has said in a replay, beside what the recorded one has said. Tests call it after `replay_sdk` has played."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.support.replay import Step, same
from tests.support.replay_host import handed_out
from tests.support.replay_sdk import Answered


def check(answered: Answered, steps: Sequence[Step]) -> None:
    """What our SDK has said is what the recorded plugin has said. Not compared: how acks are grouped, the words of gRPC and of the Go SDK
    about states, and what came after a panic: an exception of our connectors is an error, and the process lives."""
    died = next((step for step in steps if step.status == "UNAVAILABLE"), None)
    for step, code, text, message in answered.outcomes:
        if step.status == "OK":
            assert (code, text) == ("OK", ""), f"{step}: {code} {text}"
            assert same(*(_without_required(step.parsed(data)) for data in (message, step.data))), str(step)
        else:
            _check_error(step, code, text, after=step is not died)
    for step, code, text in answered.ends:
        if step.status in ("OK", "CANCELLED"):
            assert code in ("OK", step.status), f"{step}: {code} {text}"
        elif step.error != "forceful teardown":
            _check_error(step, code, text, after=step is not died)
    _check_messages(answered, steps)


def _without_required(message: Any) -> Any:
    """Of the first dialect's parameters: the field is deprecated, the Go SDK does not set it, we do for hosts that know nothing else."""
    for parameters in ("source_params", "destination_params"):
        for parameter in getattr(message, parameters, {}).values():
            parameter.ClearField("required")
    return message


def _check_error(step: Step, code: str, text: str, *, after: bool) -> None:
    match step.status:
        case "UNAVAILABLE":  # it died then, or before
            assert code == "UNKNOWN" or after, f"{step}: {code} {text}"
        case "DEADLINE_EXCEEDED":  # the recorded host did not wait for its answer
            assert code in ("OK", "UNKNOWN"), f"{step}: {code} {text}"
        case "UNKNOWN":
            assert code == "UNKNOWN", f"{step}: {code} {text}"
            if step.name == "Configure":
                for name in re.findall(r'"([^"]+)": (?:unrecognized|required)|validating "([^"]+)":', step.error):
                    assert "".join(name) in text
            elif not step.error.startswith(("expected connector state", "read stream error")):
                assert text == step.error
        case _:
            assert code == step.status, f"{step}: {code} {text}"


def _check_messages(answered: Answered, steps: Sequence[Step]) -> None:
    recorded = [step for step in steps if step.kind == "message"]
    if not recorded:
        assert not answered.messages
        return
    ours = [replace(recorded[0], data=data) for data in answered.messages]
    if recorded[0].service == "SourcePlugin":
        assert len(ours) == len(recorded)
        for one, other in zip(ours, recorded, strict=True):
            assert same(one.decoded(), other.decoded())
        return
    acks, expected = ([ack for s in side for ack in handed_out(s)[1]] for side in (ours, recorded))
    cut_off = any(s.status in ("CANCELLED", "UNAVAILABLE") or s.kind == "cancel" for s in steps)
    assert acks[: len(expected)] == expected
    assert cut_off or len(acks) == len(expected)
