"""Checks of how the program ends. They come last: a connector that hangs in a call has failed by name before."""

from __future__ import annotations

import signal
import subprocess

from penstock_protocol import client
from penstock_protocol.process import GRACE
from penstock_sdk.testing.bench import Bench
from penstock_sdk.testing.results import Failure, check
from penstock_sdk.testing.subjects import KNOWS_PROCESSES, Running


@check("process.ends", "process.handshake", "source.teardown-early", "destination.teardown-early")
def ends(bench: Bench) -> str | None:
    """After Teardown and Shutdown it ends by itself, with 0, and leaves no process behind."""
    bench.program()
    for role in bench.roles():
        started = bench.run_program()
        if (settings := bench.given[role]) is not None:
            run = bench.source(started) if role == "source" else bench.destination(started)
            run.configure(settings)
            run.teardown()
        client.shut_down(started.process.channel, GRACE)
        _ended(started, "Shutdown", "end the server when Shutdown is called, and wait for no thread that may hang")
        if started.process.process.returncode != 0:
            raise Failure(
                f"it ended with {started.process.process.returncode}",
                "0 after Shutdown",
                "look at what it logs at its end",
            )
        _alone(started)
    return None


@check("process.terminated", "process.handshake")
def terminated(bench: Bench) -> str | None:
    """SIGTERM ends it."""
    started = bench.run_program()
    started.process.process.send_signal(signal.SIGTERM)
    _ended(started, "SIGTERM", "do not catch SIGTERM, or end when it comes")
    return None


def _ended(started: Running, after: str, do: str) -> None:
    try:
        started.process.process.wait(GRACE)
    except subprocess.TimeoutExpired:
        raise Failure(f"{GRACE:g} seconds after {after} it is still there", "it ends", do) from None


def _alone(started: Running) -> None:
    if KNOWS_PROCESSES and (left := started.left()):
        raise Failure(
            f"it has ended and left {len(left)} process(es) behind: {', '.join(map(str, left))}",
            "what it starts ends with it",
            "end and wait for what it has started, in Teardown at the latest",
        )
