"""`fsctx doctor`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fsctx.cli.numbers import Number
from fsctx.errors import Damaged, InputError, NotComplete

if TYPE_CHECKING:
    from collections.abc import Callable

    from fsctx.coordinator.doctor.visit import Visit

_LOOK_FOR_S = 60.0
_PILOTS_WAIT_S = 3600.0
"""A second pilot may stay in the queue for long."""


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--wait",
    "wait_s",
    type=Number(min=1),
    metavar="S",
    help="Wait so long for a second host's doctor, and look together with it. With --peer: for the first one.",
)
@click.option("--peer", "is_peer", is_flag=True, help="Join the doctor that waits in DIR on another host.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(folder: Path, *, wait_s: float | None, is_peer: bool, as_json: bool) -> int:
    """Find out whether the filesystem of DIR keeps the promises that runs rest on.

    Takes some seconds, and leaves fsctx-doctor.json in DIR, which `fsctx plan` goes by there and below. With two
    hosts: `fsctx doctor DIR --wait 300` on one, then `fsctx doctor DIR --peer` on the other. Exit codes: 0 safe;
    2 DIR cannot be used; 3 no second host came; 4 unsafe.
    """
    with _progress(is_shown=not as_json) as progress:
        if is_peer:
            return _join(folder, wait_s or _LOOK_FOR_S, progress)
        from fsctx.coordinator.doctor.visit import visit

        done = visit(folder, wait_s=wait_s or 0.0, progress=progress)
    _print(done, as_json=as_json)
    return _exit_code(done, is_peer_wanted=wait_s is not None)


def look_as_pilot(run: Path, submission: str) -> int:
    """Be one of the two pilots that `fsctx submit --doctor` starts, and print what was found."""
    from fsctx.coordinator.doctor.pair import is_first

    with _progress(is_shown=False) as progress, is_first(run, submission) as is_waiting:
        if not is_waiting:
            return _join(run, _PILOTS_WAIT_S, progress)
        from fsctx.coordinator.doctor.visit import visit

        done = visit(run, wait_s=_PILOTS_WAIT_S, progress=progress)
    _print(done, as_json=False)
    return _exit_code(done, is_peer_wanted=True)


def _join(folder: Path, wait_s: float, progress: "Callable[[str], None]") -> int:
    import secrets

    from fsctx.coordinator.doctor.joining import Watchman, join
    from fsctx.store.probing import ProbeSystem

    if not folder.is_dir():
        raise InputError(f"{folder} is no folder: pass the one in which the other host's doctor waits")
    met = join(ProbeSystem(), folder, wait_s=wait_s, token=secrets.token_hex(8), progress=progress, time=Watchman())
    click.echo(f"looked at {folder} together with {met.peer}, which prints the result")
    return 0


def _print(done: "Visit", *, as_json: bool) -> None:
    import json

    from fsctx.coordinator.doctor import words

    if as_json:
        click.echo(json.dumps(words.to_json(done.report), indent=1))
        return
    for line in (*words.table(done.report), *words.closing(done.report)):
        click.echo(line)
    if done.kept is not None:
        click.echo(words.kept(done.kept))


def _exit_code(done: "Visit", *, is_peer_wanted: bool) -> int:
    from fsctx.coordinator.doctor.findings import Verdict

    if done.report.verdict is Verdict.UNSAFE:
        return Damaged.exit_code
    if is_peer_wanted and not done.was_met:
        click.echo("fsctx: no second host came: start `fsctx doctor DIR --peer` there while this one waits", err=True)
        return NotComplete.exit_code
    return 0


@contextmanager
def _progress(*, is_shown: bool) -> "Iterator[Callable[[str], None]]":
    """Show what is looked at, on a terminal; elsewhere only that a second host is waited for."""
    import signal

    from rich.console import Console

    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a job that is told to leave cleans up as Ctrl-C does
    console = Console(stderr=True)
    if not (is_shown and console.is_terminal):
        yield lambda step: click.echo(step, err=True) if "--peer" in step else None
        return
    with console.status("looking …") as status:
        yield lambda step: console.print(step, markup=False) if "--peer" in step else status.update(f"{step} …")
