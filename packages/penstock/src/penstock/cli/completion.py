"""`penstock completion`: the script that makes a shell complete commands, options, files and names of plugins. It is click's own."""

from __future__ import annotations

import click

from penstock.cli.printer import out

# Where each shell looks: nothing is run when a shell starts. The other way is a line in the file that it starts with.
_BASH, _ZSH, _FISH = "~/.local/share/bash-completion/completions", "~/.zfunc", "~/.config/fish/completions"
INSTALL = {
    "bash": (f"mkdir -p {_BASH} && penstock completion bash > {_BASH}/penstock", 'eval "$(penstock completion bash)"'),
    "zsh": (
        f"mkdir -p {_ZSH} && penstock completion zsh > {_ZSH}/_penstock   # with fpath+={_ZSH} before compinit",
        'eval "$(penstock completion zsh)"',
    ),
    "fish": (
        f"mkdir -p {_FISH} && penstock completion fish > {_FISH}/penstock.fish",
        "penstock completion fish | source",
    ),
}
STARTS_WITH = {"bash": "~/.bashrc", "zsh": "~/.zshrc", "fish": "~/.config/fish/config.fish"}


@click.command()
@click.argument("shell", type=click.Choice(list(INSTALL)))
def completion(shell: str) -> None:
    """Print the completion script of a shell.

    \b
    For this shell alone:
      eval "$(penstock completion bash)"
      eval "$(penstock completion zsh)"
      penstock completion fish | source
    The script says how to install it for good.
    """
    out(script(shell))


def script(shell: str) -> str:
    from click.shell_completion import get_completion_class

    from penstock.cli.main import cli

    made = get_completion_class(shell)
    assert made is not None
    # `source_template` and not `source()`: that one starts bash to look at its version
    complete = made(cli, {}, "penstock", "_PENSTOCK_COMPLETE")
    first, _, rest = (complete.source_template % complete.source_vars()).strip().partition("\n")
    command, line = INSTALL[shell]
    about = f"# To install it: {command}\n# or, as a line in {STARTS_WITH[shell]}: {line}"
    # zsh finds out what a file is for by its first line
    return f"{first}\n{about}\n{rest}" if first.startswith("#") else f"{about}\n{first}\n{rest}"
