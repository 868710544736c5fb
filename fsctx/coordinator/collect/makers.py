"""Who computed rows, and whether their devices and engines agree."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsctx.coordinator.collect.comparing import holm
from fsctx.coordinator.collect.resampling import CONFIDENCE, Counts


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


@dataclass(frozen=True, slots=True, kw_only=True)
class KindOfMaker:
    """What one kind of device under one engine made of a task."""

    device: str
    engine: str
    rows: int
    n_labelled: int
    accuracy: float | None
    verdicts: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Whether the kinds of makers of a task answer alike.

    They had different claims: a difference may be the claims'.
    """

    model: str
    template: str
    kinds: tuple[KindOfMaker, ...]
    p: float
    """Of the χ² test that the shares of the verdicts are the same for all kinds."""
    p_holm: float
    """Corrected by Holm for all tasks that several kinds worked on."""
    differs: bool
    """Whether that is below 0.05."""


class Makers:
    """Counts rows by agent, host, device and engine."""

    def __init__(self) -> None:
        self._sums: dict[tuple[str, str, str, str], Counts] = {}

    def add(self, table: pa.Table) -> None:
        """Count a part's rows."""
        keys = ["agent", "host", "device", "engine"]
        sums: Any = [("input_tokens", "count"), ("input_tokens", "sum"), ("output_tokens", "sum")]
        for row in table.group_by(keys, use_threads=False).aggregate(sums).to_pylist():
            key = (row["agent"], row["host"], row["device"], row["engine"])
            new = [row["input_tokens_count"], row["input_tokens_sum"], row["output_tokens_sum"]]
            self._sums[key] = self._sums.get(key, np.zeros(3, np.int64)) + np.array(new)

    def result(self) -> tuple[Maker, ...]:
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
            for key, counts in sorted(self._sums.items())
        )


class KindTally:
    """Counts one task's gold labels by verdicts for each device and engine."""

    def __init__(self, n_cells: int) -> None:
        self._n_cells = n_cells
        self.counts: dict[tuple[str, str], Counts] = {}

    def add(self, table: pa.Table, cells: Counts) -> None:
        """Count rows; `cells` is each row's cell of the confusion matrix."""
        kinds = table.select(["device", "engine"]).append_column("cell", pa.array(cells))
        keys = ["device", "engine", "cell"]
        for row in kinds.group_by(keys, use_threads=False).aggregate([([], "count_all")]).to_pylist():
            of_kind = self.counts.setdefault((row["device"], row["engine"]), np.zeros(self._n_cells, np.int64))
            of_kind[row["cell"]] += row["count_all"]

    def kinds(self, verdicts: Sequence[str]) -> Iterator[KindOfMaker]:
        """Yield what each kind made; `verdicts` names the columns of the confusion matrix."""
        side = len(verdicts)
        for (device, engine), cells in sorted(self.counts.items()):
            counts = cells.reshape(side, side)
            n_labelled = int(counts[:-1].sum())
            yield KindOfMaker(
                device=device,
                engine=engine,
                rows=int(counts.sum()),
                n_labelled=n_labelled,
                accuracy=int(np.trace(counts[:-1])) / n_labelled if n_labelled else None,
                verdicts=dict(zip(verdicts, counts.sum(axis=0).tolist(), strict=True)),
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskKinds:
    """The kinds of makers that worked on a task."""

    model: str
    template: str
    kinds: tuple[KindOfMaker, ...]


def agreements(tasks: Sequence[TaskKinds]) -> tuple[Agreement, ...]:
    """Return the comparison of each task's kinds, for tasks that have several."""
    shared = [task for task in tasks if len(task.kinds) > 1]
    p = np.array([_homogeneity(task.kinds) for task in shared])
    return tuple(
        Agreement(
            model=task.model,
            template=task.template,
            kinds=task.kinds,
            p=own,
            p_holm=corrected,
            differs=corrected < 1 - CONFIDENCE,
        )
        for task, own, corrected in zip(shared, p.tolist(), holm(p).tolist(), strict=True)
    )


def _homogeneity(kinds: Sequence[KindOfMaker]) -> float:
    from scipy.stats import chi2_contingency  # 0.3 s, and needless where all makers are of one kind

    counts = np.array([list(kind.verdicts.values()) for kind in kinds])
    counts = counts[:, counts.sum(axis=0) > 0]
    return float(chi2_contingency(counts, correction=False).pvalue)
