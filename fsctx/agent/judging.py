"""Which tasks of a sweep go on, as a pure function of the verdicts published so far."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fsctx.protocol.geometry import Geometry
from fsctx.protocol.sweep import Judged, Reason, Sweep


@dataclass(frozen=True, slots=True, kw_only=True)
class Marks:
    """Rows of a task that have a gold label which its template knows, and which of them it got right."""

    rows: np.ndarray[Any, np.dtype[np.int64]]
    is_right: np.ndarray[Any, np.dtype[np.bool_]]

    @property
    def accuracy(self) -> float:
        """Share of right ones; 0 where there are none."""
        return float(self.is_right.mean()) if len(self.rows) else 0.0


def merged(parts: Sequence[Marks]) -> Marks:
    """Return the marks of several slices as one."""
    rows = [np.empty(0, np.int64), *(part.rows for part in parts)]
    is_right = [np.empty(0, np.bool_), *(part.is_right for part in parts)]
    return Marks(rows=np.concatenate(rows), is_right=np.concatenate(is_right))


def judge(marks: Mapping[int, Marks], sweep: Sweep, *, left: int | None, after: Sequence[int]) -> tuple[Judged, ...]:
    """Compare tasks with the most accurate one, and drop those that get no later rung; best first.

    `left` is how many inferences the budget leaves, `after[k]` how many the later rungs take at least with k tasks.
    """
    leader, *others = sorted(marks, key=lambda task: (-marks[task].accuracy, task))
    judged = [
        _judge(leader, marks[leader], p=None),
        *(_judge(task, marks[task], p=chance_of_worse(marks[leader], marks[task])) for task in others),
    ]
    kept = [task for task in judged if task.p is None or task.p >= sweep.level]
    affordable = len(kept) if left is None else max(k for k in range(1, len(kept) + 1) if k == 1 or after[k] <= left)
    going_on = {task.task for task in kept[:affordable]}
    tied = {task.task for task in kept}
    return tuple(
        task if task.task in going_on else replace(task, dropped=Reason.BUDGET if task.task in tied else Reason.WORSE)
        for task in judged
    )


def budget_left(sweep: Sweep, geometry: Geometry, planned: Sequence[int], rung: int) -> int | None:
    """Return how many inferences the budget leaves after a rung; `planned` is how far each task goes by now."""
    if sweep.budget is None:
        return None
    return sweep.budget - sum(geometry.rows_before(min(end, sweep.ends[rung])) for end in planned)


def chance_of_worse(leader: Marks, other: Marks) -> float:
    """Return how often a task as good as the leader would look so much worse on the rows of both.

    The exact one-sided sign test (McNemar's): of the rows that one has right and the other wrong, each is as likely
    to be the leader's.
    """
    from scipy.special import bdtrc  # 0.2 s, and needless in runs without a sweep

    _, of_leader, of_other = np.intersect1d(leader.rows, other.rows, assume_unique=True, return_indices=True)
    ours, theirs = leader.is_right[of_leader], other.is_right[of_other]
    only_leader, only_other = int((ours & ~theirs).sum()), int((theirs & ~ours).sum())
    return float(bdtrc(only_leader - 1, only_leader + only_other, 0.5))  # this many of them or more


def _judge(task: int, marks: Marks, *, p: float | None) -> Judged:
    return Judged(task=task, rows=len(marks.rows), right=int(marks.is_right.sum()), p=p)
