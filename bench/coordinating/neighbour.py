"""(b) Two durable workers of fsctx against two of Parsl's HighThroughputExecutor: the same slices, the same files.

Each side reads a slice, writes its verdicts' Parquet file under a temporary name, syncs it and renames it. fsctx also
leases the unit, encodes the verdicts and publishes them; Parsl's tasks write bytes that are ready.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from fabricate import fabricate

from coordinating import pilots
from fsctx.protocol import names
from fsctx.protocol.names import LeaseId

UNIT_ROWS = 4
SIDE = Path(__file__).with_name("parsl_side.py")


def measure(folder: Path, *, n_units: int, parsl_python: Path) -> dict[str, object]:
    """Let both do a run, one after the other; return the rates."""
    run = fabricate(folder / "run", n_rows=n_units * UNIT_ROWS, unit_rows=UNIT_ROWS, slices_per_shard=256)
    ended = pilots.work(run.root, 2)
    (folder / "content").write_bytes((run.root / names.result(0, LeaseId(0, 0))).read_bytes())
    places = [run.geometry.place(unit) for unit in range(n_units)]
    slices = [(str(run.root / names.shard(place.shard)), place.row_group) for place in places]
    (folder / "slices.json").write_text(json.dumps(slices))
    command = [str(parsl_python), str(SIDE), str(folder)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=_environ(), check=False)
    if done.returncode:
        sys.exit(f"{parsl_python} failed: {done.stderr.strip().splitlines()[-1]}")
    parsl_s = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return {
        "units": n_units,
        "fsctx_units_per_s": round(n_units / ended.seconds, 1),
        "parsl_units_per_s": round(n_units / parsl_s, 1),
        "ratio": round(parsl_s / ended.seconds, 3),
        "goal": "ratio >= 1",
    }


def _environ() -> dict[str, str]:
    """Return what Parsl's processes see: they start programs of their own virtual environment by name."""
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return environ | {"OMP_NUM_THREADS": "1"}
