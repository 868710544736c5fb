"""The right verdicts of a simulated run, and wrong ones to plant."""

import functools
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fabricate import LABELS

from fsctx.agent.engines.base import BoundTask, Row
from fsctx.agent.engines.fake import FakeEngine
from fsctx.agent.judging import Marks, budget_left, judge
from fsctx.protocol.geometry import Place
from fsctx.protocol.sweep import Extent, Judged
from fsctx.protocol.verdicts import Origin, Verdict, to_parquet, to_table
from simulation import remembered
from simulation.world import Shape, Simulation, planned, records

Rows = tuple[tuple[int, str | None], ...]
"""Row and verdict of each; None where the row was given up."""


def expected_rows(simulation: Simulation, unit: int) -> Rows:
    """Return row and verdict of a unit's rows, as one undisturbed agent computes them. Poison alone is given up."""
    rows = _expected(simulation.shape, unit)
    return tuple((row, None if row == simulation.poison_row else verdict) for row, verdict in rows)


@functools.cache
def _expected(shape: Shape, unit: int) -> Rows:
    manifest = planned(shape)[1]
    place = manifest.geometry.place(unit)
    template = records(shape)[1][manifest.tasks[place.task].template]
    bound = FakeEngine(sleep=lambda seconds: None).load(None).bind(BoundTask(template=template, method="score"))  # type: ignore[arg-type]
    rows = [Row(row=row, claim=f"Claim {row}.") for row in range(place.first_row, place.first_row + place.n_rows)]
    return tuple((v.row, str(v.verdict)) for v in bound.infer(bound.encode(rows)))


def expected_decision(simulation: Simulation, extent: Extent) -> tuple[Judged, ...]:
    """Return what follows from the right verdicts of all open units."""
    manifest = simulation.manifest
    assert manifest.sweep is not None
    marks = {}
    for task in extent.waiting:
        units = [unit for unit in extent.open_units() if manifest.geometry.task_of(unit) == task]
        rows = [row for unit in units for row in expected_rows(simulation, unit)]
        is_right = [verdict == LABELS[row % len(LABELS)] for row, verdict in rows]
        marks[task] = Marks(rows=np.array([row for row, _ in rows]), is_right=np.array(is_right))
    rung = manifest.sweep.ends.index(max(extent.open))
    after = [manifest.sweep.least_rows(manifest.geometry, n_tasks=n, rung=rung + 1) for n in range(len(marks) + 1)]
    left = budget_left(manifest.sweep, manifest.geometry, extent.planned, rung)
    return judge(marks, manifest.sweep, left=left, after=after)


def rows_of(content: bytes) -> Rows | None:
    """Return row and verdict of each row of a result file; None if it is none."""
    table = remembered.written(content)
    if table is not None:
        return rows_of_table(table)
    try:
        return rows_of_table(pq.ParquetFile(io.BytesIO(content)).read(["row", "verdict"], use_threads=False))
    except (pa.ArrowException, OSError):
        return None


def rows_of_table(table: pa.Table) -> Rows:
    """Return row and verdict of each row of a table."""
    return tuple(zip(table.column("row").to_pylist(), table.column("verdict").to_pylist(), strict=True))


@functools.cache
def wrong(shape: Shape, unit: int, *, run: str = "", shift: int = 0, marked: int | None = None) -> bytes:
    """Return a file with a wrong verdict for each row of a unit, `shift` rows on.

    `run` and `marked` make the file say that it is of another run or unit.
    """
    simulated = planned(shape)[1]
    place: Place = simulated.geometry.place(unit)
    labels = records(shape)[1][simulated.tasks[place.task].template].label_names
    right = dict(_expected(shape, unit))
    rows = [Verdict(row=r + shift, verdict=next(x for x in labels if x != right[r]), scores=(-1.0,) * 3) for r in right]
    table = to_table(rows, labels, Origin(generation=0, agent="x", host="x", device="x", engine="x"))
    return to_parquet(table, run=run or simulated.run, unit=unit if marked is None else marked)
