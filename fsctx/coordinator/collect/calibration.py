"""Calibration: whether rows scored 90 % sure are right nine times in ten."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fsctx.coordinator.collect.resampling import Counts, Rates

N_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Labelled rows whose confidence lies in one tenth of the scale; one point of the reliability curve."""

    low: float
    high: float
    rows: int
    confidence: float
    """Mean of the rows."""
    accuracy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How far confidence and accuracy are apart. Confidence: the verdict's share of the labels' probabilities."""

    rows: int
    """Labelled rows that have scores."""
    ece: float
    """Expected calibration error: mean distance of a bin's confidence and accuracy, weighted by its rows."""
    confidence: float
    accuracy: float
    bins: tuple[Bin, ...]
    """Those that have rows."""


class CalibrationTally:
    """Counts by bin, part by part."""

    def __init__(self) -> None:
        self._rows: Counts = np.zeros(N_BINS, np.int64)
        self._right: Counts = np.zeros(N_BINS, np.int64)
        self._confidence: Rates = np.zeros(N_BINS)

    def add(self, scores: Rates, verdicts: Counts, *, is_right: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Count labelled rows; `scores` is (row, label) in nats, `verdicts` the label's position.

        Rows without a verdict or without scores are passed over.
        """
        usable = (verdicts < scores.shape[1]) & np.isfinite(scores).all(axis=1)
        scores, verdicts, is_right = scores[usable], verdicts[usable], is_right[usable]
        shares = np.exp(scores - scores.max(axis=1, keepdims=True, initial=-np.inf))
        confidence = shares[np.arange(len(shares)), verdicts] / shares.sum(axis=1)
        bins = np.minimum((confidence * N_BINS).astype(np.int64), N_BINS - 1)
        self._rows += np.bincount(bins, minlength=N_BINS)
        self._right += np.bincount(bins[is_right], minlength=N_BINS)
        self._confidence += np.bincount(bins, confidence, minlength=N_BINS)

    def result(self) -> Calibration | None:
        """Return the calibration of all rows; None where none had scores."""
        n_rows = int(self._rows.sum())
        if not n_rows:
            return None
        return Calibration(
            rows=n_rows,
            ece=float(np.abs(self._confidence - self._right).sum() / n_rows),
            confidence=float(self._confidence.sum() / n_rows),
            accuracy=float(self._right.sum() / n_rows),
            bins=tuple(self._bin(number) for number in np.flatnonzero(self._rows).tolist()),
        )

    def _bin(self, number: int) -> Bin:
        n_rows = int(self._rows[number])
        return Bin(
            low=number / N_BINS,
            high=(number + 1) / N_BINS,
            rows=n_rows,
            confidence=float(self._confidence[number] / n_rows),
            accuracy=float(self._right[number] / n_rows),
        )
