"""Writes the settings of every connector that comes with Penstock into its page in docs/reference/. Run by `make docs`.

The tables are made of the settings classes (`plugins/describe.py`); everything else on a page is written by hand. Starts no Spark.
"""

from __future__ import annotations

from pathlib import Path

from penstock.plugins import builtin, registry
from penstock.plugins.describe import describe, describe_hosted, table
from scripts.markers import replaced

ROOT = Path(__file__).parents[1]
FOLDER = Path("docs", "reference")
PAGES = {
    "delta.md": [("destination", "delta")],
    "files.md": [("source", "files"), ("destination", "files")],
    "generator.md": [("source", "generator")],
    "lines.md": [("destination", "lines")],
    "log-and-blackhole.md": [("destination", "log"), ("destination", "blackhole")],
    "postgres.md": [("destination", "postgres")],
    "jdbc.md": [("source", "jdbc")],
    "kafka.md": [("source", "kafka")],
    "kafka-destination.md": [("destination", "kafka")],
    "queue.md": [("destination", "queue"), ("source", "queue")],
    "hosted-connectors.md": [(kind, name) for name in registry.offered() for kind in registry.kinds(name)],
}


def pages() -> dict[Path, str]:
    """Path below the project → text."""
    there = {(kind, name) for kind in ("source", "destination") for name in builtin.KINDS[kind]}
    if not there <= {c for connectors in PAGES.values() for c in connectors}:
        raise ValueError(f"PAGES does not name all of these: {sorted(there)}")
    made = {}
    for page, connectors in PAGES.items():
        parts = {f"settings of the {kind} {name}": _settings(kind, name) for kind, name in connectors}
        made[FOLDER / page] = replaced((ROOT / FOLDER / page).read_text(encoding="utf-8"), parts)
    return made


def _settings(kind: str, name: str) -> str:
    hosted = registry.hosted(kind, name)
    settings = (describe(kind, name) if hosted is None else describe_hosted(kind, hosted)).settings
    return table(settings) if settings else "It has no settings."


def main() -> None:
    for path, text in pages().items():
        (ROOT / path).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
