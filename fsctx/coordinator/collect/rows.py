"""Joining claims with their verdicts, in input order, as a stream of tables.

The stream goes by windows of a few slices: a window's units are read together, those of the next one
meanwhile. So memory holds two windows, whatever the size of the run.
"""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fsctx.coordinator.collect.claims import Claims
from fsctx.coordinator.collect.layout import Column, From, RunTask
from fsctx.coordinator.collect.proof import READERS, Proof
from fsctx.protocol.manifest import Manifest
from fsctx.protocol.outputs import unfold
from fsctx.protocol.published import Results
from fsctx.store import Store

WINDOW_ROWS = 65_536
"""A window ends with the slice that brings it to so many verdicts, …"""

WINDOW_BYTES = 1 << 25
"""… or to so many bytes of claims, counted once per task."""


Values: TypeAlias = Any
"""An Arrow array, whole or in chunks: pyarrow's functions take either, its stubs one of them."""

_Reading: TypeAlias = dict[int, "Future[pa.Table | None]"]
"""A task's units that are being read, by position of their slice in the window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The collected rows of one task in one window."""

    task: RunTask
    rows: np.ndarray[Any, Any]
    """Row numbers, rising."""
    table: pa.Table


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    slices: tuple[int, ...]
    claims: tuple[pa.Table, ...]
    """By slice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What rows are made from."""

    store: Store
    manifest: Manifest
    tasks: tuple[RunTask, ...]
    claims: Claims
    results: Results
    columns: tuple[Column, ...]
    """What is collected."""

    @property
    def schema(self) -> pa.Schema:
        """The collected columns' names and types."""
        return pa.schema([(column.name, column.kind) for column in self.columns])


def parts_by_window(source: Source, proof: Proof) -> Iterator[list[Part]]:
    """Yield, window by window in input order, the parts of the tasks that have rows there.

    Units that are not done by the proof, or vanished since, have no rows.

    Raises:
        Damaged: see `Results.read` and `Claims`.
    """
    with ThreadPoolExecutor(READERS) as pool, contextlib.ExitStack() as at_end:
        at_end.callback(pool.shutdown, wait=False, cancel_futures=True)  # after an error, do not read on
        waiting: list[tuple[_Window, list[_Reading]]] = []
        for window in _windows(source.claims, proof):
            waiting.append((window, [_start(pool, source, proof, task, window) for task in source.tasks]))
            if len(waiting) > 1:
                yield _finish(source, *waiting.pop(0))
        for window, reading in waiting:
            yield _finish(source, window, reading)


def interleave(parts: Sequence[Part]) -> pa.Table:
    """Return the rows of a window's parts by row, then by task."""
    if len(parts) == 1:
        return parts[0].table
    order = np.argsort(np.concatenate([part.rows for part in parts]), kind="stable")
    return pa.concat_tables([part.table for part in parts]).combine_chunks().take(order)


def map_gold(gold: Values, mapping: dict[str, str]) -> Values:
    """Return gold labels as mapped; those that are not in the mapping stay as given."""
    if not mapping:
        return gold
    where: Values = pc.index_in(gold, value_set=pa.array(list(mapping), pa.string()))
    mapped = pc.take(pa.array(list(mapping.values()), pa.string()), where)
    return pc.coalesce(mapped, gold)


def _windows(claims: Claims, proof: Proof) -> Iterator[_Window]:
    """Read the claims of slices until a window is full."""
    geometry = proof.geometry
    slices: dict[int, pa.Table] = {}
    rows = size = 0
    for number in range(geometry.n_slices):
        slices[number] = claims.read(number)
        rows += slices[number].num_rows * geometry.n_tasks
        size += slices[number].nbytes * geometry.n_tasks
        if rows >= WINDOW_ROWS or size >= WINDOW_BYTES or number == geometry.n_slices - 1:
            yield _Window(slices=tuple(slices), claims=tuple(slices.values()))
            slices, rows, size = {}, 0, 0


def _start(pool: ThreadPoolExecutor, source: Source, proof: Proof, task: RunTask, window: _Window) -> _Reading:
    """Begin to read a task's units of a window."""
    units = {
        position: proof.geometry.unit_of(task=task.number, slice_number=number)
        for position, number in enumerate(window.slices)
    }
    return {
        position: pool.submit(source.results.read, unit, task.labels)
        for position, unit in units.items()
        if proof.is_done(unit)
    }


def _finish(source: Source, window: _Window, reading: list[_Reading]) -> list[Part]:
    parts = []
    for task, futures in zip(source.tasks, reading, strict=True):
        found = {position: future.result() for position, future in futures.items()}
        tables = {position: table for position, table in found.items() if table is not None}
        if tables:
            parts.append(_join(source, task, window, tables))
    return parts


def _join(source: Source, task: RunTask, window: _Window, tables: dict[int, pa.Table]) -> Part:
    """Put claims and verdicts side by side; both are in row order and of the same slices."""
    claims = pa.concat_tables([window.claims[position] for position in tables])
    verdicts = pa.concat_tables(tables.values())
    if task.outputs:
        verdicts = unfold(verdicts, task.outputs, where=f"slices {window.slices[0]} to {window.slices[-1]}")
    geometry = source.manifest.geometry
    slices: Any = verdicts["row"].to_numpy() // geometry.unit_rows
    units: Any = geometry.unit_of(task=task.number, slice_number=slices)  # of all rows at once
    table = pa.Table.from_arrays(
        [
            pa.array(units) if column.comes_from is From.UNIT else _column(column, task, claims, verdicts)
            for column in source.columns
        ],
        schema=source.schema,
    )
    return Part(task=task, rows=verdicts["row"].to_numpy(), table=table)


def _column(column: Column, task: RunTask, claims: pa.Table, verdicts: pa.Table) -> Values:
    """Return one collected column, whole, for all rows of a part."""
    match column.comes_from:
        case From.CLAIMS:
            return claims[column.key]
        case From.VERDICTS if column.key in verdicts.column_names:
            return verdicts[column.key]
        case From.ROW:
            return verdicts["row"]
        case From.TASK:
            return pa.repeat(getattr(task.task, column.key), verdicts.num_rows)
        case From.GOLD:
            return map_gold(claims[column.key].cast(pa.string()), task.gold)
        case _:  # no gold labels, or the score of a label that this task does not have
            return pa.nulls(verdicts.num_rows).cast(column.kind)
