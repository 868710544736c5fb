"""Agents on vLLM: killed, they leave nothing behind; losing its process, they load again and do all the work."""

from pathlib import Path

import psutil
import pytest
import smollm2
from e2e.running import finish, start_agent, wait_until
from e2e.test_contexts import events
from planning import make_plan

from fsctx.protocol import names
from fsctx.protocol.agents import list_agents, read_agent
from fsctx.store import PosixStore

pytestmark = [pytest.mark.vllm, pytest.mark.model]

OPTIONS = ("--engine", "vllm:kv_gb=0.5", "--device", "cpu", "--no-peers")
LOADED_S = 600.0


def computing(agent: int) -> list[psutil.Process]:
    return psutil.Process(agent).children(recursive=True)


def n_computed_by(run: Path) -> int:
    """Return how many agents computed something."""
    logs = (run / names.AGENTS).glob("*/events.jsonl")
    return sum('"event":"inferred"' in log.read_text().replace(" ", "") for log in logs)


def test_agents_on_vllm_end_without_remains_and_finish_what_others_left(tmp_path: Path) -> None:
    claims, run = tmp_path / "claims.txt", tmp_path / "run"
    claims.write_text("".join(f"The number {number} is larger than {number // 2}.\n" for number in range(120)))
    make_plan(claims, run=run, models=(str(smollm2.GGUF),), unit_rows=10, ttl_s=6.0)

    killed = start_agent(run, *OPTIONS)
    wait_until(lambda: events(run, "inferred"), timeout_s=LOADED_S)
    family = computing(killed.pid)
    assert family
    killed.kill()
    killed.communicate()
    _, alive = psutil.wait_procs(family, timeout=20)
    assert not alive

    second = start_agent(run, *OPTIONS)
    wait_until(lambda: n_computed_by(run) == 2, timeout_s=LOADED_S)
    for process in computing(second.pid):
        process.kill()
    ((code, said),) = finish(second, timeout_s=2 * LOADED_S)
    assert code == 0, said
    assert "the engine died (the process of vLLM ended with exit code -9)" in said
    records = [read_agent(PosixStore(run), agent) for agent in list_agents(PosixStore(run))]
    assert [(record.engine, record.engine_why) for record in records if record] == [
        ("vllm", "--engine vllm:kv_gb=0.5 was asked for")
    ] * 2
