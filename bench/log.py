"""The commit log: append and read back, beside the same bytes written plainly to the same disk; memory; opening after a kill.

`python -m bench log`, or `python -m bench.log RECORDS ROUNDS GIB`. It works in a folder below the current one, which has to be on a
real disk. The machine may be busy, so speeds come with the CPU time of a record, which hardly depends on that.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import count, cycle, islice, pairwise
from pathlib import Path
from typing import Literal

import pyarrow as pa

from penstock.log import Reader, Rows, Writer, batches
from penstock_sdk.record import Record

BATCH = 1000
PAYLOAD = 150
DIFFERENT = 16  # batches that are made; they are appended again and again
INTERVAL = 0.05
TIME_ALONE = 1 << 60  # bytes after which a commit is due: never, the interval alone decides
DEFAULT = 8 << 20
LOOK = 200_000_000  # bytes between two looks at the memory


@dataclass(frozen=True)
class Case:
    name: str
    batches: Sequence[pa.RecordBatch]
    commit_bytes: int = TIME_ALONE
    compression: Literal["zstd"] | None = None


@dataclass(frozen=True)
class Run:
    records: int
    size: int  # bytes of the files
    seconds: float
    cpu: float

    def __str__(self) -> str:
        speed = f"{self.rate:5.2f} M records/s, {self.size / self.seconds / 1e6:5,.0f} MB/s"
        return f"{speed}, CPU {self.cpu_each:.3f} µs a record"

    @property
    def rate(self) -> float:
        return self.records / self.seconds / 1e6

    @property
    def cpu_each(self) -> float:
        return self.cpu / self.records * 1e6


def main(records: int = 5_000_000, rounds: int = 5, gib: float = 2.0) -> None:
    with tempfile.TemporaryDirectory(dir=Path.cwd(), prefix=".bench-log-") as folder:
        root = Path(folder)
        throughput(root, records, rounds)
        objects(root / "objects", rounds)
        for size in (1 << 30, 64 << 20):
            print(f"  memory over {gib} GiB, segments of {size >> 20} MiB (MB, every {LOOK // 10**6} MB)", flush=True)
            subprocess.run([*child("memory", root / "memory"), str(gib), str(size)], check=True)
            shutil.rmtree(root / "memory")
        opening(root / "opening", gib)


# -- speed ----------------------------------------------------------------------------------------------------------------


def throughput(root: Path, records: int, rounds: int) -> None:
    full = columns()
    lean = [batch.select(["after"]) for batch in full]
    cases = (
        Case("full", full),
        Case("lean", lean),
        Case("full, 8 MiB", full, commit_bytes=DEFAULT),
        Case("full, zstd", full, compression="zstd"),
    )
    print(f"  full: {', '.join(full[0].schema.names)}; lean: after alone; {records:,} records in batches of {BATCH:,}")
    print(f"  fsync every {INTERVAL * 1000:.0f} ms; '8 MiB': or after so many bytes, the default", flush=True)
    runs: dict[str, list[Run]] = {}
    for n in range(rounds):
        print(f"  round {n + 1} of {rounds}, load average {os.getloadavg()[0]:.2f}", flush=True)
        for case in cases if n % 2 == 0 else cases[::-1]:
            for name, run in one_round(root, case, records, log_first=n % 2 == 0):
                runs.setdefault(name, []).append(run)
                print(f"    {name}: {run}", flush=True)
    summary(runs)


def one_round(root: Path, case: Case, records: int, *, log_first: bool) -> Iterator[tuple[str, Run]]:
    """The log and the yardstick in turn; to remove the files is in neither's time. With zstd there is no yardstick: it would not have to
    make the bytes that it writes."""
    for log in (log_first, not log_first):
        os.sync()
        if log:
            yield f"log   {case.name}", timed(records, lambda: append(root / "log", case, records))
            yield from reading(root / "log", case, records, log_first=log_first)
            shutil.rmtree(root / "log")
        elif case.compression is None:
            plainly = partial(write_plainly, root / "plain", entries(root / "sample", case), records, case.commit_bytes)
            yield f"plain {case.name}", timed(records, plainly)
            (root / "plain").unlink()


def reading(folder: Path, case: Case, records: int, *, log_first: bool) -> Iterator[tuple[str, Run]]:
    for log in (log_first, not log_first):
        out_of_cache(folder)
        if log:
            yield f"log   {case.name}, read cold", timed(records, lambda: read(folder, records))
            yield f"log   {case.name}, read warm", timed(records, lambda: read(folder, records))
        elif case.compression is None:
            yield f"plain {case.name}, read cold", timed(records, lambda: read_plainly(folder))


def summary(runs: Mapping[str, Sequence[Run]]) -> None:
    print("  medians (demanded: append 1 M records/s or 70 % of plain, read 3 M records/s)", flush=True)
    for name, found in runs.items():
        rates = [run.rate for run in found]
        text = f"    {name}: {statistics.median(rates):.2f} M records/s ({min(rates):.2f} to {max(rates):.2f})"
        text += f", CPU {statistics.median(run.cpu_each for run in found):.3f} µs"
        plain = runs.get(name.replace("log  ", "plain")) if name.startswith("log") else None
        if plain is not None:
            pairs = zip(found, plain, strict=True)
            text += f", {statistics.median(100 * log.rate / other.rate for log, other in pairs):.0f} % of plain"
        print(text, flush=True)


def timed(records: int, work: Callable[[], int]) -> Run:
    """`work` gives the bytes of its files."""
    started, cpu = time.monotonic(), time.process_time()
    size = work()
    return Run(records, size, time.monotonic() - started, time.process_time() - cpu)


def append(folder: Path, case: Case, records: int) -> int:
    with Writer(
        folder, commit_interval=INTERVAL, commit_bytes=case.commit_bytes, compression=case.compression
    ) as writer:
        for batch in islice(cycle(case.batches), records // BATCH):
            writer.append_batch(batch)
        writer.commit()
        return writer.size


def read(folder: Path, records: int) -> int:
    """Every row as Arrow. Checksums are checked on the way, so every byte is looked at."""
    rows = size = 0
    with Reader(folder) as reader:
        for found in reader.read(0):
            assert isinstance(found, Rows)
            rows += found.count
            size += found.rows.column("after").buffers()[2].size
    if rows != records or size < rows * PAYLOAD:
        raise SystemExit(f"{rows} rows and {size} bytes of payloads instead of {records} and {records * PAYLOAD}")
    return size_of(folder)


def entries(folder: Path, case: Case) -> list[bytes]:
    """The bytes of some entries as a writer leaves them: what the yardstick writes, again and again."""
    with Writer(folder, compression=case.compression) as writer:
        places = [writer.size]
        for batch in case.batches:
            writer.append_batch(batch)
            places.append(writer.size)
        content = next(folder.glob("*.seg"))
        writer.commit()
        data = content.read_bytes()
    shutil.rmtree(folder)
    return [data[start:end] for start, end in pairwise(places)]


def write_plainly(path: Path, chunks: Sequence[bytes], records: int, commit_bytes: int) -> int:
    """The yardstick: nothing but write, and a thread that calls fsync when the writer of a log would."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    due = threading.Event()
    written = synced = 0
    ended = False

    def sync() -> None:
        nonlocal synced
        started = time.monotonic()
        while not ended:
            due.wait(max(0.0, started + INTERVAL - time.monotonic()))
            due.clear()
            started, reached = time.monotonic(), written
            os.fsync(fd)
            synced = reached

    thread = threading.Thread(target=sync)
    thread.start()
    for chunk in islice(cycle(chunks), records // BATCH):
        if os.write(fd, chunk) != len(chunk):
            raise SystemExit("the disk is full")
        written += len(chunk)
        if written - synced >= commit_bytes:
            due.set()
    ended = True
    due.set()
    thread.join()
    os.fsync(fd)
    os.close(fd)
    return written


def read_plainly(folder: Path) -> int:
    """The yardstick: every byte once into the same memory, and not looked at."""
    room = bytearray(1 << 20)
    size = 0
    for path in sorted(folder.glob("*.seg")):
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(room):
                size += got
    return size


def out_of_cache(folder: Path) -> None:
    """The next reader has to go to the disk."""
    os.sync()
    for path in folder.glob("*.seg"):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


# -- what is appended -----------------------------------------------------------------------------------------------------


def lists() -> Iterator[list[Record]]:
    """Lists of records with a payload of JSON that zstd can make smaller, but not to nothing."""
    numbers = random.Random(1)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    for first in count(step=BATCH):
        made = []
        for n in range(first, first + BATCH):
            text = f'{{"id": "{n:08d}", "amount": {numbers.randrange(10**6)}, "region": "eu", "note": "'
            text += f"{numbers.getrandbits(240):060x}".ljust(PAYLOAD - len(text) - 2, "x") + '"}'
            made.append(Record(text.encode(), position=n.to_bytes(8, "big"), operation="update", timestamp=at))
        yield made


def columns() -> list[pa.RecordBatch]:
    return [batches.to_arrow(made) for made in islice(lists(), DIFFERENT)]


def objects(folder: Path, rounds: int, total: int = 200_000) -> None:
    """For comparison: records as objects, in lists and one by one, there and back."""
    made = list(islice(lists(), total // BATCH))
    few = made[: len(made) // 10]
    runs: dict[str, list[Run]] = {}
    for _ in range(rounds):
        for name, size, given in (("in lists of 1,000", BATCH, made), ("one by one", 1, few)):
            records = len(given) * BATCH
            appended = timed(records, partial(append_objects, folder, given, size))
            back = timed(records, partial(read_objects, folder, records))
            runs.setdefault(f"append {name}", []).append(appended)
            runs.setdefault(f"read what was appended {name}", []).append(back)
            shutil.rmtree(folder)
    for name, found in runs.items():
        rate, cpu = (statistics.median(values) for values in zip(*((r.rate, r.cpu_each) for r in found), strict=True))
        print(f"  objects, {name}: {1e6 * rate:,.0f} records/s, CPU {cpu:.2f} µs a record", flush=True)


def append_objects(folder: Path, given: Sequence[list[Record]], size: int) -> int:
    with Writer(folder, commit_interval=INTERVAL) as writer:
        for records in given:
            for at in range(0, BATCH, size):
                writer.append(records[at : at + size])
        writer.commit()
        return writer.size


def read_objects(folder: Path, records: int) -> int:
    with Reader(folder) as reader:
        found = sum(len(rows.records()) for rows in reader.read(0) if isinstance(rows, Rows))
    if found != records:
        raise SystemExit(f"{found} records instead of {records}")
    return size_of(folder)


# -- memory ---------------------------------------------------------------------------------------------------------------


def memory(folder: Path, gib: float, segment_bytes: int) -> None:
    """In a process of its own. Pages of mapped files are the page cache's; they count as the process's while it has them mapped."""
    made = columns()
    total = int(gib * (1 << 30))
    looks = [resident()]
    with Writer(folder, segment_bytes=segment_bytes) as writer:
        for batch in cycle(made):
            writer.append_batch(batch)
            if writer.size >= len(looks) * LOOK:
                looks.append(resident())
            if writer.size >= total:
                break
    show("writing", looks)
    looks, done = [resident()], 0
    with Reader(folder) as reader:
        for found in reader.read(0):
            assert isinstance(found, Rows)
            done += found.rows.nbytes
            if done >= len(looks) * LOOK:
                looks.append(resident())
    show("reading", looks)


def resident() -> dict[str, float]:
    """The memory of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kib = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("Rss", "VmRSS"))}
    names = {"all": "VmRSS", "private": "RssAnon", "mapped files": "RssFile"}
    return {name: kib[field] * 1024 / 1e6 for name, field in names.items()}


def show(what: str, looks: Sequence[Mapping[str, float]]) -> None:
    for name in looks[0]:
        print(f"    {what}, {name}: {' '.join(f'{look[name]:.0f}' for look in looks)}", flush=True)


# -- opening --------------------------------------------------------------------------------------------------------------


def opening(folder: Path, gib: float) -> None:
    """After a kill, when the active segment is nearly full: with its index, and without."""
    writer = subprocess.Popen(child("fill", folder))
    try:
        while size_of(folder) < gib * (1 << 30) - (64 << 20):
            if writer.poll() is not None:
                raise SystemExit("the process that fills the log has ended")
            time.sleep(0.01)
    finally:
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    size = size_of(folder)
    for what in ("with its index", "without"):
        if what == "without":
            for path in folder.glob("*.index"):
                path.unlink()
        print(f"  opening {size / 1e9:.2f} GB after a kill, {what}:", flush=True)
        for opened in (open_reader, open_writer):
            started = time.monotonic()
            found = opened(folder)
            print(f"    {found}: {1000 * (time.monotonic() - started):.1f} ms", flush=True)


def fill(folder: Path) -> None:
    with Writer(folder) as writer:
        for batch in cycle(columns()):
            writer.append_batch(batch)


def open_reader(folder: Path) -> str:
    """And reads the last record."""
    with Reader(folder) as reader:
        end = reader.end
        next(reader.read(end - 1))
        return f"reader, {end:,} records"


def open_writer(folder: Path) -> str:
    with Writer(folder) as writer:
        return f"writer, {writer.end:,} records, {writer.recovered.cut:,} bytes cut off"


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.seg"))


def child(what: str, folder: Path) -> list[str]:
    return [sys.executable, "-m", "bench.log", what, str(folder)]


if __name__ == "__main__":
    if sys.argv[1] == "memory":
        memory(Path(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1] == "fill":
        fill(Path(sys.argv[2]))
    else:
        main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
