"""(a) One agent whose engine takes no time, against a bare loop of the same system calls."""

import os
import time
from pathlib import Path

import pyarrow.parquet as pq
from fabricate import FabricatedRun, fabricate

from coordinating import pilots
from fsctx.protocol import names
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.names import LeaseId

UNIT_ROWS = 4


def measure(folder: Path, *, n_units: int) -> dict[str, object]:
    """Let an agent do a run, then a bare loop the same; return both rates."""
    run = fabricate(folder / "run", n_rows=n_units * UNIT_ROWS, unit_rows=UNIT_ROWS, slices_per_shard=256)
    before_s = _children_s()
    ended = pilots.work(run.root, 1)
    cpu_s = _children_s() - before_s
    content = (run.root / names.result(0, LeaseId(0, 0))).read_bytes()
    bare_s = _bare(run, folder / "bare", content)
    agent_per_s, bare_per_s = n_units / ended.seconds, n_units / bare_s
    return {
        "units": n_units,
        "agent_units_per_s": round(agent_per_s, 1),
        "bare_units_per_s": round(bare_per_s, 1),
        "ratio": round(agent_per_s / bare_per_s, 3),
        "agent_cpu_ms_per_unit": round(1000 * cpu_s / n_units, 3),
        "goal": "ratio >= 0.5",
    }


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _bare(run: FabricatedRun, folder: Path, content: bytes) -> float:
    """Make the calls that each unit needs, with the bytes of a result that is ready; return the seconds."""
    for kind in (names.LEASES, names.RESULTS):
        for bucket in range(run.geometry.n_buckets):
            (folder / names.bucket_folder(kind, bucket)).mkdir(parents=True)
    footers: dict[int, pq.FileMetaData] = {}
    lease = b'{"v":1,"owner":"somebody-4242-0123456789abcdef","token":""}'
    began_s = time.perf_counter()
    for unit in range(run.geometry.n_units):
        bucket, lease_id = bucket_of(unit), LeaseId(unit, 0)
        _create(folder / names.lease(bucket, lease_id), lease)
        _read_slice(run, unit, footers)
        result = folder / names.result(bucket, lease_id)
        temporary = result.with_name(result.name + ".tmp")
        _create(temporary, content, is_durable=True)
        temporary.rename(result)
        (folder / names.published(bucket, unit)).symlink_to(result.name)
    return time.perf_counter() - began_s


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
        file.read_row_group(place.row_group, columns=["claim"])
