"""`fsctx env`: the software environment, packed once for all nodes."""

import json
import shlex
import sys
from pathlib import Path

import click

from fsctx.cli.plan import progress_bars


@click.group("env")
def env() -> None:
    """Pack the software environment into one file, which each node fetches and unpacks once.

    Without it every agent imports some thousand files from the shared filesystem.
    """


@env.command("pack")
@click.argument("output", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--python",
    type=click.Path(path_type=Path),
    default=sys.executable,
    help="An interpreter of the environment to pack; else the one that runs fsctx.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def pack(output: Path, python: Path, *, as_json: bool) -> None:
    """Pack a virtual or conda environment that has fsctx into the archive OUT (.tar.gz)."""
    import msgspec

    from fsctx.coordinator.environment.pack import pack as pack_environment

    with progress_bars(is_shown=not as_json) as progress:
        packed = pack_environment(output, python, progress=lambda done, total: progress("packing", done, total))
    if as_json:
        click.echo(msgspec.json.encode(packed))
        return
    environment = packed.environment
    click.echo(
        f"Packed {packed.files:,} files, {environment.unpacked_bytes / 1e6:.1f} MB, into {packed.archive},"
        f" {packed.size_bytes / 1e6:.1f} MB; it has fsctx {environment.fsctx} for Python {environment.python}."
    )
    for note in packed.notes:
        click.echo(f"  note: {note}")
    click.echo(f"Next: fsctx env add RUN {shlex.quote(str(packed.archive))}")


@env.command("add")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("archive", metavar="ARCHIVE", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def add(run: Path, archive: Path, *, as_json: bool) -> None:
    """Make an environment's ARCHIVE known to a RUN and print the command that starts an agent from it on any node.

    The archive stays where it is: that must be the same path on all nodes. Again changes nothing.
    """
    from fsctx.coordinator.environment.add import add as add_environment
    from fsctx.coordinator.submit.bootstrap import pilot_command
    from fsctx.store import PosixStore

    with progress_bars(is_shown=not as_json) as progress:
        context = add_environment(PosixStore(run), archive, progress=progress)
    command = pilot_command(run.absolute(), context.digest)
    if as_json:
        click.echo(json.dumps({"environment": context.digest, "bytes": context.size_bytes, "command": command}))
        return
    click.echo(f"{run} has the environment {context.digest}")
    click.echo(f"Next, on a node: {shlex.join(command)}")
