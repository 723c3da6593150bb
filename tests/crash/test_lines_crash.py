"""`lines` under kills: two lanes append to one file, and every line is there once, those of each lane in their order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import oracle
from tests.support.harness import Case, Gateway, age

pytestmark = [pytest.mark.spark, pytest.mark.crash]

NOTED = 5  # begun, two chunks, appended, noted
PIPELINE = """\
version: "2.2"
pipelines:
  - id: p
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {root}/in}}, batch: {{max-files: 2}}}}
      - {{id: other, type: source, plugin: files, settings: {{path: {root}/other}}, batch: {{max-files: 2}}}}
      - {{id: out, type: destination, plugin: lines, settings: {{path: {root}/out.txt}}}}
"""


@dataclass
class Appending(Case):
    def configure(self) -> None:
        (self.root / "other").mkdir(exist_ok=True)
        (self.root / "p.yaml").write_text(PIPELINE.format(root=self.root))

    def issue(self, files: int, lines: int = 20) -> None:
        super().issue(files, lines)
        first = 500 + len(list((self.root / "other").iterdir()))
        self.issued += oracle.write_inputs(self.root / "other", files, lines, first=first)
        age(self.root / "other")

    def found(self) -> list[str]:
        """Who each line is, in the order of the file."""
        path = self.root / "out.txt"
        return [line.rpartition(":")[0] for line in path.read_text().splitlines()] if path.exists() else []

    def faults(self) -> list[str]:
        found = self.found()
        faults = [] if sorted(found) == sorted(self.issued) else [f"{len(found)} lines of {len(self.issued)}"]
        for file in {line.partition(":")[0] for line in found}:
            own = [line for line in found if line.startswith(f"{file}:")]
            if own != sorted(own, key=lambda line: int(line.partition(":")[2])):
                faults.append(f"those of {file} are in another order")
        return faults


Make = Callable[[str], Appending]


@pytest.fixture
def make(tmp_path: Path, gateway: Gateway) -> Make:
    def made(name: str) -> Appending:
        case = Appending(tmp_path / name, gateway)
        case.issue(files=4)
        return case

    return made


@pytest.mark.contract("C11", "C12", "C16", "X1", safeguard="receipt")
@pytest.mark.parametrize(
    ("point", "nth"),
    [("K6", 1), ("K7", 1), *(("K6a", n) for n in (1, 3, 4, NOTED)), ("K8", 1), ("ledger:done", 1), ("done", 1)],
)
def test_who_is_killed_at_a_step_of_a_delivery_is_gone_on_for(make: Make, point: str, nth: int) -> None:
    case = make("case")
    ended = case.run(kill_at=point, kill_nth=nth)
    assert ended.killed, f"{ended.out}{ended.err}"
    assert len(case.found()) == len(set(case.found()))
    case.finish()
    assert not case.faults(), case.faults()


@pytest.mark.contract("C16", reason="the file is read after a kill in the recovery of a kill")
def test_a_kill_in_the_recovery_of_a_recovery(make: Make) -> None:
    case = make("case")
    assert case.run(kill_at="K6a", kill_nth=2).killed
    for point, nth in (("K11", 1), ("K6a", 1), ("K8", 1)):
        ended = case.run(kill_at=point, kill_nth=nth)
        assert ended.killed or ended.returncode == 0
    case.finish()
    assert not case.faults(), case.faults()


def test_without_a_look_at_what_is_there_lines_come_twice(make: Make) -> None:
    """The control: the destination itself knows its last delivery, so both of its looks are off."""
    case = make("case")
    off = ("receipt", "lines-note")
    assert case.run(kill_at="K6a", kill_nth=NOTED, off=off).killed
    case.finish(off=off)
    assert len(case.found()) > len(case.issued)
