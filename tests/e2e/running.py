"""Real agents on fabricated runs: how tests start them and what they read back."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pyarrow as pa
from fabricate import FabricatedRun, fabricate
from peering import make_context

from fsctx.protocol import codec, names, results, verdicts
from fsctx.protocol.geometry import bucket_of

PROVENANCE = ["generation", "agent", "host", "device", "engine"]


def start_agent(
    run: Path,
    *options: str,
    cwd: Path | None = None,
    within: Sequence[str] = (),
    environ: Mapping[str, str] = MappingProxyType({}),
) -> "subprocess.Popen[str]":
    """Start an agent in the background, by the command `within` if one is given, which must become it."""
    command = [*within, sys.executable, "-m", "fsctx", "agent", str(run), *options]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "FSCTX_CACHE": str(run.parent / "cache"), **environ}
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ, cwd=cwd)


def run_with_files(folder: Path) -> FabricatedRun:
    """Make a run whose context has files, which the fake engine does not read; its origin is beside it."""
    made = fabricate(folder / "run", n_rows=400, unit_rows=10)
    context = make_context(folder / "origin")
    made.store.replace(names.context(context.digest), codec.encode(context))
    manifest = made.root / names.MANIFEST
    known = json.loads(manifest.read_text())
    for task in known["tasks"]:
        task["context"] = context.digest
    manifest.write_text(json.dumps(known | {"ttl_s": 1.0, "hold_s": 1.0}))
    return made


def fetched_by_source(run: FabricatedRun) -> list[dict[str, int]]:
    """Return what all fetches brought."""
    return [event["bytes_by_source"] for event in events(run, "fetched")]


def finish(*agents: "subprocess.Popen[str]", timeout_s: float = 120) -> list[tuple[int, str]]:
    """Wait for agents and return their exit codes and what they said."""
    return [end_of(agent, timeout_s=timeout_s) for agent in agents]


def end_of(process: "subprocess.Popen[str]", *, timeout_s: float) -> tuple[int, str]:
    """Wait until a process ends; return its exit code and what it said. One that does not end is killed."""
    try:
        _, said = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        _, said = process.communicate()
        raise AssertionError(f"it did not end within {timeout_s:g} s; it said: {said}") from None
    return process.returncode, said


@contextmanager
def running(run: Path, *options: str, within: Sequence[str] = ()) -> Iterator["subprocess.Popen[str]"]:
    """Run an agent that does not outlive the block."""
    agent = start_agent(run, *options, within=within)
    try:
        yield agent
    finally:
        agent.kill()
        agent.communicate()


def wait_until(is_true: Callable[[], Any], *, timeout_s: float = 90.0) -> None:
    """Poll the state of the world, which another process changes."""
    end_s = time.monotonic() + timeout_s
    while not (seen := is_true()):
        assert time.monotonic() < end_s, f"it is {seen!r} after {timeout_s:g} s"
        time.sleep(0.02)


def wait_at_work(run: FabricatedRun) -> None:
    """Wait until an agent that has the context computed something, and noted all that it did before."""
    wait_until(lambda: events(run, "inferred"))


def n_published(run: FabricatedRun) -> int:
    """Count published units."""
    buckets = range(run.geometry.n_buckets)
    folders = (names.bucket_folder(names.RESULTS, bucket) for bucket in buckets)
    return sum(names.parse_published(name) is not None for folder in folders for name in run.store.list(folder))


def published(run: FabricatedRun) -> pa.Table:
    """Return the rows of all published results, unit by unit."""
    return pa.concat_tables(unit_table(run, unit) for unit in range(run.geometry.n_units))


def unit_table(run: FabricatedRun, unit: int) -> pa.Table:
    """Return the rows of a unit's published result."""
    winner = results.winning(run.store, unit)
    assert winner is not None, f"unit {unit} has no result"
    name = names.result(bucket_of(unit), winner)
    with run.store.open(name) as source:
        table = verdicts.from_parquet(source, run=run.manifest.run, unit=unit, labels=run.labels, where=name)
    return table.replace_schema_metadata()


def events(run: FabricatedRun, kind: str) -> list[dict[str, Any]]:
    """Return all events of a kind, of all agents."""
    return [event for found in events_by_agent(run.root).values() for event in found if event["event"] == kind]


def events_by_agent(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what each agent noted. The last line may be half written: a reader sees a long append page by page."""
    logs = sorted((run / names.AGENTS).glob("*/events.jsonl"))
    return {log.parent.name: [json.loads(line) for line in log.read_text().split("\n")[:-1]] for log in logs}
