"""How fast `fsctx plan` streams claims, against a bare pyarrow read-and-write of the same rows.

Both sides run in this process, one after the other, several times in turns; the best of each counts. The bare side
reads the Parquet file in batches and writes it with the same row groups and pyarrow's own defaults. The last
line is one JSON document.

    python bench/plan.py [--rows 2000000] [--repeat 3] [--folder DIR]
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from fsctx.coordinator.plan import PlanReport, PlanRequest, plan

BATCH_ROWS = 65_536
LABELS = ["SUPPORTS", "REFUTES", "NOT ENOUGH INFO"]
SENTENCE = "the old stone bridge over the wide river was built in spring by an engineer called Smith"
WORDS = SENTENCE.split()


def claims(start: int, n_rows: int) -> pa.Table:
    """Return made-up rows that look like FEVER's: an id, a sentence of some ten words, one of three labels."""
    numbers = pa.array(range(start, start + n_rows), pa.int64())
    scattered = pc.bit_wise_and(pc.multiply(numbers, pa.scalar(2_654_435_761)), pa.scalar((1 << 40) - 1))
    words = pa.array(WORDS)
    picked = [words.take(pc.bit_wise_and(pc.shift_right(scattered, pa.scalar(3 * i)), pa.scalar(15))) for i in range(9)]
    sentence = pc.binary_join_element_wise(pc.cast(scattered, pa.string()), *picked, " ")
    labels = pa.array(LABELS * 6)[:16].take(pc.bit_wise_and(scattered, pa.scalar(15)))
    return pa.table({"id": numbers, "claim": sentence, "label": labels})


def write_input(path: Path, n_rows: int) -> None:
    """Write the input in pieces, so that the benchmark itself needs little memory."""
    with pq.ParquetWriter(path, claims(0, 1).schema) as writer:
        for start in range(0, n_rows, BATCH_ROWS):
            writer.write_table(claims(start, min(BATCH_ROWS, n_rows - start)))


def write_bare(source: Path, target: Path, unit_rows: int) -> None:
    """Read and write the rows with pyarrow alone, in row groups of `unit_rows`."""
    with pq.ParquetFile(source) as file, pq.ParquetWriter(target, file.schema_arrow) as writer:
        held: list[pa.RecordBatch] = []
        for batch in file.iter_batches(batch_size=BATCH_ROWS):
            held.append(batch)
            table = pa.Table.from_batches(held)
            n_whole = table.num_rows - table.num_rows % unit_rows
            if n_whole:
                writer.write_table(table.slice(0, n_whole), row_group_size=unit_rows)
            held = table.slice(n_whole).to_batches()
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=unit_rows)


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def quiet(step: str, done: int, total: int | None) -> None:
    """Show nothing."""


def measure(folder: Path, n_rows: int, repeat: int) -> dict[str, object]:
    source = folder / "claims.parquet"
    write_input(source, n_rows)
    reports: list[PlanReport] = []
    plan_s, bare_s, peak = [], [], 0.0
    for turn in range(repeat):
        request = PlanRequest(inputs=(str(source),), run=folder / f"run-{turn}", models=("fake",))
        plan_s.append(timed(lambda request=request: reports.append(plan(request, progress=quiet))))
        peak = peak or peak_mib()  # of the first turn: the bare side's memory is not the plan's
        bare_s.append(timed(lambda: write_bare(source, folder / "bare.parquet", reports[0].unit_rows)))
    return {
        "benchmark": "plan",
        "rows": n_rows,
        "unit_rows": reports[0].unit_rows,
        "units": reports[0].units,
        "input_bytes": source.stat().st_size,
        "plan_s": round(min(plan_s), 3),
        "bare_s": round(min(bare_s), 3),
        "plan_rows_per_s": round(n_rows / min(plan_s)),
        "bare_rows_per_s": round(n_rows / min(bare_s)),
        "ratio": round(min(bare_s) / min(plan_s), 3),
        "peak_rss_mib": round(peak, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to write; default: a temporary folder")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        result = measure(Path(folder), args.rows, args.repeat)
    for name, value in result.items():
        print(f"{name:<18}{value:>16,}" if isinstance(value, int | float) else f"{name:<18}{value:>16}")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
