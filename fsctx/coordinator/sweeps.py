"""How a sweep that stops early stands, for people: which tasks go on, and which were dropped when and why. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fsctx.protocol.manifest import Manifest
from fsctx.protocol.sweep import Decision, Judged, extent_of

MAX_LISTED = 20
"""So many dropped tasks are listed for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTask:
    """A task that was dropped."""

    position: int
    """Among the run's tasks, from 0."""
    model: str
    template: str
    rung: int
    """After which it was dropped, from 1."""
    claims: int
    """That it has verdicts of: a sample."""
    labelled: int
    """Of these, with a gold label: what it was judged by."""
    accuracy: float | None
    leader: int
    """Position of the task that was the best then."""
    leader_accuracy: float | None
    reason: str
    """`worse` or `budget`; see `Reason`."""
    p: float | None
    """How often chance alone makes it look so much worse than the leader."""
    verdicts: int
    """That are dropped with it."""
    agent: str
    time: str
    """When that was decided, by the agent's own clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """How far a sweep is."""

    rung: int
    """The open one, from 1; the last one where nothing is left to decide."""
    rungs: tuple[int, ...]
    """Claims of each rung, together with those before it."""
    level: float
    budget: int | None
    survivors: tuple[int, ...]
    """Positions of the tasks that were not dropped."""
    dropped: tuple[DroppedTask, ...]
    names: tuple[str, ...]
    """Of all tasks, by position."""

    @property
    def is_open(self) -> bool:
        """Whether tasks may be dropped yet."""
        return self.rung < len(self.rungs)


def view_sweep(manifest: Manifest, decisions: Sequence[Decision]) -> SweepView | None:
    """Return how a run's sweep stands after some decisions; None where it has none."""
    sweep, geometry = manifest.sweep, manifest.geometry
    if sweep is None:
        return None
    extent = extent_of(geometry, sweep, decisions)
    dropped = [_dropped(manifest, decision, judged) for decision in decisions for judged in decision.dropped]
    gone = {task.position for task in dropped}
    return SweepView(
        rung=len(decisions) + 1 if extent.waiting else len(sweep.ends),
        rungs=tuple(geometry.rows_before(end) for end in sweep.ends),
        level=sweep.level,
        budget=sweep.budget,
        survivors=tuple(task for task in range(geometry.n_tasks) if task not in gone),
        dropped=tuple(dropped),
        names=tuple(f"{task.model}, {task.template}" for task in manifest.tasks),
    )


def sweep_lines(view: SweepView) -> Iterator[str]:
    """Yield what a person wants to know of a sweep."""
    yield f"sweep  {sweep_state(view)}"
    for task in view.dropped[:MAX_LISTED]:
        yield f"       dropped after {task.claims:,} claims: {view.names[task.position]} ({why(view, task)})"
    if len(view.dropped) > MAX_LISTED:
        yield f"       {len(view.dropped) - MAX_LISTED:,} more were dropped: see --json"


def sweep_state(view: SweepView) -> str:
    """Say how far a sweep is."""
    return (
        f"rung {view.rung} of {len(view.rungs)} ({view.rungs[view.rung - 1]:,} claims), "
        f"{len(view.survivors):,} of {len(view.names):,} tasks go on"
    )


def why(view: SweepView, task: DroppedTask) -> str:
    """Say why a task was dropped."""
    seen = f"{_percent(task.accuracy)}, while {view.names[task.leader]} had {_percent(task.leader_accuracy)}"
    chance = "" if task.p is None else f", p {task.p:.2g}"
    return f"{seen}{chance}" if task.reason == "worse" else f"{seen}{chance}: perhaps as good, but for the budget"


def _dropped(manifest: Manifest, decision: Decision, judged: Judged) -> DroppedTask:
    assert manifest.sweep is not None
    task, leader = manifest.tasks[judged.task], decision.tasks[0]
    claims = manifest.geometry.rows_before(manifest.sweep.ends[decision.rung])
    return DroppedTask(
        position=judged.task,
        model=task.model,
        template=task.template,
        rung=decision.rung + 1,
        claims=claims,
        labelled=judged.rows,
        accuracy=_accuracy(judged),
        leader=leader.task,
        leader_accuracy=_accuracy(leader),
        reason=str(judged.dropped),
        p=judged.p,
        verdicts=manifest.geometry.n_rows - claims,
        agent=decision.agent,
        time=decision.time,
    )


def _accuracy(judged: Judged) -> float | None:
    return judged.right / judged.rows if judged.rows else None


def _percent(share: float | None) -> str:
    return "no labelled claims" if share is None else f"{share:.1%}"
