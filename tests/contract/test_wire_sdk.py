"""Connectors on our SDK say what public connectors have said: the recorded host's messages are sent to a connector that is served by the
SDK and does what the recorded one did, and its answers are the recorded ones, errors and bad cases included.

The recordings are not part of the project; where they are missing, that is said and the tests are skipped.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from penstock_protocol import client, server
from penstock_protocol.interfaces import Ack, Specification
from penstock_sdk import destination_plugin, source_plugin
from tests.support.replay import Life, Step, needs_recordings, scenarios
from tests.support.replay_check import check
from tests.support.replay_host import handed_out
from tests.support.replay_sdk import Answered, FakeHost

pytestmark = needs_recordings

# What is no conversation. What ours does without a cookie and without the other variables is shown below.
NOT_PLAYED = {
    "bad-cookie-missing": "no conversation: it does not start",
    "bad-cookie-wrong": "no conversation: it does not start",
    "bad-env-missing-CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET": "ours starts: it needs no schemas to be there",
    "bad-env-missing-CONDUIT_CONNECTOR_TOKEN": "ours starts: the token is for the schema service",
    "bad-env-missing-CONDUIT_CONNECTOR_ID": "ours starts: its id is empty then",
    "bad-env-CONDUIT_CONNECTOR_TOKEN-empty": "ours starts: the token is for the schema service",
    "args-spec-file": "an argument of the Go SDK; ours has `penstock plugins describe`",
    "args-spec-generator": "an argument of the Go SDK; ours has `penstock plugins describe`",
    "args-version-file": "an argument, no conversation",
    "args-version-generator": "an argument, no conversation",
    "args-unknown": "arguments of a program on our SDK are its author's",
    "killed-during-run": "a signal: the process is gone, whatever it is made of",
    "sigterm-during-run": "a signal: the process is gone, whatever it is made of",
}

# Where ours answers differently on purpose; each is a test below.
STRICT_ACKS = ("ack-out-of-order", "ack-unknown-position", "ack-empty-position", "ack-same-twice")
NO_OPERATION = ("write-operation-unspecified", "write-operation-99")
EMPTY = ("write-empty-records", "write-empty-then-good")
NOT_OPENED = (
    "chaos-destination-configureMode-error",
    "chaos-destination-openMode-error",
    "file-destination-v2-folder-missing",
)
BAD_SETTINGS = ("chaos-source-configureMode-error",)
OTHERWISE = {*STRICT_ACKS, *NO_OPERATION, *EMPTY, *NOT_OPENED, *BAD_SETTINGS}


@pytest.fixture(autouse=True)
def _no_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded host did not wait either."""
    monkeypatch.setattr(source_plugin, "STOP_PATIENCE", 0.3)
    monkeypatch.setattr(destination_plugin, "STOP_PATIENCE", 0.3)


def _lives(name: str) -> list[Life]:
    return [life for life in scenarios()[name].lives() if life.steps]


def _life(name: str) -> Life:
    (life,) = _lives(name)
    return life


def _play(life: Life, folder: Path, steps: Sequence[Step] | None = None, *, panics: bool = True) -> Answered:
    with closing(FakeHost(life, folder, steps)) as host:
        if not panics:
            host.script.panics = None
        return host.play()


def _acks(life: Life, answered: Answered) -> list[Ack]:
    run = replace(life.of("send")[0], kind="message")
    return [ack for data in answered.messages for ack in handed_out(replace(run, data=data))[1]]


def _ends(answered: Answered) -> list[tuple[str, str]]:
    return [(code, text) for _, code, text in answered.ends]


@pytest.mark.contract("P11", reason="the recordings are the control: a changed answer is a difference")
@pytest.mark.parametrize("name", sorted(scenarios().keys() - NOT_PLAYED.keys() - OTHERWISE))
def test_a_connector_on_the_sdk_says_what_the_recorded_one_said(name: str, tmp_path: Path) -> None:
    for life in _lives(name):
        with closing(FakeHost(life, tmp_path)) as host:
            assert host.handshake.dialect == life.dialect.number  # as the recorded one has chosen it
            check(host.play(), life.steps)


def test_every_recorded_scenario_is_played_or_named() -> None:
    assert len(scenarios()) == 214
    assert NOT_PLAYED.keys() | OTHERWISE <= scenarios().keys()
    silent = {name for name in scenarios() if not _lives(name)}
    assert silent == {name for name in NOT_PLAYED if "during-run" not in name}


@pytest.mark.parametrize("name", STRICT_ACKS)
def test_an_ack_that_does_not_fit_ends_the_stream(name: str, tmp_path: Path) -> None:
    """The Go SDK passes it on; with ours a host that acks what it should not is found out at once, and nothing is acked."""
    life = _life(name)
    answered = _play(life, tmp_path)
    ((code, text),) = _ends(answered)
    assert code == "UNKNOWN"
    assert text.startswith("ack plugin error: position ")
    assert [code for _, code, _, _ in answered.outcomes] == ["OK"] * len(life.of("answer"))


@pytest.mark.parametrize("name", NO_OPERATION)
def test_a_record_with_an_operation_that_is_none_is_refused_alone(name: str, tmp_path: Path) -> None:
    """The Go SDK takes it; nobody can act on it."""
    life = _life(name)
    answered = _play(life, tmp_path)
    (ack,) = _acks(life, answered)
    (expected,) = [ack for step in life.of("message") for ack in handed_out(step)[1]]
    assert ack.position == expected.position
    assert ack.error.startswith("operation is ")
    assert _ends(answered) == [("OK", "")]


@pytest.mark.contract("P7", reason="the record between two good ones is the control")
def test_a_record_that_cannot_be_read_is_refused_in_its_place(tmp_path: Path) -> None:
    life = _life("file-destination-v2-batch")
    (send,) = life.of("send")
    message = send.decoded()
    message.records[1].operation = 99
    bad = replace(send, data=message.SerializeToString())
    answered = _play(life, tmp_path, [bad if step is send else step for step in life.steps])
    acks = _acks(life, answered)
    assert [ack.position for ack in acks] == [record.position for record in message.records]
    assert [i for i, ack in enumerate(acks) if ack.error] == [1]


@pytest.mark.parametrize("name", EMPTY)
def test_a_message_without_records_says_nothing(name: str, tmp_path: Path) -> None:
    """It ends the Go SDK's process."""
    life = _life(name)
    steps = [step for step in life.steps if step.status != "UNAVAILABLE"]
    answered = _play(life, tmp_path, steps, panics=False)
    records = sum(len(step.decoded().records) for step in life.of("send"))
    assert len(_acks(life, answered)) == records
    assert not any(ack.error for ack in _acks(life, answered))


@pytest.mark.parametrize("name", NOT_OPENED)
def test_a_destination_that_did_not_open_takes_no_records(name: str, tmp_path: Path) -> None:
    """The Go SDK calls the author's code all the same, and nacks."""
    life = _life(name)
    run = life.of("open")[0]
    steps = [step for step in life.steps if step.kind != "message" and step.name != "Stop"]
    steps = [replace(run, kind="end", status="UNKNOWN") if step.kind == "end" else step for step in steps]
    answered = _play(life, tmp_path, [step for step in steps if step.kind != "close"])
    assert _ends(answered) == [("UNKNOWN", "write plugin error: it is not open")]
    check(
        replace(answered, ends=[], outcomes=[o for o in answered.outcomes if o[0].name in ("Configure", "Teardown")]),
        (),
    )


@pytest.mark.parametrize("name", BAD_SETTINGS)
def test_the_calls_of_a_life_refuse_settings_that_configure_refuses(name: str, tmp_path: Path) -> None:
    """They get them typed, so they have to read them; the Go SDK's get them as text."""
    life = _life(name)
    answered = _play(life, tmp_path)
    created = [code for step, code, _, _ in answered.outcomes if step.name == "LifecycleOnCreated"]
    assert created == ["UNKNOWN"]
    check(replace(answered, outcomes=[o for o in answered.outcomes if o[0].name != "LifecycleOnCreated"]), life.steps)


def test_what_every_plugin_serves_besides_is_served(tmp_path: Path) -> None:
    scenario = scenarios()["extra-services"]
    (life,) = scenario.lives()
    with closing(FakeHost(life, tmp_path)) as host:
        channel = client.connect(host.handshake)
        assert channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=10) == b"\x08\x01"
        with pytest.raises(grpc.RpcError) as raised:
            channel.unary_unary("/no.such.Service/X")(b"", timeout=10)
        assert isinstance(raised.value, grpc.Call)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        channel.close()


@pytest.mark.parametrize("name", ["bad-cookie-missing", "bad-cookie-wrong"])
def test_without_its_cookie_it_says_what_it_is_and_ends(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (life,) = scenarios()[name].lives()
    out = io.StringIO()
    assert server.serve(server.Served(Specification("x", "v1.0.0")), life.environment, out) == life.exit_code
    assert out.getvalue() == ""
    assert capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(name for name, why in NOT_PLAYED.items() if why.startswith("ours starts")))
def test_it_starts_without_what_only_the_schema_service_needs(name: str, tmp_path: Path) -> None:
    (life,) = scenarios()[name].lives()
    assert life.exit_code == 1  # the Go SDK does not
    with closing(FakeHost(life, tmp_path)) as host:
        assert host.handshake.dialect == 2
