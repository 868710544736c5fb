"""Agents told to leave with too little time, and what becomes of the saved rows."""

import signal
import subprocess
from pathlib import Path

import pytest
from crash.fleet import (
    agent,
    assert_done_once,
    end_of,
    faulty_agent,
    fingerprints,
    finish,
    quick_run,
    sessions,
    wait_for,
    watched,
)
from e2e.running import events, n_published
from fabricate import FabricatedRun

from fsctx.protocol import names
from fsctx.protocol.agents import AgentState

SLOW = "fake:rows_per_s=40,batch_tokens=8"
TOO_LITTLE_S = 0.2


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return quick_run(tmp_path / "run")


def n_leased(run: FabricatedRun) -> int:
    return len(run.store.list(names.bucket_folder(names.LEASES, 0)))


def test_an_agent_killed_just_after_it_was_told_to_leave_costs_nothing_but_time(run: FabricatedRun) -> None:
    with watched(agent(run, engine="fake:rows_per_s=10,batch_tokens=16")) as victim:
        wait_for(lambda: any(session.progress for session in sessions(run)))
        victim.terminate()
        try:
            victim.wait(timeout=TOO_LITTLE_S)
        except subprocess.TimeoutExpired:
            victim.kill()
    finish(run)
    assert_done_once(run)


def test_an_agent_killed_while_it_says_goodbye_is_missed_all_the_same(run: FabricatedRun) -> None:
    with watched(faulty_agent(run, 'overwrite "left" 1 within', engine=SLOW)) as victim:
        wait_for(lambda: n_published(run))
        victim.terminate()
        code, _ = end_of(victim)
    assert code == -signal.SIGKILL
    assert sessions(run) == []
    finish(run)
    assert_done_once(run)


def test_rows_saved_before_a_kill_are_adopted_and_not_computed_again(tmp_path: Path) -> None:
    run = quick_run(tmp_path / "run", n_rows=40, unit_rows=40)
    with watched(agent(run, "--save-every", "0.2", engine="fake:rows_per_s=5,batch_tokens=8")) as victim:
        folder = names.bucket_folder(names.PARTIAL, 0)
        wait_for(lambda: run.store.list(folder))
        victim.kill()
    finish(run)
    rows = assert_done_once(run)
    [adopted] = [event["adopted"] for event in events(run, "leased") if event["generation"]]
    assert adopted > 0
    assert [row["generation"] for row in rows].count(0) == adopted


def test_what_was_published_before_a_kill_is_not_computed_again(run: FabricatedRun) -> None:
    with watched(agent(run, engine=SLOW)) as victim:
        wait_for(lambda: n_published(run) >= 3)
        victim.kill()
    before = fingerprints(run)
    finish(run)
    assert_done_once(run)
    assert before.items() <= fingerprints(run).items()


def test_an_agent_frozen_past_the_time_to_live_loses_its_units_and_harms_nobody(run: FabricatedRun) -> None:
    with watched(agent(run, engine="fake:rows_per_s=20,batch_tokens=8")) as zombie:
        wait_for(lambda: n_leased(run) > n_published(run) >= 1)
        zombie.send_signal(signal.SIGSTOP)
        with watched(agent(run)) as survivor:
            code, said = end_of(survivor)
        assert code == 0, said
        before = fingerprints(run)
        zombie.send_signal(signal.SIGCONT)
        code, said = end_of(zombie)
    assert code == 0, said
    assert fingerprints(run) == before
    assert_done_once(run)
    assert sum(session.ledger.rows_lost for session in sessions(run)) > 0
    assert {session.state for session in sessions(run)} == {AgentState.LEFT}
