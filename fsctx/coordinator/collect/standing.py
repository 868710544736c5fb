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
            return "best by accuracy"
        if self.versus_best is None:
            return "not compared"
        return "worse than the best" if self.versus_best.is_real else "perhaps as good as the best"


def first_by_f1(summary: Summary) -> TaskMetrics | None:
    """Return the task that macro-F1 would put first, where that is not the one that accuracy does.

    Accuracy follows frequent labels, macro-F1 counts all alike. Dropped tasks do not compete.
    """
    dropped = {task.position for task in summary.sweep.dropped} if summary.sweep else set()
    tasks = [summary.tasks[position] for position in summary.ranking if position not in dropped]
    first = max(tasks, key=lambda task: task.macro_f1 or 0.0, default=None)
    return None if first is None or first.macro_f1 == tasks[0].macro_f1 else first


def most_frequent(task: TaskMetrics) -> tuple[str, float] | None:
    """Return the gold label that most rows have, and the accuracy of always saying it; None without gold labels."""
    label = max(task.labels, key=lambda label: label.support, default=None)
    return None if label is None else (label.label, label.support / task.n_labelled)


def most_confused(task: TaskMetrics, *, n: int) -> list[tuple[str, str, int]]:
    """Return the gold labels and verdicts of a task that were mixed up most often, and in how many rows."""
    cells = ((gold, verdict, rows) for gold, row in task.confusion.items() for verdict, rows in row.items())
    mixed_up = [cell for cell in cells if cell[0] != cell[1] and cell[2]]
    return sorted(mixed_up, key=lambda cell: -cell[2])[:n]


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
