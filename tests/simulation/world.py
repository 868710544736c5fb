"""A run on the simulated filesystem, and what can be done to it: agents, readers, people's commands."""

import functools
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fabricate import fabricate
from fsctx.agent.assembly import BEATS_PER_TTL, Parts, assemble
from fsctx.agent.engines.fake import FakeEngine, FakeOptions
from fsctx.agent.events import EventLog
from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.leaving import Leaving
from fsctx.agent.loop import Loop
from fsctx.agent.options import AgentOptions
from fsctx.agent.runfiles import RunFiles
from fsctx.agent.world import World
from fsctx.cache import Fetched
from fsctx.errors import FsctxError, StoreError
from fsctx.protocol import codec, names, orders
from fsctx.protocol.agents import AgentRecord, AgentState, Session
from fsctx.protocol.manifest import Manifest
from fsctx.protocol.processes import Process as ProcessName
from fsctx.store import PosixStore
from fsctx.templates.load import parse_template
from simulation.clockwork import Clockwork, Process
from simulation.threads import Threads
from simulation.sharedfs import Client, Entry, Server, SimSystem, Weather

ROOT = "/run"
TTL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a simulated run."""

    n_rows: int
    unit_rows: int
    n_tasks: int = 1


@functools.cache
def planned(shape: Shape) -> tuple[dict[str, dict[str, bytes]], Manifest]:
    """Return the folders and files of a planned run, made once per shape by the code that tests use elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        templates = [f"t{i}" for i in range(shape.n_tasks)]
        made = fabricate(
            Path(folder) / "run",
            n_rows=shape.n_rows,
            unit_rows=shape.unit_rows,
            templates=templates,
            slices_per_shard=3,
        )
        found: dict[str, dict[str, bytes]] = {ROOT: {}}
        for path in sorted(made.root.rglob("*")):
            parent = f"{ROOT}/{path.parent.relative_to(made.root)}".removesuffix("/.")
            if path.is_dir():
                found[f"{ROOT}/{path.relative_to(made.root)}"] = {}
            else:
                found[parent][path.name] = path.read_bytes()
        return found, made.manifest


@dataclass(slots=True, eq=False)
class Host:
    """A machine: its mount, its clocks, its processes."""

    name: str
    client: Client
    clock_offset_s: float
    clock_rate: float
    processes: list[Process] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Simulation:
    """One history in the making."""

    seed: int
    shape: Shape
    engine: FakeOptions
    save_s: float = 20.0
    hold_s: float = 30.0
    clockwork: Clockwork = field(init=False)
    server: Server = field(init=False)
    manifest: Manifest = field(init=False)
    agents: dict[str, Process] = field(default_factory=dict)
    loops: dict[str, Loop] = field(default_factory=dict)
    hosts: list[Host] = field(default_factory=list)
    exits: dict[str, str] = field(default_factory=dict)
    """Agent → why it left; only of those that left by themselves."""

    def __post_init__(self) -> None:
        self.clockwork = Clockwork(Random(self.seed))
        self.server = Server(self.clockwork)
        folders, self.manifest = planned(self.shape)
        for path, files in folders.items():
            self.server.folders[path] = {name: Entry("file", content, 0.0) for name, content in files.items()}

    @property
    def chance(self) -> Random:
        return self.clockwork.chance

    def add_host(self, weather: Weather) -> Host:
        host = Host(
            name=f"host{len(self.hosts)}",
            client=Client(self.server, weather),
            clock_offset_s=self.chance.uniform(-1e6, 1e6),
            clock_rate=self.chance.uniform(0.999, 1.001),
        )
        self.hosts.append(host)
        return host

    def store(self, host: Host, process: Process) -> PosixStore:
        return PosixStore(Path(ROOT), system=SimSystem(self.clockwork, host.client, process))  # type: ignore[arg-type]

    def start(self, host: Host, what: str, body: Callable[[PosixStore], Any], *, after_s: float = 0.0) -> Process:
        """Start a process that runs `body` on a store of its host."""
        process = Process(name=what, host=host.name)
        host.processes.append(process)
        self.clockwork.spawn(process, lambda: body(self.store(host, process)), after_s=after_s)
        return process

    def start_agent(self, host: Host, *, after_s: float = 0.0) -> str:
        """Start an agent; return its name."""
        name = f"{host.name}-a{len(self.agents)}"
        process = Process(name=name, host=host.name)
        host.processes.append(process)
        self.agents[name] = process
        self.clockwork.spawn(process, lambda: self._agent(host, process), after_s=after_s)
        return name

    def _agent(self, host: Host, process: Process) -> None:
        """What `fsctx.agent.start.run_agent` does, with simulated time, threads and files."""
        store = self.store(host, process)
        world = self._world(host, process)
        try:
            baseline = orders.read_orders(store).last
            leaving = Leaving(
                baseline=baseline, deadline_s=None, margin_s=5.0, clock=world.clock, threads=world.threads
            )
            heartbeat = self._announce(store, process, world)
        except FsctxError:
            return  # its batch job fails, and another one comes
        process.on_signal = lambda: leaving.leave_now("SIGTERM was received")
        heartbeat.start(leaving.hear)
        loop = self.loops[process.name] = self._assemble(store, host, world, heartbeat, leaving)
        reason = "an error"
        try:
            reason = loop.run()
        except FsctxError as error:
            reason = f"failed: {error}"
        heartbeat.stop(reason)
        self.exits[process.name] = reason
        self.clockwork.kill(process)

    def _world(self, host: Host, process: Process) -> World:
        return World(
            clock=lambda: host.clock_offset_s + self.clockwork.now_s * host.clock_rate,
            sleep=self.clockwork.pause,
            threads=Threads(self.clockwork, process),  # type: ignore[arg-type]
            is_dead=lambda record: record.process.host == host.name and self.agents[record.agent].is_dead,
        )

    def _announce(self, store: PosixStore, process: Process, world: World) -> Heartbeat:
        name = process.name
        record = AgentRecord(
            agent=name,
            process=ProcessName(host=process.host, boot_id="b", pid=1, started_ticks=1),
            started="",
            version="",
            python="",
            engine="fake",
            device="cpu",
            cores=1,
            memory_bytes=1,
        )
        store.make_folder(names.agent_folder(name))
        store.replace(names.agent_record(name), codec.encode(record))
        events = EventLog(store, name, clock=world.clock, utc=lambda: "")
        session = Session(agent=name, counter=0, progress=0, state=AgentState.STARTING, host=process.host, device="cpu")
        heartbeat = Heartbeat(store, session, events, beat_s=TTL_S / BEATS_PER_TTL, threads=world.threads)
        heartbeat.beat()
        return heartbeat

    def _assemble(self, store: PosixStore, host: Host, world: World, heartbeat: Heartbeat, leaving: Leaving) -> Loop:
        engine = FakeEngine(self.engine, sleep=self.clockwork.pause)
        parts = Parts(
            run=self._run_files(store),
            options=AgentOptions(cache=Path("/cache"), save_s=self.save_s),
            world=world,
            heartbeat=heartbeat,
            leaving=leaving,
            engine_for=lambda context: engine,
            fetch=lambda context, engine: Fetched(path=Path(ROOT), source="node", seconds=0.0, bytes=0),
            say=lambda line: None,
        )
        return assemble(parts)

    def _run_files(self, store: PosixStore) -> RunFiles:
        return _run_files(self.shape, store, self.manifest, self.hold_s)


def _run_files(shape: Shape, store: PosixStore, manifest: Manifest, hold_s: float) -> RunFiles:
    contexts, templates = _records(shape)
    import dataclasses

    timed = dataclasses.replace(manifest, ttl_s=TTL_S, hold_s=hold_s)
    return RunFiles(store=store, manifest=timed, contexts=contexts, templates=templates)


@functools.cache
def _records(shape: Shape) -> tuple[dict[str, Any], dict[str, Any]]:
    from fsctx.protocol.manifest import Context

    folders, manifest = planned(shape)
    templates = {
        task.template: parse_template(folders[f"{ROOT}/templates"][f"{task.template}.toml"].decode(), where="t")
        for task in manifest.tasks
    }
    digest = manifest.tasks[0].context
    record = folders[f"{ROOT}/contexts"][f"{digest}.json"]
    return {digest: codec.decode(record, Context, where="c")}, templates


__all__ = ["ROOT", "TTL_S", "Host", "Shape", "Simulation", "StoreError", "planned"]
