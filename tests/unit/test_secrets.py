"""Values that came by reference are not in texts: every way they are commonly written in, and where they come from. No Spark."""

from __future__ import annotations

import base64
import json
import os
import pickle
import threading
import time
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest

from penstock.assembly import learn, rebuild
from penstock.config import ConfigErrors
from penstock.engine import session
from penstock.engine.aside import ERROR_CHARACTERS, Dead
from penstock.engine.batch.deadletter import Places, letter_of
from penstock.errors import Stop
from penstock.ledger import TargetRef
from penstock.pipeline import Pipeline
from penstock.secrets import Secrets
from penstock.testing import faults

VALUE = "s3cr'et\"ü/+ \\x"
SECRETS = Secrets([(VALUE, "${TOKEN}")], ["TOKEN"])


@pytest.mark.parametrize(
    "text",
    [
        VALUE,
        f"{VALUE}{VALUE}",
        repr(VALUE),
        json.dumps({"a": [VALUE]}),
        json.dumps(VALUE, ensure_ascii=False),
        VALUE.replace("'", "''"),
        quote(VALUE),
        quote(VALUE, safe=""),
        f"https://x/?q={quote_plus(VALUE)}&b",
        base64.b64encode(VALUE.encode()).decode(),
        base64.b64encode(b"user:" + VALUE.encode() + b"@host").decode(),
        base64.urlsafe_b64encode(b"a" + VALUE.encode()).decode(),
        VALUE.upper(),
    ],
)
def test_a_value_is_replaced_however_it_is_written(text: str) -> None:
    shown = SECRETS.hide(f"before {text} after")
    assert "${TOKEN}" in shown
    assert shown.startswith("before ")
    assert shown.endswith(" after")
    assert "cr'et" not in shown.lower()
    assert "cr''et" not in shown.lower()


def test_nothing_else_is_changed() -> None:
    assert SECRETS.hide("s3cr and et: a text of its own\n") == "s3cr and et: a text of its own\n"
    assert Secrets().hide(VALUE) == VALUE
    assert not Secrets()


@pytest.mark.parametrize("value", ["", "abc", " ab ", "\n\n\n\n\n"])
def test_a_short_value_does_not_count(value: str) -> None:
    assert Secrets([(value, "${X}")]).hide(f"a {value} b") == f"a {value} b"


def test_the_longest_value_wins_whatever_came_first() -> None:
    pairs = [("secret", "${A}"), ("secret-and-more", "${B}"), ("more", "${C}")]
    for order in (pairs, pairs[::-1]):
        assert Secrets(order).hide("secret-and-more, secret, more") == "${B}, ${A}, ${C}"


def test_a_reference_is_not_searched_again() -> None:
    assert Secrets([("TOKEN", "${X}"), ("value", "${TOKEN}")]).hide("value TOKEN") == "${TOKEN} ${X}"


def test_each_line_of_a_value_counts() -> None:
    key = Secrets([("-----BEGIN KEY-----\nMIIEvQIBADANBg\nxx\n-----END KEY-----", "${file:key}")])
    assert key.hide("at MIIEvQIBADANBg: xx") == "at ${file:key}: xx"


def test_an_end_that_was_cut_is_no_beginning_of_a_value() -> None:
    assert Secrets([("canary-in-a-cage", "${X}")]).hide("it said canary-in", cut=True) == "it said ${X}"
    assert Secrets([("canary-in-a-cage", "${X}")]).hide("it said can", cut=True) == "it said can"


def test_it_can_be_sent_to_a_task_and_does_not_show_itself() -> None:
    sent = pickle.loads(pickle.dumps(SECRETS))
    assert sent.hide(VALUE) == "${TOKEN}"
    assert sent.names == {"TOKEN"}
    assert "cr'et" not in repr(SECRETS)


def test_one_that_includes_others_knows_what_they_learn_later() -> None:
    a, b, both = Secrets(), Secrets([("of-the-second", "${B}")]), Secrets()
    both.include(a)
    both.include(b)
    assert both.hide("of-the-first of-the-second") == "of-the-first ${B}"
    a.learn("of-the-first", "${A}", "A")
    assert both.hide("of-the-first of-the-second") == "${A} ${B}"
    assert both.names == {"A"}


def test_an_error_is_cleaned_and_cut_off_from_what_it_came_from() -> None:
    secrets = Secrets([("canary", "${X}")])
    error = Stop("canary!", code="a.b", where="at canary", why="canary?", hint="no canary")
    error.__cause__ = ValueError("canary")
    assert secrets.clean_chain(error, "ValueError: canary") == "ValueError: ${X}"
    assert "canary" not in f"{error}{error!r}"
    assert error.__cause__ is None
    other = Stop("plain")
    other.__cause__ = ValueError("plain")
    secrets.clean_chain(other, "ValueError: plain")
    assert other.__cause__ is not None


def learned(text: str, folder: Path | None = None) -> Secrets:
    secrets = Secrets()
    learn(secrets, text, folder)
    return secrets


def test_every_kind_of_reference_is_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "first-value")
    monkeypatch.setenv("TWO", "second-value")
    monkeypatch.delenv("UNSET", raising=False)
    (tmp_path / "f").write_text("third-value\n")
    secrets = learned("x $ONE ${env:TWO:-d} ${file:f} ${env:UNSET:-fourth-value} ${literal:$5th-value}", tmp_path)
    shown = secrets.hide("first-value second-value third-value fourth-value 5th-value")
    assert shown == "${ONE} ${TWO} ${file:f} fourth-value 5th-value"
    assert secrets.names == {"ONE", "TWO"}


def test_a_whole_setting_counts_and_what_everybody_knows_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("N", "50")
    monkeypatch.setenv("HOME", "/home/someone")
    assert learned("after.amount < ${N}").hide("in after.amount < 50") == "in after.amount < ${N}"
    assert not learned("$HOME/in")
    assert not learned("plain text")
    assert not learned("${NOT_THERE_AT_ALL}")


def test_without_the_safeguard_nothing_is_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE", "first-value")
    faults.install(off=["redact"])
    assert not learned("$ONE")


def test_all_parts_of_a_pipeline_are_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in "ABCDEF":
        monkeypatch.setenv(f"V_{name}", f"value-of-{name}")
    made = (
        Pipeline("p")
        .source("in", "files", path=f"{tmp_path}/${{V_A}}")
        .processor("a", "error", on="in", message="${V_B}")
        .processor("b", "filter", condition="after = '${V_C}'")
        .destination("out", "files", path=f"{tmp_path}/${{V_D}}")
        .processor("c", "error", on="out", message="${V_E}")
        .dead_letter_queue("files", path=f"{tmp_path}/${{V_F}}", format="json")
    )
    plan = made.plan()
    assert plan.secrets.names == {f"V_{name}" for name in "ABCDEF"}
    assert plan.secrets.hide("value-of-A value-of-F") == "${V_A} ${V_F}"


def test_a_destination_that_is_made_again_is_looked_at_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORD", "canary-word")
    secrets = Secrets()
    with pytest.raises(ConfigErrors) as e:
        rebuild(TargetRef("out", "files", {"path": "/x", "schema": "id ${WORD}", "format": "csv"}), secrets)
    assert "canary-word" not in str(e.value)
    assert secrets.names == {"WORD"}


def test_the_error_of_a_dead_letter_is_without_values() -> None:
    places = Places(lambda _: (b"here", {}), Secrets([("canary-in-a-cage", "${X}")]))
    whole = Dead(1, 0, "n", "c", "it was canary-in-a-cage", 0, {"after": {"text": "canary-in-a-cage"}})
    letter = letter_of("in", "", whole, places)
    assert letter.dead.error == "it was ${X}"
    assert letter.nack().error == "it was ${X}"
    assert letter.dead.given == whole.given  # the record is data
    cut = Dead(1, 0, "n", "c", ("x" * ERROR_CHARACTERS + "canary-in")[-ERROR_CHARACTERS:], 0)
    assert letter_of("in", "", cut, places).dead.error.endswith("x${X}")


def test_a_child_is_started_without_the_variables_that_hold_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    monkeypatch.setenv("SPARK_TOKEN", VALUE)
    secrets = Secrets()
    for name in ("TOKEN", "SPARK_TOKEN", "NOT_THERE"):
        secrets.learn(VALUE, f"${{{name}}}", name)
    made = session._environment(secrets)
    assert "TOKEN" not in made
    assert made["SPARK_TOKEN"] == VALUE  # Spark may look at it
    assert os.environ["TOKEN"] == VALUE  # ours is left alone: other settings may still be read


def test_what_the_jvm_prints_is_written_without_values(tmp_path: Path) -> None:
    log = tmp_path / "spark.log"
    log.write_bytes(b"before\n")
    with session._log(log, Secrets([("canary", "${X}")])) as fd:
        os.write(fd, b"a canary\n\xff canary in ")
        os.write(fd, b"no UTF-8")
    until = time.monotonic() + 10
    while any(t.name == "spark.log" for t in threading.enumerate()) and time.monotonic() < until:
        time.sleep(0.01)
    assert log.read_bytes() == b"before\na ${X}\n\xff ${X} in no UTF-8"


def test_without_secrets_the_jvm_writes_to_the_file_itself(tmp_path: Path) -> None:
    with session._log(tmp_path / "spark.log", Secrets()) as fd:
        os.write(fd, b"a line\n")
        assert (tmp_path / "spark.log").read_bytes() == b"a line\n"
