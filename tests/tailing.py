"""The end of a run in simulated time: many scouts, few leased units, every call of the filesystem counted.

Real: `Scout`, `Search`, `Owners`, `PosixStore`, and what they decide. Simulated: the filesystem (in memory, and
what is written is seen at once), the clock, and the heartbeats, which are made up when they are read.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fsctx.agent.decide import Leave, Wait
from fsctx.agent.owners import Owners
from fsctx.agent.patrol import Patrol
from fsctx.agent.scout import Found, Scout
from fsctx.agent.search import Search
from fsctx.agent.tail import Tail as RealTail
from fsctx.agent.watch import Patience
from fsctx.protocol import agents, buckets, codec, leases, names
from fsctx.protocol.agents import AgentRecord, AgentState, Session
from fsctx.protocol.geometry import UNITS_PER_BUCKET, Geometry, bucket_of
from fsctx.protocol.manifest import Task
from fsctx.protocol.names import LeaseId
from fsctx.protocol.processes import Process
from fsctx.store import PosixStore
from fsctx.store.system import System

BEATS_PER_TTL = 6
TASK = Task(context="c", model="m", template="t", method="score")


@dataclass(slots=True, kw_only=True)
class Holder:
    """An agent as others see it."""

    name: str
    host: str
    first_beat_s: float
    beat_s: float
    unit: int | None = None
    """What it works on."""
    killed_s: float | None = None
    left_s: float | None = None

    def session(self, now_s: float) -> bytes:
        """Return its heartbeat at a time."""
        state = AgentState.RUNNING
        if self.left_s is not None and now_s >= self.left_s:
            state = AgentState.LEFT
        seen_s = min(now_s, now_s if self.killed_s is None else self.killed_s)
        counter = int((seen_s - self.first_beat_s) // self.beat_s)
        session = Session(agent=self.name, counter=counter, progress=counter, state=state, unit=self.unit)
        return agents.encode_session(session)

    def record(self) -> bytes:
        """Return its record."""
        process = Process(host=self.host, boot_id="boot", pid=1, started_ticks=1)
        return codec.encode(
            AgentRecord(
                agent=self.name,
                process=process,
                started="",
                version="",
                python="",
                engine="",
                device="",
                cores=1,
                memory_bytes=1,
            )
        )


class Files(System):
    """A filesystem in memory. `now_s` is the time; `holders` are the agents whose heartbeats can be read."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.holders: dict[str, Holder] = {}
        self.folders: dict[str, dict[str, bytes]] = {}
        self.calls: Counter[str] = Counter()
        self.calls_by_second: Counter[int] = Counter()

    def listdir(self, path: str) -> list[str]:
        """See `System.listdir`."""
        self._count("listdir", path)
        if path not in self.folders:
            raise FileNotFoundError(2, "no such folder", path)
        return list(self.folders[path])

    def read(self, path: str) -> bytes:
        """See `System.read`."""
        self._count("read", path)
        folder, _, name = path.rpartition("/")
        holder = self.holders.get(folder.rpartition("/")[2])
        if holder is not None:
            return holder.session(self.now_s) if name == "session" else holder.record()
        if name not in self.folders.get(folder, ()):
            raise FileNotFoundError(2, "no such file", path)
        return self.folders[folder][name]

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        """See `System.create`."""
        self._count("create", path)
        folder, _, name = path.rpartition("/")
        if name in self.folders[folder]:
            raise FileExistsError(17, "exists", path)
        self.folders[folder][name] = content

    def readlink(self, path: str) -> str:
        """See `System.readlink`."""
        self._count("readlink", path)
        folder, _, name = path.rpartition("/")
        if name not in self.folders.get(folder, ()):
            raise FileNotFoundError(2, "no such file", path)
        return self.folders[folder][name].decode()

    def _count(self, what: str, path: str) -> None:
        kind = path.removeprefix("/run/").partition("/")[0]
        self.calls[f"{what} {kind}"] += 1
        self.calls_by_second[int(self.now_s)] += 1


@dataclass(frozen=True, slots=True)
class Taken:
    """A lease that a scout took."""

    at_s: float
    agent: str
    lease_id: LeaseId


@dataclass(slots=True, eq=False)
class Tail:
    """The end of a run. `n_open` buckets have a share of the `n_leased` units each; all others were compacted."""

    n_agents: int
    n_leased: int
    n_open: int
    n_buckets: int
    seed: int = 0
    ttl_s: float = 60.0
    agents_per_host: int = 1
    unit_s: float | None = None
    """How long a unit takes, as the agents measured it."""
    race_factor: float = 3.0
    files: Files = field(default_factory=Files)
    scouts: dict[str, Scout] = field(default_factory=dict)
    owner_of: dict[int, Holder] = field(default_factory=dict)
    taken: list[Taken] = field(default_factory=list)
    left: dict[str, float] = field(default_factory=dict)
    """Scout → when it left."""
    chance: Random = field(init=False)
    geometry: Geometry = field(init=False)
    opened: list[int] = field(init=False)
    _due: list[tuple[float, int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)
        self.geometry = Geometry(n_rows=self.n_buckets * UNITS_PER_BUCKET, unit_rows=1, slices_per_shard=256, n_tasks=1)
        beat_s = self.ttl_s / BEATS_PER_TTL
        for number in range(self.n_agents):
            host = f"host{number // self.agents_per_host}"
            name = f"{host}-{number}-{self.chance.getrandbits(32):08x}"
            first_s = -self.chance.uniform(1000.0, 2000.0)
            self.files.holders[name] = Holder(name=name, host=host, first_beat_s=first_s, beat_s=beat_s)
        self._write_run()
        for number, name in enumerate(self.files.holders):
            self.scouts[name] = self._scout(name)
            heapq.heappush(self._due, (self.chance.uniform(0.0, self.ttl_s), number, name))

    def run(self, until_s: float, *, at: dict[float, Callable[[], Any]] | None = None) -> None:
        """Let time pass; `at` says what happens when."""
        events = sorted((at or {}).items())
        while self._due and self._due[0][0] <= until_s:
            now_s, number, name = heapq.heappop(self._due)
            while events and events[0][0] <= now_s:
                self.files.now_s = events[0][0]
                events.pop(0)[1]()
            self.files.now_s = max(self.files.now_s, now_s)
            again_s = self._step(name, now_s)
            if again_s is not None:
                heapq.heappush(self._due, (again_s, number, name))
        self.files.now_s = until_s

    def keep_busy(self, names: Container[str]) -> None:
        """Let some agents have work: they watch nobody."""
        self._due = [due for due in self._due if due[2] not in names]
        heapq.heapify(self._due)

    def alive(self) -> list[Scout]:
        """Return the scouts of agents that were not killed."""
        return [scout for name, scout in self.scouts.items() if self.files.holders[name].killed_s is None]

    def calls_per_s(self, from_s: float, until_s: float) -> float:
        """Return the mean rate of calls of all scouts in a time."""
        seconds = range(int(from_s), int(until_s))
        return sum(self.files.calls_by_second[second] for second in seconds) / len(seconds)

    def finish_unit(self, unit: int) -> None:
        """Publish a unit, and compact its bucket if that was the last one."""
        bucket = bucket_of(unit)
        results = self.files.folders[f"/run/{names.bucket_folder(names.RESULTS, bucket)}"]
        results[f"{unit:08d}"] = f"{unit:08d}.0.parquet".encode()
        if len(results) == UNITS_PER_BUCKET:
            for kind in names.BUCKETED:
                del self.files.folders[f"/run/{names.bucket_folder(kind, bucket)}"]
                del self.files.folders[f"/run/{kind}"][f"{bucket:06d}"]
            self.files.folders["/run/results"][f"{bucket:06d}.parquet"] = b""

    def _step(self, name: str, now_s: float) -> float | None:
        """Let a scout act until it waits; return until when, or None where it does not scout any more."""
        scout, holder = self.scouts[name], self.files.holders[name]
        if holder.killed_s is not None or holder.left_s is not None:
            return None
        while True:
            match scout.step(now_s, 1):
                case Found(leases=found):
                    self.taken += [Taken(now_s, name, lease_id) for lease_id in found]
                case Wait(seconds):
                    return now_s + seconds
                case Leave():
                    self.left[name] = now_s
                    return None
                case None:
                    continue

    def _write_run(self) -> None:
        folders = self.files.folders
        folders["/run/agents"] = dict.fromkeys(self.files.holders, b"")
        opened = self.opened = sorted(self.chance.sample(range(self.n_buckets), self.n_open))
        for kind in names.BUCKETED:
            folders[f"/run/{kind}"] = {f"{bucket:06d}": b"" for bucket in opened}
            for bucket in opened:
                folders[f"/run/{names.bucket_folder(kind, bucket)}"] = {}
        folders["/run/results"] |= {f"{b:06d}.parquet": b"" for b in range(self.n_buckets) if b not in set(opened)}
        holders = list(self.files.holders.values())
        self.chance.shuffle(holders)
        left = [self.n_leased // self.n_open + (i < self.n_leased % self.n_open) for i in range(self.n_open)]
        for bucket, n_left in zip(opened, left, strict=True):
            self._open_bucket(bucket, n_left, holders)

    def _open_bucket(self, bucket: int, n_left: int, holders: list[Holder]) -> None:
        leased = self.files.folders[f"/run/{names.bucket_folder(names.LEASES, bucket)}"]
        results = self.files.folders[f"/run/{names.bucket_folder(names.RESULTS, bucket)}"]
        units = self.geometry.units_of(bucket)
        left = set(self.chance.sample(units, n_left))
        for unit in units:
            holder = holders[len(self.owner_of) % len(holders)]
            leased[f"{unit:08d}.0"] = codec.encode(leases.Lease(owner=holder.name))
            if unit in left:
                self.owner_of[unit] = holder
                holder.unit = unit
            else:
                results[f"{unit:08d}"] = f"{unit:08d}.0.parquet".encode()

    def _scout(self, name: str) -> Scout:
        chance, store = Random(self.chance.random()), PosixStore(Path("/run"), system=self.files)
        host = self.files.holders[name].host
        owners = Owners(
            store=store,
            me=name,
            patience=Patience(ttl_s=self.ttl_s, stall_s=1800.0, race_factor=self.race_factor),
            owner_of=leases.owner_of,
            unit_s=lambda: self.unit_s,
            is_dead=lambda r: r.process.host == host and self.files.holders[r.agent].killed_s is not None,
        )
        search = Search(self.geometry, [TASK], chance)
        scout = Scout(
            store=store,
            geometry=self.geometry,
            search=search,
            owners=owners,
            tail=RealTail(
                store=store,
                geometry=self.geometry,
                search=search,
                owners=owners,
                me=name,
                chance=chance,
                ttl_s=self.ttl_s,
            ),
            patrol=Patrol(search=search, owners=owners, chance=chance, ttl_s=self.ttl_s),
            agent=name,
            reason_to_leave=lambda: None,
            give_back=lambda _: None,
            clock=lambda: self.files.now_s,
        )
        search.saw_compacted(buckets.compacted(store))
        return scout
