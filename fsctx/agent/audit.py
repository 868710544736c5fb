"""`fsctx audit`: compute a sample of published rows again on this device, and say how far the two are apart."""

import contextlib
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path
from random import Random
from typing import Any

from fsctx.agent.batching import Budget, infer_all
from fsctx.agent.bystander import stand_by
from fsctx.agent.disagreement import Disagreement, Makers, Replayed, compare
from fsctx.agent.engines.base import Row
from fsctx.agent.options import AgentOptions
from fsctx.agent.residency import Residency
from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.agent.slices import Slices
from fsctx.errors import NotComplete, StoreError
from fsctx.protocol import buckets
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.histories import read_events
from fsctx.protocol.published import Results, results_of
from fsctx.protocol.verdicts import SCORE, Status, Verdict
from fsctx.store import PosixStore, Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Which published rows are computed again: a share of them or, where that is None, so many."""

    share: float | None = None
    n_rows: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What came of it; `--json` prints it."""

    run: str
    device: str
    engine: str
    dtype: str
    """Of this node."""
    tolerance: float
    published: int
    """Verdicts that the sample was drawn from."""
    rows: int
    """Computed again."""
    skipped: int
    """Drawn, but published without a verdict."""
    beyond: int
    """Rows that differ by more than the tolerance."""
    disagreements: tuple[Disagreement, ...]


def audit(
    folder: Path, options: AgentOptions, sample: Sample, *, tolerance: float, say: Callable[[str], None]
) -> Audit:
    """Compute a sample of a run's published rows again. Takes no lease and writes nothing into the run.

    `tolerance` is in nats; see `Replayed.agrees`.

    Raises:
        NotComplete: no verdict is published yet, or none of those drawn.
        Damaged: a result is not what an agent publishes.
        Unfit, Misconfigured: this device cannot compute the run's tasks.
    """
    run = read_run(PosixStore(folder))
    geometry = run.manifest.geometry
    drawn, n_published = draw(geometry, _done_units(run.store, geometry), sample)
    residency = stand_by(run, options, say=say)
    for context in {run.manifest.tasks[geometry.task_of(unit)].context for unit in drawn}:
        residency.check(run.contexts[context])  # before any of them is computed
    try:
        with contextlib.closing(Slices(run.store, run=run.manifest.run)) as slices:
            results = results_of(run.store, run.manifest)
            replay = _Replay(run=run, residency=residency, slices=slices, results=results)
            rows = list(replay.rows(drawn))
        if residency.model is None:
            raise NotComplete(f"{folder} has no published verdict to compute again: see `fsctx status {folder}`")
        found = tuple(compare(rows, tolerance=tolerance))
        return Audit(
            run=run.manifest.run,
            device=residency.model.device,
            engine=residency.engine,
            dtype=residency.model.dtype,
            tolerance=tolerance,
            published=n_published,
            rows=len(rows),
            skipped=sum(map(len, drawn.values())) - len(rows),
            beyond=sum(disagreement.beyond for disagreement in found),
            disagreements=found,
        )
    finally:
        residency.drop()


def draw(geometry: Geometry, units: Sequence[int], sample: Sample) -> tuple[dict[int, list[int]], int]:
    """Draw rows of units, each with the same chance: unit → positions in its slice; and how many there are in all."""
    ends = list(accumulate((geometry.place(unit).n_rows for unit in units), initial=0))
    n = sample.n_rows if sample.share is None else math.ceil(sample.share * ends[-1])
    drawn: dict[int, list[int]] = {}
    for number in sorted(Random(sample.seed).sample(range(ends[-1]), min(n, ends[-1]))):
        which = bisect_right(ends, number) - 1
        drawn.setdefault(units[which], []).append(number - ends[which])
    return drawn, ends[-1]


def _done_units(store: Store, geometry: Geometry) -> list[int]:
    compacted = buckets.compacted(store)
    return [
        unit
        for bucket in range(geometry.n_buckets)
        for unit in (
            geometry.units_of(bucket) if bucket in compacted else sorted(buckets.look(store, geometry, bucket).done)
        )
    ]


@dataclass(slots=True, kw_only=True)
class _Replay:
    """Computes drawn rows again."""

    run: RunFiles
    residency: Residency
    slices: Slices
    results: Results
    _dtypes: dict[str, dict[str, str]] = field(default_factory=dict)
    """Agent → context → dtype, as its events tell."""

    def rows(self, drawn: Mapping[int, Sequence[int]]) -> Iterator[Replayed]:
        """Yield the rows that have a verdict, task by task: the tasks of a model are neighbours."""
        for task, units in groupby(drawn, key=self.run.manifest.geometry.task_of):
            published, rows = self._read(task, {unit: drawn[unit] for unit in units})
            if not published:
                continue
            bound, _ = self.residency.ensure(task, lambda _: None)
            assert self.residency.model is not None
            budget = Budget(self.residency.model.batch_tokens)
            for verdicts in infer_all(bound, bound.encode(rows), budget=budget, should_stop=lambda: False):
                yield from (self._compare(task, published[verdict.row], verdict) for verdict in verdicts)

    def _read(self, task: int, drawn: Mapping[int, Sequence[int]]) -> tuple[dict[int, dict[str, Any]], list[Row]]:
        """Return published rows of a task that are no errors, and their claims."""
        published: dict[int, dict[str, Any]] = {}
        rows: list[Row] = []
        for unit, positions in drawn.items():
            table = self.results.read(unit, self.run.labels(task))
            if table is None:  # a client may remember for a while that a name was absent
                raise StoreError(f"unit {unit} is listed as done, but this host does not see its result: try again")
            found = table.take(list(positions)).to_pylist()
            own = {row["row"]: row for row in found if row["status"] != Status.ERROR}
            claims = self.slices.read(self.run.manifest.geometry.place(unit), self.run.columns(task)) if own else []
            rows += [row for row in claims if row.row in own]
            published |= own
        return published, rows

    def _compare(self, task: int, before: dict[str, Any], now: Verdict) -> Replayed:
        planned = self.run.manifest.tasks[task]
        scores = tuple(before[SCORE + label] for label in self.run.labels(task))
        makers = Makers(
            model=planned.model,
            template=planned.template,
            device=before["device"],
            engine=before["engine"],
            dtype=self._dtype(before["agent"], planned.context),
        )
        published = Verdict(
            row=now.row,
            verdict=before["verdict"],
            scores=None if None in scores else scores,
            status=Status(before["status"]),
        )
        return Replayed(makers=makers, published=published, now=now)

    def _dtype(self, agent: str, context: str) -> str:
        if agent not in self._dtypes:
            loaded = (event for event in read_events(self.run.store, agent) if event.event == "loaded")
            self._dtypes[agent] = {event.context: event.dtype for event in loaded}
        return self._dtypes[agent].get(context, "")
