"""Which task is best, and how sure that is: the ranking as people read it. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from fsctx.coordinator.collect.collect import Summary
from fsctx.coordinator.collect.comparing import Comparison
from fsctx.coordinator.collect.metrics import TaskMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A task's place in the ranking."""

    position: int
    """Among the run's tasks, from 0."""
    rank: int | None
    """From 1; None where it has no accuracy."""
    task: TaskMetrics
    versus_best: Comparison | None
    """None for the best, and where nothing was compared."""

    @property
    def verdict(self) -> str:
        """What to make of it."""
        if self.rank is None:
            return "no gold labels" if self.task.rows else "no verdicts"
        if self.rank == 1:
            return "best"
        if self.versus_best is None:
            return "not compared"
        return "worse than the best" if self.versus_best.is_real else "perhaps as good as the best"


def standings(summary: Summary) -> Iterator[Standing]:
    """Yield the tasks, best first, then those that have no gold labels."""
    best = summary.ranking[0] if summary.ranking else None
    versus = {comparison.b: comparison for comparison in summary.comparisons if comparison.a == best}
    ranks = {position: rank for rank, position in enumerate(summary.ranking, start=1)}
    rest = [position for position in range(len(summary.tasks)) if position not in ranks]
    for position in (*summary.ranking, *rest):
        yield Standing(
            position=position,
            rank=ranks.get(position),
            task=summary.tasks[position],
            versus_best=versus.get(position),
        )
