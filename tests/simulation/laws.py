"""The laws, checked after every change of the simulated server and at the end of a history."""

import functools
import io
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.agent.engines.base import BoundTask, Row
from fsctx.agent.engines.fake import FakeEngine
from fsctx.agent.watch import FRESH
from fsctx.protocol import agents, codec, names
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.geometry import Place, bucket_of
from fsctx.protocol.leases import Lease
from fsctx.protocol.names import LeaseId
from fsctx.templates.model import Template
from simulation.sharedfs import LINK, Entry
from simulation.world import ROOT, TTL_S, Simulation, _records


class LawBroken(AssertionError):
    """A history in which a law of the design does not hold."""


@dataclass(slots=True, eq=False)
class Laws:
    """Watches one simulation. Attach before anything runs."""

    simulation: Simulation
    published: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """Unit → what its name stands for, and the content of that."""
    beats: dict[str, tuple[float, Session]] = field(default_factory=dict)
    """Agent → when its session last changed on the server, and to what."""
    gaps_s: dict[str, float] = field(default_factory=dict)
    """Agent → how long before its last beat the one before was."""

    def attach(self) -> None:
        self.simulation.server.on_change = self.on_change

    def on_change(self, what: str, path: str) -> None:
        name = path.removeprefix(f"{ROOT}/")
        kind, _, rest = name.partition("/")
        if kind == names.RESULTS:
            self._check_results(rest)
        elif kind == names.LEASES and what == "write":
            self._check_takeover(rest.rpartition("/")[2], name)
        elif kind == names.AGENTS and name.endswith("/session"):
            self._note_beat(name)

    def check_end(self) -> None:
        """Law 1: every planned row has exactly one verdict, and it is the right one."""
        units = set(range(self.simulation.manifest.geometry.n_units))
        missing = sorted(units - self.published.keys())
        if missing:
            raise LawBroken(f"law 1: units {missing} were never done although agents lived on")

    def _check_results(self, rest: str) -> None:
        """Law 2: a published result is complete and right, and never changes or disappears."""
        folder, _, file = rest.rpartition("/")
        entries = self.simulation.server.folders[f"{ROOT}/{names.RESULTS}/{folder}"]
        unit = names.parse_published(file)
        if unit is not None and unit not in self.published:
            self._check_new(unit, entries)
        units = [unit] if unit is not None else [u for u, (t, _) in self.published.items() if t == file]
        for changed in units:
            self._check_unchanged(changed, entries)

    def _check_new(self, unit: int, entries: dict[str, Entry]) -> None:
        link = entries[f"{unit:08d}"]
        if link.kind != LINK:
            raise LawBroken(f"law 2: unit {unit} is published by something else than a symlink")
        target = link.content.decode()
        if target not in entries:
            raise LawBroken(f"law 2: unit {unit} is published as {target}, which is not there")
        content = entries[target].content
        expected = expected_rows(self.simulation, self.simulation.manifest.geometry.place(unit))
        if rows_of(content) != expected:
            raise LawBroken(f"law 2: what is published of unit {unit} is not whole or not right")
        self.published[unit] = (target, content)

    def _check_unchanged(self, unit: int, entries: dict[str, Entry]) -> None:
        if bucket_of(unit) != 0 and not entries:
            return
        target, content = self.published[unit]
        link, file = entries.get(f"{unit:08d}"), entries.get(target)
        if link is None or link.content.decode() != target or file is None or file.content != content:
            raise LawBroken(f"law 2: the published result of unit {unit} changed or disappeared")

    def _note_beat(self, name: str) -> None:
        entry = self.simulation.server.get(f"{ROOT}/{name}")
        if entry is None:
            return
        try:
            session = agents.decode_session(entry.content, where=name)
        except Exception:  # noqa: BLE001 - torn: no beat
            return
        known = self.beats.get(session.agent)
        if known is None or known[1].counter != session.counter or session.state == AgentState.LEFT:
            now_s = self.simulation.clockwork.now_s
            self.gaps_s[session.agent] = now_s - known[0] if known else 0.0
            self.beats[session.agent] = (now_s, session)

    def _check_takeover(self, file: str, name: str) -> None:
        """Law 7: nobody loses a lease whose heart beat within the time to live."""
        lease_id = names.parse_lease(file)
        if lease_id is None or lease_id.generation == 0:
            return
        before = names.lease(bucket_of(lease_id.unit), LeaseId(lease_id.unit, lease_id.generation - 1))
        entry = self.simulation.server.get(f"{ROOT}/{before}")
        if entry is None:
            raise LawBroken(f"law 7: {name} was taken although generation {lease_id.generation - 1} never was")
        if not entry.content:
            return
        owner = codec.decode(entry.content, Lease, where=before).owner
        if owner and not self._may_lose(owner, LeaseId(lease_id.unit, lease_id.generation - 1)):
            raise LawBroken(f"law 7: {name} was taken from {owner}, whose heart beat")

    def _may_lose(self, owner: str, lease_id: LeaseId) -> bool:
        process = self.simulation.agents[owner]
        beat_s, session = self.beats.get(owner, (0.0, None))
        if process.is_dead or session is None or session.state == AgentState.LEFT:
            return True
        if str(lease_id) in session.released:
            return True
        lag_s = max(host.client.weather.content_lag_s for host in self.simulation.hosts) + 1.0
        silent_s = self.simulation.clockwork.now_s - beat_s
        was_silent_when_looked_at = silent_s <= TTL_S / FRESH + 1.0 and self.gaps_s[owner] >= TTL_S - lag_s
        return silent_s >= TTL_S - lag_s or was_silent_when_looked_at


@functools.cache
def _verdicts(shape: object, template: Template, place: Place) -> tuple[tuple[int, str], ...]:
    bound = FakeEngine().load(None).bind(BoundTask(template=template, method="score"))  # type: ignore[arg-type]
    rows = [Row(row=r, claim=f"Claim {r}.") for r in range(place.first_row, place.first_row + place.n_rows)]
    return tuple((v.row, str(v.verdict)) for v in bound.infer(bound.encode(rows)))


def expected_rows(simulation: Simulation, place: Place) -> tuple[tuple[int, str], ...]:
    """Return row and verdict of a unit, as one undisturbed agent computes them."""
    template = _records(simulation.shape)[1][simulation.manifest.tasks[place.task].template]
    return _verdicts(simulation.shape, template, place)


def rows_of(content: bytes) -> tuple[tuple[int, str], ...] | None:
    """Return row and verdict of each row of a result file; None if it is none."""
    try:
        table = pq.read_table(io.BytesIO(content), columns=["row", "verdict"])
    except (pa.ArrowException, OSError):
        return None
    return tuple(zip(table.column("row").to_pylist(), table.column("verdict").to_pylist(), strict=True))
