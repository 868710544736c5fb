"""Starts one agent on a run: announces it, lets it work, and sees it out."""

import dataclasses
import datetime
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from fsctx import __version__
from fsctx.agent import host
from fsctx.agent.assembly import BEATS_PER_TTL, Parts, Say, assemble
from fsctx.agent.device import DeviceInfo, preflight
from fsctx.agent.engines.base import Engine
from fsctx.agent.engines.choose import check_engine, make_engine
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import ContextMode
from fsctx.agent.runfiles import RunFiles, check_still_there, read_run
from fsctx.agent.sources import contexts_on_node, source_of_files
from fsctx.agent.world import World
from fsctx.cache.engines import keep_on_node
from fsctx.cache.origin import from_origin
from fsctx.cache.peers.address import own_address
from fsctx.errors import Damaged, FsctxError, Misconfigured, StoreError
from fsctx.protocol import codec, names, orders, processes
from fsctx.protocol.agents import AgentRecord, AgentState, Session
from fsctx.protocol.facts import read_facts
from fsctx.protocol.manifest import Context, read_environments
from fsctx.store import PosixStore
from fsctx.store.counting import Budget, CountingSystem, Meter
from fsctx.store.system import System

if TYPE_CHECKING:
    from fsctx.agent.peering import Peering

WALLTIME_MARGIN_S = 10.0
"""So long before the end of the walltime an agent saves and goes."""

_LOOK_EVERY_S = 0.1


def run_agent(folder: Path, options: AgentOptions, *, say: Say, system: System | None = None) -> int:
    """Work on a run until nothing is left to do or there is a reason to leave; return the exit code.

    Must be called on the main thread: it handles SIGTERM and SIGINT. `system` makes the calls of the filesystem.

    Raises:
        FsctxError: the run cannot be read, the options are wrong, or nothing could be done here.
    """
    world = World()
    began_s = world.clock()
    system = CountingSystem(system or System(), Meter(clock=world.clock))
    run = _read_run(PosixStore(folder, system=system))
    if any(context.kind != "fake" for context in run.contexts.values()):
        keep_on_node(os.environ, options.cache)  # before the preflight: it may import torch
    device = preflight(options.device)
    engine_for = _engines(run, options, device)
    address = own_address(options.peer_address) if options.has_peers else None
    leaving = _leaving(run, options, world, began_s)
    if options.fs_ops_per_s is not None:  # what is left to do when leaving does not wait: the grace period is short
        system.limit(Budget(options.fs_ops_per_s, wait=_patience(leaving, world), clock=world.clock))
    heartbeat = _announce(run, options, device, world, system.meter)
    heartbeat.start(leaving.hear)
    heartbeat.count(start_s=world.clock() - began_s)
    peering = _peering(run, options, heartbeat, world, address)
    parts = Parts(
        run=run,
        options=options,
        world=world,
        heartbeat=heartbeat,
        leaving=leaving,
        engine_for=engine_for,
        fetch=source_of_files(options, say=say, bring=peering.bring if peering else from_origin),
        on_node=contexts_on_node(options),
        say=say,
    )
    try:
        return _see_out(assemble(parts), heartbeat, system.meter, say)
    finally:
        if peering is not None:
            peering.stop()


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


def _engines(run: RunFiles, options: AgentOptions, device: DeviceInfo) -> Callable[[Context], Engine]:
    """Check the options, and return what makes each kind of context's engine, once, when it is needed."""
    made: dict[str, Engine] = {}

    def engine_for(context: Context) -> Engine:
        if context.kind not in made:
            made[context.kind] = make_engine(options.engine, device=device.spec, dtype=options.dtype, kind=context.kind)
        return made[context.kind]

    for context in run.contexts.values():
        check_engine(options.engine, dtype=options.dtype, kind=context.kind)
    return engine_for


def _leaving(run: RunFiles, options: AgentOptions, world: World, began_s: float) -> Leaving:
    baseline = orders.read_orders(run.store).last if options.since_order is None else options.since_order
    leaving = Leaving(
        baseline=baseline,
        deadline_s=None if options.walltime_s is None else began_s + options.walltime_s,
        margin_s=WALLTIME_MARGIN_S,
        clock=world.clock,
        threads=world.threads,
    )
    leaving.hear(orders.read_orders(run.store))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, leaving.on_signal)
    return leaving


def _announce(run: RunFiles, options: AgentOptions, device: DeviceInfo, world: World, meter: Meter) -> Heartbeat:
    """Write the agent's record and its first session."""
    agent, job, process = host.agent_name(), host.batch_job(os.environ), processes.this_process()
    record = AgentRecord(
        agent=agent,
        process=process,
        started=_utc(),
        version=__version__,
        python=host.python_version(),
        engine=options.engine,
        device=device.name,
        cores=host.cores(),
        memory_bytes=host.memory_bytes(),
        batch_system=job.system if job else None,
        batch_job=job.job if job else None,
        submission=options.submission,
    )
    run.store.make_folder(names.agent_folder(agent))
    run.store.replace(names.agent_record(agent), codec.encode_pretty(record))
    events = EventLog(run.store, agent, clock=world.clock, utc=_utc)
    session = Session(
        agent=agent, counter=0, progress=0, state=AgentState.STARTING, host=process.host, device=device.name
    )
    beat_s = run.manifest.ttl_s / BEATS_PER_TTL
    heartbeat = Heartbeat(run.store, session, events, beat_s=beat_s, threads=world.threads, meter=meter)
    heartbeat.beat()
    events.add("started", host=process.host, pid=process.pid, device=device.name)
    return heartbeat


def _peering(
    run: RunFiles, options: AgentOptions, heartbeat: Heartbeat, world: World, address: str | None
) -> "Peering | None":
    """Serve the node's cache, and return what fetches with peers' help; None where that is off or makes no sense."""
    contexts = [context for context in run.contexts.values() if context.files]
    contexts += read_environments(run.store) if options.has_peers else []  # nodes that start now may ask for them
    if not options.has_peers or options.context == ContextMode.AGNOSTIC or not contexts:
        return None
    from fsctx.agent.peering import PeeringParts, start_peering  # imports an HTTP server and client

    parts = PeeringParts(
        store=run.store, contexts=contexts, ttl_s=run.manifest.ttl_s, options=options, heartbeat=heartbeat, world=world
    )
    return start_peering(parts, address)


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
