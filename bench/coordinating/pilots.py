"""Agents as processes, and what they wrote of themselves."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fsctx.protocol import agents, names
from fsctx.protocol.agents import Ledger
from fsctx.store import PosixStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """Agents that worked until nothing was left."""

    seconds: float
    """From the first lease to the last publication, over all agents."""
    cpu_s: float
    """Of all agents, their start too."""
    ledgers: tuple[Ledger, ...]
    calls: dict[str, int]
    """Calls of the filesystem by kind, of all agents."""


def plan(run: Path, claims: Iterable[str], *options: str, model: Path) -> Path:
    """Plan a run; the claims are beside it.

    Raises:
        RuntimeError: with what the command said.
    """
    run.parent.mkdir(exist_ok=True)
    source = run.with_suffix(".jsonl")
    source.write_text("".join(json.dumps({"claim": claim}) + "\n" for claim in claims), encoding="utf-8")
    command = [sys.executable, "-m", "fsctx", "plan", str(source), "--run", str(run), "--model", str(model), *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"fsctx plan: {done.stderr.strip()[-300:]}")
    return run


def start(run: Path, *options: str, engine: str = "fake") -> "subprocess.Popen[bytes]":
    """Start an agent, if nothing else is said with an engine that takes no time; its cache is beside the run."""
    command = [sys.executable, "-m", "fsctx", "agent", str(run), "--engine", engine, *options]
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "FSCTX_CACHE": str(run.parent / "cache")}
    return subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def work(run: Path, n_agents: int) -> Ended:
    """Let agents work until nothing is left."""
    before_s = _children_s()
    pilots = [start(run) for _ in range(n_agents)]
    for pilot in pilots:
        _, said = pilot.communicate()
        if pilot.returncode:
            sys.exit(f"an agent failed: {said.decode()}")
    return _ended(run, _children_s() - before_s)


def first_lease_s(run: Path) -> float:
    """Start an agent; return how long after its start it leased its first unit, as its event log shows."""
    began_s = time.time()
    pilot = start(run, "--max-units", "1")
    pilot.communicate()
    return min(at(event) for event in events(run) if event["event"] == "leased" and at(event) > began_s) - began_s


def events(run: Path) -> list[dict[str, Any]]:
    """Return what all agents noted."""
    logs = sorted((run / names.AGENTS).glob("*/events.jsonl"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]


def _children_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _ended(run: Path, cpu_s: float) -> Ended:
    store, noted = PosixStore(run), events(run)
    sessions = [agents.read_session(store, name) for name in agents.list_agents(store)]
    kinds = [event["fs_calls"] for event in noted if event["event"] == "left"]
    leased = [at(event) for event in noted if event["event"] == "leased"]
    published = [at(event) for event in noted if event["event"] == "published"]
    return Ended(
        seconds=max(published) - min(leased),
        cpu_s=cpu_s,
        ledgers=tuple(session.ledger for session in sessions if session is not None),
        calls={kind: sum(calls.get(kind, 0) for calls in kinds) for kind in sorted({k for c in kinds for k in c})},
    )


def worked(noted: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the seconds of one agent from its first row to its last publication, and those in which it computed."""
    (began_s,) = (at(event) for event in noted if event["event"] == "warmed_up")
    ended_s = max(at(event) for event in noted if event["event"] == "published")
    return ended_s - began_s, sum(event["seconds"] for event in noted if event["event"] == "inferred")


def at(event: dict[str, Any]) -> float:
    """Return when an event was noted, on the clock of `time.time`."""
    return datetime.fromisoformat(event["time"]).timestamp()
