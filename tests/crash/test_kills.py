"""Agents killed or frozen at named points of the protocol: the others finish everything exactly once."""

import signal
from pathlib import Path

import pytest
from crash.fleet import (
    agent,
    assert_done_once,
    end_of,
    faulty_agent,
    fingerprints,
    finish,
    is_frozen,
    quick_run,
    wait_for,
    watched,
)
from e2e.running import events
from fabricate import FabricatedRun

from fsctx.protocol import agents

SLOW = "fake:rows_per_s=40,batch_tokens=8"

KILLS = {
    "announcing itself": "create agent.json 1 within",
    "before its first beat": "overwrite session 1 before",
    "in a beat": "overwrite session 3 within",
    "before its first lease": "create leases/ 1 before",
    "with an empty lease": "create leases/ 2 within",
    "with a lease just taken": "create leases/ 2 after",
    "before a result is written": "create results/ 2 before",
    "while a result is written": "create results/ 2 within",
    "before a result has its name": "rename results/ 2 before",
    "before a result is published": "symlink results/ 2 before",
    "with a result just published": "symlink results/ 2 after",
    "in the last publication": "symlink results/ 12 before",
    "noting its events": "append events 1 within",
    "listing a bucket": "listdir results/ 1 after",
}

IN_TIME = ("overwrite session 3 within", "append events 1 within")
"""Points that come with time, not with work."""

SAVING_KILLS = {
    "while rows are saved": "create partial/ 2 within",
    "before saved rows have their name": "rename partial/ 2 before",
    "with rows just saved": "rename partial/ 2 after",
    "before saved rows are cleaned up": "unlink partial/ 1 before",
    "with saved rows just cleaned up": "unlink partial/ 1 after",
}

COMPACTION_KILLS = {
    "before the merged file": "create 000000.parquet 1 before",
    "while the merged file is written": "create 000000.parquet 1 within",
    "before the merged file has its name": "rename 000000.parquet 1 before",
    "with the merged file in its place": "rename 000000.parquet 1 after",
    "with the results just out of sight": "rename results/000000.tmp 1 after",
    "before what was merged is removed": "unlink results/000000.tmp 3 before",
    "before the emptied folder is removed": "rmdir results/000000.tmp 1 before",
    "between the results and the leases": "rename leases/000000.tmp 1 before",
    "while the leases are removed": "unlink leases/000000.tmp 3 after",
}

FREEZES = {
    "before a lease": "create leases/ 2 before stop",
    "with an empty lease": "create leases/ 2 within stop",
    "before a result is written": "create results/ 2 before stop",
    "before a result has its name": "rename results/ 2 before stop",
    "before a result is published": "symlink results/ 2 before stop",
    "in a beat": "overwrite session 3 before stop",
}


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return quick_run(tmp_path / "run")


@pytest.mark.parametrize("point", KILLS.values(), ids=KILLS.keys())
def test_an_agent_killed_at_any_point_costs_nothing_but_time(run: FabricatedRun, point: str) -> None:
    code, said = end_of(faulty_agent(run, point, engine=SLOW if point in IN_TIME else "fake"))
    assert code == -signal.SIGKILL, said
    before = fingerprints(run)
    finish(run)
    assert_done_once(run)
    assert before.items() <= fingerprints(run).items()


@pytest.mark.parametrize("point", SAVING_KILLS.values(), ids=SAVING_KILLS.keys())
def test_an_agent_killed_while_it_saves_loses_at_most_what_it_did_since(run: FabricatedRun, point: str) -> None:
    code, said = end_of(faulty_agent(run, point, engine="fake:rows_per_s=60,batch_tokens=8", save_s=0.05))
    assert code == -signal.SIGKILL, said
    before = fingerprints(run)
    finish(run)
    assert_done_once(run)
    assert before.items() <= fingerprints(run).items()


@pytest.mark.parametrize("point", COMPACTION_KILLS.values(), ids=COMPACTION_KILLS.keys())
def test_an_agent_killed_while_it_compacts_loses_no_row(tmp_path: Path, point: str) -> None:
    run = quick_run(tmp_path / "run", compacts=True)
    code, said = end_of(faulty_agent(run, point))
    assert code == -signal.SIGKILL, said
    before = assert_done_once(run)
    finish(run)
    assert assert_done_once(run) == before


@pytest.mark.parametrize("point", FREEZES.values(), ids=FREEZES.keys())
def test_an_agent_that_wakes_after_the_others_finished_changes_nothing(run: FabricatedRun, point: str) -> None:
    with watched(faulty_agent(run, point, engine="fake:rows_per_s=80,batch_tokens=8")) as zombie:
        wait_for(lambda: is_frozen(zombie))
        finish(run)
        before = fingerprints(run)
        assert len(before) == run.geometry.n_units
        zombie.send_signal(signal.SIGCONT)
        code, said = end_of(zombie)
    assert code == 0, said
    assert fingerprints(run) == before
    assert_done_once(run)


def test_two_agents_killed_one_after_the_other_on_the_same_unit_cost_nothing(run: FabricatedRun) -> None:
    for _ in range(2):
        code, _ = end_of(faulty_agent(run, "symlink results/ 1 before", engine="fake"))
        assert code == -signal.SIGKILL
    finish(run)
    rows = assert_done_once(run)
    assert max(row["generation"] for row in rows) >= 1


def test_agents_that_are_killed_while_others_work_leave_everything_done_once(run: FabricatedRun) -> None:
    with (
        watched(faulty_agent(run, "rename results/ 1 before", engine=SLOW)) as first,
        watched(faulty_agent(run, "symlink results/ 2 after", engine=SLOW)) as second,
    ):
        wait_for(lambda: len(agents.list_agents(run.store)) == 2)  # else the survivor may leave nothing for them to do
        with watched(agent(run, engine=SLOW)) as survivor:
            code, said = end_of(survivor)
        assert [first.wait(), second.wait()] == [-signal.SIGKILL, -signal.SIGKILL]
    assert code == 0, said
    assert_done_once(run)
    assert {event["generation"] for event in events(run, "published")} > {0}
