"""Rates from counts, and their intervals by resampling the counts.

Rows drawn with replacement have multinomial counts. So the bootstrap of anything that follows from counts needs the
counts alone, however many rows they stand for.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Counts: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Rates: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

Interval: TypeAlias = tuple[float, float]

CONFIDENCE = 0.95
N_RESAMPLES = 2_000
_SEED = 20_141
"""The same verdicts have the same intervals, whenever they are collected."""

_CELLS_AT_ONCE = 2_000_000
"""Counts held at a time."""


def label_rates(counts: Counts) -> Rates:
    """Return precision, recall and F1 of each label.

    `counts` is (…, gold label, verdict), whose last verdict is none; the result is (3, …, label). What would divide
    by zero is 0: a label that no row has, or that was never the verdict.
    """
    n_labels = counts.shape[-2]
    right = np.diagonal(counts[..., :n_labels], axis1=-2, axis2=-1)  # (…, label)
    said, meant = counts.sum(axis=-2)[..., :n_labels], counts.sum(axis=-1)
    return np.stack([_ratio(right, said), _ratio(right, meant), _ratio(2 * right, said + meant)])


def intervals(counts: Counts, statistic: Callable[[Counts], Rates]) -> list[Interval]:
    """Return the 95 % bootstrap interval (percentiles) of each value of a statistic of counts.

    `statistic` takes (resample, *shape of counts) and returns (resample, values).
    """
    flat = counts.ravel()
    n_rows = int(flat.sum())
    generator = np.random.default_rng(_SEED)
    at_once = max(1, _CELLS_AT_ONCE // flat.size)
    drawn = [
        statistic(generator.multinomial(n_rows, flat / n_rows, size=size).reshape(size, *counts.shape))
        for size in (min(at_once, N_RESAMPLES - start) for start in range(0, N_RESAMPLES, at_once))
    ]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.concatenate(drawn), [tail, 1 - tail], axis=0)
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _ratio(part: Counts, whole: Counts) -> Rates:
    return np.divide(part, whole, out=np.zeros(whole.shape), where=whole > 0)
