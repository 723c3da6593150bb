"""Writes everything that is made from the code: parts of docs/, and the schema that `penstock init` hands out.

Run by `make docs` as `python -m scripts.docs`; starts no Spark.
"""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.cli.schema import schema
from scripts import commands, configuration, connectors, contract, errors, processors

ROOT = Path(__file__).parents[1]
SCHEMA = Path("packages", "penstock", "src", "penstock", "templates", "penstock.schema.json")


def pages() -> dict[Path, str]:
    """Path below the project → text, of all pages but the contract."""
    made: dict[Path, str] = {}
    for script in (commands, configuration, errors, processors, connectors):
        made |= script.pages()
    return made


def main() -> int:
    made = pages()
    for path, text in made.items():
        (ROOT / path).write_text(text, encoding="utf-8")
    for path in (ROOT / processors.FOLDER).glob("*.md"):
        if path.relative_to(ROOT) not in made:
            path.unlink()
    schema.main(["-o", str(ROOT / SCHEMA)], standalone_mode=False)
    return contract.main()


if __name__ == "__main__":
    sys.exit(main())
