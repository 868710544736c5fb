"""All statistics of a run, in one pass over its rows."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from fsctx.coordinator.collect.comparing import Comparison, Pairs
from fsctx.coordinator.collect.layout import RunTask
from fsctx.coordinator.collect.makers import Agreement, Maker, Makers, agreements
from fsctx.coordinator.collect.metrics import TaskMetrics, TaskTally
from fsctx.coordinator.collect.problems import Problem, Problems
from fsctx.coordinator.collect.rows import Part


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What the rows say, by task and between tasks."""

    tasks: tuple[TaskMetrics, ...]
    """In the run's order."""
    ranking: tuple[int, ...]
    """Positions of tasks by accuracy, best first; those without one are left out."""
    comparisons: tuple[Comparison, ...]
    """Of all pairs of tasks, in the order of the ranking; none where there are too many tasks."""
    agreements: tuple[Agreement, ...]
    """Of the tasks that several kinds of devices or engines worked on."""
    problems: tuple[Problem, ...]
    makers: tuple[Maker, ...]


class Tally:
    """Counts over the parts seen so far."""

    def __init__(self, tasks: Sequence[RunTask]) -> None:
        self._tasks = {task.number: TaskTally(task) for task in tasks}
        self._pairs = Pairs(len(tasks))
        self._makers = Makers()
        self._problems = Problems()
        self.rows = 0

    def add(self, parts: Iterable[Part]) -> None:
        """Count the rows of a window: all parts of some claims."""
        outcomes = []
        for part in parts:
            self.rows += part.table.num_rows
            outcomes.append((part.task.number, self._tasks[part.task.number].add(part)))
            self._makers.add(part.table)
            self._problems.add(part.task.task.model, part.task.task.template, part.table)
        self._pairs.add(outcomes)

    def statistics(self, *, last: Collection[int] = ()) -> Statistics:
        """Return the statistics of all rows so far; `last` are positions of tasks that were dropped: see `rank`."""
        tallies = [tally for _, tally in sorted(self._tasks.items())]
        tasks = tuple(tally.metrics() for tally in tallies)
        ranking = rank(tasks, last=last)
        return Statistics(
            tasks=tasks,
            ranking=ranking,
            comparisons=self._pairs.compare(ranking),
            agreements=agreements([tally.kinds() for tally in tallies]),
            problems=self._problems.result(),
            makers=self._makers.result(),
        )


def rank(tasks: Sequence[TaskMetrics], *, last: Collection[int] = ()) -> tuple[int, ...]:
    """Return the positions of tasks by accuracy, best first; equal ones in the run's order.

    `last` come after all others: a sample must not make a dropped task the winner.
    """
    accuracies = {position: task.accuracy for position, task in enumerate(tasks) if task.accuracy is not None}
    return tuple(sorted(accuracies, key=lambda position: (position in last, -accuracies[position])))
