"""Reads a YAML file into plain data, document by document, and says where things stand. Nothing a file names is made.

Called by `check` only. Keeping places takes half as long again (0.28 s against 0.18 s for 2,000 pipelines) and they are
needed only to show a problem, so a document finds them when it is first asked, by reading its text once more.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from penstock.config.nodes import Builder, GivenUpError, KeyPath, Mark, Place, Places, Plain, mark
from penstock.config.problem import Problem

__all__ = ["Document", "KeyPath", "Mark", "Place", "Plain", "problem_at", "read"]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what YAML counts as the end of a line
# Not compiled, which takes 5 ms, unless there is one.
_UNPRINTABLE = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]"
_TOP: Places = {(): Place(Mark(1, 1), Mark(1, 1))}


@dataclass(frozen=True)
class Document:
    """One document of a file as plain data, with the place of everything in it."""

    file: Path
    text: str = field(repr=False)  # of the whole file
    data: Plain
    index: int = 0  # among the documents of its file

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(_BREAK.split(self.text))

    @cached_property
    def places(self) -> Places:
        for index, (_, places) in enumerate(_documents(self.text, lambda *_: None, places=True)):
            if index == self.index:
                return places or dict(_TOP)
        return dict(_TOP)  # a file without any document

    def mark(self, path: KeyPath, *, key: bool = False) -> Mark:
        """Where the value (or its key) stands; for something that is not in the file, the nearest thing around it."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path].key if key else self.places[path].value

    def problem(self, code: str, what: str, path: KeyPath, hint: str = "", *, key: bool = False) -> Problem:
        return problem_at(self.file, self.lines, self.mark(path, key=key), code, what, hint)


def problem_at(file: Path, lines: tuple[str, ...], at: Mark, code: str, what: str, hint: str = "") -> Problem:
    text = lines[at.line - 1] if at.line <= len(lines) else ""
    return Problem(code, what, f"{file}:{at.line}:{at.column}", text, hint)


def read(file: Path) -> tuple[list[Document], list[Problem]]:
    """The documents, none if the file cannot be understood at all, and everything that is wrong with it as YAML."""
    try:
        raw = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        what, hint = f"cannot read the file: {error.strerror}", "check the path, and whether you may read it"
        return [], [Problem("config.unreadable", what, str(file), hint=hint)]
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        lines = tuple(_BREAK.split(raw.decode(errors="replace")))
        what = f"the file is not UTF-8: byte 0x{raw[error.start]:02x}"
        return [], [problem_at(file, lines, _end(before), "config.unreadable", what, "save it as UTF-8")]
    return _Reading(file, text).read()


def _documents(text: str, refuse: Any, *, places: bool) -> Iterator[tuple[Plain, Places | None]]:
    loader = _LOADER(text)
    try:
        yield from Builder(loader.get_event, refuse, places=places).documents()
    finally:
        loader.dispose()


class _Reading:
    """One file, and the problems found so far."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.text = text
        self.problems: list[Problem] = []

    @cached_property
    def lines(self) -> tuple[str, ...]:
        return tuple(_BREAK.split(self.text))

    def read(self) -> tuple[list[Document], list[Problem]]:
        try:
            built = [data for data, _ in _documents(self.text, self._refuse, places=False)]
        except yaml.MarkedYAMLError as error:
            self._syntax_error(error)
        except yaml.YAMLError:  # the reader's: a character that YAML does not know
            self._control_character()
        except GivenUpError:
            pass
        else:
            given = [{} if data is None else data for data in built] or [{}]
            return [Document(self.file, self.text, data, index) for index, data in enumerate(given)], self.problems
        return [], self.problems

    def _refuse(self, code: str, what: str, at: yaml.Mark, hint: str) -> None:
        self._add(code, what, mark(at), hint)

    def _add(self, code: str, what: str, at: Mark, hint: str) -> None:
        self.problems.append(problem_at(self.file, self.lines, at, code, what, hint))

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> None:
        where = error.problem_mark or error.context_mark
        at = mark(where) if where else Mark(1, 1)
        line = self.lines[at.line - 1] if at.line <= len(self.lines) else ""
        what = error.problem or "this is not YAML"
        if error.context and error.context_mark:
            what += f", {error.context} that starts on line {error.context_mark.line + 1}"
        hint = "look at indentation, quotes and brackets here and on the line before"
        if line[at.column - 1 :][:1] == "\t":
            hint = "use spaces, not tabs"
        elif "${" in line:
            hint = "inside { } and [ ], put quotes around a text with ${…}"
        self._add("config.syntax", what, at, hint)

    def _control_character(self) -> None:
        bad = re.search(_UNPRINTABLE, self.text)
        what = f"a control character, U+{ord(bad[0]):04X}" if bad else "a character that YAML does not know"
        at = _end(self.text[: bad.start()]) if bad else Mark(1, 1)
        self._add("config.syntax", what, at, 'remove it, or write it as "\\x00" with its number, in double quotes')


def _end(text: str) -> Mark:
    lines = _BREAK.split(text)
    return Mark(len(lines), len(lines[-1]) + 1)
