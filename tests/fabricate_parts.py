"""The files of claims and the templates of fabricated runs; see `fabricate`."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fsctx.protocol import names
from fsctx.protocol.geometry import Geometry


def claims_table(
    n_rows: int,
    *,
    gold: Sequence[str | None] | None,
    ids: Sequence[Any] | pa.Array | None,
    claims: Sequence[str | None] | pa.Array | None,
    columns: dict[str, Sequence[Any] | pa.Array],
) -> pa.Table:
    """Return claims as shards hold them; gold labels repeat over the rows."""
    labels = [None] if gold is None else list(gold)
    choice = pa.array(np.arange(n_rows) % len(labels))
    return pa.table(
        {
            "id": pa.nulls(n_rows, pa.string()) if ids is None else pa.array(ids),
            "claim": [f"Claim {row}." for row in range(n_rows)] if claims is None else pa.array(claims, pa.string()),
            "label": pa.array(labels, pa.string()).take(choice),
            **{f"input_{name}": pa.array(values) for name, values in columns.items()},
        }
    )


def write_shards(folder: Path, geometry: Geometry, table: pa.Table) -> None:
    """Write the shards of a run."""
    per_shard = geometry.unit_rows * geometry.slices_per_shard
    for number in range(geometry.n_shards):
        part = table.slice(number * per_shard, per_shard)
        pq.write_table(part, folder / names.shard(number), row_group_size=geometry.unit_rows)


def template_source(name: str, labels: Sequence[str]) -> str:
    """Return a template whose labels are their own words."""
    words = ", ".join(json.dumps(label) for label in labels)
    return f'name = "{name}"\nuser = "{{{{ claim }}}}"\nlabels = [{words}]\n'
