"""`python -m bench [NAME…]` runs the benchmarks named, or all. Results are printed; nothing is asserted."""

from __future__ import annotations

import sys

from bench import (
    backpressure,
    chain,
    decode,
    fanout,
    formats,
    guarantee,
    hosted,
    hosted_destination,
    idle,
    kafka,
    kafka_out,
    log,
    postgres,
    processors,
    protocol,
    python,
    scale,
    start,
    text,
    trace,
)

BENCHMARKS = {
    "start": start.main,
    "text": text.main,
    "formats": formats.main,
    "decode": decode.main,
    "chain": chain.main,
    "processors": processors.main,
    "python": python.main,
    "fanout": fanout.main,
    "scale": scale.main,
    "idle": idle.main,
    "log": log.main,
    "protocol": protocol.main,
    "hosted": hosted.main,
    "hosted_destination": hosted_destination.main,
    "postgres": postgres.main,
    "kafka": kafka.main,
    "kafka-out": kafka_out.main,
    "trace": trace.main,
    "guarantee": guarantee.main,
    "backpressure": backpressure.main,
}

for name in sys.argv[1:] or BENCHMARKS:
    print(f"== {name}: {(sys.modules['bench.' + name].__doc__ or '').splitlines()[0]}", flush=True)
    BENCHMARKS[name]()
