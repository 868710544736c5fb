"""The picture of a run that `status` shows, and the document that it prints as JSON."""

from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any

from fsctx.coordinator.pilots import PilotsView
from fsctx.coordinator.sweeps import SweepView
from fsctx.protocol.agents import AgentState, Ledger
from fsctx.protocol.failures import Failure

DEAD = "dead"
"""State of an agent whose process is known to be gone although its session does not say so."""

UNKNOWN = "unknown"
"""State of an agent that announced itself and has no readable session (yet)."""


class RunState(StrEnum):
    """How a run stands, by what its files say."""

    DONE = "done"
    """Every unit is done."""
    INCOMPLETE = "incomplete"
    """Every unit is done or given up, and some are given up."""
    RUNNING = "running"
    """An agent lives and works."""
    DRAINING = "draining"
    """Agents live, and each of them is about to leave."""
    STOPPED = "stopped"
    """No agent lives, work is left, and no agent was submitted after the last order to stop or drain."""
    WAITING = "waiting"
    """No agent lives, work is left, and nobody said stop: none was submitted, or pilots are queued or gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitCounts:
    """Units by what became of them; all others sum to `total`."""

    total: int
    done: int
    leased: int
    """Held by somebody. 0 where no agent lives: what nobody holds is free to take."""
    free: int
    """Those that a sweep may still drop among them."""
    failed: int
    dropped: int = 0
    """Never to be computed: a sweep did without."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCounts:
    """Verdicts wanted (claims times tasks) and published."""

    total: int
    done: int
    failed: int
    """In units that were given up."""
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentView:
    """One agent: what its session says, unless its process is known to be dead."""

    agent: str
    host: str = ""
    device: str = ""
    engine: str = ""
    engine_why: str = ""
    """Why it works with that engine, in words."""
    state: str = UNKNOWN
    unit: int | None = None
    rows_per_s: float = 0.0
    fs_calls_per_s: float = 0.0
    context: str | None = None
    """Digest of the resident context."""
    model: str | None = None
    """The name of that context in this run."""
    source: str | None = None
    """Where its files came from."""
    fetched_bytes: int = 0
    ready_s: float = 0.0
    """How long it took to fetch and load it."""
    why: str = ""
    submission: str | None = None
    counter: int = 0
    silent_s: float | None = None
    """How long the counter did not move while it was watched; None if it was not watched."""
    ledger: Ledger = field(default_factory=Ledger)

    @property
    def is_alive(self) -> bool:
        """Whether it may still be at work."""
        return self.state not in (DEAD, UNKNOWN, AgentState.LEFT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """One look at a run."""

    run: str
    state: RunState
    units: UnitCounts
    rows: RowCounts
    agents: tuple[AgentView, ...]
    failures: tuple[Failure, ...] = ()
    """The first few units that were given up."""
    ttl_s: float = 0.0
    """The run's time to live of a silent agent."""
    pilots: PilotsView = field(default_factory=PilotsView)
    """What batch systems say of its pilots; nothing where they were not asked."""
    sweep: SweepView | None = None
    """Set where tasks are dropped on the way."""

    @property
    def rows_per_s(self) -> float:
        """Rate of all agents that are at work, as they measured it themselves."""
        return sum(agent.rows_per_s for agent in self.agents if agent.state == AgentState.RUNNING)

    @property
    def fs_calls_per_s(self) -> float:
        """Calls a second to the shared filesystem of all agents that live, as they counted them."""
        return sum(agent.fs_calls_per_s for agent in self.agents if agent.is_alive)

    @property
    def rows_left(self) -> int:
        """Verdicts still to be computed; at most, where a sweep may drop some of them yet."""
        left = self.rows.total - self.rows.done - self.rows.failed - self.rows.dropped
        if self.sweep is None or self.sweep.budget is None:
            return left
        return max(0, min(left, self.sweep.budget - self.rows.done - self.rows.failed))

    @property
    def eta_s(self) -> float | None:
        """Seconds left at the present rate; None where nothing moves."""
        if self.rows_left <= 0:
            return 0.0
        return self.rows_left / self.rows_per_s if self.rows_per_s > 0 else None

    @property
    def ledger(self) -> Ledger:
        """The sums of all agents' ledgers, of those that left too."""
        return Ledger(**{f.name: sum(getattr(a.ledger, f.name) for a in self.agents) for f in fields(Ledger)})


def to_json(status: Status) -> dict[str, Any]:
    """Return a status as the document that `fsctx status --json` prints."""
    units, rows = status.units, status.rows
    return {
        "run": status.run,
        "state": str(status.state),
        "units": {f.name: getattr(units, f.name) for f in fields(units)},
        "rows": {"total": rows.total, "done": rows.done, "dropped": rows.dropped},
        "agents": [_agent_json(agent) for agent in status.agents],
        "rows_per_s": round(status.rows_per_s, 3),
        "eta_s": None if status.eta_s is None else round(status.eta_s, 1),
        "goodput": goodput(status.ledger) | {"fs_calls_per_s": round(status.fs_calls_per_s, 3)},
        "pilots": [asdict(view) for view in status.pilots.submissions],
        "unasked": list(status.pilots.unasked),
        "sweep": asdict(status.sweep) if status.sweep else None,
    }


def goodput(ledger: Ledger) -> dict[str, Any]:
    """Return what the agents' time bought: rows per load, rows that were computed in vain, seconds by kind."""
    return {
        "rows": ledger.rows_done,
        "loads": ledger.loads,
        "rows_per_load": round(ledger.rows_done / ledger.loads, 1) if ledger.loads else None,
        "rows_adopted": ledger.rows_adopted,
        "rows_lost": ledger.rows_lost,
        "tokens": ledger.tokens,
        "bytes": {"node": ledger.bytes_node, "peer": ledger.bytes_peer, "origin": ledger.bytes_origin},
        "fs_calls": ledger.fs_calls,
        "fs_calls_per_unit": round(ledger.fs_calls / ledger.units_done, 2) if ledger.units_done else None,
        "seconds": {
            f.name.removesuffix("_s"): round(getattr(ledger, f.name), 3)
            for f in fields(ledger)
            if f.name.endswith("_s")
        },
    }


def _agent_json(agent: AgentView) -> dict[str, Any]:
    hidden = ("ledger", "counter")
    shown = {f.name: getattr(agent, f.name) for f in fields(agent) if f.name not in hidden}
    done = {"rows_done": agent.ledger.rows_done, "units_done": agent.ledger.units_done, "loads": agent.ledger.loads}
    return shown | {"state": str(agent.state), "rows_per_s": round(agent.rows_per_s, 3)} | done
