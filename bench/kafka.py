"""`kafka` to files: a million records of 150 bytes against Structured Streaming by hand, what waiting costs, and how late a record is.

`python -m bench kafka`, or `python -m bench.kafka SHARE ROUNDS`, or `python -m bench.kafka idle | latency`. A real broker on the same
machine; Spark is started once, and both take turns on it. By hand: `readStream` with `availableNow`, a checkpoint and text files, and
read committed, too. Ours is exactly once, asks Kafka before and after every batch, and accounts for every record.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

RECORDS = 1_000_000
PARTITIONS = 4
WIDTH = 150
TOPICS, EACH = 10, 12  # of the source that waits
SECONDS = 60
RATE = 100  # records a second


def main() -> None:
    throughput()
    idle()
    latency()


def throughput(share: float = 1.0, rounds: int = 5) -> None:
    from penstock.connectors.kafka import jars
    from penstock.engine import session
    from penstock.packages import KAFKA
    from tests.support import kafka

    records = int(RECORDS * share)
    package = KAFKA["4.2"]
    assert package is not None
    broker = kafka.Broker()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as made:
        folder = Path(made)
        spark = session.start(f"local[{os.cpu_count()},4]", {}, folder / "spark.log", packages=[package])
        try:
            jars.complete(spark)
            _fill(broker.servers, records)
            ratios = []
            for n in range(rounds + 1):
                ways = [("penstock", _penstock), ("hand-written", _by_hand)]
                took = {}
                for name, way in ways if n % 2 else ways[::-1]:
                    for left in ("out", "state", "checkpoint"):
                        shutil.rmtree(folder / left, ignore_errors=True)
                    os.sync()
                    started = time.monotonic()
                    way(spark, folder, broker.servers)
                    took[name] = time.monotonic() - started
                    found = sum(p.read_bytes().count(b"\n") for p in (folder / "out").glob("*.txt"))
                    if found != records:
                        raise SystemExit(f"{name}: {found} records instead of {records}")
                ratio = took["hand-written"] / took["penstock"]
                said = ", ".join(f"{name} {s:.2f} s ({records / s / 1e6:.2f} M/s)" for name, s in sorted(took.items()))
                print(f"  {'warm-up' if not n else f'round {n}'}: {said}, speed ratio {ratio:.2f}", flush=True)
                ratios += [ratio] if n else []
            print(f"  kafka to files, {records:,} records: median ratio {statistics.median(ratios):.2f}", flush=True)
        finally:
            spark.stop()
            broker.stop()


def _fill(servers: str, records: int) -> None:
    from tests.support import kafka

    kafka.create_topic(servers, "in", PARTITIONS)
    p = kafka.producer(servers, linger_ms=50, batch_size=1 << 20, acks="all")
    for n in range(PARTITIONS):
        texts = (f"{n}-{i:010d}".ljust(WIDTH, "x").encode() for i in range(n, records, PARTITIONS))
        kafka.send(p, "in", ((b"%d" % n, text) for text in texts), n)
    assert p.flush(120) == 0


def _penstock(spark: Any, folder: Path, servers: str) -> None:
    from penstock.pipeline import Pipeline, run

    p = Pipeline("p").source("in", "kafka", servers=servers, topics="in", start="earliest")
    run([p.destination("out", "files", path=folder / "out")], spark=spark, state=folder / "state").raise_for_error()


def _by_hand(spark: Any, folder: Path, servers: str) -> None:
    stream = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("kafka.isolation.level", "read_committed")
        .option("subscribe", "in")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) value")
        .writeStream.format("text")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    stream.awaitTermination()


# -- waiting -----------------------------------------------------------------------------------------------------------------------------


def idle() -> None:
    from bench.idle import cpu_seconds
    from tests.support import kafka

    broker = kafka.Broker()
    try:
        names = [kafka.create_topic(broker.servers, f"t{n}", EACH) for n in range(TOPICS)]
        kafka.produce(broker.servers, names[0], [b"one line"])
        with tempfile.TemporaryDirectory() as made:
            engine = _engine(Path(made), broker.servers, ",".join(names))
            try:
                _await_lines(Path(made), 1)
                time.sleep(20)  # the JIT compiler is done with what just ran
                before = cpu_seconds(engine.pid)
                time.sleep(SECONDS)
                after = cpu_seconds(engine.pid)
            finally:
                engine.send_signal(signal.SIGTERM)
                engine.wait(60)
        used = sum(after[pid] - before[pid] for pid in after if pid in before)
        what = f"waiting for {TOPICS} topics of {EACH} partitions"
        print(f"  {what}: {100 * used / SECONDS:.2f} % of one core over {SECONDS} s", flush=True)
    finally:
        broker.stop()


def latency() -> None:
    """From `produce` to the moment when the file with the record is there."""
    from tests.support import kafka

    broker = kafka.Broker()
    try:
        kafka.create_topic(broker.servers, "in", PARTITIONS)
        with tempfile.TemporaryDirectory() as made:
            root = Path(made)
            engine = _engine(root, broker.servers, "in")
            try:
                kafka.produce(broker.servers, "in", [b"0"])
                _await_lines(root, 1)
                late = _measured(broker.servers, root)
            finally:
                engine.send_signal(signal.SIGTERM)
                engine.wait(60)
    finally:
        broker.stop()
    late.sort()
    told = ", ".join(
        f"{name} {late[int(len(late) * q)]:.2f} s" for name, q in (("median", 0.5), ("95 %", 0.95), ("99 %", 0.99))
    )
    load = f"load average {os.getloadavg()[0]:.1f}"
    print(
        f"  {RATE} records/s over {SECONDS} s, from produce to file: {told} ({len(late)} records, {load})", flush=True
    )


def _measured(servers: str, root: Path) -> list[float]:
    """After ten seconds for the JIT compiler."""
    from tests.support import kafka

    stop = threading.Event()

    def send() -> None:
        p = kafka.producer(servers, linger_ms=0)
        begin = time.time()
        for n in range((SECONDS + 10) * RATE):
            time.sleep(max(0.0, begin + n / RATE - time.time()))
            p.produce("in", value=f"{time.time():.6f}".encode(), partition=n % PARTITIONS)
            p.poll(0)
        p.flush(30)
        stop.set()

    started = time.time()
    threading.Thread(target=send, daemon=True).start()
    seen: set[str] = {p.name for p in (root / "out").glob("*.txt")}
    late: list[float] = []
    while not stop.is_set() or len(late) < SECONDS * RATE:
        now = time.time()
        for path in (root / "out").glob("*.txt"):
            if path.name not in seen:
                seen.add(path.name)
                times = map(float, path.read_text().split())
                late += [now - sent for sent in times if sent > started + 10]
        if stop.is_set() and now > started + SECONDS + 40:
            raise SystemExit(f"{len(late)} records of {SECONDS * RATE} have come")
        time.sleep(0.01)
    return late


def _engine(root: Path, servers: str, topics: str) -> subprocess.Popen[bytes]:
    source = {"servers": servers, "topics": topics, "start": "earliest"}
    connectors = [
        {"id": "in", "type": "source", "plugin": "kafka", "settings": source},
        {"id": "out", "type": "destination", "plugin": "files", "settings": {"path": str(root / "out")}},
    ]
    (root / "p.yaml").write_text(json.dumps({"version": "2.2", "pipelines": [{"id": "p", "connectors": connectors}]}))
    command = [str(Path(sys.executable).parent / "penstock"), "run", str(root / "p.yaml")]
    return subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)


def _await_lines(root: Path, n: int) -> None:
    until = time.monotonic() + 120
    while sum(p.read_bytes().count(b"\n") for p in (root / "out").glob("*.txt")) < n:
        if time.monotonic() > until:
            raise SystemExit("the engine delivers nothing")
        time.sleep(0.2)


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in ("idle", "latency"):
        {"idle": idle, "latency": latency}[sys.argv[1]]()
    else:
        throughput(*(kind(v) for kind, v in zip((float, int), sys.argv[1:], strict=False)))
