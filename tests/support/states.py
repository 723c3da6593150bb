"""State folders as an engine leaves them, without Spark: the real ledger and lock, and dead letters that its own code has written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.engine import aside
from penstock.engine.batch.context import Work
from penstock.engine.batch.deadletter import DeadLetters, Letter
from penstock.engine.frontier import frontier
from penstock.engine.lock import StateFolder
from penstock.ledger import Kind, Ledger, NackState, Prepared, Snapshot
from penstock.native import DeliveryId
from penstock.ranges import Range, Ranges

AT = 1_700_000_000_000  # 2023-11-14T22:13:20Z


def letter(seq: int, destination: str = "", source: str = "in", **changes: Any) -> Letter:
    """A line that is no JSON, unless told otherwise."""
    given = changes.pop("given", {"after": {"text": f"line {seq}"}})
    fields = {"node": "decode", "code": "json.invalid", "error": "the payload is not JSON", "form": given, **changes}
    part = fields.pop("part", 0)
    position = fields.pop("position", f"/in/a.jsonl#{seq}".encode())
    dead = aside.Dead(seq, part, at=AT + seq, given=given, **fields)
    return Letter(source, destination, position, {"penstock.file": "/in/a.jsonl"}, dead)


class State:
    """A state folder; the ledger stays open until `close`."""

    def __init__(self, path: Path, pipeline: str = "orders", source: str = "in") -> None:
        self.path, self.pipeline, self.source = path, pipeline, source
        self.folder = StateFolder(path)
        self.folder.open()
        self.ledger = Ledger(self.folder.ledger)

    def close(self) -> None:
        self.ledger.close()
        self.folder.close()

    def take(self) -> Snapshot:
        lane = self.ledger.lane(self.pipeline, self.source)
        base = lane.known.next_seq
        return self.ledger.take(lane, Ranges((Range(f"/in/{base}", {"to": 9}, base, 9),), base + 100))[0]

    def batch(
        self,
        records: int,
        letters: Sequence[Letter] = (),
        destinations: Sequence[str] = ("out",),
        *,
        filtered: int = 0,
        produced: int = 0,
        done: Sequence[str] | None = None,
    ) -> Snapshot:
        """A batch from its snapshot to its end; or with only some destinations `done`."""
        s = self.take()
        dead = {d: len({x.key[:2] for x in letters if x.destination in ("", d)}) for d in destinations}
        deliveries = [
            Prepared(d, f"hash {d}", "files", {}, {}, filtered, produced=produced, nacked=dead[d]) for d in destinations
        ]
        keeper = DeadLetters(
            cast(Work, SimpleNamespace(state=self.path, lane=self.ledger.lane(self.pipeline, self.source)))
        )
        name = DeliveryId(
            self.pipeline, self.source, "dead-letters", s.batch, f"{s.batch:032x}", self.ledger.fence, s.epoch
        )
        staged = keeper.write_letters(name, "attempt", letters) if letters else None
        if staged:
            deliveries.append(Prepared("dead-letters", name.hash, "", {}, staged.to_json(), 0, kind=Kind.DEAD_LETTERS))
        self.ledger.prepare(s, records, deliveries, [x.nack() for x in letters])
        for d in destinations if done is None else done:
            self.ledger.done(s, d, {}, records + produced - filtered - dead[d], frontier)
        if staged and done is None:
            keeper.commit(name, staged, cast(Any, None))
            self.ledger.done(s, "dead-letters", {}, len(letters), frontier)
        return s

    def hold(self, held: Letter) -> Snapshot:
        s = self.take()
        self.ledger.hold(s, held.nack(state=NackState.HELD, record=held.json()))
        return s


def penstock(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The real command."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("penstock")), *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
    )


def terminal(folder: Path, *arguments: str, columns: int = 80) -> str:
    """What the real command writes on a terminal of so many columns."""
    import fcntl
    import pty
    import struct
    import termios

    main, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    command = [str(Path(sys.executable).with_name("penstock")), *arguments]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=terminal, stderr=terminal) as child:
        os.close(terminal)
        said = b""
        while True:
            try:
                part = os.read(main, 65536)
            except OSError:  # the last one has closed it
                break
            if not part:
                break
            said += part
        child.wait()
    os.close(main)
    return said.decode().replace("\r\n", "\n")


def bytes_of(folder: Path) -> dict[str, bytes]:
    """Every file; a change of any is seen. SQLite's `-shm` holds locks and an index that is made anew, and no data."""
    return {
        str(path.relative_to(folder)): b"" if path.name.endswith("-shm") else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
