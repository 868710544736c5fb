"""`fsctx status`."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fsctx.coordinator.progress import Status

_REFRESH_S = 2.0
_WIDE_ENOUGH = {"rows": 48, "note": 60, "device": 90, "unit": 100, "model": 130, "from": 150}
"""Columns that only terminals of so many columns show: the others stay whole."""

_WIDEST = 28
"""A column's characters: what is longer, such as a model's name, is cut."""

_ASK_AGAIN_S = 30.0
"""A batch system is not asked at every look."""


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--watch", is_flag=True, help="Look again every two seconds until all is done and the agents left.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (with --watch, one a line).")
def status(run: Path, *, watch: bool, as_json: bool) -> None:
    """Show how far a run is, and which agents work on it.

    It rests on the run's files: it works from every host that sees them, whether agents live or not. Batch systems to
    which pilots were submitted are asked what became of them, where they answer.
    """
    import sys

    looks = _looks(run, is_watching=watch)
    if as_json:
        for seen in looks:
            _print_json(seen, indent=None if watch else 1)
    elif watch and sys.stdout.isatty():
        _watch(run, looks)
    else:
        for seen in looks:
            _print_text(seen, root=str(run))


def _watch(run: Path, looks: "Iterator[Status]") -> None:
    """Show a screen that follows the terminal's size; what stands at the end stays in the terminal."""
    import time

    from rich.console import Console
    from rich.live import Live

    from fsctx.coordinator.live.latest import latest_events
    from fsctx.coordinator.live.pace import Pace
    from fsctx.coordinator.live.screen import Picture, draw
    from fsctx.store import PosixStore

    console, pace, store = Console(), Pace(), PosixStore(run)
    if console.is_dumb_terminal:  # it can't go back to draw again
        for seen in looks:
            _print_text(seen, root=str(run))
        return
    first = next(looks)
    picture = Picture(status=first, left=None, rows_per_s=None)
    with Live(
        get_renderable=lambda: draw(picture, width=console.width, height=console.height),
        console=console,
        screen=True,
        refresh_per_second=2,
    ):
        for seen in itertools.chain([first], looks):
            pace.note(time.monotonic(), seen.rows.done)
            left = pace.left(seen.rows_left)
            picture = Picture(status=seen, left=left, rows_per_s=pace.rows_per_s, events=latest_events(store, seen))
    _print_text(picture.status, root=str(run))


def _looks(run: Path, *, is_watching: bool) -> Iterator["Status"]:
    """Yield one status, or one every two seconds until the run is over."""
    import dataclasses
    import time

    from fsctx.coordinator.pilots import look_at_pilots
    from fsctx.coordinator.status import read_status
    from fsctx.coordinator.submit.submit import batch_system
    from fsctx.coordinator.watching import Beat, is_over, with_silences
    from fsctx.store import PosixStore

    store = PosixStore(run)
    seen = read_status(store)
    pilots, asked_s = look_at_pilots(store, batch_system), time.monotonic()
    if not is_watching:
        yield dataclasses.replace(seen, pilots=pilots)
        return
    beats: dict[str, Beat] = {}
    while True:
        seen, beats = with_silences(read_status(store), beats, time.monotonic())
        if time.monotonic() - asked_s > _ASK_AGAIN_S:
            pilots, asked_s = look_at_pilots(store, batch_system), time.monotonic()
        yield dataclasses.replace(seen, pilots=pilots)
        if is_over(seen):
            return
        time.sleep(_REFRESH_S)


def _print_json(seen: "Status", *, indent: int | None) -> None:
    import json

    from fsctx.coordinator.progress import to_json

    click.echo(json.dumps(to_json(seen), indent=indent))


def _print_text(seen: "Status", *, root: str) -> None:
    import sys

    from fsctx.coordinator import status_text
    from fsctx.coordinator.printing import printable

    for line in status_text.summary(seen, root=root):
        click.echo(printable(line))
    rows = status_text.agent_rows(seen)
    if sys.stdout.isatty() and rows:
        _print_table(rows)
    else:
        for line in status_text.plain_table(rows):
            click.echo(line)
    for line in status_text.others(seen):
        click.echo(printable(line))


def _print_table(rows: list[tuple[str, ...]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from fsctx.coordinator.status_text import AGENT_COLUMNS

    console = Console()
    shown = [i for i, name in enumerate(AGENT_COLUMNS) if console.width >= _WIDE_ENOUGH.get(name, 0)]
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    for i in shown:
        table.add_column(AGENT_COLUMNS[i], no_wrap=AGENT_COLUMNS[i] != "note", max_width=_WIDEST)
    for row in rows:
        table.add_row(*(Text(row[i]) for i in shown))  # Text: brackets in an agent's words are no markup
    console.print(table)
