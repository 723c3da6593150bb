"""Our host side understands every recorded plugin and says what the recorded hosts have said: a fake plugin answers from the recordings,
and our client makes the recorded host's calls in their order. Also with Conduit itself as the recorded host.

The recordings are not part of the project; where they are missing, that is said and the tests are skipped.
"""

from __future__ import annotations

import shlex
from contextlib import closing
from pathlib import Path

import pytest

from penstock_protocol import handshake
from penstock_protocol.handshake import Handshake
from penstock_protocol.interfaces import PluginError
from penstock_protocol.process import PluginProcess
from tests.support.replay import Life, needs_recordings, scenarios
from tests.support.replay_host import Drive, as_ours, check

pytestmark = needs_recordings

NOT_PLAYED = {
    "extra-services": "our host calls no method that is not there, and sends no garbage",
    "two-run-streams": "our host opens one stream for each that it has opened",
}
# No conversation: the program ends before. What our host makes of that is a test of its own.
ENDED = {
    "bad-cookie-missing",
    "bad-cookie-wrong",
    "bad-env-missing-CONDUIT_CONNECTOR_UTILITIES_GRPC_TARGET",
    "bad-env-missing-CONDUIT_CONNECTOR_TOKEN",
    "bad-env-missing-CONDUIT_CONNECTOR_ID",
    "bad-env-CONDUIT_CONNECTOR_TOKEN-empty",
}
PRINTED = {"args-spec-file", "args-version-file", "args-spec-generator", "args-version-generator", "args-unknown"}

# Where our host's calls are others than the recorded ones. Conduit's differ in the first way only, wherever they do.
STREAM_FIRST = "it ends the stream before it calls Teardown, and closes it before it cancels"
RUNS = "it runs what it has opened, at once"
RUNS_NOTHING = "it runs nothing that it has not opened"
SAYS_SOMETHING = "it sends no message that says nothing"
HEARS_ALL = "it closes the stream last, when everything that was on its way is there"
DIFFERENT = {
    "run-before-open": RUNS_NOTHING,
    "run-before-configure": RUNS_NOTHING,
    "destination-run-before-open": RUNS_NOTHING,
    "chaos-source-configureMode-error": RUNS_NOTHING,
    "chaos-source-openMode-error": RUNS_NOTHING,
    "chaos-source-configureMode-panic": RUNS_NOTHING,
    "chaos-source-openMode-panic": RUNS_NOTHING,
    "chaos-destination-openMode-error": RUNS_NOTHING,
    "file-source-v2-resume-bad-position": RUNS_NOTHING,
    "file-destination-v2-folder-missing": RUNS_NOTHING,
    "open-twice": RUNS,
    "teardown-without-run": RUNS,
    "both-roles-in-one-process": RUNS,
    "ack-empty-list": SAYS_SOMETHING,
    "write-empty-records": SAYS_SOMETHING,
    "write-empty-then-good": SAYS_SOMETHING,
    "teardown-with-stream-open": STREAM_FIRST,
    "run-cancelled-instead-of-half-close": STREAM_FIRST,
    "chaos-source-ack-context-done": STREAM_FIRST,
    "sigint-during-run": STREAM_FIRST,
    "file-destination-v2-sdk-batch-3": HEARS_ALL,
}


def _conversations(name: str) -> list[Life]:
    return [life for life in scenarios()[name].lives() if life.steps]


@pytest.mark.contract("P11", "P1", reason="the recordings are the control: a changed call or answer is a difference")
@pytest.mark.parametrize("name", sorted(scenarios().keys() - NOT_PLAYED.keys() - ENDED - PRINTED))
def test_our_host_says_what_the_recorded_one_said_and_understands_the_answers(name: str, tmp_path: Path) -> None:
    for number, life in enumerate(_conversations(name)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with closing(Drive(life, folder)) as drive:
            check(drive.steps, drive.play())


def test_every_recorded_scenario_is_played_or_named() -> None:
    assert len(scenarios()) == 214
    assert {name for name in scenarios() if not _conversations(name)} == ENDED | PRINTED
    assert NOT_PLAYED.keys() <= scenarios().keys()


@pytest.mark.contract("P1", reason="each difference is named; one more, or one less, fails")
def test_our_host_differs_from_the_recorded_ones_where_it_is_said() -> None:
    different = {
        name
        for name, scenario in scenarios().items()
        if name not in NOT_PLAYED
        and scenario.file != "conduit_host.jsonl"
        and any(as_ours(life.steps) != list(life.steps) for life in scenario.lives())
    }
    assert different == DIFFERENT.keys()


@pytest.mark.contract("P1", reason="Conduit's own calls are the control")
@pytest.mark.parametrize("name", sorted(n for n, s in scenarios().items() if s.file == "conduit_host.jsonl"))
def test_the_calls_of_a_life_come_in_conduits_order(name: str) -> None:
    """But for the end of the stream, which Conduit cancels before or after it calls Teardown. Its streams for output and broker, in which
    it says nothing, are left out: they are no part of the connector protocol."""
    for life in _conversations(name):
        ours = [str(s) for s in as_ours(life.steps) if s.by_host and s.kind not in ("close", "cancel")]
        assert ours == [str(s) for s in life.steps if s.by_host and s.kind not in ("close", "cancel")]


@pytest.mark.parametrize("name", sorted(scenarios()))
def test_recorded_handshakes_are_read_as_they_are_meant(name: str) -> None:
    for life in scenarios()[name].lives():
        if life.printed and name not in PRINTED:
            found = Handshake.parse(life.printed[0] + "\n")
            assert (found.dialect, found.network, found.address) == (life.dialect.number, "unix", "<socket>")
            assert found.dialect == handshake.dialect(life.environment)  # our plugins choose as these do
            assert found.line() == life.printed[0]


@pytest.mark.parametrize("name", sorted(ENDED | PRINTED))
def test_a_program_that_prints_no_handshake_is_refused_in_its_own_words(name: str) -> None:
    (life,) = scenarios()[name].lives()
    said = "\n".join(life.said)
    printed = "\n".join(life.printed)
    script = f"printf %s {shlex.quote(printed)}; printf '%s\\n' {shlex.quote(said)} >&2; exit {life.exit_code}"
    with pytest.raises(PluginError) as raised:
        PluginProcess(["/bin/sh", "-c", script], connector_id="pipe:conn", patience=20)
    assert raised.value.gone
    if name in PRINTED:
        assert "where the handshake should be" in str(raised.value)
    else:
        assert f"it ended with {life.exit_code} before the handshake" in str(raised.value)
        assert any(line and line in str(raised.value) for line in life.said)
