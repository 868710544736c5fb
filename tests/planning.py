"""Plans for tests: the shortest way from files to a run."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.coordinator.plan import PlanReport, PlanRequest, plan
from fsctx.protocol import names
from fsctx.protocol.manifest import Manifest, read_manifest
from fsctx.store import PosixStore


def quiet(step: str, done: int, total: int | None) -> None:
    """Show no progress."""


def offline(ref: str) -> Path:
    """Stand for a hub that must not be asked."""
    raise AssertionError(f"the hub was asked for {ref}")


def make_plan(*inputs: Path | str, run: Path, **options: Any) -> PlanReport:
    """Plan a run of these inputs, with the fake model unless told otherwise."""
    given = {"models": ("fake",), **options}
    request = PlanRequest(inputs=tuple(map(str, inputs)), run=run, **given)
    return plan(request, progress=quiet, fetch=offline)


def manifest_of(run: Path) -> Manifest:
    return read_manifest(PosixStore(run))


def shards_of(run: Path) -> list[Path]:
    """Return a run's shards, checked against what its manifest says of row groups."""
    geometry = manifest_of(run).geometry
    shards = [run / names.shard(number) for number in range(geometry.n_shards)]
    sizes = [
        pq.read_metadata(shard).row_group(i).num_rows
        for shard in shards
        for i in range(pq.read_metadata(shard).num_row_groups)
    ]
    assert sizes == [geometry.rows_of_slice(i) for i in range(geometry.n_slices)]
    assert sorted(path.name for path in (run / names.UNITS).iterdir()) == [shard.name for shard in shards]
    return shards


def claims_of(run: Path) -> pa.Table:
    """Return all rows of a run's shards."""
    return pa.concat_tables([pq.read_table(shard) for shard in shards_of(run)])


def read_claims(path: Path, **options: Any) -> pa.Table:
    """Plan one file and return the rows as the shards hold them."""
    run = path.parent / "planned-run"
    make_plan(path, run=run, **options)
    return claims_of(run)
