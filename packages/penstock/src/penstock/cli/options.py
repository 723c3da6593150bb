"""Options that several commands have, and the state folder that those which only look at one open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from penstock.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
STATE = Path(".penstock")


def json_option(help: str = "JSON on stdout, for programs.") -> Callable[[F], F]:
    return click.option("--json", "as_json", is_flag=True, help=help)


def state_option() -> Callable[[F], F]:
    """For commands that look at what is there."""
    return click.option(
        "--state",
        type=click.Path(path_type=Path, file_okay=False, readable=False),
        default=STATE,
        show_default=True,
        help="The state folder.",
    )


def paths_argument() -> Callable[[F], F]:
    return click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path))


def conf_option() -> Callable[[F], F]:
    return click.option(
        "--conf", multiple=True, metavar="KEY=VALUE", help="A Spark setting. May be given several times."
    )


def spark_settings(conf: Sequence[str]) -> dict[str, str]:
    """What `conf_option` has got."""
    settings = {}
    for item in conf:
        key, separator, value = item.partition("=")
        if not separator or not key:
            raise UsageError(f"--conf {item} is not KEY=VALUE", code="usage.conf")
        settings[key] = value
    return settings
