"""Secrets: values that settings and conditions get by reference are found nowhere after runs that fail in many ways.

Real `penstock run`s in child processes, each with a Spark of its own. Every reference has a value of its own (a canary), and
everything that a run leaves or shows is searched for it: state, staging, ledger, logs, dead letters, terminal, and the command lines
and environments of all processes it starts.
"""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.child import Spec
from tests.support.harness import age

ROOT = Path(__file__).parents[2]
LINES = ['{"id": 1, "x": "a"}', '{"id": 2, "x": "b"}']
MODULE = """\
from penstock import processor

@processor
def raises(r):
    raise ValueError("of its own")

@processor(batch=True)
def loses(batch):
    return batch.slice(1)
"""

# Each value has a part that is in no other text; some are written differently wherever they are quoted.
ENVIRONMENT = {
    "PLACE": "kanariPlaceQ7z",
    "UNWRITABLE": "kanariWallQ8z",
    "RAISED": "kanariRaisedQ9z",
    "CONSTANT": "kanariConstQ1z",
    "PATTERN": "kanariPatternQ2z",
    "EXPRESSION": 'kanari"ExprQ3z/ü+ ',
    "HELD": 'kanari"HeldQ4z\\t',
    "SELECTED": "kanariSelectQ5z",
    "FIELD": "kanariFieldQ6z",
    "MISMATCH": "kanariMismatchQ0z",
    "TWO": "kanariTwoQ3y",
    "MESSAGE": "kanariMessageQ4y",
}
OF_FILE = "kanariFileQ5y"
OTHER = "kanariOtherQ6y"  # in a variable that nothing refers to: it stays where it is
DECODE = "{id: decode, plugin: json.decode, settings: {field: .Payload.After}}"


SOME = (
    "{id: c, plugin: sql, settings: {field: .Payload.After.y,"
    " expression: \"CASE WHEN after.x = 'b' THEN CAST(concat('${TWO}', after.x) AS INT) ELSE 1 END\"}}"
)


def core(value: str) -> str:
    """The part that is letters and digits, whatever is done to the rest."""
    return max("".join(c if c.isascii() and c.isalnum() else " " for c in value).split(), key=len)


CORES = {name: core(value) for name, value in {**ENVIRONMENT, "file": OF_FILE}.items()}


def forms(text: str) -> Iterator[bytes]:
    yield from (text.encode(), text.encode("utf-16-le"), text.encode("utf-16-be"), text.encode().hex().encode())
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + text.encode())
        yield encoded[-(-before * 8 // 6) : (before + len(text)) * 8 // 6]


FORMS = {form.lower(): name for name, text in CORES.items() for form in forms(text)}


def in_bytes(data: bytes) -> set[str]:
    lower = data.lower()
    return {name for form, name in FORMS.items() if form in lower}


def in_file(path: Path) -> set[str]:
    """Raw, and as what it is: columns of Parquet are compressed, rows of SQLite may be cut over pages."""
    found = in_bytes(str(path).encode()) | in_bytes(path.read_bytes())
    if path.suffix == ".parquet":
        import pyarrow.parquet as pq

        found |= in_bytes(repr(pq.ParquetFile(path).read().to_pylist()).encode())
    elif path.suffix == ".gz":
        found |= in_bytes(gzip.decompress(path.read_bytes()))
    elif path.suffix == ".db":
        with sqlite3.connect(path) as db:
            found |= in_bytes("\n".join(db.iterdump()).encode())
    return found


def in_folder(folder: Path) -> dict[str, set[str]]:
    """A JVM that is about to end may still take its own files away."""
    result: dict[str, set[str]] = {}
    for root, _, names in os.walk(folder):  # passes over folders that are gone
        for path in (Path(root) / name for name in names):
            with suppress(FileNotFoundError):
                if path.is_file() and (found := in_file(path)):
                    result[str(path.relative_to(folder))] = found
    return result


@dataclass
class Watched:
    """The command lines and environments of all processes below one, while it runs."""

    process: subprocess.Popen[str]
    found: set[tuple[str, str]] = field(default_factory=set)  # cmdline or environ, and the canary
    kinds: set[str] = field(default_factory=set)  # of processes that were seen
    others: int = 0  # environments with the variable that nothing refers to

    def look(self) -> None:
        while self.process.poll() is None:
            for pid in self._below():
                for name in ("cmdline", "environ"):
                    try:
                        data = Path(f"/proc/{pid}/{name}").read_bytes()
                        self.kinds.add(Path(f"/proc/{pid}/comm").read_text().strip())
                    except OSError:
                        continue
                    self.found |= {(name, canary) for canary in in_bytes(data)}
                    self.others += OTHER.encode() in data
            time.sleep(0.05)

    def _below(self) -> set[int]:
        parents = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                except (OSError, IndexError):
                    continue
        found: set[int] = set()
        new = {self.process.pid}
        while new:
            new = {pid for pid, parent in parents.items() if parent in new} - found
            found |= new
        return found


@dataclass
class Leaks:
    """What was found where. Empty values mean nothing was."""

    code: int
    out: str
    err: str
    terminal: set[str]
    processes: set[tuple[str, str]]
    state: dict[str, set[str]]
    queue: dict[str, set[str]]
    local: dict[str, set[str]]
    kinds: set[str]
    others: int

    @property
    def places(self) -> set[str]:
        """The kinds of places."""
        found = {"terminal"} if self.terminal else set()
        found |= {name for name, _ in self.processes}
        found |= {"local"} if self.local else set()
        found |= {"queue"} if self.queue else set()
        return found | {name.partition("/")[0] for name in self.state}


class Pipelines:
    """A file with many pipelines, each of which fails in a way of its own."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        self.text = 'version: "2.2"\npipelines:\n'
        (root / "token").write_text(OF_FILE + "\n")
        (root / "wall").write_text("a file, no folder")
        (root / "functions_of_test.py").write_text(MODULE)

    def add(
        self,
        name: str,
        processors: str,
        *,
        typed: bool = False,
        to: str = "",
        settings: str = "",
        gate: str = "",
        more: str = "",
    ) -> None:
        folder = self.root / "in" / name
        folder.mkdir(parents=True)
        if typed:
            import pyarrow as pa
            import pyarrow.parquet as pq

            pq.write_table(pa.table({"id": [1, 2], "x": ["1", "b"]}), folder / "a.parquet")
        else:
            (folder / "a.txt").write_text("\n".join(LINES) + "\n")
        age(folder)
        form = "parquet" if typed else "text"
        queue = f"{{plugin: files, settings: {{path: {self.root}/dead/{name}, format: json}}, window-size: 0}}"
        self.text += f"""
  - id: {name}
    connectors:
      - {{id: in, type: source, plugin: files, settings: {{path: {folder}, format: {form}}}}}
      - {{id: out, type: destination, plugin: files, settings: {{path: "{to or f"{self.root}/out/{name}"}", format: {form}{settings}}}}}
{more}
    processors: [{processors}]
    dead-letter-queue: {gate or queue}
"""

    def run(self, *arguments: str, off: tuple[str, ...] = (), kill_at: str | None = None) -> Leaks:
        path = self.root / "p.yaml"
        path.write_text(self.text)
        state, local = self.root / "state", self.root / "local"
        local.mkdir(exist_ok=True)
        own = ("--once", "--debug", "--state", str(state), "--master", "local[2,4]")
        given = arguments or ("run", str(path), *own, "--conf", f"spark.local.dir={local}", "--json")
        command = [sys.executable, "-m", "penstock.cli.main", *given]
        if off or kill_at:
            spec = Spec(given, str(self.root / "trace"), off=off, kill_at=kill_at).write(self.root / "spec.json")
            command = [sys.executable, "-m", "penstock.testing.child", str(spec)]
        child = subprocess.Popen(
            command,
            env={**os.environ, **ENVIRONMENT, "NOT_REFERRED_TO": OTHER},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        watched = Watched(child)
        watch = threading.Thread(target=watched.look)
        watch.start()
        try:
            out, err = child.communicate(timeout=400)
        finally:
            child.kill()
            watch.join()
        return Leaks(
            child.returncode,
            out,
            err,
            in_bytes(out.encode()) | in_bytes(err.encode()),
            watched.found,
            in_folder(state),
            in_folder(self.root / "dead"),
            in_folder(local),
            watched.kinds,
            watched.others,
        )


def failing(root: Path) -> Pipelines:
    """Fails everywhere, after it was found to be valid."""
    p = Pipelines(root)
    sql = (
        "{id: c, plugin: sql, settings: {field: .Payload.After.y, expression: \"CAST(concat('%s', after.x) AS INT)\"}}"
    )
    # A destination whose folder can't be made; one whose path is a secret, and works.
    p.add("unwritable", "", to=f"{root}/wall/${{UNWRITABLE}}")
    p.add("place", "", to=f"{root}/out/${{PLACE}}")
    # A condition that raises for records, and two that raise for none: in Spark's optimiser, and in a task.
    p.add("raised", "{id: c, plugin: filter, condition: \"CAST(concat(after, '${RAISED}') AS INT) > 3\"}")
    p.add("constant", "{id: c, plugin: filter, condition: \"after = 'x' AND CAST('${CONSTANT}' AS INT) > 3\"}")
    p.add("file", "{id: c, plugin: filter, condition: \"after = 'x' AND CAST('${file:token}' AS INT) > 3\"}")
    p.add("pattern", "{id: c, plugin: filter, condition: \"after RLIKE '(${PATTERN}'\"}")
    # Errors of records that quote a value: to the queue, and held by the gate.
    p.add("expression", f"{DECODE}, {sql % '${EXPRESSION}'}")
    p.add("held", f"{DECODE}, {sql % '${HELD}'}", gate="{window-size: 1}")
    select = "after.*, CAST(concat(after.x, '${SELECTED}') AS INT) AS y"
    p.add("selected", f'{{id: c, plugin: sql, settings: {{select: "{select}"}}}}', typed=True)
    # What Spark does not understand, on a typed payload.
    p.add("field", '{id: c, plugin: filter, condition: "after.${FIELD} = 1"}', typed=True)
    p.add("mismatch", "{id: c, plugin: filter, condition: \"after.id + array('${MISMATCH}') = 1\"}", typed=True)
    # A batch that fails after its dead letters were written aside.
    loses = (
        f'{{id: l, plugin: python, settings: {{function: "functions_of_test:loses", batch: "true", path: "{root}"}}}}'
    )
    more = f"      - {{id: b, type: destination, plugin: files, settings: {{path: {root}/out/two-b}}, processors: [{loses}]}}"
    p.add("two", f"{DECODE}, {SOME}", more=more)
    # Errors of the user's own.
    function = f'{{id: f, plugin: python, settings: {{function: "functions_of_test:raises", path: "{root}"}}}}'
    p.add("python", f"{DECODE}, {function}")
    p.add("message", '{id: e, plugin: error, settings: {message: "not ${MESSAGE}"}}')
    return p


def statuses(leaks: Leaks) -> dict[str, str]:
    summary: dict[str, Any] = json.loads(leaks.out.splitlines()[-1])
    return {p["id"]: p["status"] for p in summary["pipelines"]}


@pytest.mark.spark
@pytest.mark.contract("X8", safeguard="redact")
def test_no_value_that_came_by_reference_is_found_anywhere_after_a_run_with_errors(tmp_path: Path) -> None:
    leaks = failing(tmp_path / "a").run()
    assert leaks.code == 1, leaks.err[-3000:]
    going_on = {"place", "raised", "expression", "selected", "python", "message"}
    assert {name for name, status in statuses(leaks).items() if status != "degraded"} == going_on, leaks.err[-3000:]
    assert {"java", "python"} <= {kind[:6] for kind in leaks.kinds} | {kind[:4] for kind in leaks.kinds}
    assert leaks.others > 0  # environments were looked at
    programs = leaks.processes - {("cmdline", "PLACE")}  # Hadoop runs `chmod` on what it writes: a path is no secret
    found = (leaks.terminal, programs, leaks.state, leaks.queue, leaks.local)
    assert found == (set(), set(), {}, {}, {})
    for name in ("UNWRITABLE", "CONSTANT", "HELD", "FIELD", "MISMATCH"):
        assert f"${{{name}}}" in leaks.err, f"the error does not show the reference to {name}"
    assert "${file:" in leaks.err
    assert "of its own" in (tmp_path / "a" / "dead" / "python").rglob("*.jsonl").__next__().read_text()


@pytest.mark.spark
@pytest.mark.contract("X8", safeguard="redact")
def test_without_the_safeguard_the_same_values_are_found_everywhere(tmp_path: Path) -> None:
    """The control: the search finds what there is to find."""
    leaks = failing(tmp_path / "a").run(off=("redact",))
    assert leaks.code == 1, leaks.err[-3000:]
    everywhere = {"terminal", "environ", "ledger.db", "dead-letters", "spark.log", "queue", "work"}
    assert everywhere <= leaks.places
    assert {"UNWRITABLE", "CONSTANT", "FIELD", "MISMATCH", "HELD", "file"} <= leaks.terminal


def with_some_nacks(root: Path) -> Pipelines:
    """Two destinations, so that what was processed is kept until both have it, its dead letters included."""
    p = Pipelines(root)
    more = f"      - {{id: b, type: destination, plugin: files, settings: {{path: {root}/out/two-b}}}}"
    p.add("two", f"{DECODE}, {SOME}", more=more)
    return p


@pytest.mark.spark
@pytest.mark.crash
@pytest.mark.contract("X8", safeguard="redact")
def test_a_kill_leaves_no_value_in_what_tasks_have_written(tmp_path: Path) -> None:
    leaks = with_some_nacks(tmp_path / "a").run(kill_at="K7")
    assert leaks.code == -signal.SIGKILL, leaks.err
    assert list((tmp_path / "a" / "state" / "work").rglob("_outcome=dead/*.parquet"))
    assert (leaks.state, leaks.terminal) == ({}, set())
    control = with_some_nacks(tmp_path / "b").run(kill_at="K7", off=("redact",))
    assert {"work", "dead-letters"} <= control.places


REFUSED = {
    "a word of a list": ("", ", compression: '${PLACE}'"),
    "a size": ("", ", target-file-size: '${PLACE}'"),
    "a schema": ("", ", schema: 'id ${PLACE}'"),
    "a path": ("", ", path: '${PLACE}://x'"),
    "a reference to a field": ("{id: d, plugin: json.decode, settings: {field: '${PLACE}'}}", ""),
    "SQL that does not parse": (
        "{id: c, plugin: sql, settings: {field: .Payload.After.y, expression: 'a ${PLACE} b'}}",
        "",
    ),
    "a function that is not there": (f"{DECODE}, {{id: c, plugin: filter, condition: '${{PLACE}}(after.x) > 1'}}", ""),
    "a condition that does not parse": (f"{DECODE}, {{id: c, plugin: filter, condition: 'after.x ${{PLACE}} )'}}", ""),
    "a pattern": (f"{DECODE}, {{id: c, plugin: filter, condition: \"after.x RLIKE '(${{PLACE}}'\"}}", ""),
    "a template": (f"{DECODE}, {{id: c, plugin: filter, condition: '{{{{ ${{PLACE}} .Payload }}}}'}}", ""),
    "a file": (f"{DECODE}, {{id: c, plugin: filter, condition: '${{file:token}}(after.x) > 1'}}", ""),
    "a function of Python": ("{id: c, plugin: python, settings: {function: '${PLACE}'}}", ""),
}


@pytest.mark.contract("X8", safeguard="redact: the control follows")
def test_what_is_refused_before_the_start_is_said_without_values(tmp_path: Path) -> None:
    refused = _refused(tmp_path / "a")
    for command in ("validate", "run"):
        leaks = refused.run(command, str(tmp_path / "a" / "p.yaml"))
        assert leaks.code == 2, leaks.err
        assert _places(refused, leaks) == list(REFUSED), leaks.err
        assert leaks.terminal == set(), leaks.err


@pytest.mark.contract("X8", safeguard="redact")
def test_without_the_safeguard_a_refusal_quotes_the_value(tmp_path: Path) -> None:
    leaks = _refused(tmp_path / "a").run("validate", str(tmp_path / "a" / "p.yaml"), off=("redact",))
    assert leaks.terminal == {"PLACE", "file"}


def _refused(root: Path) -> Pipelines:
    p = Pipelines(root)
    for i, (processors, settings) in enumerate(REFUSED.values()):
        if "path:" in settings:
            p.add(f"p{i}", processors, to="${PLACE}://x")
        else:
            p.add(f"p{i}", processors, settings=settings)
    return p


def _places(refused: Pipelines, leaks: Leaks) -> list[str]:
    """Those that a problem was found in, by the line that it is said to be on."""
    starts = [refused.text[: refused.text.index(f"- id: p{i}\n")].count("\n") + 1 for i in range(len(REFUSED))]
    lines = [int(found) for found in re.findall(r"p\.yaml:(\d+):\d+$", leaks.err, re.MULTILINE)]
    ends = [*starts[1:], 1 << 30]
    return [name for name, a, b in zip(REFUSED, starts, ends, strict=True) if any(a <= n < b for n in lines)]
