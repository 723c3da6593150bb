"""Values that came by reference, and texts without them: `hide` puts the reference where the value stood.

Filled while the parts of a pipeline are made (`assembly`), used wherever a text leaves the engine: errors, dead letters, the
ledger, logs. Pure; any thread may ask, and it may be sent to a task.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote, quote_plus

SHORTEST = 4  # characters: a shorter value is in every other text
_LONG = 8  # from here on case does not matter: Spark writes some names in lower case
_HIDDEN = "${…}"
_TEXTS = ("what", "where", "why", "hint")  # of an error

# What every process has and no one keeps a secret in. `$HOME/in` is a path like any other.
PLAIN = frozenset(
    {
        *("HOME", "HOSTNAME", "LANG", "LANGUAGE", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL", "TERM"),
        *("TEMP", "TMP", "TMPDIR", "TZ", "USER", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "JAVA_HOME", "SPARK_HOME"),
    }
)


class Secrets:
    """Each value with its reference. Grows as parts are made; an empty one changes nothing."""

    def __init__(self, pairs: Iterable[tuple[str, str]] = (), names: Iterable[str] = ()) -> None:
        """`pairs` are values with their references, `names` the variables of the environment that some of them are in."""
        self._shown: dict[str, str] = {}
        self._names = set(names)
        self._included: tuple[Secrets, ...] = ()
        self._finder = _Finder({})
        for value, reference in pairs:
            self.learn(value, reference)

    def __reduce__(self) -> tuple[Any, ...]:
        return Secrets, (tuple(self._values().items()), tuple(self.names))

    def __bool__(self) -> bool:
        return bool(self._shown) or any(self._included)

    def __repr__(self) -> str:
        return f"<{len(self._values())} secrets>"

    @property
    def names(self) -> frozenset[str]:
        """Variables of the environment that hold values."""
        return frozenset(self._names).union(*(other.names for other in self._included))

    def learn(self, value: str, reference: str, name: str = "") -> None:
        """`name` is the variable of the environment that the value is in."""
        if name:
            self._names.add(name)
        if len(value.strip()) >= SHORTEST and value != reference:
            self._shown.setdefault(value, reference)

    def include(self, other: Secrets) -> None:
        """Hides what the other one hides too, also what that learns later."""
        self._included = (*self._included, other)

    def hide(self, text: str, *, cut: bool = False) -> str:
        """The text with references instead of values. With `cut` its end may be the beginning of a value."""
        if not self:
            return text
        values = self._values()
        if len(values) != self._finder.size:  # values are only ever added
            self._finder = _Finder(values)
        return self._finder.hide(text, cut=cut)

    def clean(self, error: BaseException) -> None:
        """The same in the words of an error that people read."""
        if not self:
            return
        for name in _TEXTS:
            if isinstance(text := getattr(error, name, None), str):
                setattr(error, name, self.hide(text))
        error.args = tuple(self.hide(a) if isinstance(a, str) else a for a in error.args)

    def clean_chain(self, error: BaseException, trace: str) -> str:
        """`clean`, and what it came from is cut off where its trace holds a value. Returns the trace without it."""
        self.clean(error)
        shown = self.hide(trace)
        if shown != trace:
            error.__cause__ = error.__context__ = None
        return shown

    def _values(self) -> dict[str, str]:
        found = dict(self._shown)
        for other in self._included:
            for value, reference in other._values().items():
                found.setdefault(value, reference)
        return found


class _Finder:
    """One pass over a text for all forms of all values, the longest first, so that no rest of a longer one stays."""

    def __init__(self, values: dict[str, str]) -> None:
        self.size = len(values)
        self._forms: dict[str, str] = {}
        for value, reference in sorted(values.items(), key=lambda item: -len(item[0])):
            for form in _forms(value):
                self._forms.setdefault(form, reference)
        self._lower = {form.lower(): reference for form, reference in self._forms.items()}
        ordered = sorted(self._forms, key=len, reverse=True)
        parts = [f"(?i:{re.escape(form)})" if len(form) >= _LONG else re.escape(form) for form in ordered]
        self._pattern = re.compile("|".join(parts)) if parts else None

    def hide(self, text: str, *, cut: bool) -> str:
        if self._pattern is None:
            return text
        shown = self._pattern.sub(self._reference, text)
        return self._without_beginning(shown) if cut else shown

    def _reference(self, match: re.Match[str]) -> str:
        return self._forms.get(match[0]) or self._lower.get(match[0].lower(), _HIDDEN)

    def _without_beginning(self, text: str) -> str:
        found = [(n, reference) for form, reference in self._forms.items() if (n := _overlap(text, form))]
        if not found:
            return text
        n, reference = max(found)
        return text[:-n] + reference


def _overlap(text: str, form: str) -> int:
    """How many characters at the end of the text are the beginning of the form; few of them say nothing."""
    longest = min(len(text), len(form) - 1)
    return next((n for n in range(longest, SHORTEST - 1, -1) if text.endswith(form[:n])), 0)


def _forms(value: str) -> Iterator[str]:
    """A value as texts show it: as it is, without the space around it, escaped in one of the usual ways, line by line."""
    for text in dict.fromkeys((value, value.strip())):
        yield text
        yield repr(text)[1:-1]
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield text.replace("'", "''")
        yield text.replace("\\", "\\\\").replace("'", "\\'")
        yield from (quote(text), quote(text, safe=""), quote_plus(text))
        yield from _base64(text.encode(errors="replace"))
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= _LONG)


def _base64(value: bytes) -> Iterator[str]:
    """Also in the middle of something (`user:password`): then only what no neighbour changes of it."""
    yield base64.b64encode(value).decode().rstrip("=")
    for before in range(3):
        text = base64.b64encode(bytes(before) + value).decode().rstrip("=")
        whole = (before + len(value)) * 8 // 6
        core = text[-(-before * 8 // 6) : whole]
        if len(core) >= _LONG:
            yield core
            yield core.replace("+", "-").replace("/", "_")
