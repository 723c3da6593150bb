"""Readers' offsets on a real log, with real kills: what is acked, what is redelivered, and how large the file gets.

The oracle reads the file with `json` alone and knows which records the log has because the tests wrote them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.log.offsets import Offsets
from penstock.log.writer import Writer
from penstock.testing import faults
from penstock_sdk.record import Record

pytestmark = pytest.mark.thorough  # left out of the fast loop

NEVER = 1e9
Named = Sequence[str]  # the namespace of each offset


def write_log(folder: Path, namespaces: Named) -> None:
    with Writer(folder) as writer:
        writer.append([Record(b"%d" % n, namespace=name) for n, name in enumerate(namespaces)])


def in_file(folder: Path) -> dict[str, Any]:
    readers: dict[str, Any] = json.loads((folder / "offsets").read_bytes().split(b"\n", 1)[1])
    return readers


def redelivered(folder: Path, reader: str, namespaces: Named) -> set[int]:
    """What a process that starts now has to send again."""
    state = in_file(folder)[reader]
    acked = {o for first, end in state["ranges"] for o in range(first, end)}
    return {
        offset
        for offset, name in enumerate(namespaces)
        if offset >= state["frontier"] and offset > state["namespaces"].get(name, -1) and offset not in acked
    }


def run_killed(code: str, *arguments: object) -> list[str]:
    """Runs a child that kills itself; returns the lines it wrote."""
    command = [sys.executable, "-c", PRELUDE + code, *(str(a) for a in arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    return ended.stdout.splitlines()


PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from penstock.log.offsets import Offsets, load
from penstock.testing import faults

folder, off = Path(sys.argv[1]), [name for name in sys.argv[2].split(",") if name]
faults.install(off=off)

def die():
    os.kill(os.getpid(), signal.SIGKILL)
"""

# -- T8 ---------------------------------------------------------------------------------------------------------------

# Offsets 1, 2, 4 are for `one`; 1, 3, 5, 7 for `two`.
FILTERED = ["nobody", "both", "ones", "twos", "ones", "twos", "nobody", "twos"]


def ack_filtered(offsets: Offsets) -> None:
    for reader in ("one", "two"):
        offsets.register(reader, 1)
    offsets.ack("one", 1)
    offsets.ack("two", [1, 3])
    offsets.ack("one", [4, 2])
    offsets.ack("two", 7)
    offsets.ack("two", 5)


@pytest.mark.contract("T8", safeguard="offset-forward")
def test_every_reader_has_offsets_of_its_own_and_they_never_go_back(tmp_path: Path) -> None:
    one, two = {"both": 1, "ones": 4}, {"both": 1, "twos": 7}
    for name, off in (("kept", ()), ("control", ("offset-forward",))):
        folder = tmp_path / name
        write_log(folder, FILTERED)
        faults.install(off=off)
        with Offsets(folder, flush_interval=NEVER) as offsets:
            ack_filtered(offsets)
            assert offsets.effective("one") == one
            assert offsets.effective("two") == two
        assert {1, 2, 4} == set(range(1, 8)) - redelivered(folder, "one", FILTERED)
        assert {1, 3, 5, 7} == set(range(1, 8)) - redelivered(folder, "two", FILTERED)

        with Offsets(folder, flush_interval=NEVER) as offsets:
            offsets.ack("one", 2)  # older than what was acked before
            offsets.ack_through("one", 2, "ones")
            offsets.ack_through("one", 1)
            assert (offsets.effective("one") == one) == (name == "kept")
            assert offsets.effective("two") == two
        with Offsets(folder) as again:
            assert (again.effective("one") == one) == (name == "kept")
        assert (4 in redelivered(folder, "one", FILTERED)) == (name == "control")


@pytest.mark.contract("T8", safeguard="offset-forward")
def test_a_process_with_an_older_view_does_not_set_a_reader_back(tmp_path: Path) -> None:
    for name, off in (("kept", ()), ("control", ("offset-forward",))):
        folder = tmp_path / name
        write_log(folder, ["a"] * 10)
        faults.install(off=off)
        old, new = Offsets(folder, flush_interval=NEVER), Offsets(folder, flush_interval=NEVER)
        old.ack("r", 0)
        new.ack("r", range(8))
        new.close()
        old.close()
        assert redelivered(folder, "r", ["a"] * 10) == (set(range(8, 10)) if name == "kept" else set(range(1, 10)))


GAP = """
offsets = Offsets(folder, flush_interval=1e9)
offsets.ack("r", [0, 1, 2, 4, 5, 6])
offsets.flush()
die()
"""


@pytest.mark.crash
@pytest.mark.contract("T8", safeguard="offset-prefix")
def test_a_record_that_was_not_acked_is_redelivered_although_later_ones_were(tmp_path: Path) -> None:
    for name, off in (("kept", ""), ("control", "offset-prefix")):
        folder = tmp_path / name
        write_log(folder, "AAAAAAA")
        run_killed(GAP, folder, off)
        assert redelivered(folder, "r", "AAAAAAA") == ({3} if name == "kept" else set())
        with Offsets(folder) as again:
            assert again.effective("r") == {"A": 2 if name == "kept" else 6}


# -- T9 ---------------------------------------------------------------------------------------------------------------

# A bulk writer. While a bulk is being written two more messages arrive: 4, which was held up on its way, and 6.
BULK = """
offsets = Offsets(folder, flush_interval=1e9)
bulk, following = [0, 1, 2, 3, 5], []

def write(messages):
    following.extend([4, 6])

write(bulk)
offsets.ack("r", bulk)
offsets.flush()
print(*following)
die()
"""


@pytest.mark.crash
@pytest.mark.contract("T9", safeguard="offset-members")
def test_what_joins_while_a_bulk_is_in_flight_is_redelivered_after_a_kill(tmp_path: Path) -> None:
    for name, off in (("kept", ""), ("control", "offset-members")):
        folder = tmp_path / name
        write_log(folder, "AAAAAAA")
        (joined,) = run_killed(BULK, folder, off)
        missing = {int(o) for o in joined.split()} - redelivered(folder, "r", "AAAAAAA")
        assert missing == (set() if name == "kept" else {4})
        assert redelivered(folder, "r", "AAAAAAA") <= {4, 6}


DURING = """
offsets = Offsets(folder, flush_interval=1e9)
offsets.register("r")

def hook(point, detail):
    if detail.endswith(".offsets.tmp"):
        faults.install()
        offsets.ack("r", 4)

faults.install(hook)
offsets.ack("r", [0, 1, 2, 3])
offsets.flush()
print(offsets.pending("r"))
if sys.argv[3] == "flushed":
    offsets.flush()
die()
"""


@pytest.mark.crash
@pytest.mark.contract("T9", reason="the same without the kill before its own flush is the control")
@pytest.mark.parametrize("when", ["before", "flushed"])
def test_an_ack_during_a_flush_counts_from_its_own_flush_on(tmp_path: Path, when: str) -> None:
    write_log(tmp_path, "AAAAAAA")
    assert run_killed(DURING, tmp_path, "", when) == ["5"]
    assert redelivered(tmp_path, "r", "AAAAAAA") == ({4, 5, 6} if when == "before" else {5, 6})


# -- T11 --------------------------------------------------------------------------------------------------------------

# A record is acked every tenth of a second of a clock that this process moves itself; it dies 4.9 s after a flush.
EVERY_TENTH = """
now = 0
offsets = Offsets(folder, flush_interval=5, clock=lambda: now / 10)
offsets.register("r")
for now in range(100):
    offsets.ack("r", now)
    print(now, flush=True)
    while now == 50 and not off and load(folder)["r"].frontier <= now:
        time.sleep(0.005)
die()
"""


@pytest.mark.crash
@pytest.mark.contract("T11", safeguard="offset-flush")
def test_a_kill_costs_the_acks_of_one_flush_interval_and_no_record(tmp_path: Path) -> None:
    names = ["A"] * 120
    for name, off in (("kept", ""), ("control", "offset-flush")):
        folder = tmp_path / name
        write_log(folder, names)
        acked = {int(line) for line in run_killed(EVERY_TENTH, folder, off)}
        assert acked == set(range(100))
        again = redelivered(folder, "r", names)
        assert again >= set(range(120)) - acked  # no record is lost
        in_the_last_five_seconds = {tenth for tenth in acked if tenth >= 99 - 50}
        assert (again & acked <= in_the_last_five_seconds) == (name == "kept")


@pytest.mark.contract("T11", reason="a default has no safeguard")
def test_the_default_interval_is_a_second(tmp_path: Path) -> None:
    assert Offsets(tmp_path).flush_interval == 1.0


# -- T19 --------------------------------------------------------------------------------------------------------------

MILLION = 1_000_000


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("million") / "log"
    batch = pa.RecordBatch.from_pydict({"n": pa.array(range(1000), pa.int64())})
    with Writer(folder) as writer:
        for n in range(MILLION // 1000):
            writer.append_batch(batch, "ABC"[n % 3])
    return folder


@pytest.fixture
def fresh(million: Path) -> Path:
    (million / "offsets").unlink(missing_ok=True)
    return million


@pytest.mark.contract("T19", reason="the control is the test with gaps")
def test_a_million_acks_leave_a_small_file_that_says_the_same_after_a_restart(fresh: Path) -> None:
    with Offsets(fresh) as offsets:
        for offset in range(MILLION):
            offsets.ack("r", offset)
        before = offsets.effective("r")
    assert before == {"A": MILLION - 1, "B": MILLION - 2000 - 1, "C": MILLION - 1000 - 1}
    assert (fresh / "offsets").stat().st_size < 1000
    with Offsets(fresh) as again:
        again.register("r")
        assert again.effective("r") == before
        assert again.pending("r") is None


@pytest.mark.contract("T19", safeguard="offset-bound")
def test_the_file_stays_small_when_every_second_record_is_never_acked(fresh: Path) -> None:
    with Offsets(fresh) as offsets:
        for offset in range(0, MILLION, 2):
            offsets.ack("r", offset)
        before = offsets.effective("r")
    assert before == {"A": 0, "B": 1000, "C": 2000}
    assert (fresh / "offsets").stat().st_size < MILLION
    with Offsets(fresh) as again:
        again.register("r")
        assert again.effective("r") == before
        assert again.pending("r") == 1
        assert again.lag("r") >= MILLION // 2  # what was dropped comes again, nothing is lost

    faults.install(off=("offset-bound",))
    with Offsets(fresh) as control:
        control.ack("r", range(0, MILLION, 2))
    assert (fresh / "offsets").stat().st_size > MILLION


# The keys of the seed's picture: 0 … 16 in the closed segment, 17 … 27 in the active one.
PICTURE = "AABBAABBCACBAACBA" + "AABBAABBCAC"
PICTURE_ACKS = [(1, "A"), (8, "A"), (1, "B"), (3, "C"), (13, "A"), (12, "B"), (9, "C"), (26, "A"), (23, "B"), (27, "C")]


@pytest.mark.contract("T19", safeguard="offset-forward")
def test_the_picture_of_the_seed_leaves_one_offset_per_key(tmp_path: Path) -> None:
    for name, off in (("kept", ()), ("control", ("offset-forward",))):
        folder = tmp_path / name
        write_log(folder, PICTURE)
        faults.install(off=off)
        with Offsets(folder, flush_interval=NEVER) as offsets:
            for offset, key in PICTURE_ACKS:
                offsets.ack_through("c0", offset, key)
                offsets.flush()
            picture = {"A": 26, "B": 23, "C": 27}
            assert offsets.effective("c0") == picture
            assert in_file(folder)["c0"]["namespaces"] == picture
            offsets.ack_through("c0", 9, "C")
        with Offsets(folder) as again:
            again.register("c0")
            assert (again.effective("c0") == picture) == (name == "kept")
            if name == "kept":
                assert (again.pending("c0"), again.lag("c0")) == (24, 1)
