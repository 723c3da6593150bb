"""Runs the checks over a connector. Called by `penstock connector test`, and check by check by the pytest class."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from penstock_sdk.testing import (
    check_destination,
    check_end,
    check_settings,
    check_source,
    check_specification,
    check_start,
)
from penstock_sdk.testing.bench import Bench, Setup
from penstock_sdk.testing.results import DECLARED, Check, Failure, NotChecked, Refused, Result
from penstock_sdk.testing.subjects import Subject

RECORDS = 20
PATIENCE = 10.0  # seconds that any one thing may take

_ORDER = (check_start, check_specification, check_settings, check_source, check_destination, check_end)
CHECKS = tuple(c for module in _ORDER for c in DECLARED.values() if c.run.__module__ == module.__name__)


class Kit:
    """One run over one subject. Remembers what has failed, for checks that need it."""

    def __init__(self, subject: Subject, *, records: int = RECORDS, patience: float = PATIENCE) -> None:
        self._subject, self._records, self._patience = subject, max(records, 5), patience
        self._failed: dict[str, str] = {}  # which can't be trusted, and because of which

    def run(self, check: Check, setup: Setup) -> Result:
        """One of them. `setup` is for it alone."""
        result = self._result(check, setup)
        if result.state == "failed":
            self._failed[check.name] = check.name
        return result

    def _result(self, check: Check, setup: Setup) -> Result:
        for name in check.needs:
            if name in self._failed:
                cause = self._failed[check.name] = self._failed[name]
                return Result(check, "not checked", f"it says nothing while {cause} fails")
        try:
            with Bench(self._subject, setup, records=self._records, patience=self._patience) as bench:
                return Result(check, "passed", check.run(bench) or "")
        except NotChecked as e:
            return Result(check, "not checked", str(e))
        except Failure as e:
            return Result(check, "failed", e.seen, e.expected, e.do)
        except Refused as e:
            return Result(
                check, "failed", f"{e.call} failed: {e.text}", f"{e.call} succeeds", "see what the connector says"
            )


def run(
    subject: Subject,
    setup: Callable[[Path], Setup],
    *,
    records: int = RECORDS,
    patience: float = PATIENCE,
) -> Iterator[Result]:
    """All checks, one after the other. `setup` is called for each, with an empty folder."""
    kit = Kit(subject, records=records, patience=patience)
    for check in CHECKS:
        with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
            yield kit.run(check, setup(Path(folder)))


def document() -> str:
    """Markdown: every check and what it holds a connector to."""
    lines = ["| check | what it holds a connector to |", "|---|---|"]
    return "\n".join([*lines, *(f"| `{check.name}` | {check.about} |" for check in CHECKS)]) + "\n"
