"""How a plugin is named in a file: `files`, `builtin:files`, `standalone:tail@1.2.0`. Pure; the registries look names up."""

from __future__ import annotations

import re
from dataclasses import dataclass

REGISTRIES = ("builtin", "standalone")
LATEST = "latest"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}", re.IGNORECASE)
# as semver.org has it, with the `v` that Go modules put before it
_VERSION = re.compile(
    r"v?(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)"
    r"(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)


_ANY = re.compile(r"[0-9A-Za-z(][0-9A-Za-z.+_()-]{0,99}")


@dataclass(frozen=True, slots=True)
class PluginName:
    """Empty registry: any. Empty version: the newest."""

    registry: str
    name: str
    version: str

    @staticmethod
    def parse(text: str) -> PluginName:
        """Never fails: what is no name is the name of nothing."""
        before, colon, rest = text.partition(":")
        registry, rest = (before, rest) if colon and before in REGISTRIES else ("", text)
        name, _, version = rest.partition("@")
        return PluginName(registry, name, "" if version == LATEST else version)

    def __str__(self) -> str:
        start = f"{self.registry}:" if self.registry else ""
        return f"{start}{self.name}" + (f"@{self.version}" if self.version else "")


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text != LATEST


def is_version(text: str) -> bool:
    """Three numbers, or whatever else programs call themselves that can be a part of a name: `(devel)`."""
    return _ANY.fullmatch(text) is not None and text != LATEST


def same_version(asked: str, has: str) -> bool:
    """v1.2.0 and 1.2.0 are the same."""
    return asked.removeprefix("v") == has.removeprefix("v")


Part = tuple[int, int, str]


def newness(version: str) -> tuple[tuple[int, ...], tuple[Part, ...]]:
    """Sorts versions: by number, and what comes before a release before it. What has no numbers is older than all that have."""
    found = _VERSION.fullmatch(version)
    if found is None:
        return (-1,), ()
    *numbers, before = found.groups()
    last: Part = (2, 0, "")  # a release is newer than everything that has led to it
    parts = tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in before.split(".")) if before else (last,)
    return tuple(map(int, numbers)), parts
