"""From the name in a file to a plugin: what is built in, what installed packages offer, and what the plugins folder holds.

Built in are Penstock's own, which run in Spark (`builtin`), and connectors under the entry point `penstock.connectors`, which run in a
process of their own. `checks`, `assembly` and the commands ask; nothing is started, and of packages only what is asked for is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from penstock.config import Problem
from penstock.errors import UsageError
from penstock.plugins import builtin
from penstock.plugins.dispensers import Direct, Dispenser
from penstock.plugins.names import PluginName, same_version
from penstock.plugins.standalone import Standalone
from penstock_sdk import Connector

GROUP = "penstock.connectors"
_HOSTED = ("source", "destination")


class Ambiguous(Exception):
    """More than one plugin has this name."""

    def __init__(self, why: str, hint: str) -> None:
        super().__init__(why)
        self.hint = hint


@cache
def _offered() -> dict[str, list[EntryPoint]]:
    """Name → who offers it. Reading what is installed takes some milliseconds, so it is done once, and only if needed."""
    found: dict[str, list[EntryPoint]] = {}
    for one in entry_points(group=GROUP):
        same = found.setdefault(one.name, [])
        if all(one.value != other.value for other in same):  # a package that is on the path twice
            same.append(one)
    return found


def offered() -> list[str]:
    """The names under the entry point."""
    return sorted(_offered())


def kinds(name: str) -> tuple[str, ...]:
    """What a connector under the entry point is."""
    made = direct(name)
    return made.kinds if made is not None else ()


def direct(name: str) -> Direct | None:
    """What a package offers under this name."""
    found = _offered().get(name, [])
    if len(found) > 1:
        packages = " and ".join(sorted(f"{e.dist.name if e.dist else '?'} ({e.value})" for e in found))
        raise Ambiguous(f"more than one installed package offers it: {packages}", "uninstall one of them")
    return Direct(_loaded(found[0])) if found else None


@cache
def _loaded(entry: EntryPoint) -> Connector:
    hint = "repair the package, or uninstall it"
    try:
        made: Any = entry.load()
    except Exception as e:
        raise UsageError(
            f"The connector {entry.name!r} can't be imported from {entry.value}",
            code="plugins.package",
            why=f"{type(e).__name__}: {e}",
            hint=hint,
        ) from e
    if not isinstance(made, Connector):
        raise UsageError(f"{entry.value} is no penstock_sdk.Connector", code="plugins.package", hint=hint)
    if made.name != entry.name:
        raise UsageError(
            f"The package offers {entry.name!r}, and its connector calls itself {made.name!r}",
            code="plugins.package",
            hint=hint,
        )
    return made


def hosted(kind: str, plugin: str) -> Dispenser | None:
    """The connector that a file means, if it runs in a process of its own. `Ambiguous` where the name alone does not say which one."""
    if kind not in _HOSTED:
        return None
    name = PluginName.parse(plugin)
    native = name.registry != "standalone" and builtin.known(kind, plugin)
    found: list[Dispenser] = []
    if name.registry != "standalone" and not native:
        made = direct(name.name)
        if made is not None and kind in made.kinds and _is(name, made):
            found.append(made)
    if name.registry != "builtin":
        program = Standalone().find(name)
        if program is not None and kind in program.kinds:
            found.append(program)
    if len(found) + native > 1:
        what = "it is built in, and a program in the plugins folder"
        raise Ambiguous(what, f"write builtin:{name.name} or standalone:{name.name}")
    return found[0] if found else None


def _is(name: PluginName, made: Dispenser) -> bool:
    return not name.version or same_version(name.version, made.version)


def problem(kind: str, plugin: str) -> Problem | None:
    """Why nothing is called that, without a place; None where something is."""
    try:
        if hosted(kind, plugin) is not None:
            return None
    except Ambiguous as e:
        what = f"{plugin!r} does not say which plugin is meant: {e}"
        return Problem("config.ambiguous-plugin", what, "", hint=e.hint)
    name = PluginName.parse(plugin)
    if name.registry != "standalone" and builtin.known(kind, plugin):
        return None
    if kind in _HOSTED and (other := _elsewhere(kind, name)) is not None:
        return other
    if name.registry == "standalone":
        hint = "`penstock plugins install PATH` adds a program"
        return Problem(
            "config.unknown-plugin", f"no {kind} in the plugins folder is called {name.name!r}", "", hint=hint
        )
    return builtin.problem(kind, plugin, [n for n in offered() if kind in kinds(n)])


def _elsewhere(kind: str, name: PluginName) -> Problem | None:
    """A connector with this name, but of another kind or version."""
    for made in _named(name):
        if kind not in made.kinds:
            return Problem("config.unknown-plugin", f"{name.name!r} is no {kind}", "", hint=f"it is a {made.kinds[0]}")
        what = f"{name.name!r} has no version {name.version!r}"
        return Problem("config.unknown-plugin", what, "", hint=f"there is {made.version}")
    return None


def _named(name: PluginName) -> Iterator[Dispenser]:
    if name.registry != "standalone" and (made := direct(name.name)) is not None:
        yield made
    if name.registry != "builtin":
        folder = Standalone()
        yield from (folder.program(p) for p in folder.locked() if p.name == name.name)


def everything() -> Iterator[Dispenser]:
    """All connectors that run in a process of their own."""
    for name in offered():
        if (made := direct(name)) is not None:
            yield made
    folder = Standalone()
    yield from (folder.program(p) for p in folder.locked())
