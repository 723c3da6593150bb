"""The `penstock` command. A command's module is imported when it is used: `--help` answers at once."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import click

from penstock import __version__

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMMANDS = {
    "init": "Make a folder with a pipeline, a test and some data.",
    "run": "Run pipelines.",
    "validate": "Check pipeline files; starts nothing.",
    "graph": "Show a pipeline: text, mermaid, dot or svg.",
    "test": "Run the tests beside pipelines.",
    "dlq": "Look at dead letters.",
    "pipelines": "Look at pipelines; stop, start and rewind them.",
    "reconcile": "Hold the ledger to what destinations say they have.",
    "trace": "Show what became of one record.",
    "log": "Look into commit logs, check and mend them.",
    "plugins": "List, describe, add and check connectors and processors.",
    "connector": "Make a connector, or test one.",
    "doctor": "Check what Penstock needs: Java, Spark, disk.",
    "schema": "Print the JSON Schema of pipeline files, for editors.",
    "completion": "Print the completion script of a shell.",
}


class Commands(click.Group):
    """One module per command, `penstock.cli.<name>`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"penstock.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """From the list: no command is imported for it."""
        from click.shell_completion import CompletionItem

        found = [CompletionItem(name, help=text) for name, text in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as e:
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            if not near:
                raise
            raise click.UsageError(f"{e.message} Did you mean {near[0]!r}?", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Show where an error came from.")
@click.version_option(__version__, prog_name="penstock")
def cli(debug: bool) -> None:  # `failed` reads it from the command line: errors may come before any option is read
    """Moves records from sources through processors to destinations, and accounts for every one."""


def main() -> None:
    """Exit codes: 0 done, 1 a pipeline degraded, 2 bad usage or configuration, 130 interrupted."""
    try:
        sys.exit(cli(standalone_mode=False))
    except (Exception, KeyboardInterrupt) as e:
        from penstock.cli.failure import failed

        sys.exit(failed(e, sys.argv[1:]))


if __name__ == "__main__":
    main()
