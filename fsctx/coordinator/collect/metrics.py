"""Statistics over collected rows, counted part by part; the formulas are scipy's and scikit-learn's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsctx.coordinator.collect.layout import RunTask
from fsctx.coordinator.collect.rows import Part
from fsctx.protocol.verdicts import Status

NONE = "none"
"""Stands in a confusion matrix for a row that has no verdict."""

CONFIDENCE = 0.95

Counts = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelMetrics:
    """How one label fares."""

    label: str
    precision: float
    recall: float
    f1: float
    support: int
    """Rows whose gold label it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMetrics:
    """How one task fares. What needs gold labels is None where no row has one of the template's labels."""

    model: str
    template: str
    accuracy: float | None
    """Rows without a verdict count as wrong."""
    ci95: tuple[float, float] | None
    """Wilson's score interval of the accuracy."""
    macro_f1: float | None
    n_labelled: int
    confusion: dict[str, dict[str, int]]
    """Gold label → verdict, or `NONE` → rows."""
    labels: tuple[LabelMetrics, ...]
    rows: int
    ok: int
    too_long: int
    errors: int
    """Rows whose status is not ok, those too long among them."""
    verdicts: dict[str, int]
    """Verdict, or `NONE` → rows, with or without a gold label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Maker:
    """Rows by who computed them."""

    agent: str
    host: str
    device: str
    engine: str
    rows: int
    input_tokens: int
    output_tokens: int


class Tally:
    """Counts over the parts seen so far."""

    def __init__(self, tasks: Sequence[RunTask]) -> None:
        self._tasks = {task.number: _TaskTally(task) for task in tasks}
        self._makers: dict[tuple[str, str, str, str], Counts] = {}
        self.rows = 0

    def add(self, part: Part) -> None:
        """Count a part's rows."""
        self.rows += part.table.num_rows
        self._tasks[part.task.number].add(part.table)
        keys = ["agent", "host", "device", "engine"]
        sums: Any = [("input_tokens", "count"), ("input_tokens", "sum"), ("output_tokens", "sum")]
        for row in part.table.group_by(keys, use_threads=False).aggregate(sums).to_pylist():
            key = (row["agent"], row["host"], row["device"], row["engine"])
            new = [row["input_tokens_count"], row["input_tokens_sum"], row["output_tokens_sum"]]
            self._makers[key] = self._makers.get(key, np.zeros(3, np.int64)) + np.array(new)

    def task_metrics(self) -> tuple[TaskMetrics, ...]:
        """Return the statistics of each task, in the run's order."""
        return tuple(tally.metrics() for _, tally in sorted(self._tasks.items()))

    def makers(self) -> tuple[Maker, ...]:
        """Return who computed how many rows, by agent."""
        return tuple(
            Maker(
                agent=key[0],
                host=key[1],
                device=key[2],
                engine=key[3],
                rows=int(counts[0]),
                input_tokens=int(counts[1]),
                output_tokens=int(counts[2]),
            )
            for key, counts in sorted(self._makers.items())
        )


class _TaskTally:
    """Counts of one task: gold label (last: none of the template's) by verdict (last: none), and statuses."""

    def __init__(self, task: RunTask) -> None:
        self._task = task
        side = len(task.labels) + 1
        self._counts: Counts = np.zeros((side, side), np.int64)
        self._rows = self._ok = self._too_long = 0

    def add(self, table: pa.Table) -> None:
        side = len(self._task.labels) + 1
        cell = self._index(table["label"]) * side + self._index(table["verdict"])
        self._counts += np.bincount(cell, minlength=side * side).reshape(side, side)
        self._rows += table.num_rows
        self._ok += _count(table["status"], Status.OK)
        self._too_long += _count(table["status"], Status.TOO_LONG)

    def metrics(self) -> TaskMetrics:
        labelled = self._counts[:-1]
        correct, n_labelled = int(np.trace(labelled)), int(labelled.sum())
        labels = per_label(self._task.labels, labelled) if n_labelled else ()
        return TaskMetrics(
            model=self._task.task.model,
            template=self._task.task.template,
            accuracy=correct / n_labelled if n_labelled else None,
            ci95=wilson(correct, n_labelled) if n_labelled else None,
            macro_f1=float(np.mean([label.f1 for label in labels])) if labels else None,
            n_labelled=n_labelled,
            confusion={gold: self._named(row) for gold, row in zip(self._task.labels, labelled, strict=True)},
            labels=labels,
            rows=self._rows,
            ok=self._ok,
            too_long=self._too_long,
            errors=self._rows - self._ok,
            verdicts=self._named(self._counts.sum(axis=0)),
        )

    def _index(self, values: "pa.ChunkedArray[Any]") -> Counts:
        """Return each value's position among the labels; one beyond for all else."""
        found: Any = pc.index_in(values, value_set=pa.array(self._task.labels, pa.string()))
        index: Counts = found.fill_null(len(self._task.labels)).to_numpy().astype(np.int64)
        return index

    def _named(self, counts: Counts) -> dict[str, int]:
        return dict(zip([*self._task.labels, NONE], counts.tolist(), strict=True))


def wilson(correct: int, n_rows: int) -> tuple[float, float]:
    """Return Wilson's score interval of a proportion, at 95 %."""
    from scipy.stats import binomtest  # 0.3 s, and needless where nothing is labelled

    interval = binomtest(correct, n_rows).proportion_ci(CONFIDENCE, method="wilson")
    return float(interval.low), float(interval.high)


def per_label(labels: Sequence[str], counts: Counts) -> tuple[LabelMetrics, ...]:
    """Return precision, recall and F1 of each label from counts of gold label by verdict (last: none).

    What would divide by zero is 0: a label that no row has, or that was never the verdict.
    """
    from sklearn.metrics import precision_recall_fscore_support  # 1 s, and needless where nothing is labelled

    gold, verdict = np.indices(counts.shape)
    scores = precision_recall_fscore_support(
        gold.ravel(),
        verdict.ravel(),
        labels=range(len(labels)),
        sample_weight=counts.ravel(),
        zero_division=0,
    )
    return tuple(
        LabelMetrics(label=label, precision=float(p), recall=float(r), f1=float(f), support=int(n))
        for label, p, r, f, n in zip(labels, *scores, strict=True)
    )


def _count(values: "pa.ChunkedArray[Any]", status: Status) -> int:
    matches: Any = pc.equal(values, pa.scalar(str(status)))
    return int(matches.to_numpy().sum())
