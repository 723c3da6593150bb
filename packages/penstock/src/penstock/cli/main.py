"""The `penstock` command."""

from __future__ import annotations

import sys

import click

from penstock import __version__
from penstock.cli.printer import print_error
from penstock.cli.run import run
from penstock.errors import PenstockError, UsageError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="penstock")
def cli() -> None:
    """Moves records from sources through processors to destinations, and accounts for every one."""


cli.add_command(run)


def main() -> None:
    """Exit codes: 0 done, 1 a pipeline degraded, 2 bad usage or configuration, 130 interrupted."""
    try:
        sys.exit(cli(standalone_mode=False))
    except click.ClickException as e:
        e.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except PenstockError as e:
        print_error(e)
        sys.exit(2 if isinstance(e, UsageError) else 1)


if __name__ == "__main__":
    main()
