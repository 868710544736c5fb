"""Runs whose agents are maltreated, and the proof that nothing came of it."""

import dataclasses
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from click.testing import CliRunner
from e2e import running
from fabricate import FabricatedRun, fabricate

from fsctx.agent.engines.base import BoundTask, Row
from fsctx.agent.engines.fake import FakeEngine
from fsctx.cli import cli
from fsctx.protocol import agents, codec, names, results
from fsctx.protocol.agents import Session
from fsctx.protocol.geometry import bucket_of
from fsctx.templates.load import parse_template

TESTS = Path(__file__).parents[1]
PATIENCE_S = 60.0
"""Generous: two busy cores."""

N_ROWS, UNIT_ROWS = 120, 10

Process = subprocess.Popen[str]


def quick_run(folder: Path, *, ttl_s: float = 1.0, compacts: bool = False, **shape: int) -> FabricatedRun:
    """Make a run whose time to live is a second, and of which an agent holds half a second's work."""
    made = fabricate(folder, **{"n_rows": N_ROWS, "unit_rows": UNIT_ROWS, **shape})
    manifest = dataclasses.replace(made.manifest, ttl_s=ttl_s, hold_s=0.5, compacts=compacts)
    run = dataclasses.replace(made, manifest=manifest)
    run.store.replace(names.MANIFEST, codec.encode_pretty(run.manifest))
    return run


def start(*command: str, run: FabricatedRun) -> Process:
    """Start a Python program on a run, as the leader of a session of its own."""
    environ = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(TESTS),
        "FSCTX_CACHE": str(run.root.parent / "cache"),
    }
    return subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environ,
        start_new_session=True,
    )


def agent(run: FabricatedRun, *options: str, engine: str = "fake") -> Process:
    """Start an agent."""
    return start("-m", "fsctx", "agent", str(run.root), "--engine", engine, *options, run=run)


def faulty_agent(run: FabricatedRun, point: str, *, engine: str = "fake", save_s: float = 30) -> Process:
    """Start an agent that is killed or frozen at a point (see `faults`)."""
    return start(str(TESTS / "crash/agent_with_faults.py"), point, str(run.root), engine, str(save_s), run=run)


@contextmanager
def watched(process: Process) -> Iterator[Process]:
    """Let a process not outlive the block."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def end_of(process: Process) -> tuple[int, str]:
    """Wait until a process ends; return its exit code and what it said."""
    return running.end_of(process, timeout_s=PATIENCE_S)


def finish(run: FabricatedRun, *options: str) -> None:
    """Let a healthy agent do what is left."""
    code, said = end_of(agent(run, *options))
    assert code == 0, said


def is_frozen(process: Process) -> bool:
    """Whether a process is stopped."""
    return bool(psutil.Process(process.pid).status() == psutil.STATUS_STOPPED)


def wait_for(condition: Any) -> None:
    """Poll the world until a condition holds."""
    running.wait_until(condition, timeout_s=PATIENCE_S)


def collect(run: FabricatedRun) -> list[dict[str, Any]]:
    """Collect a run by the command line, which proves that every verdict is there exactly once; return the rows."""
    output = run.root.parent / "collected.parquet"
    ended = CliRunner().invoke(cli, ["collect", str(run.root), "-o", str(output), "--json"])
    assert ended.exit_code == 0, ended.output
    summary = json.loads(ended.stdout)
    assert (summary["rows"], summary["missing"], summary["duplicates"]) == (run.geometry.n_rows, 0, 0)
    return list(pq.read_table(output).to_pylist())


def expected(run: FabricatedRun) -> list[str | None]:
    """Return the verdicts that a fake engine which nobody disturbs gives, in the order of the rows."""
    template = parse_template(run.store.read(names.template("fever")).decode(), where="fever")
    bound = FakeEngine().load(Path()).bind(BoundTask(template=template, method="score"))
    rows = [Row(row=row, claim=f"Claim {row}.") for row in range(run.geometry.n_rows)]
    return [verdict.verdict for verdict in bound.infer(bound.encode(rows))]


def assert_done_once(run: FabricatedRun) -> list[dict[str, Any]]:
    """Check that every row has the verdict that it should, once, and return what was collected."""
    rows = collect(run)
    assert [row["verdict"] for row in rows] == expected(run)
    return rows


def fingerprints(run: FabricatedRun) -> dict[int, str]:
    """Return the hash of what stands published for each unit."""
    found = {}
    for unit in range(run.geometry.n_units):
        winner = results.winning(run.store, unit)
        if winner is not None:
            content = run.store.read(names.result(bucket_of(unit), winner))
            found[unit] = f"{winner} {hashlib.sha256(content).hexdigest()}"
    return found


def sessions(run: FabricatedRun) -> list[Session]:
    """Return what all agents say of themselves."""
    found = [agents.read_session(run.store, name) for name in agents.list_agents(run.store)]
    return [session for session in found if session is not None]
