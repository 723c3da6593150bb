"""What the laboratory has to do, in pieces: each is a campaign in a folder of its own, with a seed of its own.

`python -m tests.lab.work FOLDER` is a worker: a process with a Spark of its own that takes pieces from its standard input, one JSON object
per line, and says what it found.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.lab import blows, campaign, controls, hosted, scenes
from tests.lab.campaign import Found
from tests.support import delta, zygote
from tests.support.harness import Gateway, end_children

# What part of all kills a scene gets. Kills of hosted connectors need a start of a process each, so they are fewer.
SHARES = {
    "files": 14,
    "lines": 10,
    "postgres": 12,
    "queue": 11,
    "delta": 9,
    "kafka": 11,
    "three": 7,
    "mixed": 6,
    "deleting": 6,
    "chained": 6,
    "host": 5,
    "program": 4,
    "plugin": 5,
}
MOST = 25  # kills in one campaign: a new folder now and then


@dataclass(frozen=True)
class Piece:
    scene: str
    kills: int
    seed: int
    off: str = ""  # the safeguard that is switched off, or two with a plus
    broken: str = ""  # the build that is broken

    @property
    def control(self) -> str:
        return self.off or self.broken

    @property
    def switched(self) -> tuple[str, ...]:
        return tuple(self.off.split("+")) if self.off else ()


def pieces(kills: int, seed: int, only: Iterable[str] = ()) -> list[Piece]:
    """All scenes, each with its share and at least one kill; or `only` some. First one campaign of each, then the second ones."""
    shares = {name: share for name, share in SHARES.items() if not only or name in set(only)}
    found: list[tuple[int, Piece]] = []
    for name, share in shares.items():
        left = max(1, round(kills * share / sum(shares.values())))
        n = 0
        while left:
            some = left if left < MOST * 1.5 else MOST
            found.append((n, Piece(name, some, seed_of(seed, name, n))))
            left, n = left - some, n + 1
    return [piece for _, piece in sorted(found, key=lambda pair: pair[0])]


def seed_of(seed: int, *names: object) -> int:
    """The same in every process, unlike `hash`."""
    return zlib.crc32(repr((seed, *names)).encode())


def run(piece: Piece, root: Path, gateway: Gateway, servers: scenes.Servers, say: Callable[[str], None]) -> Found:
    """Leaves the folder where it was if something was found."""
    folder = root / f"{piece.scene}-{piece.seed}{'-' + piece.control.replace(' ', '-') if piece.control else ''}"
    shutil.rmtree(folder, ignore_errors=True)
    if piece.scene in hosted.SCENES:
        found = hosted.harass(piece.scene, folder, gateway, piece.kills, piece.seed, off=piece.switched, say=say)
    else:
        scene = scenes.scene(piece.scene, folder, gateway, servers, piece.seed)
        found = campaign.harass(
            scene,
            piece.scene,
            piece.kills,
            draw=(lambda scene: controls.draw(scene, piece.control)) if piece.control else blows.draw,
            off=piece.switched,
            broken=piece.broken,
            until_red=bool(piece.control),
            say=say,
        )
    if found.clean or piece.control:
        shutil.rmtree(folder, ignore_errors=True)
    else:
        found.stories.append(f"everything is left in {folder}")
    return found


def failed(piece: Piece, why: str) -> Found:
    return Found(piece.scene, piece.seed, (), stories=[why], faults=Counter({"other": 1}))


def to_json(found: Found) -> str:
    return json.dumps(vars(found))


def from_json(text: str) -> Found:
    given: dict[str, Any] = json.loads(text)
    counted = {name: Counter(given[name]) for name in ("blows", "steps", "faults")}
    return Found(**{**given, **counted, "destinations": tuple(given["destinations"])})


def main(root: Path) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    said = sys.stdout
    sys.stdout = sys.stderr  # what is printed by the way is not an answer
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    servers = scenes.Servers()
    with delta.server(root, "kafka") as gateway:
        zygote.begin()
        try:
            for line in sys.stdin:
                piece = Piece(**json.loads(line))
                began = time.monotonic()
                try:
                    found = run(piece, root, gateway, servers, lambda words: print(words, file=sys.stderr, flush=True))
                except Exception:  # a fault of the laboratory, or one that it did not expect
                    found = failed(piece, f"the campaign itself failed: {traceback.format_exc()[-3000:]}")
                found = replace(found, seconds=time.monotonic() - began)
                print(to_json(found), file=said, flush=True)
        finally:
            end_children()
            servers.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
