"""The same story on every bed: three agents on three clients, of which one is killed and one frozen for too long."""

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from fabricate import LABELS
from fabricate_parts import template_source
from networks.beds import HERE, Client

from fsctx.agent.engines.base import BoundTask, Row
from fsctx.agent.engines.fake import FakeEngine
from fsctx.templates.load import parse_template

ONHOST = str(HERE / "onhost.py")
N_ROWS, UNIT_ROWS = 960, 8
SPEED = "fake:rows_per_s=40,batch_tokens=8"
TTL_S = 20.0
PATIENCE_S = 180.0

Look = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was seen and what was left."""

    looks: list[Look]
    before_waking: Look
    end: Look
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    ended: dict[str, tuple[int, str]]
    seconds: dict[str, float]

    def agent_on(self, host: str) -> dict[str, Any]:
        """Return what the agent of a host said last."""
        return _agent_on(self.end, host)

    def robbed(self) -> set[str]:
        """Return the hosts of the agents whose leases others took.

        A lease that still names nobody at the end is nobody's: who created it died before it could write its name.
        """
        owners, hosts = self.end["owners"], {name: agent["host"] for name, agent in self.end["agents"].items()}
        taken = [lease.rpartition(".") for lease in owners if not lease.endswith(".0")]
        robbed = {owners[f"{unit}.{int(generation) - 1}"] for unit, _, generation in taken} - {None}
        return {hosts[agent] for agent in robbed}


@dataclass(slots=True)
class Witness:
    """Looks at a run from one client all the time."""

    looks: list[Look] = field(default_factory=list)

    @property
    def last(self) -> Look:
        """What was seen last."""
        return self.looks[-1] if self.looks else {"published": {}, "agents": {}}

    def follow(self, process: "subprocess.Popen[str]") -> None:
        """Read what the process on the client prints."""
        assert process.stdout is not None
        for line in process.stdout:
            self.looks.append(json.loads(line))

    def agent_on(self, host: str) -> dict[str, Any]:
        """Return what the agent of a host said last."""
        return _agent_on(self.last, host)


def _agent_on(look: Look, host: str) -> dict[str, Any]:
    return next((agent for agent in look["agents"].values() if agent.get("host") == host), {})


def run_story(clients: list[Client], run_name: str, *, form: str = "plain") -> Outcome:
    """Kill one agent, freeze another, let the third finish, wake the zombie, collect. `form`: see `onhost`."""
    victim, zombie, survivor = clients
    run = f"/{run_name}"
    survivor.ask(ONHOST, "make", survivor.mount + run, str(N_ROWS), str(UNIT_ROWS), str(TTL_S), form)
    began_s, seconds = time.monotonic(), {}
    with ExitStack() as stack:
        witness = stack.enter_context(_witness(survivor, survivor.mount + run))
        agents = {client.name: stack.enter_context(_agent(client, client.mount + run)) for client in clients}
        wait_for(lambda: witness.agent_on(victim.name).get("units_done", 0) >= 1)
        victim.kill(witness.agent_on(victim.name)["pid"], "KILL")
        seconds["killed"] = time.monotonic() - began_s
        wait_for(lambda: witness.agent_on(zombie.name).get("units_done", 0) >= 1)
        with _frozen(zombie, witness):
            seconds["frozen"] = time.monotonic() - began_s
            said = end_of(agents[survivor.name])
            seconds["done"] = time.monotonic() - began_s
            before = json.loads(survivor.ask(ONHOST, "look", survivor.mount + run))
        ended = {survivor.name: said, zombie.name: end_of(agents[zombie.name])}
        seconds["zombie left"] = time.monotonic() - began_s
    return _look_back(survivor, run, witness, before, ended, seconds)


def _look_back(
    client: Client,
    run: str,
    witness: Witness,
    before: Look,
    ended: dict[str, tuple[int, str]],
    seconds: dict[str, float],
) -> Outcome:
    output = f"{client.mount}{run}.jsonl"
    summary = json.loads(client.ask("-m", "fsctx", "collect", client.mount + run, "-o", output, "--json"))
    return Outcome(
        looks=list(witness.looks),
        before_waking=before,
        end=_last_look(client, client.mount + run, n_left=len(ended)),
        summary=summary,
        rows=[json.loads(line) for line in client.cat(output).splitlines()],
        ended=ended,
        seconds=seconds,
    )


def _last_look(client: Client, run: str, *, n_left: int) -> Look:
    """Look until the agents that ended are seen to have left: on some beds that takes seconds."""
    end_s = time.monotonic() + PATIENCE_S
    while True:
        look: Look = json.loads(client.ask(ONHOST, "look", run))
        if sum(agent.get("state") == "left" for agent in look["agents"].values()) >= n_left:
            return look
        assert time.monotonic() < end_s, f"the agents' last words are not seen: {look['agents']}"


@contextmanager
def _agent(client: Client, run: str) -> Iterator["subprocess.Popen[str]"]:
    process = client.start("-m", "fsctx", "agent", run, "--engine", SPEED, "--race", "0")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextmanager
def _witness(client: Client, run: str) -> Iterator[Witness]:
    process = client.start(ONHOST, "witness", run)
    witness = Witness()
    reader = threading.Thread(target=witness.follow, args=(process,), daemon=True)
    reader.start()
    try:
        wait_for(lambda: witness.looks)
        yield witness
    finally:
        process.kill()
        reader.join()
        process.communicate()


@contextmanager
def _frozen(client: Client, witness: Witness) -> Iterator[None]:
    """Freeze the whole client where that can be done, else its agent."""
    if client.frozen_by is not None:
        os.kill(client.frozen_by, signal.SIGSTOP)
    else:
        client.kill(witness.agent_on(client.name)["pid"], "STOP")
    try:
        yield
    finally:
        if client.frozen_by is not None:
            os.kill(client.frozen_by, signal.SIGCONT)
        else:
            client.kill(witness.agent_on(client.name)["pid"], "CONT")


def end_of(process: "subprocess.Popen[str]") -> tuple[int, str]:
    """Wait until a process ends; return its exit code and what it said."""
    _, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def wait_for(condition: Callable[[], Any]) -> None:
    """Poll until a condition holds."""
    end_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s, "it did not become true in time"
        time.sleep(0.05)


def expected_verdicts(n_rows: int) -> list[str | None]:
    """Return the verdicts that an undisturbed fake engine gives."""
    template = parse_template(template_source("fever", LABELS), where="fever")
    bound = FakeEngine().load(HERE).bind(BoundTask(template=template, method="score"))
    rows = [Row(row=row, claim=f"Claim {row}.") for row in range(n_rows)]
    return [verdict.verdict for verdict in bound.infer(bound.encode(rows))]
