"""Writes the tables of docs/reference/errors.md from `penstock.codes`. Run by `make docs`; starts nothing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from penstock.codes import SECTIONS, Code
from scripts.markers import replaced

ROOT = Path(__file__).parents[1]
PAGE = Path("docs", "reference", "errors.md")


def pages() -> dict[Path, str]:
    """Path below the project → text."""
    made = "\n\n".join(_section(title, codes) for title, codes in SECTIONS.items())
    return {PAGE: replaced((ROOT / PAGE).read_text(), {"codes": made})}


def _section(title: str, codes: Mapping[str, Code]) -> str:
    rows = [_row(f"`{code}`", c.kind, c.meaning, c.todo) for code, c in codes.items()]
    return "\n".join([f"## {title}", "", "| code | kind | meaning | what to do |", "|---|---|---|---|", *rows])


def _row(*cells: str) -> str:
    return "| " + " | ".join(cells) + " |"
