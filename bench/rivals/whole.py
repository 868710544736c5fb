"""What coordination costs: an agent's whole run beside the engine alone, on the same claims."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from coordinating import pilots

DTYPE = "bfloat16"
"""The quicker precision: beside it coordination weighs more."""


def whole_run(claims: Sequence[str], folder: Path, template: str, bare: Callable[[], object], scratch: Path) -> float:
    """Return how long an agent takes for a run, as a multiple of the bare loop's time, measured before and after.

    The agent's time is from its first row to its last publication: its start and the loading are left out.
    """
    source = scratch / "claims.jsonl"
    source.write_text("".join(json.dumps({"claim": claim}) + "\n" for claim in claims), encoding="utf-8")
    run = scratch / "run"
    command = [sys.executable, "-m", "fsctx", "plan", str(source), "--run", str(run)]
    subprocess.run([*command, "--model", str(folder), "--template", template], check=True, stdout=subprocess.DEVNULL)
    before_s = _timed(bare)
    pilot = pilots.start(run, "--device", "cpu", "--dtype", DTYPE, "--no-peers", engine="hf")
    _, said = pilot.communicate()
    if pilot.returncode:
        sys.exit(f"an agent failed: {said.decode()}")
    noted = pilots.events(run)
    (began_s,) = (pilots.at(event) for event in noted if event["event"] == "warmed_up")
    own_s = max(pilots.at(event) for event in noted if event["event"] == "published") - began_s
    return own_s / ((before_s + _timed(bare)) / 2)


def _timed(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s
