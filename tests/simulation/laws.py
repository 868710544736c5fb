"""The laws of safety, checked at every change of the simulated server. `effort` has those about work and leaving."""

from dataclasses import dataclass, field

from fsctx.agent.watch import FRESH, HUSHED, Patience
from fsctx.errors import Damaged
from fsctx.protocol import agents, codec, names
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.failures import Failure
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.leases import Lease
from fsctx.protocol.names import LeaseId
from fsctx.protocol.sweep import Decision, Extent, extent_of
from simulation.clockwork import Process
from simulation.sharedfs import LINK, Entry
from simulation.verdicts import expected_decision, expected_rows, rows_of
from simulation.world import ROOT, TTL_S, Simulation


class LawBroken(AssertionError):
    """A history in which a law of the design does not hold."""


@dataclass(slots=True, eq=False)
class Laws:
    """Watches one simulation. Attach before anything runs."""

    simulation: Simulation
    published: dict[int, tuple[str, bytes]] = field(default_factory=dict)
    """Unit → the file that its name stands for, and the content of that."""
    planted: int | None = None
    """Unit whose name was made to point elsewhere."""
    created: dict[str, float] = field(default_factory=dict)
    """Leases that ever were, and since when."""
    beats: dict[str, tuple[float, Session]] = field(default_factory=dict)
    """Agent → when its session last changed on the server, and to what."""
    given_up: set[LeaseId] = field(default_factory=set)
    """Leases whose holder listed the unit as failed: `retry` takes the next generation."""
    raced: set[int] = field(default_factory=set)
    """Units that were taken from holders that lived, as they seemed slow."""
    gaps_s: dict[str, float] = field(default_factory=dict)
    """Agent → how long before its last beat the one before was."""
    decisions: list[Decision] = field(default_factory=list)
    """What was decided in a sweep, rung by rung."""

    @property
    def units(self) -> set[int]:
        """The units that must be done in the end, by what was decided so far."""
        dropped = {unit for units in self._extent.dropped_units for unit in units}
        return set(range(self.simulation.manifest.geometry.n_units)) - dropped

    @property
    def _extent(self) -> Extent:
        manifest = self.simulation.manifest
        return extent_of(manifest.geometry, manifest.sweep, self.decisions)

    def on_change(self, what: str, path: str) -> None:
        """Check the laws after a change of the server."""
        name = path.removeprefix(f"{ROOT}/")
        kind, _, rest = name.partition("/")
        match kind:
            case names.RESULTS:
                self._check_results(rest)
            case names.LEASES:
                self._check_lease(what, name)
            case names.FAILED if what == "rename":
                self._check_failure(rest)
            case names.SWEEP:
                self._check_decisions()
            case names.AGENTS if name.endswith("/session"):
                self._note_beat(name)

    def on_call(self, process: Process, what: str, path: str) -> None:
        """Check what an agent asks for: law 4, and that a published file is not written again."""
        if process.name not in self.simulation.agents or what not in ("rename", "symlink", "link"):
            return
        kind, _, rest = path.removeprefix(f"{ROOT}/").partition("/")
        if kind not in (names.RESULTS, names.PARTIAL, names.FAILED):
            return
        _, said = self.beats.get(process.name, (0.0, None))
        if said is not None and said.state == AgentState.LEFT:
            raise LawBroken(f"law 4: {process.name} left, and then asks for {what} {rest}")
        lease_id = names.parse_result(rest.rpartition("/")[2]) if kind == names.RESULTS else None
        if lease_id and self.published.get(lease_id.unit, ("",))[0] == str(lease_id) + ".parquet":
            raise LawBroken(f"law 2: {process.name} writes {rest} again, which is published")

    def check_end(self) -> None:
        """Law 1: every planned row that no sweep dropped has exactly one verdict, and it is the right one."""
        if self._extent.waiting:
            raise LawBroken(f"law 1: rung {len(self.decisions)} was never decided although agents lived on")
        missing = sorted(self.units - self.published.keys())
        if missing:
            raise LawBroken(f"law 1: units {missing} were never done although agents lived on")

    def is_of_planted(self, error: Damaged) -> bool:
        """Whether damage is the link that was planted."""
        return self.planted is not None and f"{self.planted:08d} points to" in str(error)

    def _check_results(self, rest: str) -> None:
        """Law 2: a published result is complete and right, and never changes or disappears."""
        folder, _, file = rest.rpartition("/")
        entries = self.simulation.server.folders.get(f"{ROOT}/{names.RESULTS}/000000")
        if entries is None or names.parse_compacted(file) is not None:
            self._check_compacted()
        if entries is None or folder != "000000":
            return
        unit = names.parse_published(file)
        if unit is not None and unit not in self.published and file in entries:
            self._check_new(unit, entries)
        units = [unit] if unit is not None else [u for u, (target, _) in self.published.items() if target == file]
        for changed in units:
            if changed in self.published:
                self._check_unchanged(changed, entries)

    def _check_decisions(self) -> None:
        """Law 2 for decisions: each rung's is right, follows on the one before, and never changes or disappears."""
        entries = self.simulation.server.folders[f"{ROOT}/{names.SWEEP}"]
        for rung in range(len(self.decisions) + 1):
            link = entries.get(names.decision(rung).rpartition("/")[2])
            target = link and (self._target(link) or "")
            file = entries.get(target) if target else None
            if file is None:
                if link is not None or rung < len(self.decisions):
                    raise LawBroken(f"law 2: the decision on rung {rung} is not there any more, or not whole")
                continue
            decision = codec.decode(file.content, Decision, where=f"rung {rung}")
            if rung == len(self.decisions):
                self._check_new_decision(decision)
                self.decisions.append(decision)
            elif decision != self.decisions[rung]:
                raise LawBroken(f"law 2: the decision on rung {rung} changed")

    def _check_new_decision(self, decision: Decision) -> None:
        given_up = {lease_id.unit for lease_id in self.given_up}
        open_units = set(self._extent.open_units())
        if open_units - self.published.keys() - given_up:
            raise LawBroken(f"law 1: rung {decision.rung} was decided before it was over")
        if not open_units & given_up and decision.tasks != expected_decision(self.simulation, self._extent):
            raise LawBroken(f"law 2: what was decided on rung {decision.rung} does not follow from what was published")

    def _check_compacted(self) -> None:
        """Law 2 where a bucket's files became one: all its verdicts are there, and right."""
        entry = self.simulation.server.get(f"{ROOT}/{names.compacted(0)}")
        expected = [
            row for u in self.simulation.manifest.geometry.units_of(0) for row in expected_rows(self.simulation, u)
        ]
        if entry is None or rows_of(entry.content) != tuple(expected):
            raise LawBroken("law 2: the bucket's results are gone, and its one file is not whole or not right")

    def _check_new(self, unit: int, entries: dict[str, Entry]) -> None:
        target = self._target(entries[f"{unit:08d}"]) or f"{unit:08d}"
        if target not in entries:
            raise LawBroken(f"law 2: unit {unit} is published as {target}, which is not there")
        content = entries[target].content
        if rows_of(content) != expected_rows(self.simulation, unit):
            raise LawBroken(f"law 2: what is published of unit {unit} is not whole or not right")
        self.published[unit] = (target, content)

    def _check_unchanged(self, unit: int, entries: dict[str, Entry]) -> None:
        target, content = self.published[unit]
        link, file = entries.get(f"{unit:08d}"), entries.get(target)
        is_same = link is not None and self._target(link) in (None, target)
        if not is_same or file is None or file.content != content:
            raise LawBroken(f"law 2: the published result of unit {unit} changed or disappeared")

    def _target(self, link: Entry) -> str | None:
        """Return what a published name stands for; None if it holds the result itself."""
        if link.kind != LINK and not link.content.startswith(b"-> "):
            return None
        return link.content.decode().removeprefix("-> ").strip()

    def _check_lease(self, what: str, name: str) -> None:
        if what == "create":
            if name in self.created:
                raise LawBroken(f"law 4: {name} was created a second time: generations are never reused")
            lease_id = names.parse_lease(name.rpartition("/")[2])
            if lease_id is not None and not self._extent.is_open(lease_id.unit):
                raise LawBroken(f"law 1: {name} was taken, which no decision opened")
            self.created[name] = self.simulation.clockwork.now_s
        elif what == "write":
            self._check_takeover(name)

    def _check_failure(self, rest: str) -> None:
        """Law 11: a unit is given up only where something is wrong with it."""
        unit = names.parse_failed(rest.rpartition("/")[2])
        entry = self.simulation.server.get(f"{ROOT}/{names.FAILED}/{rest}")
        if entry is not None:
            failure = codec.decode(entry.content, Failure, where=rest)
            self.given_up.add(LeaseId(failure.unit, failure.generation))
        if unit is None or self.simulation.manifest.geometry.place(unit).shard not in self.simulation.damaged_shards:
            raise LawBroken(f"law 11: {rest} was listed as failed without a cause")

    def _note_beat(self, name: str) -> None:
        entry = self.simulation.server.get(f"{ROOT}/{name}")
        if entry is None:
            return
        try:
            session = agents.decode_session(entry.content, where=name)
        except Damaged:  # torn: no beat
            return
        known = self.beats.get(session.agent)
        if known is None or session.counter > known[1].counter:  # an older one arrived late: no beat
            now_s = self.simulation.clockwork.now_s
            self.gaps_s[session.agent] = now_s - known[0] if known else 0.0
            self.beats[session.agent] = (now_s, session)

    def _check_takeover(self, name: str) -> None:
        """Law 7: nobody loses a lease whose heart beat within the time to live."""
        lease_id = names.parse_lease(name.rpartition("/")[2])
        if lease_id is None or lease_id.generation == 0:
            return
        lost = LeaseId(lease_id.unit, lease_id.generation - 1)
        before = names.lease(bucket_of(lease_id.unit), lost)
        if before not in self.created:
            raise LawBroken(f"law 7: {name} was taken although generation {lost.generation} never was")
        if not self._lease(before):
            return
        owner = codec.decode(self._lease(before), Lease, where=before).owner
        new_owner = codec.decode(self._lease(name), Lease, where=name).owner
        if owner and owner != new_owner and not self._may_lose(owner, lost):
            raise LawBroken(f"law 7: {name} was taken from {owner}, whose heart beat")

    def _lease(self, name: str) -> bytes:
        entry = self.simulation.server.get(f"{ROOT}/{name}")
        return entry.content if entry is not None else b""

    def _is_straggler(self, lease_id: LeaseId, silent_s: float) -> bool:
        """Whether a lease is so old that whoever computes at the usual speed may race its holder (DESIGN §5).

        That is sooner where the holder was silent for two beats when it was looked at.
        """
        usual_s = self.simulation.manifest.geometry.unit_rows / self.simulation.engine.rows_per_s
        age_s = self.simulation.clockwork.now_s - self.created[names.lease(bucket_of(lease_id.unit), lease_id)]
        factor = Patience(ttl_s=TTL_S, stall_s=0.0).race_factor
        is_hushed = silent_s >= TTL_S / HUSHED
        return age_s >= (usual_s if is_hushed else max(self.simulation.hold_s, factor * usual_s)) - 1.0

    def _may_lose(self, owner: str, lease_id: LeaseId) -> bool:
        if lease_id in self.given_up:
            return True
        process = self.simulation.agents[owner]
        beat_s, session = self.beats.get(owner, (0.0, None))
        if process.is_dead or session is None or session.state == AgentState.LEFT:
            return True
        if str(lease_id) in session.released:
            return True
        lag_s = max(host.client.weather.content_lag_s for host in self.simulation.hosts) + 1.0
        silent_s = self.simulation.clockwork.now_s - beat_s
        if silent_s <= TTL_S / FRESH + 1.0:  # it may have beaten since it was looked at
            silent_s = max(silent_s, self.gaps_s[owner])
        if silent_s < TTL_S - lag_s and self._is_straggler(lease_id, silent_s + lag_s):
            self.raced.add(lease_id.unit)
            return True
        return silent_s >= TTL_S - lag_s
