"""The laws about work and leaving. They hold in calm histories, where nothing but the protocol itself can waste any."""

from collections import Counter
from dataclasses import dataclass, field

from fsctx.agent.assembly import GRACE_S
from fsctx.agent.decide import FINISHED
from fsctx.protocol import names
from fsctx.protocol.geometry import bucket_of
from simulation.clockwork import Process
from simulation.laws import LawBroken, Laws
from simulation.plan import Plan
from simulation.verdicts import rows_of
from simulation.world import ROOT, Computed, Simulation

CALLS_PER_UNIT = 12
"""Law 8, for publication by symlink; a record that is linked takes 4 more."""

CALLS_PER_LOOK = 2
"""On top, per unit and agent: to try for a lease that somebody else has, to read who that is."""

CALLS_PER_MERGE, CALLS_PER_BUCKET = 2, 16
"""On top, per unit or bucket and agent: each that worked on a bucket may find it finished, and merge it."""

COUNTED = (names.LEASES, names.RESULTS, names.FAILED, names.UNITS)
"""Partials are saved by the clock, not by the unit."""


@dataclass(slots=True, eq=False)
class Effort:
    """Watches one simulation. Attach before anything runs."""

    simulation: Simulation
    laws: Laws
    plan: Plan
    n_calls: Counter[str] = field(default_factory=Counter)
    """Kind of call → how many agents made for single files of units."""

    def on_call(self, process: Process, what: str, path: str) -> None:
        """Count a request."""
        kind = path.removeprefix(f"{ROOT}/").partition("/")[0]
        if process.name in self.simulation.agents and what not in ("list", "write") and kind in COUNTED:
            self.n_calls[f"{kind} {what}"] += 1

    def on_exit(self, agent: str, reason: str) -> None:
        """Law 10: an agent that leaves is gone in time, and its finished rows are saved. Law 1: it says the truth."""
        if reason == FINISHED and (left := self._open_units()):
            raise LawBroken(f"law 1: {agent} left as if every unit were done, but {left} are not")
        if not self.plan.is_calm:
            return
        if reason.startswith("failed"):
            raise LawBroken(f"law 6: {agent} ended with an error though nothing was wrong: {reason}")
        told_s = self.simulation.agents[agent].told_to_leave_s
        took_s = 0.0 if told_s is None else self.simulation.clockwork.now_s - told_s
        if took_s > GRACE_S + 1 / self.plan.rows_per_s + 200 * self.plan.weather.latency_s + 5.0:
            raise LawBroken(f"law 10: {agent} was gone {took_s:.0f} s after SIGTERM")
        lost = [f"{c.template}/{c.row}" for c in self.simulation.computed if c.agent == agent and not self._is_safe(c)]
        if lost:
            raise LawBroken(f"law 10: {agent} left, and its rows {lost} are nowhere")

    def check_end(self) -> None:
        """Where nothing went wrong, every row was computed once, at a bounded number of calls."""
        if self.plan.is_calm:
            fair = [computed for computed in self.simulation.computed if self._unit(computed) not in self.laws.raced]
            times = Counter((computed.template, computed.row) for computed in fair)
            twice = sorted(row for row, n in times.items() if n > 1)
            if twice:
                raise LawBroken(f"law 7: rows {twice} were computed more than once though nothing went wrong")
        if self.plan.is_undisturbed:
            n_units, n_agents = self.simulation.manifest.geometry.n_units, len(self.simulation.agents)
            by_each = CALLS_PER_LOOK + CALLS_PER_MERGE * self.plan.compacts
            per_unit = CALLS_PER_UNIT + 4 * (self.plan.publish == "link") + by_each * n_agents
            allowed = n_units * per_unit + n_agents * CALLS_PER_BUCKET
            if self.n_calls.total() > allowed:
                raise LawBroken(f"law 8: {n_units} units took {dict(self.n_calls)} calls, over {allowed}")

    def _open_units(self) -> list[int]:
        """Return the units that were neither published nor ever given up."""
        ended = self.laws.published.keys() | {lease_id.unit for lease_id in self.laws.given_up} | {self.laws.planted}
        return sorted(self.laws.units - ended)

    def _unit(self, computed: Computed) -> int:
        geometry, tasks = self.simulation.manifest.geometry, self.simulation.manifest.tasks
        task = next(i for i, task in enumerate(tasks) if task.template == computed.template)
        return geometry.unit_of(task=task, slice_number=computed.row // geometry.unit_rows)

    def _is_safe(self, computed: Computed) -> bool:
        """Whether a row is in its unit's result, or in a saved partial of it."""
        unit = self._unit(computed)
        if unit in self.laws.published:
            return True
        folder = self.simulation.server.folders[f"{ROOT}/{names.bucket_folder(names.PARTIAL, bucket_of(unit))}"]
        saved = [rows_of(e.content) or () for n, e in folder.items() if (i := names.parse_result(n)) and i.unit == unit]
        return any(row == computed.row for rows in saved for row, _ in rows)
