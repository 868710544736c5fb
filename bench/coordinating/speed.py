"""(a) One agent whose engine takes no time, against a bare loop of the same system calls."""

import os
import statistics
import time
from pathlib import Path

import pyarrow.parquet as pq
from fabricate import FabricatedRun, fabricate

from coordinating import pilots
from fsctx.protocol import names
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.names import LeaseId

UNIT_ROWS = 4
TURNS = 3


def measure(folder: Path, *, n_units: int) -> dict[str, object]:
    """Let an agent do a run and a bare loop the same, in turns; return both rates, the median of all turns."""
    turns = [_turn(folder / f"turn-{number}", n_units) for number in range(TURNS)]
    agent_s, bare_s, agent_cpu_s, bare_cpu_s = (statistics.median(turn) for turn in zip(*turns, strict=True))
    return {
        "units": n_units,
        "agent_units_per_s": round(n_units / agent_s, 1),
        "bare_units_per_s": round(n_units / bare_s, 1),
        "ratios": [round(bare / agent, 2) for agent, bare, _, _ in turns],
        "ratio": round(statistics.median(bare / agent for agent, bare, _, _ in turns), 2),
        "agent_cpu_ms_per_unit": round(1000 * agent_cpu_s / n_units, 2),
        "bare_cpu_ms_per_unit": round(1000 * bare_cpu_s / n_units, 2),
        "goal": "ratio >= 0.5",
    }


def _turn(folder: Path, n_units: int) -> tuple[float, float, float, float]:
    """Return the seconds of an agent and of the bare loop, and then those of the processor."""
    run = _fabricate(folder / "run", n_units)
    agent = pilots.work(run.root, 1)
    start = pilots.work(_fabricate(folder / "one", 1).root, 1)
    content = (run.root / names.result(0, LeaseId(0, 0))).read_bytes()
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    _bare(run, folder / "bare", content)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    return agent.seconds, wall_s, agent.cpu_s - start.cpu_s, cpu_s


def _fabricate(folder: Path, n_units: int) -> FabricatedRun:
    return fabricate(folder, n_rows=n_units * UNIT_ROWS, unit_rows=UNIT_ROWS, slices_per_shard=256)


def _bare(run: FabricatedRun, folder: Path, content: bytes) -> None:
    """Make the calls that each unit needs, with the bytes of a result that is ready."""
    for kind in (names.LEASES, names.RESULTS):
        for bucket in range(run.geometry.n_buckets):
            (folder / names.bucket_folder(kind, bucket)).mkdir(parents=True)
    footers: dict[int, pq.FileMetaData] = {}
    lease = b'{"v":1,"owner":"somebody-4242-0123456789abcdef","token":""}'
    for unit in range(run.geometry.n_units):
        bucket, lease_id = bucket_of(unit), LeaseId(unit, 0)
        _create(folder / names.lease(bucket, lease_id), lease)
        _read_slice(run, unit, footers)
        result = folder / names.result(bucket, lease_id)
        temporary = result.with_name(result.name + ".tmp")
        _create(temporary, content, is_durable=True)
        temporary.rename(result)
        (folder / names.published(bucket, unit)).symlink_to(result.name)


def _create(path: Path, content: bytes, *, is_durable: bool = False) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    os.write(fd, content)
    if is_durable:
        os.fsync(fd)
    os.close(fd)


def _read_slice(run: FabricatedRun, unit: int, footers: dict[int, pq.FileMetaData]) -> None:
    place = run.geometry.place(unit)
    with open(run.root / names.shard(place.shard), "rb") as source:
        file = pq.ParquetFile(source, metadata=footers.get(place.shard))
        footers[place.shard] = file.metadata
        file.read_row_group(place.row_group, columns=["claim"], use_threads=False)
