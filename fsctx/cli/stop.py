"""`fsctx stop`."""

from pathlib import Path

import click


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--drain", is_flag=True, help="Let agents finish the units that they hold, then leave.")
def stop(run: Path, *, drain: bool) -> None:
    """Tell all agents of a run to save what they have and leave.

    The order holds for agents that were submitted so far; those of a later `submit` work. Pilots that wait in the queue
    of a batch system are taken out of it, where it answers; one that starts all the same leaves at once.
    """
    from fsctx.coordinator.pilots import remove_waiting
    from fsctx.coordinator.stop import stop as give
    from fsctx.coordinator.submit.submit import batch_system
    from fsctx.store import PosixStore

    store = PosixStore(run)
    told = give(store, "drain" if drain else "stop")
    how = "finish the units that they hold and leave" if drain else "save and leave"
    click.echo(f"run {told.run}: agents are told to {how} (order {told.number}); {told.n_alive} seem alive")
    n_removed, unasked = remove_waiting(store, batch_system)
    if n_removed:
        click.echo(f"{n_removed} pilot(s) that waited were taken out of the queue")
    for why in unasked:
        click.echo(f"{why}: pilots that still start will leave at once")
