"""Agents as a user starts them: how fast a whole run goes, and what loading takes with and without the node's cache."""

import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from coordinating import pilots
from transformers import AutoModelForCausalLM

from fsctx.agent.engines.base import BoundTask
from on_gpu import card, shapes
from on_gpu.bench import Bench
from on_gpu.clock import Skipped

_RUN_S = 25.0
"""An agent's run has the claims of so many seconds of the bare loop."""
_LEAST_ROWS = 32
_LOADS_ROWS = 64


def whole_run(bench: Bench) -> None:
    """Let an agent do a run, and compare its rate from its first work to its last with that of the bare engine."""
    bare, encode_per_s = _bare(bench)
    n_rows = int(min(bench.sizes.agent_rows, max(_LEAST_ROWS, bare * bench.clock.take(_RUN_S))))
    claims = [row.claim for row in bench.rows(n_rows)]
    noted = _work(bench, pilots.plan(bench.scratch / "whole" / "run", claims, model=bench.folder))
    seconds, inferred_s = pilots.worked(noted)
    bench.found.note(
        "agent",
        claims=n_rows,
        seconds=round(seconds, 2),
        claims_per_s=round(n_rows / seconds, 1),
        bare_per_s=round(bare, 1),
        ratio=round(n_rows / seconds / bare, 3),
        inferring=round(inferred_s / seconds, 3),
        encode_per_s=round(encode_per_s, 1),
        load_s=_only(noted, "loaded")["seconds"],
        bind_s=_only(noted, "warmed_up")["seconds"],
    )


def loads(bench: Bench) -> None:
    """Start two agents one after the other on one cache: the first finds it empty. Then load without any agent."""
    dtype = getattr(torch, bench.dtype)
    needed, free = 3 * shapes.size_bytes(bench.sizes.large, dtype), shutil.disk_usage(bench.scratch).free
    if free < needed:
        raise Skipped(f"{bench.scratch} has {free / 1e9:.1f} GB free, it takes {needed / 1e9:.1f}: set TMPDIR")
    model = bench.large_folder()
    claims, half = [row.claim for row in bench.rows(_LOADS_ROWS)], str(_LOADS_ROWS // 2)
    run = pilots.plan(bench.scratch / "loads" / "run", claims, "--unit-rows", half, model=model)
    for cache in ("empty", "filled"):
        noted = _work(bench, run, "--max-units", "1")
        fetched, loaded = _only(noted, "fetched"), _only(noted, "loaded")
        told = {
            "fetch_s": fetched["seconds"],
            "fetched_gb": round(fetched["bytes"] / 1e9, 3),
            "load_s": loaded["seconds"],
        }
        bench.found.note("loads", **{f"cache_{cache}": told | {"ready_after_s": loaded["at_s"]}})
    bench.clock.take(1.0)
    began_s = time.perf_counter()
    with bench.loaded(bench.dtype, folder=model):
        bench.found.note("loads", engine_alone_s=round(time.perf_counter() - began_s, 2))
    began_s = time.perf_counter()
    AutoModelForCausalLM.from_pretrained(model, dtype=dtype, device_map={"": bench.device})
    bench.found.note("loads", straight_to_device_s=round(time.perf_counter() - began_s, 2))


def _bare(bench: Bench) -> tuple[float, float]:
    """Return rows a second of the engine alone, and of making their tokens."""
    with bench.loaded(bench.dtype) as model:
        bound = model.bind(BoundTask(template=bench.template, method="score"))
        began_s = time.perf_counter()
        rows = bench.encoded(bound)
        encode_s = time.perf_counter() - began_s
        return bench.engine(bound, rows, model.batch_tokens).rows_per_s, len(rows) / encode_s


def _work(bench: Bench, run: Path, *options: str) -> list[dict[str, Any]]:
    """Let an agent work until it leaves, with the card to itself; return what it noted."""
    card.forget(bench.device)
    limit_s, began_s = bench.clock.take(600.0), time.time()
    pilot = pilots.start(run, "--device", bench.spec, "--dtype", bench.dtype, "--no-peers", *options, engine="hf")
    try:
        _, said = pilot.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Skipped("the rest of it: an agent was not done when the share of time was used up") from None
    finally:
        pilot.kill()
        pilot.wait()
    if pilot.returncode:
        raise RuntimeError(f"the agent ended with {pilot.returncode}: {said.decode().strip()[-300:]}")
    return [event for event in pilots.events(run) if pilots.at(event) >= began_s]


def _only(noted: Sequence[dict[str, Any]], kind: str) -> dict[str, Any]:
    (event,) = (event for event in noted if event["event"] == kind)
    return event
