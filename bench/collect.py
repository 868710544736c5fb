"""How fast `fsctx collect` is, beside a bare read-and-write of the same files with pyarrow in the same process.

    python bench/collect.py [--rows 2000000] [--unit-rows 1000] [--tasks 1] [--format parquet]

The last line is one JSON document.
"""

import argparse
import json
import multiprocessing
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from fabricate import fabricate, finish_all

from fsctx.coordinator.collect.collect import Request, collect
from fsctx.protocol import names
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.manifest import read_manifest
from fsctx.store import PosixStore

Result = TypeVar("Result")


def main() -> None:
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="fsctx-bench-", dir=options.dir))
    try:
        _fabricate_elsewhere(folder / "run", options)
        store = PosixStore(folder / "run")
        output = folder / f"out.{options.format}"
        _, ours = _timed(lambda: collect(store, Request(output=output)))
        peak = _peak_bytes()
        _, bare = _timed(lambda: _bare(store, folder / "bare.parquet"))
        _report(options, ours, bare, peak, output.stat().st_size)
    finally:
        shutil.rmtree(folder)


def _fabricate_elsewhere(folder: Path, options: argparse.Namespace) -> None:
    """Make the run in a process of its own, so that its memory is not counted."""
    process = multiprocessing.get_context("spawn").Process(
        target=_run, args=(folder, options.rows, options.unit_rows, options.tasks)
    )
    process.start()
    process.join()
    if process.exitcode:
        sys.exit(process.exitcode)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=2_000_000, help="verdicts, over all tasks")
    parser.add_argument("--unit-rows", type=int, default=1000)
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--format", choices=["parquet", "jsonl", "csv"], default="parquet")
    parser.add_argument("--dir", help="where to put the run (default: the system's temporary folder)")
    return parser.parse_args()


def _run(folder: Path, n_verdicts: int, unit_rows: int, n_tasks: int) -> None:
    models = [f"model-{number}" for number in range(n_tasks)]
    n_rows = n_verdicts // n_tasks
    claims = [f"Claim number {row} says that something of the usual length is so." for row in range(n_rows)]
    run, seconds = _timed(
        lambda: fabricate(
            folder,
            n_rows=n_rows,
            unit_rows=unit_rows,
            slices_per_shard=256,
            models=models,
            ids=pa.array(range(n_rows)),
            claims=pa.array(claims),
        )
    )
    _, more = _timed(lambda: finish_all(run))
    print(f"fabricated {n_rows * n_tasks:,} verdicts in {run.geometry.n_units:,} units in {seconds + more:.1f} s")


def _bare(store: PosixStore, output: Path) -> None:
    """Read every result file and every shard, write the verdicts' and claims' columns: no order, no check, no count."""
    geometry, writer = read_manifest(store).geometry, None
    for shard in range(geometry.n_shards):
        claims = pq.ParquetFile(store.root / names.shard(shard)).read()
        first = shard * geometry.slices_per_shard
        slices = range(first, min(first + geometry.slices_per_shard, geometry.n_slices))
        for task in range(geometry.n_tasks):
            units = [geometry.unit_of(task=task, slice_number=number) for number in slices]
            tables = [pq.ParquetFile(store.root / names.published(bucket_of(unit), unit)).read() for unit in units]
            table = pa.concat_tables([t.replace_schema_metadata(None) for t in tables])
            for name in claims.column_names:
                table = table.append_column(name, claims[name])
            writer = writer or pq.ParquetWriter(output, table.schema, compression="zstd")
            writer.write_table(table)
    if writer:
        writer.close()


def _timed(call: Callable[[], Result]) -> tuple[Result, float]:
    began = time.perf_counter()
    result = call()
    return result, time.perf_counter() - began


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _report(options: argparse.Namespace, ours: float, bare: float, peak: int, size: int) -> None:
    result = {
        "bench": "collect",
        "rows": options.rows,
        "unit_rows": options.unit_rows,
        "tasks": options.tasks,
        "format": options.format,
        "seconds": round(ours, 2),
        "rows_per_s": round(options.rows / ours),
        "bare_seconds": round(bare, 2),
        "ratio_to_bare": round(bare / ours, 3),
        "peak_bytes": peak,
        "output_bytes": size,
    }
    for name, value in result.items():
        print(f"{name:>14}  {value:,}" if not isinstance(value, str) else f"{name:>14}  {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
