"""(d) A run of a million units: planning it, an agent's first lease, `fsctx status`, and the files that it leaves.

Real: the commands, each a process of its own. Made up: the states of the run in the middle and at the end. One bucket
is done and compacted by the code that agents use; others get a copy of its file, or of its leases and links, under
their own names. So a state that takes agents hours stands within seconds, and looks the same to whoever lists it.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from fabricate import FabricatedRun, finish_unit

from coordinating import pilots
from fsctx.protocol import codec, compaction, leases, names
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.manifest import Manifest
from fsctx.protocol.names import LeaseId
from fsctx.store import PosixStore
from fsctx.templates.load import parse_template

IN_WORK = 64
"""Buckets in which half of the units are done, in the middle of the run."""


def measure(folder: Path, *, n_units: int) -> dict[str, object]:
    """Plan a run of units of one row; return what takes how long at which stage."""
    source, run = folder / "claims.parquet", folder / "run"
    pq.write_table(pa.table({"claim": [f"claim {number}" for number in range(n_units)]}), source)
    planned = _timed("plan", str(source), "--run", str(run), "--model", "fake", "--unit-rows", "1")
    store = PosixStore(run)
    manifest = codec.decode(store.read(names.MANIFEST), Manifest, where=names.MANIFEST)
    stages = {"start": _stage(run)}
    merged = _finish_first(store, manifest)
    half = manifest.geometry.n_buckets // 2
    for bucket in range(1, half):
        _compact(run, bucket, merged)
    for bucket in range(half, min(half + IN_WORK, manifest.geometry.n_buckets)):
        _half_done(run, manifest.geometry, bucket)
    stages["middle"] = _stage(run)
    for bucket in range(half, manifest.geometry.n_buckets):
        _compact(run, bucket, merged)
    stages["end"] = _stage(run, has_work=False)
    return {
        "units": n_units,
        "plan_s": planned["seconds"],
        "plan_cpu_s": planned["cpu_s"],
        "plan_mib": planned["mib"],
        **{f"{what}_{stage}": value for stage, seen in stages.items() for what, value in seen.items()},
        "files_at_end": sum(len(files) for _, _, files in os.walk(run)),
        "goal": "plan < 60 s, first lease < 2 s, status < 2 s and < 300 MiB, files < 20,000",
    }


def _stage(run: Path, *, has_work: bool = True) -> dict[str, float]:
    status = _timed("status", str(run), "--json")
    seen = {"status_s": status["seconds"], "status_mib": status["mib"]}
    return seen | ({"first_lease_s": round(pilots.first_lease_s(run), 2)} if has_work else {})


def _timed(*arguments: str) -> dict[str, float]:
    """Run a command; return its seconds, those of the processor, and its peak of memory."""
    began_s = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "fsctx", *arguments], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"fsctx {arguments[0]} failed with exit code {process.returncode}")
    return {
        "seconds": round(time.perf_counter() - began_s, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "mib": round(used.ru_maxrss / 1024),
    }


def _finish_first(store: PosixStore, manifest: Manifest) -> bytes:
    """Do and compact the first bucket; return the file that it became."""
    source = store.read(names.template(manifest.tasks[0].template)).decode()
    labels = parse_template(source, where="template").label_names
    run = FabricatedRun(store=store, manifest=manifest, labels=labels)
    for unit in manifest.geometry.units_of(0):
        finish_unit(run, unit)
    assert compaction.compact(store, manifest, [labels], 0), "the first bucket is not finished"
    return store.read(names.compacted(0))


def _compact(run: Path, bucket: int, merged: bytes) -> None:
    (run / names.compacted(bucket)).write_bytes(merged)
    for kind in names.BUCKETED:
        shutil.rmtree(run / names.bucket_folder(kind, bucket))


def _half_done(run: Path, geometry: Geometry, bucket: int) -> None:
    lease = codec.encode(leases.Lease(owner="host-1-00000000"))
    for unit in geometry.units_of(bucket):
        if (run / names.lease(bucket, LeaseId(unit, 0))).exists():
            continue  # the agent that was started before took it
        (run / names.lease(bucket, LeaseId(unit, 0))).write_bytes(lease)
        if unit % 2:
            result = run / names.result(bucket, LeaseId(unit, 0))
            result.write_bytes(json.dumps({}).encode())
            (run / names.published(bucket, unit)).symlink_to(result.name)
