"""Spark settings that carry a promise: a user's own value is refused by its name, before anything is started."""

from __future__ import annotations

import pytest

from penstock.engine.session import DEFAULTS, LANE, REQUIRED, refuse_conflicts
from penstock.errors import UsageError


@pytest.mark.parametrize("name", sorted({**REQUIRED, **LANE}))
def test_a_setting_that_contradicts_a_promise_is_refused_by_name(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_conflicts({"spark.app.name": "x", name: "something else"})
    assert caught.value.code == "spark.setting"
    assert f"{name}=something else" in caught.value.what


def test_a_setting_that_agrees_is_accepted() -> None:
    refuse_conflicts({name: value.upper() for name, value in {**REQUIRED, **LANE}.items()})


def test_any_other_setting_is_the_users_own() -> None:
    refuse_conflicts(dict.fromkeys(DEFAULTS, "changed") | {"spark.executor.memory": "9g"})


def test_no_promise_is_only_a_default() -> None:
    assert not DEFAULTS.keys() & {**REQUIRED, **LANE}.keys()
    assert REQUIRED["spark.speculation"] == "false"
