"""Simulated agents: what `fsctx.agent.start.run_agent` does, with simulated time, threads and files."""

from collections.abc import Callable
from pathlib import Path

from fsctx.agent.assembly import BEATS_PER_TTL, Parts, assemble
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.world import World
from fsctx.errors import FsctxError
from fsctx.protocol import codec, names, orders
from fsctx.protocol.agents import AgentRecord, AgentState, Session
from fsctx.protocol.processes import Process as ProcessName
from fsctx.store import PosixStore
from simulation.clockwork import Process
from simulation.threads import Threads
from simulation.world import TTL_S, Host, Simulation


def start_agent(simulation: Simulation, host: Host, *, after_s: float = 0.0) -> str:
    """Start an agent; return its name."""
    name = f"{host.name}-a{len(simulation.agents)}"
    process = simulation.agents[name] = Process(name=name, host=host.name)
    simulation.clockwork.spawn(process, lambda: _live(simulation, host, process), after_s=after_s)
    return name


def _live(simulation: Simulation, host: Host, process: Process) -> None:
    store, world = simulation.store(host, process), _world(simulation, host, process)
    try:
        baseline = orders.read_orders(store).last
        leaving = Leaving(baseline=baseline, deadline_s=None, margin_s=5.0, clock=world.clock, threads=world.threads)
        heartbeat = _announce(store, process, world, utc=lambda: host.utc(simulation.clockwork.now_s))
    except FsctxError:
        simulation.clockwork.kill(process)  # its batch job fails, and another one comes
        return
    process.on_signal = lambda: leaving.leave_now("SIGTERM was received")
    heartbeat.start(leaving.hear)
    loop = _assemble(simulation, store, world, heartbeat, leaving)
    try:
        reason = loop.run()
    except FsctxError as error:
        reason = f"failed: {error}"
    heartbeat.stop(reason)
    simulation.exits[process.name] = reason
    simulation.clockwork.kill(process)
    simulation.on_exit(process.name, reason)


def _world(simulation: Simulation, host: Host, process: Process) -> World:
    return World(
        clock=lambda: host.clock_s(simulation.clockwork.now_s),
        sleep=simulation.clockwork.pause,
        threads=Threads(simulation.clockwork, process),  # type: ignore[arg-type]
        is_dead=lambda record: record.process.host == host.name and simulation.agents[record.agent].is_dead,
    )


def _announce(store: PosixStore, process: Process, world: World, *, utc: Callable[[], str]) -> Heartbeat:
    name = process.name
    record = AgentRecord(
        agent=name,
        process=ProcessName(host=process.host, boot_id="b", pid=1, started_ticks=1),
        started=utc(),
        version="",
        python="",
        engine="fake",
        device="cpu",
        cores=1,
        memory_bytes=1,
    )
    store.make_folder(names.agent_folder(name))
    store.replace(names.agent_record(name), codec.encode(record))
    events = EventLog(store, name, clock=world.clock, utc=utc)
    session = Session(agent=name, counter=0, progress=0, state=AgentState.STARTING, host=process.host, device="cpu")
    heartbeat = Heartbeat(store, session, events, beat_s=TTL_S / BEATS_PER_TTL, threads=world.threads)
    heartbeat.beat()
    return heartbeat


def _assemble(simulation: Simulation, store: PosixStore, world: World, heartbeat: Heartbeat, leaving: Leaving) -> Loop:
    engine = simulation.engine_of(heartbeat.agent)
    parts = Parts(
        run=simulation.run_files(store),
        options=AgentOptions(cache=Path("/cache"), context=simulation.context, save_s=simulation.save_s),
        world=world,
        heartbeat=heartbeat,
        leaving=leaving,
        engine_for=lambda context: engine,
        fetch=simulation.fetch,
        say=lambda line: None,
    )
    return assemble(parts)
