"""Statistics of one task, counted part by part."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsctx.coordinator.collect.calibration import Calibration, CalibrationTally
from fsctx.coordinator.collect.comparing import Outcomes
from fsctx.coordinator.collect.layout import RunTask
from fsctx.coordinator.collect.makers import KindTally, TaskKinds
from fsctx.coordinator.collect.resampling import CONFIDENCE, Counts, Interval, Rates, intervals, label_rates
from fsctx.coordinator.collect.rows import Part
from fsctx.protocol.verdicts import SCORE, Status

NONE = "none"
"""Stands in a confusion matrix for a row that has no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMetrics:
    """How one label fares."""

    label: str
    precision: float
    recall: float
    f1: float
    f1_ci95: Interval
    """Bootstrap interval."""
    support: int
    """Rows whose gold label it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """How one task fares. What needs gold labels is None where no row has one of the template's labels."""

    model: str
    template: str
    accuracy: float | None
    """Rows without a verdict count as wrong."""
    ci95: Interval | None
    """Wilson's score interval of the accuracy."""
    macro_f1: float | None
    macro_f1_ci95: Interval | None
    """Bootstrap interval."""
    n_labelled: int
    confusion: dict[str, dict[str, int]]
    """Gold label → verdict, or `NONE` → rows."""
    labels: tuple[LabelMetrics, ...]
    calibration: Calibration | None
    """None where no labelled row has scores."""
    rows: int
    ok: int
    too_long: int
    errors: int
    """Rows whose status is not ok, those too long among them."""
    verdicts: dict[str, int]
    """Verdict, or `NONE` → rows, with or without a gold label."""


class TaskTally:
    """Counts of one task: gold label (last: none of the template's) by verdict (last: none), and statuses."""

    def __init__(self, task: RunTask) -> None:
        self._task = task
        self._side = len(task.labels) + 1
        self._counts: Counts = np.zeros((self._side, self._side), np.int64)
        self._calibration = CalibrationTally()
        self._kinds = KindTally(self._side**2)
        self._rows = self._ok = self._too_long = 0

    def add(self, part: Part) -> Outcomes:
        """Count a part's rows; return which of the labelled ones are right."""
        table = part.table
        gold, verdict = self._index(table["label"]), self._index(table["verdict"])
        cells = gold * self._side + verdict
        self._counts += np.bincount(cells, minlength=self._side**2).reshape(self._side, self._side)
        self._kinds.add(table, cells)
        self._rows += table.num_rows
        self._ok += _count(table["status"], Status.OK)
        self._too_long += _count(table["status"], Status.TOO_LONG)
        is_labelled = gold < len(self._task.labels)
        is_right = (gold == verdict)[is_labelled]
        self._calibration.add(self._scores(table)[is_labelled], verdict[is_labelled], is_right=is_right)
        return Outcomes(rows=part.rows[is_labelled], is_right=is_right)

    def metrics(self) -> TaskMetrics:
        """Return the statistics of the rows so far."""
        labelled = self._counts[:-1]
        correct, n_labelled = int(np.trace(labelled)), int(labelled.sum())
        of_f1 = _f1_intervals(labelled) if n_labelled else []
        labels = _per_label(self._task.labels, labelled, of_f1[1:]) if n_labelled else ()
        return TaskMetrics(
            model=self._task.task.model,
            template=self._task.task.template,
            accuracy=correct / n_labelled if n_labelled else None,
            ci95=wilson(correct, n_labelled) if n_labelled else None,
            macro_f1=float(np.mean([label.f1 for label in labels])) if labels else None,
            macro_f1_ci95=of_f1[0] if of_f1 else None,
            n_labelled=n_labelled,
            confusion={gold: self._named(row) for gold, row in zip(self._task.labels, labelled, strict=True)},
            labels=labels,
            calibration=self._calibration.result(),
            rows=self._rows,
            ok=self._ok,
            too_long=self._too_long,
            errors=self._rows - self._ok,
            verdicts=self._named(self._counts.sum(axis=0)),
        )

    def kinds(self) -> TaskKinds:
        """Return the kinds of makers that worked on it."""
        task = self._task.task
        kinds = tuple(self._kinds.kinds([*self._task.labels, NONE]))
        return TaskKinds(model=task.model, template=task.template, kinds=kinds)

    def _index(self, values: "pa.ChunkedArray[Any]") -> Counts:
        """Return each value's position among the labels; one beyond for all else."""
        found: Any = pc.index_in(values, value_set=pa.array(self._task.labels, pa.string()))
        index: Counts = found.fill_null(len(self._task.labels)).to_numpy().astype(np.int64)
        return index

    def _scores(self, table: pa.Table) -> Rates:
        """Return the labels' scores, (row, label); NaN where there are none."""
        columns = [table[SCORE + label].to_numpy().astype(np.float64) for label in self._task.labels]
        return np.column_stack(columns) if columns else np.empty((table.num_rows, 0))

    def _named(self, counts: Counts) -> dict[str, int]:
        return dict(zip([*self._task.labels, NONE], counts.tolist(), strict=True))


def wilson(correct: int, n_rows: int) -> Interval:
    """Return Wilson's score interval of a proportion, at 95 %."""
    from scipy.stats import binomtest  # 0.3 s, and needless where nothing is labelled

    interval = binomtest(correct, n_rows).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def _f1_intervals(labelled: Counts) -> list[Interval]:
    """Return the intervals of macro-F1, then of each label's F1."""

    def f1(drawn: Counts) -> Rates:
        of_label = label_rates(drawn)[2]  # (resample, label)
        return np.column_stack([of_label.mean(axis=1), of_label])

    return intervals(labelled, f1)


def _per_label(labels: Sequence[str], labelled: Counts, of_f1: Sequence[Interval]) -> tuple[LabelMetrics, ...]:
    rates = label_rates(labelled).T.tolist()
    support = labelled.sum(axis=1).tolist()
    return tuple(
        LabelMetrics(label=label, precision=precision, recall=recall, f1=f1, f1_ci95=interval, support=n)
        for label, (precision, recall, f1), interval, n in zip(labels, rates, of_f1, support, strict=True)
    )


def _count(values: "pa.ChunkedArray[Any]", status: Status) -> int:
    matches: Any = pc.equal(values, pa.scalar(str(status)))
    return int(matches.to_numpy().sum())
