"""`fsctx submit`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fsctx.coordinator.submit.base import PilotRequest
    from fsctx.store import Store


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--batch", required=True, metavar="SYSTEM", help="htcondor, slurm, gridengine or local.")
@click.option("-n", "n", type=int, required=True, help="How many pilots to start.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="A setting of the submit template.")
@click.option("--doctor", "is_doctor", is_flag=True, help="Let two pilots (-n 2) examine RUN's filesystem together.")
@click.option("--dry-run", is_flag=True, help="Print exactly what would be submitted, and start nothing.")
@click.argument("agent_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- AGENT_OPTION...]")
def submit(
    run: Path,
    *,
    batch: str,
    n: int,
    settings: tuple[str, ...],
    agent_options: tuple[str, ...],
    **flags: bool,
) -> None:
    """Start pilots that work on a run; each becomes one agent. What stands after `--` is passed to `fsctx agent`.

    With --batch local they run in the background of this host and outlive the terminal.
    """
    from fsctx.coordinator.submit import submit as submitting
    from fsctx.protocol import names
    from fsctx.store import PosixStore

    store = PosixStore(run.absolute())
    system = submitting.batch_system(batch)
    if flags["is_doctor"]:
        agent_options = _doctor_options(n, agent_options)
    request = _request(store, batch=batch, n=n, agent_options=agent_options)
    given = _settings(settings)
    if flags["dry_run"]:
        click.echo(submitting.rendered(system, request, given), nl=False)
        return
    done = submitting.submit(store, system, request, given, created=_utc())
    click.echo(f"started {len(done.pilots)} pilot(s) as {done.name}; logs in {run}/logs")
    if flags["is_doctor"]:
        click.echo(f"what they find: in the log of the first of them, and in {run}/{names.DOCTOR} for agents")
    else:
        click.echo(f"see them work: fsctx status {run} --watch")


def _request(store: "Store", *, batch: str, n: int, agent_options: tuple[str, ...]) -> "PilotRequest":
    import os
    import secrets
    import sys

    from fsctx.coordinator.submit.base import PilotRequest
    from fsctx.protocol.manifest import read_manifest
    from fsctx.protocol.orders import read_orders

    read_manifest(store)
    _check_agent_options(store.root, agent_options)
    return PilotRequest(
        name=f"{batch}-{secrets.token_hex(4)}",
        run=store.root,
        n=n,
        since_order=read_orders(store).last,
        python=sys.executable,
        cores=len(os.sched_getaffinity(0)),
        agent_options=agent_options,
    )


def _doctor_options(n: int, agent_options: tuple[str, ...]) -> tuple[str, ...]:
    """Return what makes pilots look at the filesystem instead of working, on any node."""
    from fsctx.errors import InputError

    if n != 2 or agent_options:
        raise InputError("--doctor takes two pilots that are no agents: pass -n 2, and no agent options")
    return ("--doctor", "--device", "cpu")


def _check_agent_options(run: Path, agent_options: tuple[str, ...]) -> None:
    """Refuse options that `fsctx agent` would refuse, before anything is started."""
    from fsctx.cli.agent import agent

    agent.make_context("fsctx agent", [str(run), *agent_options])


def _settings(given: tuple[str, ...]) -> dict[str, str]:
    from fsctx.errors import InputError

    for setting in given:
        if "=" not in setting:
            raise InputError(f"--set {setting}: must be KEY=VALUE")
    return dict(setting.split("=", 1) for setting in given)


def _utc() -> str:
    from datetime import UTC, datetime

    return datetime.now(UTC).isoformat(timespec="seconds")
