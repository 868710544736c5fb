"""`fsctx retry`."""

import shlex
from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("units", type=int, nargs=-1, metavar="[UNIT]...")
def retry(run: Path, units: tuple[int, ...]) -> None:
    """Put units that were given up back: those named, or all of them."""
    import secrets

    from fsctx.coordinator.retry import retry as put_back
    from fsctx.store import PosixStore

    done = put_back(PosixStore(run), units, token=secrets.token_hex(8))
    for unit in done.not_failed:
        click.echo(f"unit {unit} has not failed: left as it is")
    if not done.units:
        click.echo("nothing to put back")
        return
    shown = ", ".join(map(str, done.units[:20])) + (", …" if len(done.units) > 20 else "")
    click.echo(f"put back {len(done.units)} unit(s): {shown}")
    click.echo(f"agents that are at work take them; else: fsctx submit {shlex.quote(str(run))} --batch local -n 1")
