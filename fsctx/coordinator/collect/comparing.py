"""Tasks against each other, on the rows that both judged: which differences are real."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from fsctx.coordinator.collect.resampling import CONFIDENCE, Counts, Interval, Rates, intervals

MAX_TASKS = 100
"""Of more tasks no two are compared: there would be too many pairs to read, and to correct for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """What became of some rows of a task that have a gold label which its template knows."""

    rows: Counts
    is_right: np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two tasks, by their positions among the tasks; `a` comes first in the ranking."""

    a: int
    b: int
    rows: int
    """Labelled rows that both have."""
    only_a: int
    """Of these, right by `a` alone."""
    only_b: int
    difference: float
    """Accuracy of `a` less that of `b`."""
    ci95: Interval
    """Bootstrap interval of the difference."""
    p: float
    """McNemar's exact test."""
    p_holm: float
    """Corrected by Holm for all pairs of the run."""
    is_real: bool
    """Whether that is below 0.05."""


class Pairs:
    """Counts, for each pair of tasks, the rows that one has right and the other wrong."""

    def __init__(self, n_tasks: int) -> None:
        self._n_tasks = n_tasks if n_tasks <= MAX_TASKS else 0
        self._shared: Counts = np.zeros((self._n_tasks, self._n_tasks), np.int64)
        self._only: Counts = np.zeros_like(self._shared)
        """Right by the task of the line, wrong by that of the column."""

    def add(self, outcomes: Sequence[tuple[int, Outcomes]]) -> None:
        """Count what a window holds of each task. No row may come in two windows."""
        if self._n_tasks < 2 or not outcomes:
            return
        rows = np.unique(np.concatenate([found.rows for _, found in outcomes]))
        right = np.zeros((self._n_tasks, len(rows)), np.float32)  # a window has fewer rows than float32 can count
        wrong = np.zeros_like(right)
        for task, found in outcomes:
            where = np.searchsorted(rows, found.rows)
            right[task, where] = found.is_right
            wrong[task, where] = ~found.is_right
        judged = right + wrong
        self._shared += (judged @ judged.T).astype(np.int64)
        self._only += (right @ wrong.T).astype(np.int64)

    def compare(self, ranking: Sequence[int]) -> tuple[Comparison, ...]:
        """Return the comparison of all pairs that share rows, in the order of the ranking."""
        pairs = [(a, b) for a, b in combinations(ranking, 2) if self._n_tasks and self._shared[a, b]]
        if not pairs:
            return ()
        a, b = np.array(pairs).T
        p = mcnemar(self._only[a, b], self._only[b, a])
        return tuple(
            self._compare(*pair, p=own, p_holm=corrected)
            for pair, own, corrected in zip(pairs, p.tolist(), holm(p).tolist(), strict=True)
        )

    def _compare(self, a: int, b: int, *, p: float, p_holm: float) -> Comparison:
        n_rows, only_a, only_b = (int(counts) for counts in (self._shared[a, b], self._only[a, b], self._only[b, a]))
        counts = np.array([only_a, only_b, n_rows - only_a - only_b])
        (interval,) = intervals(counts, lambda drawn: (drawn[:, :1] - drawn[:, 1:2]) / n_rows)
        return Comparison(
            a=a,
            b=b,
            rows=n_rows,
            only_a=only_a,
            only_b=only_b,
            difference=(only_a - only_b) / n_rows,
            ci95=interval,
            p=p,
            p_holm=p_holm,
            is_real=p_holm < 1 - CONFIDENCE,
        )


def mcnemar(only_a: Counts, only_b: Counts) -> Rates:
    """Return the two-sided p values of McNemar's exact test."""
    from scipy.stats import binom  # 0.3 s, and needless where nothing is compared

    p: Rates = np.minimum(1.0, 2 * binom.cdf(np.minimum(only_a, only_b), only_a + only_b, 0.5))
    return p


def holm(p: Rates) -> Rates:
    """Return p values corrected by Holm's step-down method (Scand. J. Statist. 6, 1979)."""
    order = np.argsort(p)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return corrected
