"""Options that several commands have, and the state folder that those which only look at one open."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

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
