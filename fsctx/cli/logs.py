"""`fsctx logs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fsctx.coordinator.logs.entries import Entry
    from fsctx.store import Store

_REFRESH_S = 1.0


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("name", required=False, metavar="[AGENT]")
@click.option("--follow", "is_followed", is_flag=True, help="Go on with what is added, until the run is over.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document a line.")
def logs(*, run: Path, name: str | None, is_followed: bool, as_json: bool) -> None:
    """Show what the agents of RUN did: one line for each event, merged by time.

    With AGENT, that agent's events alone; it may also be the name of a pilot's own output, which tells why an agent did
    not even begin. Times are those that each host wrote; lines of two hosts may be a little out of order.
    """
    from fsctx.coordinator.logs import entries
    from fsctx.coordinator.logs.read import pilot_logs
    from fsctx.store import PosixStore

    store = PosixStore(run)
    shown = 0
    for entry in _read(store, name, is_followed=is_followed):
        click.echo(entries.as_json(entry) if as_json else entries.as_text(entry, is_named=name is None))
        shown += 1
    if name is None and not as_json and (printed := pilot_logs(store)):
        more = f" and {len(printed) - 1} more" if len(printed) > 1 else ""
        click.echo(f"{shown:,} events; what pilots printed is in logs {printed[0]}{more}: name one to see it", err=True)


def _read(store: "Store", name: str | None, *, is_followed: bool) -> "Iterator[Entry]":
    """Yield what is there, and, where it is followed, what comes until nobody is at work."""
    import time

    from fsctx.coordinator.logs.read import follow
    from fsctx.coordinator.status import read_status
    from fsctx.coordinator.watching import Beat, is_over, with_silences

    followed, beats = follow(store, name), dict[str, Beat]()
    yield from followed.read_on()
    while is_followed:
        seen, beats = with_silences(read_status(store), beats, time.monotonic())
        yield from followed.read_on()  # after the look: an agent that left has written its last line
        if is_over(seen):
            break
        time.sleep(_REFRESH_S)
    yield from followed.rest()
