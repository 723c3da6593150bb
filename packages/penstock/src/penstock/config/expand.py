"""References in strings: `$X`, `${X}`, `${env:X:-default}`, `${file:path}`; `${literal:…}` is text as it stands.

`check` asks whether all references of a file resolve; values are made when a connector is built, in the process that
needs them, and are never written down. What Conduit would silently make empty is refused (`docs/conduit.md`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from penstock.errors import UsageError

_DOLLAR = re.compile(r"\$(?:(?P<brace>\{)|(?P<name>[A-Za-z_][A-Za-z0-9_]*)|(?P<special>[$*#@!?0-9-]))")
_BRACED = re.compile(r"(?:env:)?(?P<name>[^\W\d][\w.]*)")
_WITH_DEFAULT = re.compile(r"env:(?P<name>[^\W\d][\w.]*):-(?P<default>[^$]*)", re.DOTALL)
_OTHER_DEFAULT = re.compile(r"(?P<name>[^\W\d][\w.]*):?[-+=?](?P<default>[^$]*)", re.DOTALL)
_FILE = re.compile(r"\$\{file:(?P<path>[^${}]+)\}")
_ACTION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)  # of a Go template
_DECLARED = re.compile(r"\$([A-Za-z_]\w*)(?:\s*,\s*\$([A-Za-z_]\w*))?\s*:=")
_MAX_FILE = 1 << 20


class BadReferenceError(UsageError):
    """A reference that has no value. Its text names the variable or the file, never a value."""


def expand(text: str, environ: Mapping[str, str], *, folder: Path | None = None) -> str:
    """The text with every reference replaced. A `$` that starts no reference (`^a$`, `$.x`) stays as it is.

    `${file:p}` is relative to `folder`, or to the working folder.
    """
    if "$" not in text:
        return text
    parts = []
    for part in _parts(text, environ, folder):
        if isinstance(part, BadReferenceError):
            raise part
        parts.append(part)
    return "".join(parts)


def expand_settings(
    settings: Mapping[str, str], environ: Mapping[str, str], *, folder: Path | None = None
) -> dict[str, str]:
    expanded = {}
    for name, text in settings.items():
        try:
            expanded[name] = expand(text, environ, folder=folder)
        except BadReferenceError as error:
            error.where = f"setting '{name}'"
            raise
    return expanded


def unresolved(text: str, environ: Mapping[str, str], *, folder: Path | None = None) -> list[BadReferenceError]:
    """Every reference in the text that `expand` would refuse."""
    return [part for part in _parts(text, environ, folder) if isinstance(part, BadReferenceError)]


def anchored(text: str, folder: Path) -> str:
    """The same text with `${file:…}` made absolute, so that it means the same wherever it is expanded later."""
    if "${file:" not in text:
        return text
    at, parts = 0, []
    while (start := text.find("${", at)) >= 0 and (end := _closing_brace(text, start + 2)) is not None:
        match = _FILE.fullmatch(text, start, end + 1)
        inner = f"${{file:{os.path.abspath(folder / match['path'])}}}" if match else text[start : end + 1]
        parts += [text[at:start], inner]
        at = end + 1
    return "".join([*parts, text[at:]])


def _parts(text: str, environ: Mapping[str, str], folder: Path | None) -> Iterator[str | BadReferenceError]:
    declared = {name for found in _DECLARED.finditer(text) for name in found.groups() if name}
    at = 0
    while match := _DOLLAR.search(text, at):
        yield text[at : match.start()]
        at = match.end()
        if match["brace"]:
            end = _closing_brace(text, at)
            if end is None:
                yield BadReferenceError("'${' is never closed", code="config.bad-reference", hint="add the '}'")
                return
            yield _braced(text[at:end], environ, folder)
            at = end + 1
        elif name := match["name"]:
            of_template = name in declared or (name not in environ and _in_action(text, match.start()))
            yield _of_template(name) if of_template else _variable(name, environ)
        else:
            hint = f"write ${{literal:{match[0]}}} for the characters themselves"
            yield BadReferenceError(f"'{match[0]}' is not a reference", code="config.bad-reference", hint=hint)
    yield text[at:]


def _braced(inner: str, environ: Mapping[str, str], folder: Path | None) -> str | BadReferenceError:
    if inner.startswith("literal:"):
        return inner.removeprefix("literal:")
    if match := _BRACED.fullmatch(inner):
        return _variable(match["name"], environ)
    if match := _WITH_DEFAULT.fullmatch(inner):
        return environ.get(match["name"], match["default"])
    if inner.startswith("file:") and _FILE.fullmatch(f"${{{inner}}}"):
        return _content(inner.removeprefix("file:"), folder)
    hint = (
        "write ${X}, ${env:X}, ${env:X:-default} with a plain default, ${file:path} with a plain path, or ${literal:…}"
    )
    if match := _OTHER_DEFAULT.fullmatch(inner):
        hint = f"for a default write ${{env:{match['name']}:-{match['default']}}}"
    return BadReferenceError(f"'${{{inner}}}' is not a reference", code="config.bad-reference", hint=hint)


def _variable(name: str, environ: Mapping[str, str]) -> str | BadReferenceError:
    if name in environ:
        return environ[name]
    hint = f"set it, or write ${{env:{name}:-default}}; ${{literal:${name}}} is the text itself"
    return BadReferenceError(f"the environment variable '{name}' is not set", code="config.unset-variable", hint=hint)


def _of_template(name: str) -> BadReferenceError:
    """Conduit replaces it before the template is read, and leaves a template that is broken or means something else."""
    what = f"'${name}' is read as a variable of the environment, not of the template"
    hint = (
        "put the whole text into ${literal:…}; a field of the record can be written without it: {{ $.Payload.After.x }}"
    )
    return BadReferenceError(what, code="config.template-variable", hint=hint)


def _in_action(text: str, at: int) -> bool:
    return any(action.start() < at < action.end() for action in _ACTION.finditer(text))


def _content(path: str, folder: Path | None) -> str | BadReferenceError:
    """A file's text without the newline at its end. It is most likely a secret: errors name the path only."""
    file = (folder or Path()) / path
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            why = "it is no file"
        elif file.stat().st_size > _MAX_FILE:
            why = f"it is larger than {_MAX_FILE} bytes"
        else:
            text = file.read_bytes().decode()
            return text.removesuffix("\n").removesuffix("\r") if text.endswith("\r\n") else text.removesuffix("\n")
    except OSError as error:
        why = error.strerror or "it cannot be opened"
    except ValueError:  # not UTF-8, or a path with a NUL
        why = "it is not UTF-8 text"
    hint = "check the path, which is relative to the pipeline's file, and whether you may read it"
    what = f"cannot read the file of '${{file:{path}}}': {why}"
    return BadReferenceError(what, code="config.unreadable-reference", hint=hint)


def _closing_brace(text: str, at: int) -> int | None:
    """Braces inside are paired, so that `${literal:{"a": {}}}` ends where it looks like ending."""
    depth = 1
    for index in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return None
