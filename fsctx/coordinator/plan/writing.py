"""Inputs → shards, streaming; with a restart where a guess turns out wrong."""

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa

from fsctx.coordinator.plan.draft import Draft, Input
from fsctx.coordinator.plan.inputs import Format
from fsctx.coordinator.plan.reading import Ids, faults_of, no_rows
from fsctx.coordinator.plan.request import Progress
from fsctx.coordinator.plan.rows import IdsAreText, count_labels, shard_schema, to_shard
from fsctx.coordinator.plan.shards import ShardWriter
from fsctx.coordinator.plan.sizing import MAX_UNITS, choose_unit_rows, lay_out, slices_per_shard
from fsctx.coordinator.plan.workspace import Workspace
from fsctx.protocol.geometry import Geometry

MAX_LABELS = 1_000
"""So many different gold labels are told apart; a column with more is hardly one of labels."""


@dataclass(slots=True, kw_only=True)
class Counts:
    """What was seen while the rows went by."""

    n_rows: list[int] = field(default_factory=list)
    """By input file."""
    labels: Counter[str | None] = field(default_factory=Counter)
    n_other_labels: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The shards as they stand."""

    geometry: Geometry
    n_bytes: int
    counts: Counts


def write_claims(workspace: Workspace, draft: Draft, unit_rows: int | None, progress: Progress, *, run: str) -> Written:
    """Write all rows as shards of the run of this name; `unit_rows` None: choose.

    Starts anew with ids as text where one turns out to be no number, and with larger units where
    the number of rows was underestimated so far that there would be too many.
    """
    ids = _first_guess(draft)
    rows_of_unit = unit_rows or _chosen(draft, draft.n_rows_guess)
    while True:
        try:
            n_bytes, counts = _write(workspace, draft, rows_of_unit, ids, progress, run=run)
        except IdsAreText:
            ids = Ids.TEXT
            workspace.clear_shards()
            continue
        _check_rows(draft, counts)
        n_rows = sum(counts.n_rows)
        if unit_rows is None and n_rows > _most_rows(draft, rows_of_unit):
            rows_of_unit = _chosen(draft, n_rows)
            workspace.clear_shards()
            continue
        geometry = lay_out(n_rows, unit_rows=rows_of_unit, n_tasks=draft.n_tasks)
        return Written(geometry=geometry, n_bytes=n_bytes, counts=counts)


def _write(
    workspace: Workspace, draft: Draft, unit_rows: int, ids: Ids, progress: Progress, *, run: str
) -> tuple[int, Counts]:
    counts = Counts()
    most = _most_rows(draft, unit_rows)
    schema = shard_schema(draft.layout, ids)
    with ShardWriter(
        workspace.root,
        schema,
        run=run,
        unit_rows=unit_rows,
        slices_per_shard=slices_per_shard(unit_rows),
        before_naming=workspace.check_ours,
    ) as writer:
        for item in draft.inputs:
            counts.n_rows.append(0)
            for batch in _read_ahead(_shard_batches(item, draft, ids)):
                counts.n_rows[-1] += batch.num_rows
                _count(counts, batch)
                n_rows = sum(counts.n_rows)
                if n_rows <= most:  # beyond, the plan is refused: the rows are only counted
                    writer.add(batch)
                progress("writing claims", n_rows, draft.n_rows_guess)
        writer.finish()
    return writer.n_bytes, counts


def _shard_batches(item: Input, draft: Draft, ids: Ids) -> Iterator[pa.RecordBatch]:
    layout = draft.layout
    with faults_of(item.reader.source):
        for batch in item.reader.batches(layout.names, raw=layout.id if ids is Ids.NUMBERS else None):
            yield to_shard(batch, layout, ids)


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read the next batch in another thread while the last one is written."""
    with ThreadPoolExecutor(max_workers=1) as reader:
        coming = reader.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = reader.submit(next, batches, None)
            yield batch


def _count(counts: Counts, batch: pa.RecordBatch) -> None:
    for label, n in count_labels(batch).items():
        if label in counts.labels or len(counts.labels) <= MAX_LABELS:
            counts.labels[label] += n
        else:
            counts.n_other_labels += n


def _first_guess(draft: Draft) -> Ids:
    """Text at once where a file says that its ids are no whole numbers."""
    name = draft.layout.id
    kinds = [item.reader.columns[name] for item in draft.inputs if item.reader.source.format is Format.PARQUET and name]
    return Ids.NUMBERS if all(pa.types.is_integer(kind) for kind in kinds) else Ids.TEXT


def _most_rows(draft: Draft, unit_rows: int) -> int:
    """Return how many rows a run of such units can hold."""
    return unit_rows * (MAX_UNITS // draft.n_tasks)


def _chosen(draft: Draft, n_rows: int) -> int:
    n_params = [model.n_params for model in draft.models]
    return choose_unit_rows(n_rows, n_tasks=draft.n_tasks, n_params=n_params, spread=draft.spread)


def _check_rows(draft: Draft, counts: Counts) -> None:
    for item, n_rows in zip(draft.inputs, counts.n_rows, strict=True):
        if n_rows == 0:
            raise no_rows(item.reader.source)
