"""The statistics of a run computed another way: from its files by pandas, scikit-learn and scipy. No code of fsctx.

Labels are as a run's rows have them; a labelled row without a verdict has `NONE`.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import softmax
from scipy.stats import binomtest, bootstrap, norm
from sklearn.calibration import calibration_curve
from sklearn.metrics import accuracy_score, confusion_matrix, precision_recall_fscore_support

NONE = "none"
N_BINS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One task's rows that have a gold label which its template knows, by row number."""

    name: str
    """Model and template."""
    labels: list[str]
    rows: pd.DataFrame
    """`gold`, `verdict`, `score_<label>`."""
    n_published: int
    """Rows with or without a gold label."""
    n_errors: int

    @property
    def gold(self) -> pd.Series:
        return self.rows["gold"]

    @property
    def verdict(self) -> pd.Series:
        return self.rows["verdict"]


def judged(run: Path) -> list[Judged]:
    """Read the tasks of a run that was not compacted, from its published links, its claims and `run.json`."""
    plan = json.loads((run / "run.json").read_text())
    n_slices = -(-plan["geometry"]["n_rows"] // plan["geometry"]["unit_rows"])
    claims = pd.concat(map(pd.read_parquet, sorted((run / "units").glob("shard-*.parquet"))), ignore_index=True)
    links = [path for path in (run / "results").glob("*/*") if path.is_symlink()]
    return [
        _judged(task, claims["label"].map(plan["gold"][task["template"]]), own)
        for number, task in enumerate(plan["tasks"])
        if (own := [link for link in links if int(link.name) // n_slices == number])
    ]


def _judged(task: dict[str, str], gold: pd.Series, files: list[Path]) -> Judged:
    published = pd.concat(map(pd.read_parquet, files)).set_index("row").sort_index()
    assert published.index.is_unique
    rows = published.assign(gold=gold, verdict=published["verdict"].fillna(NONE)).dropna(subset="gold")
    return Judged(
        name=task["model"] + task["template"],
        labels=[column.removeprefix("score_") for column in rows.columns if column.startswith("score_")],
        rows=rows,
        n_published=len(published),
        n_errors=int((published["status"] != "ok").sum()),
    )


def accuracy(task: Judged) -> float:
    return float(accuracy_score(task.gold, task.verdict))


def wilson(task: Judged) -> np.ndarray:
    """Solve |p - share| = z sqrt(p (1 - p) / n) for p."""
    n, share, z2 = len(task.rows), accuracy(task), norm.ppf(0.975) ** 2
    return np.sort(np.roots([1 + z2 / n, -(2 * share + z2 / n), share**2]).real)


def label_rates(task: Judged) -> np.ndarray:
    """Precision, recall, F1 and support, each by label."""
    return np.stack(precision_recall_fscore_support(task.gold, task.verdict, labels=task.labels, zero_division=0))


def confusion(task: Judged) -> np.ndarray:
    """Rows by gold label and verdict, whose last is none."""
    return confusion_matrix(task.gold, task.verdict, labels=[*task.labels, NONE])[:-1]


def f1_intervals(task: Judged) -> np.ndarray:
    """Bootstrap intervals of macro-F1, then of each label's F1: rows drawn with replacement."""

    def f1(gold: np.ndarray, verdict: np.ndarray, axis: int) -> np.ndarray:
        both = [((gold == label) & (verdict == label)).sum(axis) for label in range(len(task.labels))]
        either = [(gold == label).sum(axis) + (verdict == label).sum(axis) for label in range(len(task.labels))]
        rates = 2 * np.stack(both) / np.maximum(1, np.stack(either))
        return np.concatenate([rates.mean(0, keepdims=True), rates])

    index = pd.Index(task.labels)
    return _bootstrap((index.get_indexer(task.gold), index.get_indexer(task.verdict)), f1)


def calibration(task: Judged) -> tuple[pd.DataFrame, float]:
    """The reliability curve's points (low, confidence, accuracy, rows) and the expected calibration error."""
    rows = task.rows[task.verdict != NONE].dropna(subset=[f"score_{label}" for label in task.labels])
    shares = softmax(rows[[f"score_{label}" for label in task.labels]].to_numpy(np.float64), axis=1)
    sure = shares[np.arange(len(rows)), pd.Index(task.labels).get_indexer(rows["verdict"])]
    right = (rows["gold"] == rows["verdict"]).to_numpy()
    accuracies, confidences = calibration_curve(right, sure, n_bins=N_BINS)
    counts, edges = np.histogram(sure, bins=N_BINS, range=(0, 1))
    has = counts > 0
    bins = pd.DataFrame(
        {"low": edges[:-1][has], "confidence": confidences, "accuracy": accuracies, "rows": counts[has]}
    )
    return bins, float(np.average((bins.confidence - bins.accuracy).abs(), weights=bins.rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two tasks on the rows that both judged."""

    rows: int
    only_a: int
    only_b: int
    difference: float
    interval: np.ndarray
    p: float


def paired(a: Judged, b: Judged) -> Paired:
    right = pd.concat([a.gold == a.verdict, b.gold == b.verdict], axis=1, join="inner").to_numpy(int)
    apart = right[:, 0] - right[:, 1]
    only_a, only_b = int((apart > 0).sum()), int((apart < 0).sum())
    (interval,) = _bootstrap(tuple(right.T), lambda one, other, axis: (one - other).mean(axis)[np.newaxis])
    return Paired(
        rows=len(right),
        only_a=only_a,
        only_b=only_b,
        difference=float(apart.mean()),
        interval=interval,
        p=float(binomtest(only_a, only_a + only_b).pvalue),
    )


def holm(p: list[float]) -> list[float]:
    """Correct each of some p values for all of them, as Holm's definition says it: by those that are not larger."""
    return [min(1.0, max(other * sum(third >= other for third in p) for other in p if other <= own)) for own in p]


def _bootstrap(columns: tuple[np.ndarray, np.ndarray], statistic: object) -> np.ndarray:
    """Return the 95 % interval of each value of a statistic of two paired columns."""
    interval = bootstrap(
        columns, statistic, paired=True, vectorized=True, n_resamples=4000, batch=200, method="percentile", rng=7
    ).confidence_interval
    return np.column_stack([interval.low, interval.high])
