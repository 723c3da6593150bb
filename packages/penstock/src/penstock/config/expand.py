"""References in strings: `$X`, `${X}`, `${env:X}` and `${env:X:-default}`; `${literal:…}` is text as it stands.

Pure. `check` asks whether all references of a file resolve; values are made when a connector is built, in the process
that needs them, and are never written down.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from penstock.errors import UsageError

_DOLLAR = re.compile(r"\$(?:(?P<brace>\{)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<special>[$*#@!?0-9-]))")
_BRACED = re.compile(r"(?:env:)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_WITH_DEFAULT = re.compile(r"env:(?P<name>[A-Za-z_][A-Za-z0-9_]*):-(?P<default>[^$]*)", re.DOTALL)


class BadReferenceError(UsageError):
    """A reference that has no value. Its text names the variable, never a value."""


def expand(text: str, environ: Mapping[str, str]) -> str:
    """The text with every reference replaced. A `$` that starts no reference (`^a$`, `$.x`) stays as it is."""
    parts = []
    for part in _parts(text, environ):
        if isinstance(part, BadReferenceError):
            raise part
        parts.append(part)
    return "".join(parts)


def expand_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
    expanded = {}
    for name, text in settings.items():
        try:
            expanded[name] = expand(text, environ)
        except BadReferenceError as error:
            error.where = f"setting '{name}'"
            raise
    return expanded


def unresolved(text: str, environ: Mapping[str, str]) -> list[BadReferenceError]:
    """Every reference in the text that `expand` would refuse."""
    return [part for part in _parts(text, environ) if isinstance(part, BadReferenceError)]


def _parts(text: str, environ: Mapping[str, str]) -> Iterator[str | BadReferenceError]:
    at = 0
    while match := _DOLLAR.search(text, at):
        yield text[at : match.start()]
        at = match.end()
        if match["brace"]:
            end = _closing_brace(text, at)
            if end is None:
                yield BadReferenceError("'${' is never closed", code="config.bad-reference", hint="add the '}'")
                return
            yield _braced(text[at:end], environ)
            at = end + 1
        elif match["name"]:
            yield _variable(match["name"], environ)
        else:
            hint = f"write ${{literal:{match[0]}}} for the characters themselves"
            yield BadReferenceError(f"'{match[0]}' is not a reference", code="config.bad-reference", hint=hint)
    yield text[at:]


def _braced(inner: str, environ: Mapping[str, str]) -> str | BadReferenceError:
    if inner.startswith("literal:"):
        return inner.removeprefix("literal:")
    if match := _BRACED.fullmatch(inner):
        return _variable(match["name"], environ)
    if match := _WITH_DEFAULT.fullmatch(inner):
        return environ.get(match["name"], match["default"])
    hint = "write ${X}, ${env:X}, ${env:X:-default} with a plain default, or ${literal:…}"
    return BadReferenceError(f"'${{{inner}}}' is not a reference", code="config.bad-reference", hint=hint)


def _variable(name: str, environ: Mapping[str, str]) -> str | BadReferenceError:
    if name in environ:
        return environ[name]
    hint = f"set it, or write ${{env:{name}:-default}}; ${{literal:${name}}} is the text itself"
    return BadReferenceError(f"the environment variable '{name}' is not set", code="config.unset-variable", hint=hint)


def _closing_brace(text: str, at: int) -> int | None:
    """Braces inside are paired, so that `${literal:{"a": {}}}` ends where it looks like ending."""
    depth = 1
    for index in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return None
