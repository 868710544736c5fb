"""A run on the simulated filesystem, and what can be done to it: agents, readers, people's commands."""

import dataclasses
import functools
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fabricate import fabricate

from fsctx.agent.engines.base import BoundTask, Encoded, Engine
from fsctx.agent.engines.fake import FakeBound, FakeEngine, FakeModel, FakeOptions
from fsctx.agent.residency import ContextMode
from fsctx.agent.runfiles import RunFiles
from fsctx.cache import Fetched
from fsctx.protocol import codec, names
from fsctx.protocol.manifest import Context, Manifest
from fsctx.protocol.sweep import Sweep
from fsctx.protocol.verdicts import Verdict
from fsctx.store import PosixStore, PublishForm
from fsctx.templates.load import parse_template
from fsctx.templates.model import Template
from simulation.calls import SimSystem
from simulation.clockwork import Clockwork, Process
from simulation.sharedfs import Client, Entry, Server, Weather

ROOT = "/run"
TTL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The size of a simulated run."""

    n_rows: int
    unit_rows: int
    n_tasks: int = 1
    slices_per_shard: int = 3
    has_sweep: bool = False
    """Whether tasks are dropped on the way; by verdicts that are right by chance, at a level that drops many."""
    has_budget: bool = False


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
            slices_per_shard=shape.slices_per_shard,
        )
        found: dict[str, dict[str, bytes]] = {ROOT: {}}
        for path in sorted(made.root.rglob("*")):
            parent = f"{ROOT}/{path.parent.relative_to(made.root)}".removesuffix("/.")
            if path.is_dir():
                found[f"{ROOT}/{path.relative_to(made.root)}"] = {}
            else:
                found[parent][path.name] = path.read_bytes()
    manifest = _with_sweep(made.manifest, shape) if shape.has_sweep else made.manifest
    found[ROOT][names.MANIFEST] = codec.encode(manifest)
    found[f"{ROOT}/{names.SWEEP}"] = {}
    return found, manifest


def _with_sweep(manifest: Manifest, shape: Shape) -> Manifest:
    n_slices = manifest.geometry.n_slices
    stride = next(n for n in (3, 2, 1) if math.gcd(n, n_slices) == 1)
    geometry = dataclasses.replace(manifest.geometry, stride=stride)
    sweep = Sweep(ends=tuple(sorted({-(-n_slices // 4), -(-n_slices // 2), n_slices})), level=0.6)
    budget = sweep.least_rows(geometry, n_tasks=shape.n_tasks, rung=0) if shape.has_budget else None
    return dataclasses.replace(manifest, geometry=geometry, sweep=dataclasses.replace(sweep, budget=budget))


@dataclass(slots=True, eq=False)
class Host:
    """A machine: its mount and its clocks."""

    name: str
    client: Client
    clock_offset_s: float
    """Of its monotonic clock, which starts anywhere and runs a little fast or slow; no decision may compare two."""
    clock_rate: float

    def utc(self, now_s: float) -> str:
        """Return the time of day that it shows: days off, and set back and forth now and then."""
        return f"{now_s + self.clock_offset_s / 4 + 86_400 * (int(now_s) // 97 % 5):.3f}"

    def clock_s(self, now_s: float) -> float:
        """Return its monotonic clock at a true time."""
        return self.clock_offset_s + now_s * self.clock_rate


@dataclass(frozen=True, slots=True)
class Computed:
    """A row that an engine computed."""

    agent: str
    template: str
    row: int


@dataclass(slots=True, eq=False)
class Simulation:
    """One history in the making."""

    seed: int
    shape: Shape
    engine: FakeOptions
    save_s: float = 20.0
    hold_s: float = 30.0
    publish: PublishForm = "symlink"
    compacts: bool = False
    context: ContextMode = ContextMode.FULL
    poison_row: int | None = None
    """A row whose computation kills the process."""
    clockwork: Clockwork = field(init=False)
    server: Server = field(init=False)
    manifest: Manifest = field(init=False)
    agents: dict[str, Process] = field(default_factory=dict)
    hosts: list[Host] = field(default_factory=list)
    computed: list[Computed] = field(default_factory=list)
    exits: dict[str, str] = field(default_factory=dict)
    """Agent → why it left; only of those that left by themselves."""
    damaged_shards: set[int] = field(default_factory=set)
    """Shards of claims that could not be read at some time."""
    on_exit: Callable[[str, str], None] = lambda agent, reason: None

    def __post_init__(self) -> None:
        self.clockwork = Clockwork(Random(self.seed))
        self.server = Server(self.clockwork)
        folders, manifest = planned(self.shape)
        self.manifest = dataclasses.replace(
            manifest, ttl_s=TTL_S, hold_s=self.hold_s, publish=self.publish, compacts=self.compacts
        )
        for path, files in folders.items():
            self.server.make_folder(path)
            self.server.folders[path] = {name: Entry("file", content, 0.0) for name, content in files.items()}

    @property
    def chance(self) -> Random:
        return self.clockwork.chance

    @property
    def labels(self) -> tuple[str, ...]:
        return next(iter(records(self.shape)[1].values())).label_names

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
        system: Any = SimSystem(self.clockwork, host.client, process)
        return PosixStore(Path(ROOT), system=system, form=self.publish)

    def start(self, host: Host, what: str, body: Callable[[PosixStore], Any], *, after_s: float = 0.0) -> Process:
        """Start a process that runs `body` on a store of its host."""
        process = Process(name=what, host=host.name)
        self.clockwork.spawn(process, lambda: body(self.store(host, process)), after_s=after_s)
        return process

    def run_files(self, store: PosixStore) -> RunFiles:
        contexts, templates = records(self.shape)
        return RunFiles(store=store, manifest=self.manifest, contexts=contexts, templates=templates)

    def engine_of(self, agent: str) -> FakeEngine:
        """Return an engine in simulated time that tells what it computes."""
        return _ToldEngine(self, agent)

    def fetch(self, context: Context, engine: Engine) -> Fetched:
        """Bring a context's files to a node: they are there."""
        return Fetched(path=Path(ROOT), source="node", seconds=0.0, bytes=0)


@functools.cache
def records(shape: Shape) -> tuple[dict[str, Context], dict[str, Template]]:
    """Return the contexts and templates of a run."""
    folders, manifest = planned(shape)
    templates = {
        task.template: parse_template(folders[f"{ROOT}/templates"][f"{task.template}.toml"].decode(), where="t")
        for task in manifest.tasks
    }
    digest = manifest.tasks[0].context
    record = folders[f"{ROOT}/contexts"][f"{digest}.json"]
    return {digest: codec.decode(record, Context, where="c")}, templates


class _ToldEngine(FakeEngine):
    def __init__(self, simulation: Simulation, agent: str) -> None:
        super().__init__(simulation.engine, sleep=simulation.clockwork.pause)
        self._simulation = simulation
        self._agent = agent

    def load(self, files: Path) -> FakeModel:
        super().load(files)
        return _ToldModel(self._simulation, self._agent)


class _ToldModel(FakeModel):
    def __init__(self, simulation: Simulation, agent: str) -> None:
        super().__init__(simulation.engine, simulation.clockwork.pause)
        self._simulation = simulation
        self._agent = agent

    def bind(self, task: BoundTask) -> FakeBound:
        return _ToldBound(self._simulation, self._agent, task)


class _ToldBound(FakeBound):
    def __init__(self, simulation: Simulation, agent: str, task: BoundTask) -> None:
        super().__init__(task, simulation.engine, simulation.clockwork.pause)
        self._simulation = simulation
        self._agent = agent
        self._template = task.template.name

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        if any(row.row == self._simulation.poison_row for row in batch):
            self._simulation.clockwork.kill(self._simulation.agents[self._agent])
            self._simulation.clockwork.pause(0.0)
        verdicts = super().infer(batch)
        self._simulation.computed += [Computed(self._agent, self._template, verdict.row) for verdict in verdicts]
        return verdicts
