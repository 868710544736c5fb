"""`fsctx agent`."""

import io
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fsctx.cli.numbers import Number
from fsctx.errors import Forbidden, FsctxError, InputError, Misconfigured, Unfit

if TYPE_CHECKING:
    from fsctx.agent.options import AgentOptions


@contextmanager
def _codes_for_jobs() -> Iterator[None]:
    """Within a batch job, let what the user must mend end with 78.

    A batch system needs to tell what to start again from what to leave alone, and shells and interpreters use 2, too.
    What is forbidden here may be allowed on another node: it ends with 75.
    """
    try:
        yield
    except (click.ClickException, FsctxError) as error:
        from fsctx.agent.host import batch_job

        if error.exit_code != InputError.exit_code or batch_job(os.environ) is None:
            raise
        said = error.format_message() if isinstance(error, click.ClickException) else str(error)
        raise (Unfit if isinstance(error, Forbidden) else Misconfigured)(said) from None


class _AgentCommand(click.Command):
    """A command that ends with codes for batch systems within a batch job, whoever finds the fault."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _codes_for_jobs():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _codes_for_jobs():
            return super().invoke(ctx)


@click.command(cls=_AgentCommand)
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--engine", default="auto", show_default=True, help="auto, hf, vllm[:option=value,…] or fake[:option=value,…]."
)
@click.option(
    "--device",
    default="auto",
    show_default=True,
    help="auto, cpu, cuda or cuda:N; all: an agent for each GPU that this job may use.",
)
@click.option("--dtype", default=None, help="float32, bfloat16 or float16; by the device if not given.")
@click.option(
    "--tp",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Spread every layer of the model over so many devices of this node: a claim takes less time.",
)
@click.option(
    "--pp",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Put the layers on so many devices (each --tp of them), one behind the other. See fsctx advise.",
)
@click.option(
    "--context",
    type=click.Choice(["full", "partial", "agnostic"]),
    default="full",
    show_default=True,
    help="full keeps the model on the device; partial starts a process for each unit, which loads it from this node's "
    "disk; agnostic has that process take everything from the shared filesystem.",
)
@click.option("--cache", type=click.Path(path_type=Path), default=None, help="The node's cache; else $FSCTX_CACHE.")
@click.option(
    "--cache-quota", default=None, help="The most that the cache may hold, such as 50GB; else $FSCTX_CACHE_QUOTA."
)
@click.option("--idle-exit", type=Number(min=0), default=None, help="Leave after so many idle seconds.")
@click.option("--max-units", type=click.IntRange(min=1), default=None, help="Leave after so many units.")
@click.option("--walltime", type=Number(min=0), default=None, help="Seconds until this job is ended.")
@click.option("--save-every", type=Number(min=0.1), default=None, help="Save a long unit's rows every so many seconds.")
@click.option(
    "--stall",
    type=Number(min=1),
    default=1800.0,
    show_default=True,
    help="Take units over from an agent that lives but got nothing done for so many seconds.",
)
@click.option(
    "--fs-ops-per-s",
    type=Number(min=1),
    default=None,
    help="Make at most so many calls a second to the shared filesystem, by waiting.",
)
@click.option(
    "--race",
    type=Number(min=0),
    default=3.0,
    show_default=True,
    help="With nothing else to do, race an agent that keeps a unit so many times longer than it takes here, or longer "
    "at all and misses two beats; 0: never.",
)
@click.option("--no-peers", is_flag=True, help="Neither serve nor ask other nodes' caches.")
@click.option(
    "--peer-address",
    default=None,
    help="Where other nodes reach this one: its address, or, the same for all nodes, a network such as 10.1.0.0/16 or "
    "an interface such as ib0.",
)
@click.option(
    "--peer-wait",
    type=Number(min=0),
    default=None,
    help="Let peers delay a fetch by at most so many seconds; by default 30, and one for every 20 MB.",
)
@click.option(
    "--failure-delay",
    type=Number(min=0),
    default=None,
    help="Keep a host that is no good so many seconds before leaving it; in a batch job a minute and more.",
)
@click.option("--doctor", "is_doctor", is_flag=True, hidden=True)
@click.option("--submission", default=None, hidden=True)
@click.option("--since-order", type=int, default=None, hidden=True)
def agent(run: Path, cache: Path | None, **asked: Any) -> int:
    """Work on RUN until nothing is left to do.

    Leaves by itself when the run is done or told to stop or drain. On SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 it saves
    the rows that are finished, gives its units back and goes. Exit codes: 0 nothing left, or told to leave; 4 the
    claims of a unit are damaged; 75 this device or node cannot do it; 78 no node can, and in a batch job all that is
    to be mended in the call.
    """
    if asked["is_doctor"]:
        from fsctx.cli.doctor import look_as_pilot

        return look_as_pilot(run, asked["submission"] or "by-hand")
    from fsctx.agent.engines.base import Split
    from fsctx.agent.options import AgentOptions
    from fsctx.agent.residency import ContextMode
    from fsctx.cache import default_root
    from fsctx.cache.room import quota

    options = AgentOptions(
        engine=asked["engine"],
        device=asked["device"],
        dtype=asked["dtype"],
        split=Split(tp=asked["tp"], pp=asked["pp"]),
        context=ContextMode(asked["context"]),
        cache=default_root(os.environ, cache),
        cache_quota_bytes=quota(os.environ, asked["cache_quota"]),
        has_peers=not asked["no_peers"],
        peer_address=asked["peer_address"],
        peer_wait_s=asked["peer_wait"],
        idle_exit_s=asked["idle_exit"],
        max_units=asked["max_units"],
        walltime_s=asked["walltime"],
        save_s=asked["save_every"],
        stall_s=asked["stall"],
        race_factor=asked["race"],
        fs_ops_per_s=asked["fs_ops_per_s"],
        failure_delay_s=asked["failure_delay"],
        since_order=asked["since_order"],
        submission=asked["submission"],
    )
    if options.device == "all":
        return _one_each(run, options)
    return _run(run, options)


def device_of(run: Path, options: Sequence[str]) -> str:
    """Return the device that agents started with these options are told.

    Raises:
        ClickException: `fsctx agent` would refuse the options.
    """
    return str(agent.make_context("fsctx agent", [str(run), *options]).params["device"])


def _run(run: Path, options: "AgentOptions") -> int:
    from fsctx.agent.start import run_agent

    return run_agent(run, options, say=_say)


def _one_each(run: Path, options: "AgentOptions") -> int:
    """Start an agent for each GPU, or as many as a model is split over; a lone one where that is one, or none."""
    import dataclasses

    from fsctx.agent import host
    from fsctx.agent.device import count_gpus
    from fsctx.agent.oneeach import run_each

    place = host.look_around(os.environ)
    n_ranks = options.split.n_ranks
    n = count_gpus(place.gpus, place.driver) // n_ranks
    if n <= 1:
        return _run(run, dataclasses.replace(options, device="auto"))
    os.environ.update(host.thread_settings(os.environ, place.cores, n))
    return run_each(n, lambda k: _run(run, dataclasses.replace(options, device=f"cuda:{k * n_ranks}")))


def _say(line: str) -> None:
    """Tell a person, if there is still one at the other end."""
    try:
        click.echo(line, err=True)
    except OSError:
        sys.stderr = io.StringIO()  # else the line that nobody reads fails again at the end, and with it the exit code
