"""Builds plain data from the events of a YAML file, in one pass, and where asked, remembers where everything stands.

Called by `yaml` only. How a scalar is read depends on what is around it: below `settings` it is its source text, below
`tests` it is typed as YAML 1.2 says, elsewhere plain decimal integers and `null` are typed and the rest is text.
An anchored node is kept as its events and read again wherever an alias stands, as what it is there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import yaml

KeyPath = tuple[str | int, ...]  # keys and indexes from the top of a document, e.g. ("pipelines", 0, "id")
Plain = Any  # dict, list, str, int or None; below `tests` also float and bool
Refuse = Callable[[str, str, yaml.Mark, str], None]  # code, what, where, what to do

MAX_DEPTH = 50  # building is recursive; a pipeline needs about ten levels
MAX_NODES = 100_000  # that aliases may add
PLAIN, TEXT, TYPED = "plain", "text", "typed"

_NULL = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as a person writes it: str() gives the source text back
_CORE_INTEGER = re.compile(r"[-+]?[0-9]{1,4000}")
_CORE_BASE = re.compile(r"0o[0-7]{1,4000}|0x[0-9a-fA-F]{1,4000}")
_CORE_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CORE_WORDS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **{sign + word: float(sign + "inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_TEXT_TAGS = ("!", "tag:yaml.org,2002:str")  # they say what quotes say
_START = frozenset((yaml.MappingStartEvent, yaml.SequenceStartEvent))
_INNER = {"settings": TEXT, "tests": TYPED}


class Mark(NamedTuple):
    """Counted from 1, as editors do."""

    line: int
    column: int


class Place(NamedTuple):
    key: Mark
    value: Mark


Places = dict[KeyPath, Place]
Next = Callable[[], Any]


class GivenUpError(Exception):
    """The file can't be read on. What is wrong with it has been said."""


class Builder:
    def __init__(self, get: Next, refuse: Refuse, *, places: bool) -> None:
        self._get = get  # the parser's next event
        self._refuse = refuse
        self._wanted = places
        self._places: Places | None = None
        self._anchors: dict[str, list[Any]] = {}
        self._added = 0

    def documents(self) -> Iterator[tuple[Plain, Places | None]]:
        self._get()  # the start of the stream
        while type(self._get()) is yaml.DocumentStartEvent:
            self._anchors.clear()
            root = self._get()
            at = mark(root.start_mark)
            self._places = {(): Place(at, at)} if self._wanted else None
            data = self._node(root, self._get, (), PLAIN, 0)
            self._get()  # the end of the document
            yield data, self._places

    def _node(self, event: Any, get: Next, path: KeyPath, mode: str, depth: int) -> Plain:
        """`get` gives the events after this one: the parser's, or those that were kept of an anchored node."""
        kind = type(event)
        if kind is yaml.AliasEvent:
            get = iter(self._of_alias(event)).__next__
            event = get()
            kind = type(event)
        elif event.anchor is not None and get is self._get:
            get = iter(self._kept(event)).__next__
            event = get()
        if kind is yaml.ScalarEvent:
            return self._scalar(event, mode)
        if depth == MAX_DEPTH:
            self._too_deep(event)
        if event.tag is not None:
            self._tag(event)
        if kind is yaml.MappingStartEvent:
            return self._mapping(get, path, mode, depth + 1)
        items: list[Plain] = []
        while type(item := get()) is not yaml.SequenceEndEvent:
            child = path
            if self._places is not None:
                child = (*path, len(items))
                self._places[child] = Place(mark(item.start_mark), mark(item.start_mark))
            items.append(self._node(item, get, child, mode, depth + 1))
        return items

    def _scalar(self, event: Any, mode: str) -> Plain:
        text: str = event.value
        if event.tag is not None:
            self._tag(event)
            return text
        if event.style:  # quoted, or a block of text
            return text
        if text in _NULL:
            return "" if mode is TEXT else None
        if mode is PLAIN:
            return int(text) if text[0] in "-0123456789" and _INTEGER.fullmatch(text) else text
        return text if mode is TEXT else _core(text)

    def _mapping(self, get: Next, path: KeyPath, mode: str, depth: int) -> Plain:
        data: dict[str, Plain] = {}
        first: dict[str, Any] = {}  # key → its event
        merged: list[tuple[Plain, Places | None]] = []
        while type(event := get()) is not yaml.MappingEndEvent:
            key, merge = self._key(event, get)
            if key is None:
                self._skip(get)
                continue
            value = get()
            if key in first:
                line = first[key].start_mark.line + 1
                what, hint = f"the key '{key}' appears twice", f"remove one of them; the first is on line {line}"
                self._refuse("config.duplicate-key", what, event.start_mark, hint)
                self._skip(get, value)
                continue
            first[key] = event
            if mode is TEXT and key in _NULL and type(event) is yaml.ScalarEvent and not event.style:
                self._skip(get, value)  # a key that is null is dropped from settings, as Conduit does
                continue
            if merge:
                merged += self._merged(value, get, path, mode, depth)
                continue
            child = path
            if self._places is not None:
                child = (*path, key)
                self._places[child] = Place(mark(event.start_mark), mark(value.start_mark))
            inner = _INNER.get(key, mode) if mode is PLAIN and type(value) is not yaml.ScalarEvent else mode
            built = self._node(value, get, child, inner, depth)
            if built is not None or mode is not PLAIN:  # a key without a value is as good as absent
                data[key] = built
        for given, places in merged:
            self._take(given, places, path, first, data)
        return data

    def _key(self, event: Any, get: Next) -> tuple[str | None, bool]:
        """A key's text, and whether it is the merge key. None where it is no text; it is read past then."""
        kind = type(event)
        if kind is yaml.AliasEvent:
            (event, *more) = self._of_alias(event)
            if not more:
                return event.value, False
        elif kind is yaml.ScalarEvent:
            if event.anchor is not None and get is self._get:
                self._anchors[event.anchor] = [event]
            if event.tag is not None:
                self._tag(event)
            return event.value, event.value == "<<" and not event.style and event.tag is None
        else:
            self._skip(get, event)
        self._refuse("config.syntax", "a key must be text", event.start_mark, "write a word before the ':'")
        return None, False

    # -- merge keys ----------------------------------------------------------------------------------------------------

    def _merged(
        self, event: Any, get: Next, path: KeyPath, mode: str, depth: int
    ) -> Iterator[tuple[Plain, Places | None]]:
        """What `<<` brings: the keys of a mapping, or of a list of them. They have their places apart, for now."""
        at, kept = event.start_mark, self._places
        if type(event) is yaml.SequenceStartEvent and event.anchor is None:
            while type(item := get()) is not yaml.SequenceEndEvent:
                yield from self._merged(item, get, path, mode, depth)
            return
        self._places = None if kept is None else {}
        given = self._node(event, get, path, mode, depth)
        places, self._places = self._places, kept
        several = given if isinstance(given, list) else [given]
        if not all(isinstance(one, dict) for one in several):
            hint = "give it a mapping, an alias of one, or a list of these"
            self._refuse("config.syntax", "the merge key '<<' needs a mapping", at, hint)
            return
        for one in several:
            yield one, places

    def _take(
        self, given: Plain, places: Places | None, path: KeyPath, first: dict[str, Any], data: dict[str, Plain]
    ) -> None:
        """A key that is written out wins, then what was merged first."""
        for key, value in given.items():
            if key in first:
                self._number_wins(key, first[key])
            if key in first or key in data:
                continue
            data[key] = value
            if self._places is not None and places is not None:
                at = len(path)
                self._places.update({p: place for p, place in places.items() if len(p) > at and p[at] == key})

    def _number_wins(self, key: str, event: Any) -> None:
        """To Conduit a key that looks like a number or a boolean is not the same as its text, and what is merged wins."""
        at = event.start_mark
        if type(event) is yaml.ScalarEvent and not event.style and not isinstance(_core(key), str | None):
            what, hint = f"the key '{key}' is merged and written out", "put quotes around it, or remove one of them"
            self._refuse("config.duplicate-key", what, at, hint)

    # -- anchors -------------------------------------------------------------------------------------------------------

    def _kept(self, event: Any) -> list[Any]:
        """All events of an anchored node, with those of its aliases in their place; anchors inside are kept as well."""
        events: list[Any] = []
        opened: list[tuple[list[Any], int]] = []  # where its events go at its end, and the first of them
        while True:
            kind = type(event)
            if kind is yaml.AliasEvent:
                events += self._of_alias(event)
            else:
                events.append(event)
                if kind in _START and len(opened) == MAX_DEPTH:
                    self._too_deep(event)
                own: list[Any] = []  # empty while it is open
                if kind in (*_START, yaml.ScalarEvent) and event.anchor is not None:
                    self._anchors[event.anchor] = own
                if kind is yaml.ScalarEvent:
                    own.append(event)
                elif kind in _START:
                    opened.append((own, len(events) - 1))
                else:
                    own, start = opened.pop()
                    own += events[start:]
            if not opened:
                return events
            event = self._get()

    def _of_alias(self, alias: Any) -> list[Any]:
        name, events = alias.anchor, self._anchors.get(alias.anchor)
        if events is None:
            hint = "put quotes around a text that starts with *"
            self._refuse("config.syntax", f"there is no anchor '&{name}' before this", alias.start_mark, hint)
            return [yaml.ScalarEvent(None, None, (True, False), "", alias.start_mark, alias.end_mark)]
        if not events:
            hint = "write the value out"
            self._refuse("config.syntax", f"'*{name}' stands inside what it names", alias.start_mark, hint)
            raise GivenUpError
        self._added += len(events)
        if self._added > MAX_NODES:
            what, hint = f"aliases make more than {MAX_NODES} values", "use fewer aliases, or several files"
            self._refuse("config.syntax", what, alias.start_mark, hint)
            raise GivenUpError
        return events

    # -- refusals ------------------------------------------------------------------------------------------------------

    def _tag(self, event: Any) -> None:
        if event.tag in _TEXT_TAGS and type(event) is yaml.ScalarEvent:
            return
        tag = event.tag.replace("tag:yaml.org,2002:", "!!")
        hint = "remove the tag; quote text that needs it"
        self._refuse("config.tag", f"the tag '{tag}' is not allowed", event.start_mark, hint)

    def _too_deep(self, event: Any) -> None:
        what = f"nested more than {MAX_DEPTH} levels deep"
        self._refuse("config.syntax", what, event.start_mark, "a pipeline needs about ten: look for a missing bracket")
        raise GivenUpError

    def _skip(self, get: Next, event: Any = None) -> None:
        """Reads past one node. Of what is in it only anchors and aliases are looked at."""
        event = event or get()
        if type(event) is not yaml.AliasEvent and event.anchor is not None and get is self._get:
            self._kept(event)
            return
        depth = 0
        while True:
            kind = type(event)
            if kind is yaml.AliasEvent:
                self._of_alias(event)
            depth += (kind in _START) - (kind in (yaml.MappingEndEvent, yaml.SequenceEndEvent))
            if depth == 0:
                return
            event = get()


def mark(at: yaml.Mark) -> Mark:
    return Mark(at.line + 1, at.column + 1)


def _core(text: str) -> Plain:
    """YAML 1.2's core schema. Integers are exact, of any size."""
    if text in _CORE_WORDS:
        return _CORE_WORDS[text]
    if _CORE_INTEGER.fullmatch(text):
        return int(text)
    if _CORE_BASE.fullmatch(text):
        return int(text, 0)
    return float(text) if _CORE_FLOAT.fullmatch(text) else text
