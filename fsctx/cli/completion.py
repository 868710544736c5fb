"""`fsctx completion`."""

import click


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print what makes SHELL complete commands, options and files of fsctx.

    For good: put the line of the first example into ~/.bashrc, or, with zsh for bash, into ~/.zshrc after compinit.
    """
    from click.shell_completion import get_completion_class

    from fsctx.cli import cli

    kind = get_completion_class(shell)
    if kind is not None:  # click has these three
        click.echo(kind(cli, {}, "fsctx", "_FSCTX_COMPLETE").source())
