"""Real batch systems of invented nodes on this machine.

`testbeds` tells where the scripts are that bring them up. Each bed has state and ports of its own, so that it stands
beside another one, of the same kind too.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from e2e.running import events_by_agent
from testbeds import BATCH_SYSTEMS as SCRIPTS

from fsctx.protocol import agents, names
from fsctx.protocol.agents import AgentRecord, AgentState, Session
from fsctx.store import PosixStore

CHECKOUT = Path(__file__).parents[3]
PATIENCE_S = 300.0
"""Far more than anything takes, also on a machine that does much else: waits end with what they wait for."""
GRACE_S = 30
"""What a pilot that is told to leave is given: a site's usual time, and no less on a machine that does much else."""
POLL_S = 0.3
UP_WITHIN_S = 120
FETCHED_WITHIN_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run on a bed, as the pilots see it."""

    bed: "Bed"
    store: PosixStore

    @property
    def folder(self) -> str:
        """Its path."""
        return str(self.store.root)

    def fsctx(self, command: str, *words: str, code: int = 0) -> str:
        """Call `fsctx COMMAND RUN` as the pilots' user."""
        return self.bed.fsctx(command, self.folder, *words, code=code)

    def submit(self, *words: str, engine: str, agent: tuple[str, ...] = (), code: int = 0) -> str:
        """Submit pilots with an engine; return what was said."""
        environment = f"environment=PYTHONPATH={CHECKOUT} OMP_NUM_THREADS=1"
        asked = ["--batch", self.bed.batch, "--set", environment, *words]
        return self.fsctx("submit", *asked, "--", "--engine", engine, *agent, code=code)

    def dry_run(self, settings: Mapping[str, str]) -> str:
        """Write what would be submitted to a file, and return its path."""
        words = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        command = [
            sys.executable,
            "-m",
            "fsctx",
            "submit",
            self.folder,
            "--batch",
            self.bed.batch,
            "-n",
            "2",
            "--dry-run",
        ]
        self.bed.user("sh", "-c", f"{shlex.join([*command, *words])} > {self.folder}.text")
        return f"{self.folder}.text"

    def records(self) -> list[AgentRecord]:
        """Return the records of all agents so far."""
        found = (agents.read_agent(self.store, name) for name in agents.list_agents(self.store))
        return [record for record in found if record is not None]

    def sessions(self) -> list[Session]:
        """Return the sessions of all agents so far."""
        found = (agents.read_session(self.store, name) for name in agents.list_agents(self.store))
        return [session for session in found if session is not None]

    def working(self) -> list[Session]:
        """Return the sessions of the agents that compute."""
        return [session for session in self.sessions() if session.state == AgentState.RUNNING]

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return all events of a kind, of all agents."""
        by_agent = events_by_agent(self.store.root)
        found = [{**event, "agent": agent} for agent, events in by_agent.items() for event in events]
        return [event for event in found if event["event"] == kind]

    def n_computed(self) -> int:
        """Return how many rows were computed, those that were computed again too."""
        return sum(event["rows"] for event in self.events("inferred"))

    def jobs(self) -> list[str]:
        """Return the submitted jobs, oldest first."""
        found = sorted((self.store.root / names.SUBMISSIONS).glob("*.json"), key=lambda path: path.stat().st_mtime)
        return [pilot["id"] for path in found for pilot in json.loads(path.read_text())["pilots"]]

    def status(self) -> dict[str, Any]:
        """Return what `fsctx status --json` prints."""
        found: dict[str, Any] = json.loads(self.fsctx("status", "--json"))
        return found

    def wait_done(self) -> None:
        """Wait until every unit is done."""
        wait_until(lambda: self.status()["state"] == "done", what=lambda: self.fsctx("status"))

    def wait_left(self) -> None:
        """Wait until every agent said that it left, in its session and as its last event."""
        wait_until(
            lambda: (
                {session.state for session in self.sessions()} == {AgentState.LEFT}
                and {event["agent"] for event in self.events("left")} == set(agents.list_agents(self.store))
            ),
            what=lambda: self.fsctx("status"),
        )

    def collect(self) -> dict[str, Any]:
        """Collect, and return the proof."""
        found: dict[str, Any] = json.loads(self.fsctx("collect", "-o", f"{self.folder}.parquet", "--json"))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Bed:
    """A batch system that is up."""

    batch: str
    script: Path
    environ: Mapping[str, str]
    shared: Path
    within: tuple[str, ...]
    """What the pilots' user needs in its environment to speak to the batch system."""

    def call(self, *words: str, code: int | None = 0) -> str:
        """Call the bed's script."""
        done = subprocess.run(
            [str(self.script), *words],
            env={**os.environ, **self.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=UP_WITHIN_S,
        )
        said = done.stdout + done.stderr
        assert code is None or done.returncode == code, f"{words} ended with {done.returncode}: {said}"
        return said

    def user(self, *words: str, code: int | None = 0) -> str:
        """Run a program as the pilots' user on the submitting host."""
        return self.call("exec", "env", *self.within, *words, code=code)

    def rival(self, *words: str) -> str:
        """Run a program of HTCondor as another user, for whom there are wrappers outside of the pool."""
        tool = Path(self.environ["POOL_STATE"]) / "bin" / words[0]
        done = subprocess.run(
            [str(tool), *words[1:]], env={**os.environ, "POOL_AS": "rival"}, capture_output=True, text=True, check=True
        )
        return done.stdout

    def fsctx(self, *words: str, code: int = 0) -> str:
        """Call fsctx as the pilots' user on the submitting host."""
        return self.user(sys.executable, "-m", "fsctx", *words, code=code)

    def make_run(self, name: str, *, rows: int, unit_rows: int, model: str = "fake", ttl_s: float = 30.0) -> Run:
        """Plan a run. Where pilots are lost without warning, a short `ttl_s` makes the wait for others short."""
        claims = self.shared / f"{name}.jsonl"
        claims.write_text("".join(json.dumps({"id": n, "claim": f"Claim {n}."}) + "\n" for n in range(rows)))
        folder = self.shared / name
        words = ["--run", str(folder), "--model", model, "--unit-rows", str(unit_rows), "--ttl", str(ttl_s)]
        self.fsctx("plan", str(claims), *words)
        return Run(bed=self, store=PosixStore(folder))


def wait_until(is_true: Callable[[], Any], *, what: Callable[[], str] = str, timeout_s: float = PATIENCE_S) -> None:
    """Poll what others change; `what` tells how it stands when it does not become true."""
    end_s = time.monotonic() + timeout_s
    while not is_true():
        assert time.monotonic() < end_s, f"it did not become true in time: {what()}"
        time.sleep(POLL_S)


@contextmanager
def condor(*, nodes: str, name: str = "condor", port: int = 19718) -> Iterator[Bed]:
    """Bring an HTCondor pool up; two stand side by side if name and port differ."""
    state = Path(f"/var/lib/fsctx-{name}")
    environ = {
        "POOL_STATE": str(state),
        "POOL_PORT": str(port),
        "POOL_NODES": nodes,
        "POOL_MAX_VACATE": str(GRACE_S),
        "POOL_BIND": _bound(),
    }
    native = "/var/cache/condor-pool/native/bin"
    within = _within(f"{native}:/usr/bin:/bin", CONDOR_CONFIG=f"{state}/client_config")
    with _up("htcondor", SCRIPTS / "pool.sh", "bootstrap", environ, state, within) as bed:
        yield bed


@contextmanager
def slurm(*, nodes: str, name: str = "slurm", port: int = 26917) -> Iterator[Bed]:
    """Bring a Slurm cluster up; two stand side by side if name and port differ."""
    state = Path(f"/var/lib/fsctx-{name}")
    environ = {
        "SLURM_STATE": str(state),
        "SLURM_PORT": str(port),
        "SLURM_NODES": nodes,
        "SLURM_KILLWAIT": str(GRACE_S),
        "SLURM_BIND": _bound(),
    }
    within = _within("/usr/bin:/bin", SLURM_CONF=f"{state}/slurm.conf")
    with _up("slurm", SCRIPTS / "slurm.sh", "install", environ, state, within) as bed:
        yield bed


@contextmanager
def gridengine() -> Iterator[Bed]:
    """Bring a Grid Engine of one node up."""
    state = Path("/var/lib/fsctx-gridengine")
    environ = {"SGE_STATE": str(state), "SGE_BIND": _bound()}
    script = Path(__file__).with_name("gridengine.sh")
    with _up("gridengine", script, "install", environ, state, _within("/usr/bin:/bin")) as bed:
        yield bed


@contextmanager
def _up(
    batch: str, script: Path, fetch: str, environ: dict[str, str], state: Path, within: tuple[str, ...]
) -> Iterator[Bed]:
    if os.geteuid() != 0:
        pytest.skip(f"{batch} on this machine needs root: its nodes are namespaces")
    if not script.exists():
        pytest.skip(f"{batch} on this machine needs {script} (FSCTX_TESTBEDS says where such scripts are)")
    if not shutil.which("unshare"):
        pytest.skip(f"{batch} on this machine needs unshare: install util-linux")
    _fetch(batch, script, fetch, environ)
    bed = Bed(batch=batch, script=script, environ=environ, shared=state / "shared", within=within)
    try:
        bed.call("up")
        _check_visible(bed)
        yield bed
    finally:
        bed.call("down", code=None)


def _fetch(batch: str, script: Path, action: str, environ: dict[str, str]) -> None:
    """Have the packages fetched, the first time. Where they cannot be had nothing is tested."""
    command = ["timeout", str(FETCHED_WITHIN_S), str(script), action]
    done = subprocess.run(
        command, env={**os.environ, **environ}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"the packages of {batch} cannot be had (exit {done.returncode}): {done.stderr.strip()[-300:]}")


def _check_visible(bed: Bed) -> None:
    """Jobs run as another user, who must see interpreter and checkout."""
    said = bed.user(sys.executable, "-c", "import fsctx; print('sees', fsctx.__file__)", code=None)
    if "sees " not in said:
        pytest.skip(f"the jobs' user cannot use {sys.executable} with {CHECKOUT}: {said.strip()[-200:]}")
    assert re.search(rf"sees {re.escape(str(CHECKOUT))}/", said), f"the jobs' user sees another fsctx: {said}"


def _bound() -> str:
    """Return the folders that jobs need to see even below /root."""
    return " ".join(dict.fromkeys([sys.base_prefix, sys.prefix, str(CHECKOUT)]))


def _within(path: str, **environ: str) -> tuple[str, ...]:
    found = {"PATH": path, "PYTHONPATH": str(CHECKOUT), "OMP_NUM_THREADS": "1", **environ}
    return tuple(f"{key}={value}" for key, value in found.items())
