"""The crash laboratory: `python -m tests.lab`, or `make crash [N=200] [SEED=…] [DEST=…]`.

It builds pipelines over every destination, kills what they are made of, and looks with plain tools at what has become of each record. It
ends with 1 if anything was wrong, or if a build that is broken on purpose was not found out.
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tests.lab import controls, report, work
from tests.lab.campaign import Found
from tests.lab.report import Control
from tests.lab.work import Piece

ROOT = Path(__file__).parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument(
        "--seed", type=int, default=None, help="of everything that is drawn; a new one if it is not given"
    )
    parser.add_argument("--dest", default="", help=f"only these, separated by commas: {', '.join(work.SHARES)}")
    parser.add_argument("--jobs", type=int, default=2, help="workers, each with a Spark of its own")
    parser.add_argument("--controls", choices=["yes", "no", "only"], default="yes")
    parser.add_argument(
        "--root", type=Path, default=Path("/tmp/penstock-lab"), help="left there: the folders of what failed"
    )
    parser.add_argument("--report", type=Path, help="a file for the page that is printed")
    given = parser.parse_args(arguments)
    only = [name for name in given.dest.split(",") if name]
    if unknown := set(only) - work.SHARES.keys():
        parser.error(f"there is no {', '.join(sorted(unknown))}; there are {', '.join(work.SHARES)}")
    seed = random.SystemRandom().randrange(1_000_000) if given.seed is None else given.seed
    command = f"make crash N={given.kills} SEED={seed}{f' DEST={given.dest}' if only else ''}"
    print(f"{command}: kill after kill, about four seconds each. What fails is left in {given.root}.", flush=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began = time.monotonic()
    proofs = broken(seed, only) if given.controls != "no" else []
    pieces = work.pieces(given.kills, seed, only) if given.controls != "only" else []
    founds: dict[Piece, Found] = {}
    try:
        for result in labour([*pieces, *proofs], given.root, given.jobs):
            founds.update([result])
    except KeyboardInterrupt:
        left = sum(piece not in founds for piece in [*pieces, *proofs])
        command += f" (interrupted: {left} campaigns are not in here)"
    named = [Control(_broken(p), p.scene, founds[p]) for p in proofs if p in founds]
    if proofs and not only:
        named += [Control(f"without `{name}`", "", None, test) for name, test in controls.others().items()]
    clean = [founds[piece] for piece in pieces if piece in founds]
    page = report.page(command, clean, named, (time.monotonic() - began) / 60)
    print(page)
    if given.report:
        given.report.write_text(page)
    if len(founds) < len(pieces) + len(proofs):
        return 130
    return int(not all(found.clean for found in clean) or not all(report.red(control) for control in named))


def broken(seed: int, only: Iterable[str]) -> list[Piece]:
    """Each within so many kills, or the campaign proves nothing."""
    kills, builds, off = controls.KILLS, controls.BUILDS.items(), controls.OFF.items()
    found = [Piece(control.scene, kills, work.seed_of(seed, name), broken=name) for name, control in builds]
    found += [Piece(control.scene, kills, work.seed_of(seed, name), off=name) for name, control in off]
    return [piece for piece in found if not only or piece.scene in only]


def _broken(piece: Piece) -> str:
    return f"a build with {piece.broken}" if piece.broken else f"without `{piece.off.replace('+', '` and `')}`"


def labour(pieces: Iterable[Piece], root: Path, jobs: int) -> Iterable[tuple[Piece, Found]]:
    """Workers take the next piece when they have done one."""
    waiting: queue.SimpleQueue[Piece] = queue.SimpleQueue()
    for piece in pieces:
        waiting.put(piece)
    done: queue.SimpleQueue[tuple[Piece, Found] | None] = queue.SimpleQueue()

    def one(folder: Path) -> None:
        try:
            _worker(folder, waiting, done, processes)
        finally:
            done.put(None)

    processes: list[subprocess.Popen[str]] = []
    folders = [root / f"worker-{n}" for n in range(jobs)]
    threads = [threading.Thread(target=one, args=(folder,), daemon=True) for folder in folders]
    for thread in threads:
        thread.start()
    try:
        yield from _results(done, jobs)
    finally:
        with suppress(queue.Empty):
            while True:
                waiting.get_nowait()  # a worker that is ended now is not started again
        for process in processes:
            process.terminate()


def _results(done: queue.SimpleQueue[tuple[Piece, Found] | None], jobs: int) -> Iterable[tuple[Piece, Found]]:
    left = jobs
    while left:
        if (result := done.get()) is None:
            left -= 1
            continue
        piece, found = result
        state = "found out" if piece.control and not found.clean else "clean" if found.clean else "FAULT"
        what = f"{piece.scene}{f', {_broken(piece)}' if piece.control else ''}"
        print(f"{what}: {found.kills} kills in {found.seconds:.0f} s, {found.records:,} records: {state}", flush=True)
        if state == "FAULT":
            print("\n".join(found.stories), flush=True)
        yield piece, found


def _worker(
    folder: Path,
    waiting: queue.SimpleQueue[Piece],
    done: queue.SimpleQueue[tuple[Piece, Found] | None],
    processes: list[subprocess.Popen[str]],
) -> None:
    """A worker that ends with a piece in its hands has found something, too; another one goes on."""
    command = [sys.executable, "-m", "tests.lab.work", str(folder)]
    folder.mkdir(parents=True, exist_ok=True)
    while not waiting.empty():
        with (
            (folder / "log.txt").open("a") as errors,
            subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
            ) as process,
        ):
            processes.append(process)
            for piece, line in _answers(process, waiting):
                why = f"{shlex.join(command)} ended: see {folder}/log.txt"
                done.put((piece, work.from_json(line) if line else work.failed(piece, why)))


def _answers(process: subprocess.Popen[str], waiting: queue.SimpleQueue[Piece]) -> Iterable[tuple[Piece, str]]:
    """Of each piece, until there is none left or the worker has ended: then of the last one nothing."""
    assert process.stdin is not None
    assert process.stdout is not None
    line = "-"
    while line:
        try:
            piece = waiting.get_nowait()
        except queue.Empty:
            break
        with suppress(BrokenPipeError):
            process.stdin.write(json.dumps(asdict(piece)) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        yield piece, line
    with suppress(BrokenPipeError):
        process.stdin.close()


if __name__ == "__main__":
    sys.exit(main())
