"""Real agents on a simulated cluster: the code that runs on nodes, in simulated time.

Real: the agent from its first look to its last (loop, scout, owners, leases, publication, saving, compaction) and
its calls of the filesystem. Simulated: the clock, the threads, the filesystem (2 ms a way). Modelled: the device
(the fake engine, which takes its time in simulated seconds), fetching, and the hosts that come and go.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from simulation.pilots import start_agent
from simulation.sharedfs import CALM
from simulation.world import ROOT, Shape, Simulation

from fsctx.agent.engines.base import Engine
from fsctx.agent.engines.fake import FakeEngine, FakeOptions
from fsctx.agent.residency import ContextMode
from fsctx.cache import Fetched
from fsctx.coordinator.plan.sizing import slices_per_shard
from fsctx.protocol import names
from fsctx.protocol.geometry import MAX_UNCOMPACTED_BUCKETS
from fsctx.protocol.manifest import Context
from replaying import costs
from replaying.costs import Gpu
from replaying.pipe import Pipe

_BATCH_TOKENS = 32
"""Of made-up claims that is 16 rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a run."""

    seconds: float
    """Until the last publication."""
    claims: int
    """Published."""
    loads: int


@dataclass(slots=True, eq=False)
class Cluster(Simulation):
    """A run and GPUs to do it."""

    gpus: Sequence[Gpu] = ()
    n_loads: int = 0
    n_claims: int = 0
    last_s: float = 0.0
    _warm: set[str] = field(default_factory=set)
    """Agents whose node has the files."""
    _origin: Pipe = field(init=False)

    def __post_init__(self) -> None:
        super(Cluster, self).__post_init__()  # a class with slots is not the one that a bare super() finds
        self.compacts = self.manifest.geometry.n_buckets > MAX_UNCOMPACTED_BUCKETS
        self.manifest = replace(self.manifest, compacts=self.compacts)
        self.server.on_change = self._on_change
        self._origin = Pipe(self.clockwork, costs.ORIGIN_GB_PER_S)

    def run(self, *, until_s: float = float("inf")) -> Outcome:
        """Let it happen."""
        for gpu in self.gpus:
            agent = start_agent(self, self.add_host(CALM), after_s=gpu.from_s)
            if gpu.killed_s is not None:
                process = self.agents[agent]
                self.start(self.hosts[-1], "fate", lambda _, p=process: self.clockwork.kill(p), after_s=gpu.killed_s)
        try:
            self.clockwork.run(lambda: self.n_claims == self.shape.n_rows, deadline_s=until_s)
        finally:
            self.clockwork.close()
        return Outcome(seconds=self.last_s, claims=self.n_claims, loads=self.n_loads)

    def engine_of(self, agent: str) -> FakeEngine:
        """See `Simulation.engine_of`."""
        gpu = self.gpus[list(self.agents).index(agent)]
        options = FakeOptions(rows_per_s=gpu.rows_per_s, load_s=costs.LOAD_S, batch_tokens=_BATCH_TOKENS)
        return FakeEngine(options, sleep=self.clockwork.pause)

    def fetch(self, context: Context, engine: Engine) -> Fetched:
        """Bring the files: from the shared filesystem each time, or to the node once."""
        began_s, node = self.clockwork.now_s, self.clockwork.process.name
        self.n_loads += 1
        if self.context == ContextMode.AGNOSTIC:
            self._origin.transfer(costs.CONTEXT_GB)
        elif node not in self._warm:
            self.clockwork.pause(costs.FETCH_S)
            self._warm.add(node)
        return Fetched(path=Path(ROOT), source="origin", seconds=self.clockwork.now_s - began_s, bytes=0)

    def _on_change(self, what: str, path: str) -> None:
        name = path.rpartition("/")[2]
        if what == "symlink" and path.startswith(f"{ROOT}/{names.RESULTS}"):
            self.n_claims += self.manifest.geometry.place(int(name)).n_rows
            self.last_s = self.clockwork.now_s


def replay(gpus: Sequence[Gpu], *, mode: ContextMode, claims: int, unit_rows: int, until_s: float) -> Outcome:
    """Let GPUs verify claims in one of the three ways."""
    shape = Shape(n_rows=claims, unit_rows=unit_rows, slices_per_shard=slices_per_shard(unit_rows))
    cluster = Cluster(0, shape, FakeOptions(), save_s=30.0, context=mode, gpus=gpus)
    return cluster.run(until_s=until_s)
