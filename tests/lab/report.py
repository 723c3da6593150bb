"""What a run of the laboratory found, as a page that a person can read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tests.lab.campaign import STEPS, Found

FAULTS = (
    "missing",
    "duplicated",
    "invented",
    "reordered",
    "corrupted",
    "wrongly acked",
    "account",
    "does not go on",
    "other",
)
# As the contract numbers them: all but K20, a reload, which there is not.
POINTS = [*(f"K{n}" for n in range(1, 7)), "K6a", "K7", "K7a", *(f"K{n}" for n in range(8, 26) if n != 20)]
WHERE = {
    "files": "`files`",
    "lines": "`lines`",
    "postgres": "`postgres`",
    "queue": "`queue`, through a Python function",
    "delta": "`delta`",
    "kafka": "`kafka`, two partitions",
    "three": "`files`, `lines` and `files` at once, through a Python function",
    "mixed": "`files`, `postgres` and `queue` at once",
    "deleting": "`files`, from a source that deletes what is acked",
    "chained": "`queue`, and from there `files` by a second pipeline",
    "host": "`files`, from a connector in a host",
    "program": "three times `files`, from a plugin program",
    "plugin": "a plugin program, from a plugin program (at least once)",
}


@dataclass(frozen=True)
class Control:
    """Something is broken on purpose, and has to be found."""

    what: str
    scene: str
    found: Found | None  # None: not looked for here
    elsewhere: str = ""  # the test that is its control


def page(command: str, founds: Sequence[Found], controls: Sequence[Control], minutes: float) -> str:
    parts = (
        _campaigns(command, founds, minutes)
        if founds
        else [f"`{command}`: no kills but those of the controls, in {minutes:.0f} minutes."]
    )
    if controls:
        parts += ["## Controls", _controls(controls)]
    stories = [f"- {f.scene}, seed {f.seed}: {story}" for f in founds for story in f.stories]
    if stories:
        parts += ["## What was found", "\n".join(stories)]
    return "\n\n".join(parts) + "\n"


def _campaigns(command: str, founds: Sequence[Found], minutes: float) -> list[str]:
    kills = sum(found.kills for found in founds)
    faults = _sum(found.faults for found in founds)
    parts = [
        f"`{command}`: {kills:,} kills and {sum(f.lives for f in founds):,} starts in {minutes:.0f} minutes, "
        f"{sum(f.records for f in founds):,} records, "
        + (f"**faults: {', '.join(f'{n} {kind}' for kind, n in faults.items())}**." if faults else "no fault.")
    ]
    by_scene = {name: [f for f in founds if f.scene == name] for name in WHERE}
    by_scene = {name: some for name, some in by_scene.items() if some}
    parts += ["## By destination", _destinations(by_scene)]
    parts += [
        "## By the step at which the engine died",
        _table(by_scene, lambda f: f.steps, list(dict.fromkeys(STEPS.values()))),
    ]
    missed = sorted(set(STEPS.values()) - set().union(*(f.steps for f in founds)))
    parts.append(f"Steps that no kill has hit: {', '.join(missed)}." if missed else "Every step was hit.")
    parts += ["## By what was done to it", _table(by_scene, _done, [])]
    parts += ["## By kill point of the contract", _points(_sum(f.steps for f in founds), _sum(map(_done, founds)))]
    return parts


def red(control: Control) -> bool:
    """Found by what it does: an error of the laboratory itself is none of that."""
    return bool(control.elsewhere) or (control.found is not None and bool(control.found.faults.keys() - {"other"}))


def _points(steps: Counter[str], done: Counter[str]) -> str:
    """Named in the lines of both tables; what is a step is counted there alone."""
    hits: Counter[str] = Counter()
    named = re.compile(r"\bK\d+a?\b")
    of_steps = set(named.findall(" ".join(STEPS.values())))
    for counts, skipped in ((steps, set()), (done, of_steps)):
        for name, n in counts.items():
            hits.update(dict.fromkeys(set(named.findall(name)) - skipped, n))
    missed = [point for point in POINTS if not hits[point]]
    said = ", ".join(f"{point} {hits[point]}" for point in POINTS)
    return f"{said}. " + (f"**Not hit: {', '.join(missed)}.**" if missed else "Every one was hit.")


def _done(found: Found) -> Counter[str]:
    """Kills at points are one line: at which, the other table says."""
    done: Counter[str] = Counter()
    for what, n in found.blows.items():
        done["killed at a named point" if what in STEPS else what] += n
    if found.clock:
        done["K22 clock steps, besides one of the others"] = found.clock
    return done


def _destinations(by_scene: dict[str, list[Found]]) -> str:
    head = ["destination", "kills", "starts", "records", *FAULTS]
    rows = []
    for name, founds in by_scene.items():
        faults = _sum(f.faults for f in founds)
        counts = [sum(f.kills for f in founds), sum(f.lives for f in founds), sum(f.records for f in founds)]
        rows.append([WHERE[name], *(f"{n:,}" for n in counts), *(str(faults[kind]) for kind in FAULTS)])
        if repeated := sum(f.repeated for f in founds):
            rows[-1][0] += f"; {repeated:,} arrived twice, each in a batch that was under way"
    return _lines(head, rows)


def _table(by_scene: dict[str, list[Found]], counts: Callable[[Found], Counter[str]], first: Sequence[str]) -> str:
    sums = {name: _sum(counts(f) for f in founds) for name, founds in by_scene.items()}
    names = [*first, *sorted(set().union(*sums.values()) - set(first))]
    rows = []
    for name in names:
        cells = [some[name] for some in sums.values()]
        if sum(cells):
            rows.append([name, *(str(n or "") for n in cells), str(sum(cells))])
    return _lines(["", *by_scene, "all"], rows)


def _controls(controls: Sequence[Control]) -> str:
    rows = []
    for control in controls:
        found = control.found
        if found is None:
            rows.append([control.what, "", f"not looked for here; red in {control.elsewhere}"])
        elif red(control):
            rows.append(
                [
                    control.what,
                    control.scene,
                    f"found after {found.kills} kill{'' if found.kills == 1 else 's'}: {', '.join(found.faults)}",
                ]
            )
        else:
            rows.append([control.what, control.scene, f"**not found in {found.kills} kills**"])
    return _lines(["what is broken", "scene", "result"], rows)


def _sum(counters: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
