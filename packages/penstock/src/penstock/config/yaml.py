"""Reads one YAML file into plain data and remembers where every key and value stands. Nothing a file names is made.

A scalar inside a `settings:` mapping is its source text; elsewhere plain `true`, `false`, `null` and decimal integers
are typed and everything else is text (so a version `2.2` or a date stays as written). Called by `check` only.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from penstock.config.problem import Problem

KeyPath = tuple[str | int, ...]  # keys and indexes from the top of a file, e.g. ("pipelines", 0, "id")
Plain = Any  # dict, list, str, int, bool or None

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # what YAML counts as the end of a line
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as a person writes it: str() gives the source text back
_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
_MAX_DEPTH = 50  # composing is recursive, in C as well; a pipeline needs about ten levels


class Mark(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


class Place(NamedTuple):
    key: Mark
    value: Mark


@dataclass(frozen=True)
class Document:
    """One file as plain data, with the place of everything in it."""

    file: Path
    lines: tuple[str, ...]
    data: Plain
    places: Mapping[KeyPath, Place]

    def mark(self, path: KeyPath, *, key: bool = False) -> Mark:
        """Where the value (or its key) stands; for something that is not in the file, the nearest thing around it."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path].key if key else self.places[path].value

    def problem(self, code: str, what: str, path: KeyPath, hint: str = "", *, key: bool = False) -> Problem:
        return problem_at(self.file, self.lines, self.mark(path, key=key), code, what, hint)


def problem_at(file: Path, lines: tuple[str, ...], mark: Mark, code: str, what: str, hint: str = "") -> Problem:
    text = lines[mark.line - 1] if mark.line <= len(lines) else ""
    return Problem(code, what, f"{file}:{mark.line}:{mark.column}", text, hint)


def read(file: Path) -> tuple[Document | None, list[Problem]]:
    """The document, unless the file cannot be understood at all, and everything that is wrong with it as YAML."""
    try:
        raw = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        return None, [Problem("config.unreadable", f"cannot read the file: {error.strerror}", str(file))]
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        before = raw[: error.start].decode()
        lines = tuple(_BREAK.split(raw.decode(errors="replace")))
        what = f"the file is not UTF-8: byte 0x{raw[error.start]:02x}"
        return None, [problem_at(file, lines, _mark_of_end(before), "config.unreadable", what, "save it as UTF-8")]
    return _Reader(file, text).read()


class _Reader:
    """One pass over a file's text. A node knows neither whether its tag was written nor where an alias stood, so the
    events are looked at first."""

    def __init__(self, file: Path, text: str) -> None:
        self.file = file
        self.text = text
        self.lines = tuple(_BREAK.split(text))
        self.places: dict[KeyPath, Place] = {}
        self.problems: list[Problem] = []

    def read(self) -> tuple[Document | None, list[Problem]]:
        if bad := _UNPRINTABLE.search(self.text):
            what = f"a control character, U+{ord(bad[0]):04X}"
            self._refuse("config.syntax", what, _mark_of_end(self.text[: bad.start()]), "remove it")
            return None, self.problems
        try:
            root = yaml.compose(self.text, _LOADER) if self._scan() else None
        except yaml.MarkedYAMLError as error:
            self._syntax_error(error)
            return None, self.problems
        data = None
        if root is not None:
            self.places[()] = Place(_mark(root.start_mark), _mark(root.start_mark))
            data = self._build(root, (), as_text=False)
        if data is None:
            if not self.problems:
                self._refuse(
                    "config.unreadable", "the file is empty", Mark(1, 1), "start it with version: and pipelines:"
                )
            return None, self.problems
        return Document(self.file, self.lines, data, self.places), self.problems

    def _refuse(self, code: str, what: str, mark: Mark, hint: str = "") -> None:
        self.problems.append(problem_at(self.file, self.lines, mark, code, what, hint))

    def _syntax_error(self, error: yaml.MarkedYAMLError) -> None:
        at = error.problem_mark or error.context_mark
        mark = _mark(at) if at else Mark(1, 1)
        line = self.lines[mark.line - 1] if mark.line <= len(self.lines) else ""
        what = error.problem or "this is not YAML"
        if error.context and error.context_mark:
            what += f", {error.context} that starts on line {error.context_mark.line + 1}"
        self._refuse("config.syntax", what, mark, "use spaces, not tabs" if line[mark.column - 1 :][:1] == "\t" else "")

    def _scan(self) -> bool:
        """Refuses what no pipeline needs. False when the nodes must not be built: an alias can make them endless."""
        depth = documents = 0
        sound = True
        for event in yaml.parse(self.text, _LOADER):
            mark = _mark(event.start_mark)
            if tag := getattr(event, "tag", None):
                tag = tag.replace("tag:yaml.org,2002:", "!!")
                self._refuse(
                    "config.tag", f"the tag '{tag}' is not allowed", mark, "remove the tag; quote text that needs it"
                )
            if isinstance(event, yaml.AliasEvent):
                self._refuse(
                    "config.syntax", f"the alias '*{event.anchor}' is not allowed", mark, "write the value out"
                )
                sound = False
            elif isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 2:
                    hint = "put all pipelines under one 'pipelines' list, or into files of their own"
                    self._refuse("config.syntax", "a second document in one file", mark, hint)
                    sound = False
            elif isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > _MAX_DEPTH:
                    self._refuse("config.syntax", f"nested more than {_MAX_DEPTH} levels deep", mark)
                    return False
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
        return sound

    def _build(self, node: yaml.Node, path: KeyPath, *, as_text: bool) -> Plain:
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, as_text=as_text)
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, item in enumerate(node.value):
                self.places[*path, index] = Place(_mark(item.start_mark), _mark(item.start_mark))
                items.append(self._build(item, (*path, index), as_text=as_text))
            return items
        text: str = node.value
        if as_text or node.style:  # type: ignore[attr-defined]  # a style means quoted, or a block of text
            return text
        return int(text) if _INTEGER.fullmatch(text) else _WORDS.get(text, text)

    def _mapping(self, node: yaml.MappingNode, path: KeyPath, *, as_text: bool) -> Plain:
        data: dict[str, Plain] = {}
        for key_node, value_node in node.value:
            mark = _mark(key_node.start_mark)
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse("config.syntax", "a key must be text", mark)
                continue
            key: str = key_node.value
            child = (*path, key)
            if key == "<<" and not key_node.style:
                self._refuse("config.syntax", "the merge key '<<' is not allowed", mark, "write the keys out")
            elif key in data:
                hint = f"remove one of them; the first is on line {self.places[child].key.line}"
                self._refuse("config.duplicate-key", f"the key '{key}' appears twice", mark, hint)
            else:
                self.places[child] = Place(mark, _mark(value_node.start_mark))
                settings = key == "settings" and isinstance(value_node, yaml.MappingNode)
                data[key] = self._build(value_node, child, as_text=as_text or settings)
        return data


def _mark(mark: yaml.Mark) -> Mark:
    return Mark(mark.line + 1, mark.column + 1)


def _mark_of_end(text: str) -> Mark:
    lines = _BREAK.split(text)
    return Mark(len(lines), len(lines[-1]) + 1)
