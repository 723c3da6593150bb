"""The oracle: what was issued, and what there is of it. It reads with plain tools (json, sqlite, Arrow, clients of the servers) and imports
nothing of Penstock.

A record is a line `<strand>:<number>:<fate>:<padding>`. The fate is what a pipeline of the laboratory has to do with it: `go` on, be
`drop`ped by a filter, be `bad` for a processor, or have `luck`: a function refuses it now and then. Strands are files; within one, numbers
rise.
"""

from __future__ import annotations

import json
import sqlite3
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.log_decoder import decode

PAD = "x" * 24

Chains = list[list[str]]  # lines in the order of whatever keeps an order: a folder, a file, a partition


@dataclass
class Tally:
    """The tester's own record: what was issued, in order, and its fate."""

    fates: dict[str, str] = field(default_factory=dict)

    def issue(self, strand: str, fates: Sequence[str]) -> list[str]:
        """The lines of a new strand."""
        lines = []
        for n, fate in enumerate(fates):
            self.fates[f"{strand}:{n}"] = fate
            lines.append(f"{strand}:{n}:{fate}:{PAD}")
        return lines

    def of(self, fate: str) -> set[str]:
        return {i for i, f in self.fates.items() if f == fate}


@dataclass
class Account:
    """What the engine says of itself, read from its ledger with SQLite alone."""

    read: int = 0
    acked: int = 0
    totals: dict[str, tuple[int, int, int, int]] = field(default_factory=dict)  # delivered, filtered, dead, discarded
    pending: int = 0  # batches that were begun and are not done
    letters: dict[str, int] | None = None  # dead letters that are listed, by destination; '': for all of them

    @classmethod
    def of(cls, state: Path, pipeline: str) -> Account:
        """Of one pipeline; `pending` of all."""
        path = state / "ledger.db"
        if not path.exists():
            return cls()
        db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            sums = "SELECT coalesce(sum(read), 0), coalesce(sum(acked), 0) FROM lane WHERE pipeline = ?"
            read, acked = db.execute(sums, [pipeline]).fetchone()
            sums = "sum(delivered), sum(filtered), sum(dead_lettered), sum(discarded)"
            lanes = "JOIN lane ON lane.id = total.lane WHERE pipeline = ?"
            rows = db.execute(f"SELECT destination, {sums} FROM total {lanes} GROUP BY 1", [pipeline]).fetchall()
            [(pending,)] = db.execute("SELECT count(*) FROM snapshot WHERE state IN ('open', 'prepared')").fetchall()
            lanes = "JOIN lane ON lane.id = nack.lane WHERE pipeline = ?"
            letters = db.execute(f"SELECT destination, count(*) FROM nack {lanes} GROUP BY 1", [pipeline]).fetchall()
        except sqlite3.OperationalError:  # it died before there were tables
            return cls()
        finally:
            db.close()
        return cls(read, acked, {name: tuple(more) for name, *more in rows}, pending, dict(letters))


@dataclass
class Verdict:
    """What is wrong at one destination, each kind with the ids."""

    missing: list[str] = field(default_factory=list)
    duplicated: list[str] = field(default_factory=list)
    invented: list[str] = field(default_factory=list)
    reordered: list[str] = field(default_factory=list)
    corrupted: list[str] = field(default_factory=list)
    wrongly_acked: list[str] = field(default_factory=list)
    account: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not any(vars(self).values())

    def counts(self) -> Counter[str]:
        return Counter({kind.replace("_", " "): len(found) for kind, found in vars(self).items()})

    def __str__(self) -> str:
        found = [f"{len(v)} {kind.replace('_', ' ')}: {', '.join(v[:3])}" for kind, v in vars(self).items() if v]
        return "; ".join(found) or "nothing"


def judge(
    tally: Tally,
    chains: Chains,
    letters: Counter[str],
    account: Account,
    name: str,
    *,
    gone: Collection[str] = (),
    between: Collection[str] = (),
    ordered: bool = True,
    ended: bool = False,
) -> Verdict:
    """One destination. While a campaign goes on, only what was acked must be there; at its end everything, and the account adds up.
    `gone`: strands that the source has put away, as it does with what is acked. `between`: what another place has until it is there."""
    verdict = Verdict()
    found: Counter[str] = Counter()
    for chain in chains:
        last: dict[str, int] = {}
        for line in chain:
            strand, number, fate, pad = line.split(":") if line.count(":") == 3 else ("", "", "", line)
            id_ = f"{strand}:{number}"
            if id_ not in tally.fates or tally.fates[id_] == "drop":
                verdict.invented.append(line[:60])
                continue
            if pad != PAD or fate != tally.fates[id_]:
                verdict.corrupted.append(id_)
            found[id_] += 1
            if int(number) <= last.get(strand, -1) and found[id_] == 1 and ordered:
                verdict.reordered.append(id_)
            last[strand] = int(number)
    settled = found + letters
    verdict.duplicated += [i for i, n in settled.items() if n > 1]
    verdict.invented += [f"dead letter {i}" for i in letters if tally.fates.get(i) not in ("bad", "luck")]
    verdict.invented += [f"bad record {i}" for i in found if tally.fates[i] == "bad"]
    due = [i for i, fate in tally.fates.items() if fate != "drop" and i not in settled]
    acked = set(list(tally.fates)[: account.acked])
    verdict.wrongly_acked = [i for i in due if (i in acked or i.partition(":")[0] in gone) and i not in between]
    if account.letters is not None:
        listed, dead = account.letters.get("", 0) + account.letters.get(name, 0), letters.total()
        if listed < dead or (ended and listed > dead):  # it is listed before it is there
            verdict.account.append(f"{listed} dead letters of {name} are listed, found {dead}")
    if ended:
        verdict.missing = due
        verdict.account += _account(tally, account, name, found.total(), letters.total())
    return verdict


def _account(tally: Tally, account: Account, name: str, found: int, dead: int) -> Iterable[str]:
    issued = len(tally.fates)
    if (account.read, account.acked) != (issued, issued):
        yield f"read {account.read} and acked {account.acked} of {issued}"
    if account.pending:
        yield f"{account.pending} batches are not done"
    wanted = (found, len(tally.of("drop")), dead, 0)
    if (said := account.totals.get(name, (0, 0, 0, 0))) != wanted:
        yield f"{name} says {said}, found {wanted}"


# -- what is there -----------------------------------------------------------------------------------------------------------------------


def line_of(payload: bytes | str | Mapping[str, Any]) -> str:
    """Raw text, or the one column of a payload, as JSON or as an object."""
    if isinstance(payload, Mapping):
        return str(payload["line"])
    text = payload.decode() if isinstance(payload, bytes) else payload
    return str(json.loads(text)["line"]) if text.startswith("{") else text


def in_files(folder: Path) -> Chains:
    """Files in the order of their names are one chain."""
    paths = sorted(p for p in folder.glob("*") if p.is_file() and not p.name.startswith((".", "_")))
    return [[line_of(line) for path in paths for line in path.read_text().splitlines()]]


def in_file(path: Path) -> Chains:
    return [[line_of(line) for line in path.read_text().splitlines()]] if path.exists() else []


def in_queue(folder: Path) -> Chains:
    """By the decoder of 30 lines; records are in entries of their own, or in Arrow's. Behind the last whole entry of the last segment may
    be anything, until the next writer has cut it off."""
    import msgspec
    import pyarrow as pa

    lines: list[str] = []
    paths = sorted(folder.glob("*.seg"))
    for path in paths:
        try:
            for _, _, kind, _, _, _, data in decode(path.read_bytes()):
                if kind == 0:
                    lines.append(line_of(msgspec.msgpack.decode(data)["a"]))
                else:
                    lines += map(line_of, pa.ipc.open_stream(data).read_all()["after"].to_pylist())
        except (ValueError, struct.error):
            if path != paths[-1]:
                raise
    return [lines]


def in_postgres(url: str, table: str) -> Chains:
    import psycopg

    with psycopg.connect(url) as c:
        if c.execute("SELECT to_regclass(%s)", [table]).fetchone() == (None,):
            return []
        return [[line for (line,) in c.execute(f'SELECT line FROM "{table}"').fetchall()]]


def in_delta(folder: Path) -> Chains:
    from tests.support import delta

    return [[str(line) for line in delta.rows(folder, "line")]] if (folder / "_delta_log").exists() else []


def in_kafka(servers: str, topic: str) -> Chains:
    from tests.support import kafka

    chains: dict[int, list[str]] = {}
    for m in kafka.read_committed(servers, topic):
        chains.setdefault(m.partition, []).append(line_of(m.value or b""))
    return list(chains.values())


def dead_letters(state: Path, name: str) -> Counter[str]:
    """The ids of the dead letters that count for a destination. Of a file that can't be read there is one, for the first record."""
    found: Counter[str] = Counter()
    for path in sorted((state / "dead-letters").glob("*/*.parquet")):
        for row in pq.read_table(path).to_pylist():
            if row["destination"] not in ("", name):
                continue
            if row["given"] is None:
                found[f"{Path(row['position'].decode().partition('#')[0]).name.partition('.')[0]}:0"] += 1
            else:
                after = json.loads(row["given"])["after"]
                found[line_of(after.get("text") or after["value"]).rpartition(":")[0].rpartition(":")[0]] += 1
    return found
