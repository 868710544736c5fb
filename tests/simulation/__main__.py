"""`cd tests && python -m simulation --seeds 0:10000 --jobs 2`: live through histories and say which went wrong."""

import itertools
import sys
import time

import click

from simulation.history import History
from simulation.plan import draw
from simulation.seeds import Failure, changed, failure_of, failures_of, shrunk
from simulation.trace import Trace

EVERY_S = 10.0


@click.command()
@click.option("--seeds", default="0:1000", help="First seed and the one after the last, such as 0:10000.")
@click.option("--seed", type=int, help="Live through one history alone.")
@click.option("--with", "changes", multiple=True, metavar="NAME=VALUE", help="Change that history's plan.")
@click.option("--trace", is_flag=True, help="Print who made which call when.")
@click.option("--jobs", default=2, help="Processes.")
@click.option("--minutes", type=float, help="Go on until so many minutes are over, from the first seed on.")
@click.option("--keep-going", is_flag=True, help="Do not end at the first failure.")
def main(
    seeds: str,
    seed: int | None,
    changes: tuple[str, ...],
    trace: bool,
    jobs: int,
    minutes: float | None,
    keep_going: bool,
) -> None:
    """Simulate the protocol. A failure is made small, and the command that replays it is printed."""
    if seed is not None:
        sys.exit(_replay(seed, changes, trace=trace))
    first, _, end = seeds.partition(":")
    numbers = itertools.count(int(first)) if minutes else range(int(first), int(end))
    sys.exit(_live(numbers, jobs=jobs, minutes=minutes, keep_going=keep_going))


def _replay(seed: int, changes: tuple[str, ...], *, trace: bool) -> int:
    plan = draw(seed)
    for change in changes:
        name, _, value = change.partition("=")
        plan = changed(plan, name, value)
    click.echo(plan)
    history, lines = History(plan, seen := Trace()), seen.lines
    error = None
    try:
        history.run()
    except Exception as caught:  # noqa: BLE001 - shown below, after the trace
        error = caught
    if trace:
        click.echo("\n".join(lines))
    for agent, reason in history.simulation.exits.items():
        click.echo(f"{agent} left: {reason}")
    click.echo(f"{history.simulation.clockwork.now_s:.0f} s, {len(lines)} calls: {seen.digest[:16]}")
    if error is None:
        click.echo("all laws hold")
        return 0
    if trace:
        click.echo(f"{type(error).__name__}: {error}")
    else:
        raise error
    return 1


def _live(numbers: "itertools.count[int] | range", *, jobs: int, minutes: float | None, keep_going: bool) -> int:
    began_s = said_s = time.monotonic()
    n_failed = n_done = 0
    for n_done, failure in failures_of(numbers, jobs=jobs, minutes=minutes):
        if failure is not None:
            n_failed += 1
            _explain(failure)
            if not keep_going:
                return 1
        if time.monotonic() - said_s > EVERY_S:
            said_s = time.monotonic()
            click.echo(f"{n_done} histories in {said_s - began_s:.0f} s, {n_failed} failed")
    seconds = time.monotonic() - began_s
    click.echo(
        f"{n_done} histories in {seconds:.0f} s ({1000 * seconds / max(n_done, 1):.0f} ms each), {n_failed} failed"
    )
    return 1 if n_failed else 0


def _explain(failure: Failure) -> None:
    small = shrunk(failure)
    again = failure_of(small.plan)
    click.echo(f"seed {failure.plan.seed}: {failure.what}")
    if again is None or again.what != small.what:
        click.echo("  it does not fail in the same way when it is repeated: something else than the seed decides")
    click.echo(f"  smallest: {small.what}\n  {small.command}")


if __name__ == "__main__":
    main()
