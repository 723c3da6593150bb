"""`penstock doctor`: is everything there that a pipeline needs? Starts nothing, needs neither Java nor Spark, and answers at once.

A check is a function that says what it saw; one that raises has failed. Facts of the machine are arguments where a test wants others.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import click
from click.shell_completion import CompletionItem

from penstock import packages
from penstock.cli.options import STATE, json_option
from penstock.cli.printer import colour, encodable, out_json, printable

OLDEST_PYTHON = (3, 11)
LEAST_DISK = 10**9
BESIDE = 10**9  # bytes that Python and the rest should have beside Spark's JVM
LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")  # what a container may use

State = Literal["ok", "failed", "warning", "absent"]
SIGNS: Mapping[State, str] = {"ok": "✓", "failed": "✗", "warning": "!", "absent": "–"}
WORDS: Mapping[State, str] = {"ok": "ok     ", "failed": "FAILED ", "warning": "warning", "absent": "-      "}
COLOURS: Mapping[State, str] = {"ok": "green", "failed": "red", "warning": "yellow", "absent": "bright_black"}
NAME = 14  # columns for the name of a check


@dataclass(frozen=True)
class Check:
    name: str
    state: State  # `absent` is optional; `warning` and `absent` are no failures
    text: str
    fix: str = ""


@click.command()
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(path_type=Path),  # also what is no folder: that is for a check to say
    shell_complete=lambda _, __, typed: [CompletionItem(typed, type="dir")],
    default=STATE,
    show_default=True,
    help="The state folder to check.",
)
@json_option("One JSON object on stdout.")
@click.pass_context
def doctor(context: click.Context, state: Path, as_json: bool) -> None:
    """Check what Penstock needs on this machine: Python, Java, Spark, folders, memory.

    Starts nothing. Exits with 1 when something has to be mended; what is optional may be absent.
    """
    found = list(checks(state))
    failed = sum(c.state == "failed" for c in found)
    if as_json:
        out_json({"ok": not failed, "checks": [asdict(c) for c in found]})
    else:
        _show(found, failed)
    if failed:
        context.exit(1)


def checks(state: Path) -> Iterator[Check]:
    """All of them, in the order in which they are shown."""
    versions = {name: version for name in (*packages.PYTHON, "delta-spark") if (version := installed(name))}
    spark = versions.get("pyspark", "")
    todo: list[tuple[str, Callable[[], Check | None]]] = [
        ("Python", check_python),
        ("Java", check_java),
        *((name, partial(check_package, name, versions.get(name, ""))) for name in packages.PYTHON),
        ("SPARK_HOME", partial(check_spark_home, os.environ.get("SPARK_HOME", ""), spark)),
        ("Delta", partial(check_delta, spark, versions.get("delta-spark", ""))),
        ("Kafka", partial(check_kafka, spark)),
        ("class archive", check_archive),
        ("state folder", partial(check_folder, "state folder", state, "name another one: --state DIR")),
        ("Spark's temp", check_temp_of_spark),
        ("Python's temp", check_temp_of_python),
        ("127.0.0.1", check_loopback),
        ("memory", check_memory),
    ]
    for name, check in todo:
        try:
            made = check()
        except Exception as e:  # a machine may be broken in any way; the other checks go on
            made = Check(name, "failed", f"can't be checked: {type(e).__name__}: {e}")
        if made is not None:
            yield made


# -- Python, Java, Spark --------------------------------------------------------------------------------------------


def check_python(version: tuple[int, ...] = sys.version_info[:3], executable: str = sys.executable) -> Check:
    text = f"{version[0]}.{version[1]}.{version[2]} ({executable})"
    if version[:2] >= OLDEST_PYTHON:
        return Check("Python", "ok", text)
    oldest = ".".join(map(str, OLDEST_PYTHON))
    return Check("Python", "failed", text, f"install Python {oldest} or newer, and Penstock with it")


def check_java() -> Check:
    from penstock.engine import java
    from penstock.errors import UsageError

    try:
        found = java.require()
    except UsageError as e:
        return Check("Java", "failed", f"{e.what}: {e.why}", e.hint)
    return Check("Java", "ok", f"{found.text} ({found.path}, from {found.origin})")


def installed(name: str) -> str:
    """The version of a Python package, without importing it; empty where it is not installed."""
    from importlib import metadata, util

    try:
        return metadata.version(name) or ""
    except Exception:  # not there; or it is, and what is written about it is broken
        pass
    try:  # a Spark that came with a cluster is only on the path
        found = util.find_spec(name)
        folder = Path(found.origin).parent if found is not None and found.origin else None
        said = re.search(r"""__version__.*?["']([^"']+)["']""", (folder / "version.py").read_text()) if folder else None
    except Exception:
        return ""
    return said[1] if said else ""


def check_package(name: str, version: str) -> Check:
    wanted = packages.PYTHON[name]
    install = f"pip install '{name}{wanted}'"
    if not version:
        return Check(name, "failed", "is not installed", install)
    if version not in wanted:
        return Check(name, "failed", f"{version} does not fit: it has to be {wanted}", install)
    return Check(name, "ok", version)


def check_spark_home(home: str, spark: str) -> Check | None:
    """Spark is started from SPARK_HOME where that is set, and not from the package."""
    if not home:
        return None
    fix = "unset SPARK_HOME"
    jars = sorted(Path(home).glob("jars/spark-core_*.jar"))
    if not jars:
        return Check("SPARK_HOME", "failed", f"is {home}, and there is no Spark", fix)
    version = jars[-1].stem.rpartition("-")[2]
    if spark and packages.minor(version) != packages.minor(spark):
        text = f"is {home}, which is Spark {version}: it would be started, and pyspark is {spark}"
        return Check("SPARK_HOME", "failed", text, fix)
    return Check("SPARK_HOME", "ok", f"is {home}, Spark {version}")


def check_delta(spark: str, python: str) -> Check:
    package, about = _package(packages.DELTA, spark)
    if package is None:
        if python and spark:
            fix = "pip uninstall delta-spark"
            return Check("Delta", "failed", f"delta-spark {python} is installed, and {about}", fix)
        return Check("Delta", "absent", about)
    wanted = package.python["delta-spark"]
    if python and python != wanted:
        text = f"delta-spark {python} is installed and does not fit Spark {spark}"
        return Check("Delta", "failed", text, f"pip install delta-spark=={wanted}, or pip uninstall delta-spark")
    return _optional("Delta", about, there=True)


def check_kafka(spark: str) -> Check:
    package, about = _package(packages.KAFKA, spark)
    return Check("Kafka", "absent", about) if package is None else _optional("Kafka", about, there=True)


def _package(table: Mapping[str, packages.Package | None], spark: str) -> tuple[packages.Package | None, str]:
    if not spark:
        return None, "without pyspark nothing is known"
    minor = packages.minor(spark)
    if minor not in table:
        return None, f"nothing is known for Spark {spark}"
    package = table[minor]
    if package is None:
        return None, f"there is no package for Spark {minor} yet"
    python = "".join(f" (in Python {name} {version})" for name, version in package.python.items())
    return package, f"Spark {spark} takes {' and '.join(package.coordinates)}{python}"


def _optional(name: str, text: str, *, there: bool) -> Check:
    """A package matters where a connector uses it."""
    from penstock.plugins import builtin

    if any(name.lower() in plugins for plugins in (builtin.SOURCES, builtin.DESTINATIONS)):
        return Check(name, "ok" if there else "absent", text)
    return Check(name, "absent", f"{text}; no connector uses it yet")


def check_archive() -> Check:
    from penstock.engine import archive

    name, path = "class archive", archive.location()
    if path is None:
        return Check(name, "absent", "needs Java and pyspark")
    if os.environ.get(archive.OFF):
        return Check(name, "absent", f"turned off by {archive.OFF}")
    if path.exists():
        return Check(name, "ok", str(path))
    text = "not made yet: Spark starts a little slower until a first run has made it"
    return Check(name, "absent", text, "nothing, or make it now: python -m penstock.cli.archive")


# -- folders --------------------------------------------------------------------------------------------------------


def check_folder(name: str, folder: Path, otherwise: str, free: Callable[[Path], int] | None = None) -> Check:
    """Can files be made there, and is there room? Permission bits do not tell (root, read-only mounts): it is tried."""
    at = folder.absolute()
    while not os.path.lexists(at) and at != at.parent:
        at = at.parent
    if not at.is_dir():
        return Check(name, "failed", f"{at} is not a folder", otherwise)
    try:
        with tempfile.NamedTemporaryFile(dir=at, prefix=".penstock-doctor-") as file:
            file.write(b"x")
    except OSError as e:
        return Check(name, "failed", f"{at} can't be written to: {e.strerror or e}", otherwise)
    space = free(at) if free else shutil.disk_usage(at).free
    where = str(at) if at == folder.absolute() else f"{folder.absolute()} can be made"
    if space < LEAST_DISK:
        text = f"{where}; only {_bytes(space)} of disk are free, and {_bytes(LEAST_DISK)} should be"
        return Check(name, "failed", text, f"free some, or {otherwise}")
    return Check(name, "ok", f"{where}; {_bytes(space)} of disk are free")


def check_temp_of_spark() -> Check:
    return check_folder("Spark's temp", Path(_temp_of_spark()), "name another one: SPARK_LOCAL_DIRS=DIR")


def _temp_of_spark() -> str:
    """Java does not look at TMPDIR on Linux."""
    own = os.environ.get("SPARK_LOCAL_DIRS", "")
    return own.split(",")[0] or ("/tmp" if sys.platform == "linux" else tempfile.gettempdir())


def check_temp_of_python() -> Check | None:
    """Said where it is another folder."""
    try:
        folder = tempfile.gettempdir()
    except FileNotFoundError as e:
        return Check(
            "Python's temp", "failed", e.strerror or str(e), "name a folder that can be written to: TMPDIR=DIR"
        )
    if folder == _temp_of_spark():
        return None
    return check_folder("Python's temp", Path(folder), "name another one: TMPDIR=DIR")


# -- the machine ----------------------------------------------------------------------------------------------------


def check_loopback(address: str = "127.0.0.1") -> Check:
    try:
        with socket.socket() as s:
            s.bind((address, 0))
            s.listen()
    except OSError as e:
        fix = "Spark and Python talk to each other there: bring the loopback interface up, or allow it in the sandbox"
        return Check(address, "failed", f"can't be listened on: {e.strerror or e}", fix)
    return Check(address, "ok", "can be listened on")


def memory() -> int | None:
    """What this process may use at most, in bytes: the machine's, or less in a container. None where it is not known."""
    try:
        known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    except (AttributeError, ValueError, OSError):
        return None
    for file in LIMITS:
        try:
            known.append(int(Path(file).read_text()))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return min(known)


def check_memory(total: int | None = None) -> Check | None:
    from penstock.config.units import parse_size
    from penstock.engine.session import DEFAULTS

    total = memory() if total is None else total
    if total is None:
        return None
    driver = DEFAULTS["spark.driver.memory"]
    text = f"{_bytes(total)}; Spark takes up to {driver}, and Python comes on top"
    if total < parse_size(driver) + BESIDE:
        return Check("memory", "warning", text, "give Spark less: penstock run --conf spark.driver.memory=1g")
    return Check("memory", "ok", text)


# -- what is shown --------------------------------------------------------------------------------------------------


def _bytes(n: int) -> str:
    return f"{n / 1e9:,.1f} GB" if n >= 10**8 else f"{n / 1e6:,.1f} MB"


def _show(found: Sequence[Check], failed: int) -> None:
    all_signs = "".join(SIGNS.values())
    signs = SIGNS if encodable(all_signs, sys.stdout.encoding) == all_signs else WORDS
    lines = [line for c in found for line in _lines(c, signs)]
    lines += ["", f"{failed} of {len(found)} checks failed" if failed else "Everything that is needed is there."]
    click.echo("\n".join(lines))


def _lines(c: Check, signs: Mapping[State, str]) -> Iterator[str]:
    sign = signs[c.state]
    indent = len(sign) + 1 + NAME + 1
    for i, line in enumerate(_wrapped(c.text, indent)):
        start = f"{colour(sign, COLOURS[c.state], sys.stdout)} {c.name:{NAME}} " if i == 0 else " " * indent
        yield start + line
    for i, line in enumerate(_wrapped(c.fix, indent + 4) if c.fix else []):
        yield " " * indent + ("do: " if i == 0 else "    ") + line


def _wrapped(text: str, indent: int) -> list[str]:
    """On a terminal a text is broken between words; a pipe gets one line."""
    shown = encodable(printable(text).replace("\n", " "), sys.stdout.encoding)
    if not sys.stdout.isatty():
        return [shown]
    width = max(shutil.get_terminal_size().columns - indent, 30)
    return textwrap.wrap(shown, width, break_long_words=False, break_on_hyphens=False)
