"""`fsctx stop`."""

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--drain", is_flag=True, help="Let agents finish the units that they hold, then leave.")
def stop(run: Path, *, drain: bool) -> None:
    """Tell all agents of a run to save what they have and leave.

    The order holds for agents that were submitted so far, pilots in a queue too; those of a later `submit` work.
    """
    from fsctx.coordinator.stop import stop as give
    from fsctx.store import PosixStore

    told = give(PosixStore(run), "drain" if drain else "stop")
    how = "finish the units that they hold and leave" if drain else "save and leave"
    click.echo(f"run {told.run}: agents are told to {how} (order {told.number}); {told.n_alive} seem alive")
