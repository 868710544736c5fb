"""Looking at a run: reads names and small records only; no table, no model, no network."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from fsctx.coordinator.progress import DEAD, UNKNOWN, AgentView, RowCounts, RunState, Status, UnitCounts
from fsctx.coordinator.submit.record import read_submission
from fsctx.coordinator.sweeps import view_sweep
from fsctx.errors import Missing
from fsctx.protocol import agents, buckets, failures, names, orders, processes
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.decisions import read_decisions
from fsctx.protocol.failures import Failure
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.manifest import Manifest, read_manifest
from fsctx.protocol.orders import Orders
from fsctx.protocol.sweep import Extent, extent_of
from fsctx.store import Store

_TRIES = 3
"""So often is a session read that was torn: it is rewritten in an instant."""

_SHOWN_FAILURES = 5


def read_status(store: Store) -> Status:
    """Look at a run. Others go on working: the counts are of different moments within the look.

    Raises:
        InputError: the folder is not a run, or a newer fsctx planned it.
        Damaged: run.json cannot be read.
    """
    manifest = read_manifest(store)
    seen = read_agents(store, manifest)
    is_attended = any(agent.is_alive for agent in seen)
    made = read_decisions(store, manifest)
    extent = extent_of(manifest.geometry, manifest.sweep, made)
    units, rows, failed = _count(store, extent, is_attended=is_attended)
    return Status(
        run=manifest.run,
        state=_state(store, units, [agent for agent in seen if agent.is_alive]),
        units=units,
        rows=rows,
        agents=seen,
        failures=_read_failures(store, failed),
        ttl_s=manifest.ttl_s,
        sweep=view_sweep(manifest, made),
    )


def read_agents(store: Store, manifest: Manifest) -> tuple[AgentView, ...]:
    """Look at all agents that ever announced themselves."""
    return tuple(_view(store, name, manifest) for name in agents.list_agents(store))


def _view(store: Store, name: str, manifest: Manifest) -> AgentView:
    session = _read_session(store, name)
    if session is not None and session.state == AgentState.LEFT:
        return _said(session, manifest)  # it needs no further look: of thousands of agents most have left
    record = agents.read_agent(store, name)
    is_dead = record is not None and processes.is_dead(record.process)
    submission = record.submission if record else None
    if session is None:
        host, device = (record.process.host, record.device) if record else ("", "")
        state = DEAD if is_dead else UNKNOWN
        return AgentView(agent=name, host=host, device=device, state=state, submission=submission)
    return _said(session, manifest, state=DEAD if is_dead else None, submission=submission)


def _said(
    session: Session, manifest: Manifest, *, state: str | None = None, submission: str | None = None
) -> AgentView:
    models = {task.context: task.model for task in manifest.tasks}
    return AgentView(
        agent=session.agent,
        host=session.host,
        device=session.device,
        engine=session.engine,
        engine_why=session.engine_why,
        state=state or session.state,
        unit=session.unit,
        rows_per_s=session.rows_per_s,
        fs_calls_per_s=session.fs_calls_per_s,
        context=session.context,
        model=models.get(session.context or ""),
        source=session.source,
        fetched_bytes=session.fetched_bytes,
        ready_s=session.ready_s,
        why=session.why,
        submission=submission,
        counter=session.counter,
        ledger=session.ledger,
    )


def _read_session(store: Store, name: str) -> Session | None:
    """Read a session, again where it was torn."""
    for _ in range(_TRIES):
        session = agents.read_session(store, name)
        if session is not None:
            return session
    return None


@dataclass(slots=True)
class _Sum:
    """Counts that grow bucket by bucket: a million units are never held at once."""

    done: int = 0
    leased: int = 0
    done_rows: int = 0
    failed: list[int] = field(default_factory=list)
    failed_rows: int = 0


def _count(store: Store, extent: Extent, *, is_attended: bool) -> tuple[UnitCounts, RowCounts, list[int]]:
    total, geometry = _Sum(), extent.geometry
    ends = {geometry.unit_of(task=task, slice_number=geometry.n_slices - 1) for task in range(geometry.n_tasks)}
    compacted = buckets.compacted(store)
    for bucket in range(geometry.n_buckets):
        is_known = bucket in compacted
        view = buckets.compacted_view(geometry, bucket) if is_known else buckets.look(store, geometry, bucket)
        total.done += len(view.done)
        total.done_rows += _rows(geometry, view.done, ends)
        total.failed += sorted(view.failed)
        total.failed_rows += _rows(geometry, view.failed, ends)
        total.leased += len(view.leased) if is_attended else 0
    n_failed, n_dropped = len(total.failed), sum(map(len, extent.dropped_units))
    units = UnitCounts(
        total=geometry.n_units,
        done=total.done,
        leased=total.leased,
        free=geometry.n_units - total.done - total.leased - n_failed - n_dropped,
        failed=n_failed,
        dropped=n_dropped,
    )
    n_rows = geometry.n_rows * geometry.n_tasks
    rows = RowCounts(total=n_rows, done=total.done_rows, failed=total.failed_rows, dropped=extent.dropped_rows)
    return units, rows, total.failed


def _rows(geometry: Geometry, units: frozenset[int], ends: set[int]) -> int:
    """Return the rows of some units: all slices are full but each task's last one (`ends`)."""
    missing = geometry.n_slices * geometry.unit_rows - geometry.n_rows
    return len(units) * geometry.unit_rows - len(units & ends) * missing


def _state(store: Store, units: UnitCounts, alive: list[AgentView]) -> RunState:
    if units.done + units.failed + units.dropped >= units.total:
        return RunState.INCOMPLETE if units.failed else RunState.DONE
    given = orders.read_orders(store)
    if alive:
        are_leaving = all(_is_leaving(store, agent, given) for agent in alive)
        return RunState.DRAINING if are_leaving else RunState.RUNNING
    latest = max((_since(store, name) for name in _submissions(store)), default=0)
    return RunState.STOPPED if given.last > latest else RunState.WAITING


def _is_leaving(store: Store, agent: AgentView, given: Orders) -> bool:
    """Whether an agent is about to leave: it says so, or an order stands that it must obey."""
    if agent.state == AgentState.LEAVING:
        return True
    return agent.submission is not None and given.last > _since(store, agent.submission)


def _submissions(store: Store) -> Iterable[str]:
    return (name.removesuffix(".json") for name in store.list(names.SUBMISSIONS) if name.endswith(".json"))


def _since(store: Store, submission: str) -> int:
    """Return the order that stood when a submission was made; of an unknown one, more than any order."""
    found = read_submission(store, submission)
    return found.since_order if found else 2**63


def _read_failures(store: Store, failed: list[int]) -> tuple[Failure, ...]:
    found = []
    for unit in failed[:_SHOWN_FAILURES]:
        try:
            found.append(failures.read_failure(store, unit))
        except Missing:
            continue  # put back a moment ago
    return tuple(found)
