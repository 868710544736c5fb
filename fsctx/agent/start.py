"""Starts one agent on a run: announces it, lets it work, and sees it out."""

import contextlib
import dataclasses
import datetime
import functools
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fsctx import __version__
from fsctx.agent import host
from fsctx.agent.assembly import BEATS_PER_TTL, Parts, Say, assemble
from fsctx.agent.device import DeviceInfo, find_device
from fsctx.agent.engines.of_run import check_context, choose_of_run, engines_of_run, uses_device
from fsctx.agent.events import EventLog
from fsctx.agent.gpus.fit import check_fits, holders_of, least_bytes
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.host import Place
from fsctx.agent.leaving import SIGNALS, Leaving
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.orphans import nobody_left_behind
from fsctx.agent.residency import ContextMode
from fsctx.agent.runfiles import RunFiles, check_still_there, read_run
from fsctx.agent.sources import contexts_on_node, source_of_files
from fsctx.agent.unfit import Blame
from fsctx.agent.world import World
from fsctx.cache import NodeCache
from fsctx.cache.chunks import Bring
from fsctx.cache.engines import keep_on_node
from fsctx.cache.origin import from_origin
from fsctx.cache.peers.address import own_address
from fsctx.errors import Damaged, FsctxError, Misconfigured, StoreError, Unfit
from fsctx.protocol import codec, names, orders, processes
from fsctx.protocol.agents import AgentRecord, first_session
from fsctx.protocol.facts import read_facts
from fsctx.protocol.hosts import HostFailure
from fsctx.protocol.manifest import read_environments
from fsctx.store import PosixStore
from fsctx.store.counting import Budget, CountingSystem, Meter
from fsctx.store.system import System

WALLTIME_MARGIN_S = 10.0
"""So long before the end of the walltime an agent saves and goes."""

_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What stands before the device is looked at."""

    name: str
    run: RunFiles
    options: AgentOptions
    place: Place
    world: World
    leaving: Leaving
    meter: Meter
    say: Say
    began_s: float


def run_agent(folder: Path, options: AgentOptions, *, say: Say, system: System | None = None) -> int:
    """Work on a run until nothing is left to do or there is a reason to leave; return the exit code.

    Must be called on the main thread: it handles signals, and sets the environment that engines read when they are
    imported. `system` makes the calls of the filesystem.

    Raises:
        FsctxError: the run cannot be read, the options are wrong, or nothing could be done here.
    """
    world = World()
    began_s = world.clock()
    system = CountingSystem(system or System(), Meter(clock=world.clock))
    run = _read_run(PosixStore(folder, system=system))
    place = host.look_around(os.environ)
    leaving = _leaving(run, options, place, world, began_s)
    if options.fs_ops_per_s is not None:  # what is left to do when leaving does not wait: the grace period is short
        system.limit(Budget(options.fs_ops_per_s, wait=_patience(leaving, world), clock=world.clock))
    start = _Start(
        name=host.agent_name(),
        run=run,
        options=options,
        place=place,
        world=world,
        leaving=leaving,
        meter=system.meter,
        say=say,
        began_s=began_s,
    )
    with nobody_left_behind():
        return _work(start)


def _work(start: _Start) -> int:
    """Work on a device, or blame this host."""
    device = None
    options = start.options
    try:
        device = _find_device(start)
        check_fits(device, least_bytes(start.run.contexts.values(), options.split.n_ranks))
        engine_for = engines_of_run(start.run, options, device)
        address = own_address(options.peer_address) if options.has_peers else None
        heartbeat = _announce(start, device)
        heartbeat.start(start.leaving.hear)
        heartbeat.count(start_s=start.world.clock() - start.began_s)
        with _peering(start, heartbeat, address) as bring:
            cache = NodeCache(options.cache, quota_bytes=options.cache_quota_bytes)
            parts = Parts(
                run=start.run,
                options=options,
                world=start.world,
                heartbeat=heartbeat,
                leaving=start.leaving,
                engine_for=engine_for,
                check=functools.partial(check_context, options, device),
                fetch=source_of_files(options, cache, say=start.say, bring=bring),
                mend=cache.mend,
                on_node=contexts_on_node(options),
                say=start.say,
            )
            return _see_out(assemble(parts), heartbeat, start.meter, start.say)
    except Unfit as error:
        reason = f"{error}{holders_of(device)}"
        _blame_host(start, reason)
        raise Unfit(reason) from None


def _find_device(start: _Start) -> DeviceInfo:
    """Check the options and return a device that computes."""
    options, place = start.options, start.place
    is_used = uses_device(start.run, options)
    os.environ.update(host.thread_settings(os.environ, place.cores))
    if start.run.kinds != {"fake"}:
        keep_on_node(os.environ, options.cache)  # before a device is looked at: that may import torch
    return find_device(
        options.device,
        assigned=place.gpus,
        driver=place.driver,
        environ=os.environ,
        is_used=is_used,
        n=options.split.n_ranks,
    )


def _blame_host(start: _Start, reason: str) -> None:
    job = start.place.job
    blame = Blame(
        store=start.run.store,
        leaving=start.leaving,
        world=start.world,
        is_in_job=job is not None,
        delay_s=start.options.failure_delay_s,
        say=start.say,
    )
    blame.host(
        HostFailure(
            host=(job.machine if job else None) or processes.host_name(),
            reason=reason,
            agent=start.name,
            time=_utc(),
            system=job.system if job else None,
        )
    )


def _read_run(store: PosixStore) -> RunFiles:
    """Read a run; its store publishes as was planned. A run on a filesystem that was found unsafe is refused."""
    run = read_run(store)
    facts = read_facts(store)
    if facts is not None and not facts.is_safe:
        raise Misconfigured(
            f"{store.root} is on a filesystem that fsctx doctor found unsafe ({'; '.join(facts.why)}): plan on another "
            f"one, or have it mended and run `fsctx doctor {store.root}` again"
        )
    return dataclasses.replace(run, store=store.publishing_by(run.manifest.publish))


def _patience(leaving: Leaving, world: World) -> Callable[[float], None]:
    """Return what sleeps until the agent leaves. It looks, as a handler of signals may set the flag on its thread."""

    def wait(seconds: float) -> None:
        end_s = world.clock() + seconds
        while not leaving.changed.is_set() and (left_s := end_s - world.clock()) > 0:
            world.sleep(min(left_s, _LOOK_EVERY_S))

    return wait


def _leaving(run: RunFiles, options: AgentOptions, place: Place, world: World, began_s: float) -> Leaving:
    """Return what knows when to leave; from here on signals are obeyed."""
    standing = orders.read_orders(run.store)
    baseline = standing.last if options.since_order is None else options.since_order
    walltime_s = options.walltime_s
    if walltime_s is None and place.job is not None:
        walltime_s = place.job.left_s
    leaving = Leaving(
        baseline=baseline,
        deadline_s=None if walltime_s is None else began_s + walltime_s,
        margin_s=WALLTIME_MARGIN_S,
        clock=world.clock,
        threads=world.threads,
        is_orphan=place.is_orphan,
    )
    leaving.hear(standing)
    for number in SIGNALS:
        signal.signal(number, leaving.on_signal)
    return leaving


def _announce(start: _Start, device: DeviceInfo) -> Heartbeat:
    """Write the agent's record and its first session."""
    agent, run, place, process = start.name, start.run, start.place, processes.this_process()
    engine = choose_of_run(run, start.options, device)
    record = AgentRecord(
        agent=agent,
        process=process,
        started=_utc(),
        version=__version__,
        python=host.python_version(),
        engine=engine.name,
        device=device.name,
        cores=place.cores,
        memory_bytes=place.memory_bytes,
        engine_why=engine.why,
        gpu=device.chosen.name if device.chosen else None,
        job=place.job,
        submission=start.options.submission,
    )
    run.store.make_folder(names.agent_folder(agent))
    run.store.replace(names.agent_record(agent), codec.encode_pretty(record))
    events = EventLog(run.store, agent, clock=start.world.clock, utc=_utc)
    beat_s = run.manifest.ttl_s / BEATS_PER_TTL
    heartbeat = Heartbeat(
        run.store, first_session(record), events, beat_s=beat_s, threads=start.world.threads, meter=start.meter
    )
    heartbeat.beat()
    events.add("started", host=process.host, pid=process.pid, device=device.name, engine=engine.name, why=engine.why)
    return heartbeat


@contextlib.contextmanager
def _peering(start: _Start, heartbeat: Heartbeat, address: str | None) -> Iterator[Bring]:
    """Serve the node's cache, and yield what fetches with peers' help: alone where that is off or makes no sense."""
    run, options = start.run, start.options
    contexts = [context for context in run.contexts.values() if context.files]
    contexts += read_environments(run.store) if options.has_peers else []  # nodes that start now may ask for them
    if not options.has_peers or options.context == ContextMode.AGNOSTIC or not contexts:
        yield from_origin
        return
    from fsctx.agent.peering import PeeringParts, start_peering  # imports an HTTP server and client

    parts = PeeringParts(
        store=run.store,
        contexts=contexts,
        ttl_s=run.manifest.ttl_s,
        options=options,
        heartbeat=heartbeat,
        world=start.world,
    )
    peering = start_peering(parts, address)
    if peering is None:
        yield from_origin
        return
    try:
        yield peering.bring
    finally:
        peering.stop()


def _see_out(loop: Loop, heartbeat: Heartbeat, meter: Meter, say: Say) -> int:
    """Let the agent work, and give back what it holds however that ends."""
    reason = "an unexpected error"
    try:
        reason = loop.run()
    except FsctxError as error:
        reason = str(error)
        if isinstance(error, StoreError):
            check_still_there(loop.ahead.scout.store)
        raise
    finally:
        heartbeat.events.add("left", reason=reason, fs_calls=meter.by_kind())
        heartbeat.stop(reason)
    ledger = heartbeat.ledger
    say(
        f"{heartbeat.agent} leaves: {reason} ({ledger.units_done} units, {ledger.rows_done} rows, {ledger.loads} loads)"
    )
    return Damaged.exit_code if loop.ahead.n_damaged else 0


def _utc() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
