"""The demo from its first to its last step, by the same code that the commands call."""

import dataclasses
import importlib.util
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from fsctx.cache import NodeCache, default_root
from fsctx.coordinator import plan as planning
from fsctx.coordinator.collect import collect as collecting
from fsctx.coordinator.collect.collect import Summary
from fsctx.coordinator.collect.text import show
from fsctx.coordinator.report import page
from fsctx.coordinator.status import read_status
from fsctx.demo.closing import FAKE, next_lines, proof_lines, time_lines
from fsctx.demo.convert import bring_to_node
from fsctx.demo.fleet import fleet_of
from fsctx.demo.folder import Try, new_try
from fsctx.demo.follow import Watched, follow
from fsctx.demo.model import SMOLLM2, fetch_model
from fsctx.demo.screen import Screen, screen_on
from fsctx.errors import InputError
from fsctx.protocol import names
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.manifest import Manifest, read_context, read_manifest
from fsctx.store import PosixStore

N_AGENTS = 2
TEMPLATE = "fever-examples"
"""With examples before the claim: without, a model as small as the demo's says SUPPORTED to everything."""

N_UNITS = 30
"""About so many units: enough for the kill to come in the middle."""

TTL_S = 6.0
"""Agents on one host see each other's death at once; a short beat keeps the picture fresh."""

NEEDED = ("torch", "transformers", "safetensors", "gguf", "accelerate")
_OPTIONS = ("--save-every", "3")
_FAKE_OPTIONS = ("--engine", "fake:rows_per_s=5,load_s=1,batch_tokens=64", "--save-every", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoRequest:
    """What a demo is asked for. `fsctx` is how the command is called here."""

    folder: Path
    model: str | None
    n_claims: int
    fsctx: str = "fsctx"


def run_demo(request: DemoRequest, console: Console) -> None:
    """Plan, run two agents, kill one, collect and explain. No agent outlives the call.

    Raises:
        InputError: what was passed, or this installation, cannot be used.
        NotComplete: the agents left before the run was done.
    """
    check_installation(request.model)
    with screen_on(console) as screen:
        model = request.model or _fetched_model(screen)
        done = new_try(request.folder, n_claims=request.n_claims)
        store = PosixStore(done.run.absolute())
        manifest = _plan(done, model, request.n_claims, screen)
        if model != FAKE:
            context = read_context(store, manifest.tasks[0].context)
            bring_to_node(context, NodeCache(default_root(os.environ)), say=screen.say)
        watched = _work(store, manifest.geometry, model, screen)
        screen.say("Every unit is done and the agents have left. Collecting.")
    summary = _collect(store, done)
    show(summary, console)
    _close(done, manifest, watched, summary, console)
    _print(console, next_lines(done, model=model, fsctx=request.fsctx))


def check_installation(model: str | None, needed: Sequence[str] = NEEDED) -> None:
    """Check that the packages that run a real model are installed.

    Raises:
        InputError: it is not; says what to do.
    """
    missing = [name for name in needed if model != FAKE and importlib.util.find_spec(name) is None]
    if missing:
        raise InputError(
            f"the demo runs a real model and needs {', '.join(missing)}: pip install 'fsctx[hf]', "
            "or see it without one: fsctx demo --model fake"
        )


def _fetched_model(screen: Screen) -> str:
    folder = default_root(os.environ) / "demo"
    if not SMOLLM2.is_in(folder):
        screen.say(f"fetching the model SmolLM2-135M-Instruct (93 MB) to {folder} …")
    return str(fetch_model(folder))


def _plan(done: Try, model: str, n_claims: int, screen: Screen) -> Manifest:
    request = planning.PlanRequest(
        inputs=(str(done.claims),),
        run=done.run,
        models=(model,),
        templates=(TEMPLATE,),
        unit_rows=max(1, n_claims // N_UNITS),
        ttl_s=TTL_S,
    )
    report = planning.plan(request, progress=lambda *_: None)
    screen.say(f"planned {report.rows:,} claims as {report.units:,} units of {report.unit_rows:,} in {report.folder}")
    return read_manifest(PosixStore(done.run))


def _work(store: PosixStore, geometry: Geometry, model: str, screen: Screen) -> Watched:
    with fleet_of(store) as fleet:
        fleet.start(N_AGENTS, _FAKE_OPTIONS if model == FAKE else _OPTIONS)
        screen.say(f"started {N_AGENTS} agents on this machine; what they say is in {store.root}/{names.LOGS}")
        watched = follow(store, geometry, fleet, screen)
    return dataclasses.replace(watched, status=read_status(store))  # the agents' last words came after the last look


def _collect(store: PosixStore, done: Try) -> Summary:
    summary = collecting.collect(store, collecting.Request(output=done.verdicts))
    page.write_report(done.report, store, summary)
    return summary


def _close(done: Try, manifest: Manifest, watched: Watched, summary: Summary, console: Console) -> None:
    n_claims, n_taken_over = manifest.geometry.n_rows, _units_taken_over(done.verdicts)
    _print(console, proof_lines(summary, n_claims=n_claims, killed=watched.killed, n_taken_over=n_taken_over))
    _print(console, time_lines(watched.status, n_rows=summary.rows))


def _units_taken_over(verdicts: Path) -> int:
    """Count the units with rows that a later holder than the first one computed."""
    table = pq.read_table(verdicts, columns=["unit", "generation"])
    return len(set(table.filter(pc.field("generation") > 0)["unit"].to_pylist()))


def _print(console: Console, lines: Iterable[str]) -> None:
    console.print()
    for line in lines:
        console.print(Text(line), soft_wrap=True)
