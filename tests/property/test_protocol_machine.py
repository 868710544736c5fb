"""The protocol's files under any order of what agents and people do, on a real folder, against a model in memory."""

import contextlib
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pyarrow as pa
from fabricate import LABELS, FabricatedRun, add_agent, fabricate, verdict_table
from hypothesis import HealthCheck, settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from fsctx.agent.saver import Saver
from fsctx.coordinator.collect import proof
from fsctx.coordinator.retry import retry
from fsctx.errors import Missing
from fsctx.protocol import agents, buckets, compaction, failures, leases, names, published, results, verdicts
from fsctx.protocol.failures import Failure
from fsctx.protocol.names import LeaseId
from fsctx.protocol.verdicts import Origin

N_UNITS, UNIT_ROWS = 2, 3
AGENTS = st.sampled_from(["ann", "bob", "cyd"])
UNITS = st.integers(0, N_UNITS - 1)
GENERATIONS = st.integers(0, 3)


class ProtocolMachine(RuleBasedStateMachine):
    """Two units, three agents, one bucket. Everybody may do everything at any time, zombies too."""

    held = Bundle("held")
    """Leases that somebody took, with the taker."""
    written = Bundle("written")
    """Of those, the ones whose verdicts are whole."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="fsctx-machine-"))
        self.run: FabricatedRun = fabricate(self.folder / "run", n_rows=N_UNITS * UNIT_ROWS, unit_rows=UNIT_ROWS)
        self.owners: dict[LeaseId, str] = {}
        self.published: dict[int, LeaseId] = {}
        self.tables: dict[LeaseId, pa.Table] = {}
        self.saved: dict[int, set[int]] = {unit: set() for unit in range(N_UNITS)}
        self.failed: set[int] = set()
        self.counters: dict[str, int] = {}
        self.is_compacted = False

    def teardown(self) -> None:
        shutil.rmtree(self.folder)

    @rule(target=held, agent=AGENTS, unit=UNITS, generation=GENERATIONS)
    def take(self, agent: str, unit: int, generation: int) -> tuple[LeaseId, str]:
        lease_id = LeaseId(unit, generation)
        if self.is_compacted:
            with contextlib.suppress(Missing):
                assert not leases.take(self.run.store, lease_id, agent), "a lease in a bucket that is done"
        else:
            is_mine = leases.take(self.run.store, lease_id, agent)
            assert is_mine == (self.owners.setdefault(lease_id, agent) == agent)
            assert leases.owner_of(self.run.store, lease_id) == self.owners[lease_id]
        return lease_id, self.owners.get(lease_id, agent)

    @rule(target=written, lease=consumes(held))
    def write(self, lease: tuple[LeaseId, str]) -> LeaseId:
        lease_id, agent = lease
        with contextlib.suppress(*([Missing] if self.is_compacted else [])):
            if lease_id not in self.tables:  # its holder alone writes, and once
                table = self._table(lease_id, agent)
                content = verdicts.to_parquet(table, run=self.run.manifest.run, unit=lease_id.unit)
                results.write(self.run.store, lease_id, content)
                self.tables[lease_id] = table
        return lease_id

    @rule(lease_id=written)
    def publish(self, lease_id: LeaseId) -> None:
        if self.is_compacted:
            with contextlib.suppress(Missing):
                assert results.publish(self.run.store, lease_id) == self.published[lease_id.unit]
            return
        first = self.published.setdefault(lease_id.unit, lease_id)
        assert results.publish(self.run.store, lease_id) == first

    @precondition(lambda self: not self.is_compacted)
    @rule(unit=UNITS, agent=AGENTS)
    def finish(self, unit: int, agent: str) -> None:
        """All that one undisturbed agent does."""
        lease_id = LeaseId(unit, max((i.generation for i in self.owners if i.unit == unit), default=-1) + 1)
        self.take(agent=agent, unit=unit, generation=lease_id.generation)
        self.publish(lease_id=self.write(lease=(lease_id, agent)))

    @precondition(lambda self: not self.is_compacted)
    @rule(unit=UNITS, generation=GENERATIONS, offsets=st.sets(st.integers(0, UNIT_ROWS - 1), min_size=1))
    def save(self, unit: int, generation: int, offsets: set[int]) -> None:
        rows = [unit * UNIT_ROWS + offset for offset in sorted(offsets)]
        content = verdicts.to_parquet(verdict_table(self.run, rows), run=self.run.manifest.run, unit=unit)
        name = names.partial(0, LeaseId(unit, generation))
        before = {n for n in self.run.store.list(names.bucket_folder(names.PARTIAL, 0)) if n in name}
        if not before:
            self.run.store.replace(name, content)
            self.saved[unit] |= set(rows)

    @precondition(lambda self: not self.is_compacted)
    @rule(unit=UNITS, kind=st.sampled_from(["torn", "other unit", "other run", "other rows"]))
    def save_junk(self, unit: int, kind: str) -> None:
        first = unit * UNIT_ROWS
        table = verdict_table(self.run, [first + UNIT_ROWS, first + UNIT_ROWS + 1] if kind == "other rows" else [first])
        content = verdicts.to_parquet(
            table,
            run="another" if kind == "other run" else self.run.manifest.run,
            unit=unit + 1 if kind == "other unit" else unit,
        )
        self.run.store.replace(names.partial(0, LeaseId(unit, 9)), content[:40] if kind == "torn" else content)

    @precondition(lambda self: not self.is_compacted)
    @rule(unit=UNITS)
    def adopt(self, unit: int) -> None:
        adopted = self._saver("ann").adopt(LeaseId(unit, 4), self.run.geometry.place(unit))
        rows = [] if adopted is None else adopted.column("row").to_pylist()
        assert sorted(rows) == sorted(self.saved[unit])

    @precondition(lambda self: not self.is_compacted)
    @rule(lease=held)
    def give_up(self, lease: tuple[LeaseId, str]) -> None:
        """Only who holds a unit gives it up."""
        unit, agent = lease[0].unit, lease[1]
        failure = Failure(unit=unit, generation=0, reason="it cannot be read", agent=agent, host="h")
        failures.record_failure(self.run.store, failure)
        self.failed.add(unit)

    @precondition(lambda self: not self.is_compacted)
    @rule(number=st.integers(0, 10**9))
    def put_back(self, number: int) -> None:
        """Of failed units that are done nothing is put back: their result counts."""
        wanted = self.failed - self.published.keys()
        assert set(retry(self.run.store, [], token=str(number)).units) == wanted
        for unit in wanted:
            latest = max((i.generation for i in self.owners if i.unit == unit), default=-1)
            self.owners[LeaseId(unit, latest + 1)] = leases.NOBODY
        self.failed -= wanted

    @rule(agent=AGENTS, is_torn=st.booleans())
    def beat(self, agent: str, is_torn: bool) -> None:
        self.counters[agent] = counter = self.counters.get(agent, 0) + 1
        add_agent(self.run, agent, counter=counter)
        if is_torn:
            name = names.session(agent)
            self.run.store.rewrite(name, self.run.store.read(name)[:9] + b'{"schema": 1, "agent": "')
        session = agents.read_session(self.run.store, agent)
        assert (session is None) == is_torn
        assert is_torn or (session is not None and session.counter == counter)

    @rule()
    def compact(self) -> None:
        labels = [self.run.labels] * len(self.run.manifest.tasks)
        is_done = compaction.compact(self.run.store, self.run.manifest, labels, 0)
        assert is_done == (len(self.published) == N_UNITS)
        self.is_compacted = self.is_compacted or is_done

    @invariant()
    def law_1_every_unit_is_free_or_leased_or_done_or_failed(self) -> None:
        view = buckets.look(self.run.store, self.run.geometry, 0)
        ended = self.published.keys() | self.failed
        latest = {u: max(i.generation for i in self.owners if i.unit == u) for u in {i.unit for i in self.owners}}
        assert view.done == self.published.keys()
        if not self.is_compacted:
            assert view.failed == self.failed - self.published.keys()
            assert view.leased == {unit: g for unit, g in latest.items() if unit not in ended}
            assert set(view.free) == set(range(N_UNITS)) - latest.keys() - ended

    @invariant()
    def law_2_what_is_published_never_changes(self) -> None:
        winners = proof.prove_bucket(self.run.store, self.run.geometry, 0).winners
        assert winners.keys() == self.published.keys()
        for unit, lease_id in self.published.items():
            table = published.read_unit(self.run.store, self.run.manifest, unit, labels=self.run.labels)
            assert table is not None
            assert table.replace_schema_metadata().to_pylist() == self.tables[lease_id].to_pylist()

    def _table(self, lease_id: LeaseId, agent: str) -> pa.Table:
        first = lease_id.unit * UNIT_ROWS
        rows = range(first, first + UNIT_ROWS)
        return verdict_table(self.run, rows, generation=lease_id.generation, agent=agent)

    def _saver(self, agent: str) -> Saver:
        origin = Origin(generation=0, agent=agent, host="h", device="d", engine="e")
        return Saver(store=self.run.store, run=self.run.manifest.run, labels=lambda t: LABELS, origin=lambda g: origin)


TestProtocolMachine = ProtocolMachine.TestCase
TestProtocolMachine.settings = settings(
    max_examples=60, stateful_step_count=40, suppress_health_check=list(HealthCheck)
)
