"""Checks of the program itself: how it starts and what it prints."""

from __future__ import annotations

import os
import signal
import subprocess

from penstock_protocol import handshake
from penstock_sdk.testing.bench import Bench
from penstock_sdk.testing.results import Failure, NotChecked, Refused, check


@check("process.handshake")
def handshake_(bench: Bench) -> str | None:
    """The program starts, and the first line on its standard output is the handshake."""
    try:
        bench.run_program()
    except Refused as e:
        raise Failure(
            e.text,
            "the handshake as the first line on standard output",
            "print nothing before it: what is for people goes to standard error",
        ) from e
    return None


@check("process.dialects", "process.handshake")
def dialects(bench: Bench) -> str | None:
    """It speaks the dialect that the host offers, and says the same about itself in each that it speaks."""
    found = {}
    for offered in (2, 1):
        started = bench.run_program([offered])
        if started.dialect == offered:
            found[offered] = bench.specify(started)
    if not found:
        raise Failure(
            "offered dialect 2 alone it speaks 1, and offered 1 alone it speaks 2",
            "a dialect that was offered",
            "choose from PLUGIN_PROTOCOL_VERSIONS, and name the choice in the handshake",
        )
    if len(found) == 2 and found[1] != found[2]:
        raise Failure(
            "its specification in dialect 1 is another one than in dialect 2",
            "the same in both",
            "make both from one declaration; mind that dialect 1 numbers the fields of a parameter differently",
        )
    return "it speaks both dialects" if len(found) == 2 else f"it speaks dialect {next(iter(found))} only"


@check("process.cookie", "process.handshake")
def cookie(bench: Bench) -> str | None:
    """Started by hand, without a host's cookie, it ends with an error and prints no handshake."""
    program = bench.program()
    environment = {name: value for name, value in os.environ.items() if name != handshake.COOKIE}
    do = (
        f"check {handshake.COOKIE} before anything else, say on standard error what the program is for, and exit with 1"
    )
    try:
        ended = subprocess.run(
            program.command,
            env={**environment, **program.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(bench.patience, 10.0),
        )
    except subprocess.TimeoutExpired:
        raise Failure("started by hand it goes on and on", "it ends", do) from None
    first = ended.stdout.decode(errors="replace").partition("\n")[0]
    if ended.returncode == 0 or first.startswith(f"{handshake.CORE}|"):
        raise Failure(f"it ended with {ended.returncode} and printed {first!r}", "an exit code that is not 0", do)
    return None


@check("process.interrupted", "process.handshake")
def interrupted(bench: Bench) -> str | None:
    """SIGINT does not end it: a Ctrl-C in a terminal reaches the host and its plugins alike, and the host decides."""
    started = bench.run_program()
    bench.specify(started)  # some see to signals only when they serve
    started.process.process.send_signal(signal.SIGINT)
    try:
        bench.specify(started)
    except Refused as e:
        raise Failure(f"after SIGINT it is gone: {e.text}", "it answers as before", "ignore SIGINT") from e
    return None


@check("process.logs", "process.handshake")
def logs(bench: Bench) -> str | None:
    """What it writes to standard error are JSON lines with `@level` and `@message`."""
    started = bench.run_program()
    for role in bench.roles()[:1]:
        run = bench.source(started) if role == "source" else bench.destination(started)
        try:
            run.configure(bench.given[role] or {})
        except Refused:  # then it has something to say
            pass
        run.teardown()
    started.end()
    if plain := started.process.plain:
        raise NotChecked(f"it writes text without a level, which hosts take for debugging: {plain[0][:100]!r}")
    return None
