"""Input that breaks readers, with what must become of every record of it. For tests of connectors, also of other people's.

    for case in hostile.cases("csv"):
        hostile.write(case, folder / case.name)

A `Case` is a few files and, per file, one outcome for each of its records in their order. A connector under test reads the
files with `case.settings` and `case.batch`; then every record has the outcome that stands here, and nothing else is there.
Nothing of Penstock is imported, and pyarrow only where Parquet is made. What each case means to a user is told in
docs/reference/hostile-input.md.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Format = Literal["text", "json", "csv", "parquet"]
LONG_AGO = (
    1_700_000_000  # seconds; files are that old unless a case says otherwise, so that nobody waits for them to settle
)


@dataclass(frozen=True)
class Nacked:
    """One dead letter. `says` is part of its error: most often the name of the field, or a number of bytes."""

    code: str
    says: str = ""


@dataclass(frozen=True)
class Delivered:
    """`payload` is what a destination of the same format holds: a line without its end, or the fields where it is no text.
    `json` is what a JSON destination holds where that is something else, or why it can't."""

    payload: bytes | Mapping[str, Any]
    json: Mapping[str, Any] | Nacked | None = None


@dataclass(frozen=True)
class Filtered:
    """Counted, and delivered nowhere: a blank line among objects."""


@dataclass(frozen=True)
class Unreadable:
    """The whole file is one dead letter, `files.unreadable-file`; it stands alone in the outcomes of its file."""

    says: str = ""


Outcome = Delivered | Filtered | Nacked | Unreadable


@dataclass(frozen=True)
class Case:
    """`files` by name, which may have a folder in it, and the outcomes of each. `settings` are those of the source, besides path
    and format."""

    name: str
    format: Format
    files: Mapping[str, bytes] = field(repr=False)
    outcomes: Mapping[str, tuple[Outcome, ...]] = field(repr=False)
    settings: Mapping[str, str] = field(default_factory=dict)
    batch: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, float] = field(default_factory=dict, repr=False)  # when a file was written, seconds since 1970

    @property
    def bad(self) -> bool:
        """True where the default gate stops the pipeline."""
        return any(isinstance(o, Nacked | Unreadable) for found in self.outcomes.values() for o in found)


def cases(format: Format | None = None, *, long: bool = False) -> tuple[Case, ...]:
    """Every case of a format, or of all. With `long` those of 50 MB as well."""
    return tuple(c for c in _all(long) if format in (None, c.format))


def write(case: Case, folder: str | Path) -> list[Path]:
    """Writes the files of a case into a folder of its own, and returns their paths in the order of their times."""
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    made = []
    for i, (name, content) in enumerate(case.files.items()):
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        os.utime(path, (case.times.get(name, LONG_AGO + i),) * 2)
        made.append(path)
    return sorted(made, key=lambda p: p.stat().st_mtime_ns)


def _all(long: bool) -> Iterator[Case]:
    from penstock.testing import hostile_csv, hostile_json, hostile_parquet, hostile_text

    yield from hostile_text.cases(long)
    yield from hostile_json.cases()
    yield from hostile_csv.cases()
    yield from hostile_parquet.cases()


# -- what happens to a file between the moment it was listed and the moment it is read ---------------------------------------

CHANGES: Mapping[str, Callable[[Path], object]] = {
    "deleted": lambda p: p.unlink(),
    "grown": lambda p: p.write_bytes(p.read_bytes() + b"more\n"),
    "cut off": lambda p: p.write_bytes(p.read_bytes()[:-3]),
    "replaced": lambda p: p.write_bytes(b"f" * p.stat().st_size),
}


# -- namespaces, for destinations whose path has one in it -------------------------------------------------------------------


@dataclass(frozen=True)
class Namespace:
    """`folder` is the folder below the destination's own in which the record stands; None: it is nacked, and `says` why."""

    value: str | None
    folder: str | None
    says: str = ""


NAMESPACES = (
    Namespace("plain", "plain"),
    Namespace("with space", "with%20space"),
    Namespace("a/b", "a%2Fb"),
    Namespace("100%", "100%25"),
    Namespace("%2e%2e", "%252e%252e"),
    Namespace("nul\0byte", "nul%00byte"),
    Namespace("line\nbreak", "line%0Abreak"),
    Namespace("grün-日本-🎈", "gr%C3%BCn-%E6%97%A5%E6%9C%AC-%F0%9F%8E%88"),
    Namespace("a..b", "a..b"),
    Namespace(".hidden", "%2Ehidden"),
    Namespace("_hidden", "%5Fhidden"),
    Namespace("-dash", "-dash"),
    Namespace("key=value", "key%3Dvalue"),
    Namespace("a+b*c?[d]{e}:;'\"\\", "a%2Bb%2Ac%3F%5Bd%5D%7Be%7D%3A%3B%27%22%5C"),
    Namespace("x" * 200, "x" * 200),
    Namespace("../up", None, "would lead to another folder"),
    Namespace("a/../../b", None, "would lead to another folder"),
    Namespace("..", None, "would lead to another folder"),
    Namespace(".", None, "would lead to another folder"),
    Namespace("..\\up", None, "would lead to another folder"),
    Namespace("/etc/../x", None, "would lead to another folder"),
    Namespace("", None, "is missing"),
    Namespace(None, None, "is missing"),
    Namespace("y" * 300, None, "too long a name"),
    Namespace("ü" * 100, None, "too long a name"),
)
