"""Real agent processes with the fake engine on a local disk: kills, orders, limits, bad units."""

import signal
from pathlib import Path

import pytest
from e2e.running import PROVENANCE, events, finish, n_published, published, running, start_agent, unit_table, wait_until
from fabricate import FabricatedRun, fabricate, finish_all

from fsctx.protocol import agents, failures, leases, names, orders
from fsctx.protocol.agents import AgentState
from fsctx.protocol.names import LeaseId

SLOW = "fake:rows_per_s=40,batch_tokens=8"
"""All of a run's units take three seconds."""

ROW_BY_ROW = "fake:rows_per_s=2,batch_tokens=2"
"""A unit takes five seconds, and what is asked of the agent meanwhile is done within half a second."""

TEN_S = "fake:rows_per_s=12,batch_tokens=8"
"""All of a run's units take ten seconds: time enough for what must come before the last one."""


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return quick(tmp_path / "run")


def quick(folder: Path, *, ttl_s: float = 1.0, **shape: int) -> FabricatedRun:
    """Fabricate a run whose time to live is a second, and of which an agent holds a second's work."""
    made = fabricate(folder, **{"n_rows": 120, "unit_rows": 10, **shape})
    manifest = folder / names.MANIFEST
    text = manifest.read_text().replace('"ttl_s": 15.0', f'"ttl_s": {ttl_s}').replace('"hold_s": 30.0', '"hold_s": 1.0')
    manifest.write_text(text)
    return made


def plain(run: FabricatedRun) -> list[dict[str, object]]:
    return published(run).drop_columns(PROVENANCE).to_pylist()


def sessions(run: FabricatedRun) -> list[agents.Session]:
    found = [agents.read_session(run.store, agent) for agent in agents.list_agents(run.store)]
    return [session for session in found if session is not None]


def test_a_killed_agents_units_are_finished_by_another_with_the_same_verdicts(tmp_path: Path) -> None:
    alone, shared = quick(tmp_path / "alone"), quick(tmp_path / "shared")
    finish(start_agent(alone.root, "--engine", "fake"))
    with running(shared.root, "--engine", SLOW) as victim, running(shared.root, "--engine", SLOW) as survivor:
        wait_until(lambda: n_published(shared) >= 3)
        victim.send_signal(signal.SIGKILL)
        [(code, said)] = finish(survivor)
    assert code == 0, said
    assert plain(shared) == plain(alone)
    assert len(plain(shared)) == 120


def test_an_agent_told_to_leave_saves_its_rows_and_the_next_one_adopts_them(run: FabricatedRun) -> None:
    with running(run.root, "--engine", ROW_BY_ROW, "--max-units", "1") as first:
        wait_until(lambda: any(session.progress > 0 for session in sessions(run)))
        first.send_signal(signal.SIGTERM)
        [(code, _)] = finish(first, timeout_s=60)
    assert code == 0
    [session] = sessions(run)
    assert session.state == AgentState.LEFT
    n_saved = sum(event["rows"] for event in events(run, "saved"))
    assert 0 < n_saved < 10
    finish(start_agent(run.root, "--engine", "fake"))
    adopted = [event for event in events(run, "leased") if event["adopted"]]
    assert [event["adopted"] for event in adopted] == [n_saved]
    table = unit_table(run, adopted[0]["unit"])
    assert table.column("agent").to_pylist().count(session.agent) == n_saved
    assert sorted(table.column("generation").to_pylist()) == [0] * n_saved + [1] * (10 - n_saved)
    assert run.store.list(names.bucket_folder(names.PARTIAL, 0)) == []


def test_a_frozen_agent_is_superseded_and_changes_nothing_when_it_wakes(run: FabricatedRun) -> None:
    with running(run.root, "--engine", ROW_BY_ROW, "--max-units", "1") as zombie:
        wait_until(lambda: any(session.progress > 0 for session in sessions(run)))
        zombie.send_signal(signal.SIGSTOP)
        finish(start_agent(run.root, "--engine", "fake"))
        before = published(run)
        zombie.send_signal(signal.SIGCONT)
        [(code, _)] = finish(zombie)
    assert code == 0
    assert published(run).equals(before)
    assert len(events(run, "lost")) == 1


def test_stop_makes_agents_save_and_leave_and_later_agents_work(run: FabricatedRun) -> None:
    with running(run.root, "--engine", TEN_S) as agent:
        wait_until(lambda: n_published(run) >= 1)
        orders.give_order(run.store, "stop")
        [(code, said)] = finish(agent, timeout_s=60)
    assert code == 0
    assert "told to stop" in said
    assert n_published(run) < 12
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake", "--since-order", "0"))
    assert code == 0
    assert "told to stop" in said
    finish(start_agent(run.root, "--engine", "fake"))
    assert n_published(run) == 12


def test_drain_lets_agents_finish_what_they_hold(run: FabricatedRun) -> None:
    with running(run.root, "--engine", TEN_S) as agent:
        wait_until(lambda: n_published(run) >= 1)
        orders.give_order(run.store, "drain")
        [(code, said)] = finish(agent, timeout_s=45)
    assert code == 0
    assert "told to drain" in said
    leased = {event["unit"] for event in events(run, "leased")}
    assert len(leased) == n_published(run) < 12


def test_an_agent_with_nothing_to_do_succeeds_without_loading(run: FabricatedRun) -> None:
    finish_all(run)
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake:load_s=60"), timeout_s=45)
    assert code == 0
    assert "every unit is done" in said


def test_an_agent_leaves_after_max_units(run: FabricatedRun) -> None:
    [(code, _)] = finish(start_agent(run.root, "--engine", "fake", "--max-units", "5"))
    assert code == 0
    assert n_published(run) == 5


def test_an_agent_leaves_before_its_walltime_ends(tmp_path: Path) -> None:
    run = quick(tmp_path / "run", n_rows=1200)  # half a minute's work, of which six seconds are allowed
    [(code, said)] = finish(start_agent(run.root, "--engine", SLOW, "--walltime", "16"), timeout_s=45)
    assert code == 0
    assert "walltime" in said
    assert 0 < n_published(run) < 120


def test_an_idle_agent_leaves_when_asked_to(tmp_path: Path) -> None:
    run = quick(tmp_path / "run", ttl_s=15.0)  # nobody takes the other one's unit because a beat came late
    with running(run.root, "--engine", "fake:hang_row=0", "--max-units", "12") as hanging:
        wait_until(lambda: leases.owner_of(run.store, LeaseId(0, 0)))
        [(code, said)] = finish(
            start_agent(run.root, "--engine", "fake", "--idle-exit", "0.5", "--race", "0"), timeout_s=90
        )
        assert hanging.poll() is None
    assert code == 0
    assert "idle" in said


def test_a_damaged_shard_fails_its_units_alone_and_the_agent_says_so(run: FabricatedRun) -> None:
    shard = run.root / names.shard(1)
    shard.write_bytes(b"PAR1 no longer")
    [(code, _)] = finish(start_agent(run.root, "--engine", "fake"))
    assert code == 4
    assert n_published(run) == 10
    assert "shard-00001.parquet" in failures.read_failure(run.store, 2).reason


def test_a_bad_row_gets_an_error_and_its_unit_is_published(run: FabricatedRun) -> None:
    [(code, _)] = finish(start_agent(run.root, "--engine", "fake:fail_row=17"))
    assert code == 0
    bad = [row for row in published(run).to_pylist() if row["status"] != "ok"]
    assert [(row["row"], row["status"]) for row in bad] == [(17, "error")]
    assert "asked to fail" in bad[0]["error"]


def test_empty_claims_become_error_rows(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=2, claims=["a", "", None, "  "])
    [(code, _)] = finish(start_agent(run.root, "--engine", "fake"))
    assert code == 0
    assert published(run).column("status").to_pylist() == ["ok", "error", "error", "error"]


def test_a_sweep_loads_each_model_once_per_agent(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=40, unit_rows=2, models=("m1", "m2"), templates=("t1", "t2", "t3"))
    [(code, _)] = finish(start_agent(run.root, "--engine", "fake"))
    assert code == 0
    assert len(events(run, "loaded")) == 2
    assert len(events(run, "warmed_up")) == 6
    assert len(published(run)) == 240


@pytest.mark.parametrize("mode", ["partial", "agnostic"])
def test_less_context_loads_the_model_for_each_unit(run: FabricatedRun, mode: str) -> None:
    [(code, _)] = finish(start_agent(run.root, "--engine", "fake", "--context", mode))
    assert code == 0
    assert len(events(run, "loaded")) == 12
    assert n_published(run) == 12


def test_a_device_that_cannot_hold_the_model_leaves_with_75_and_leases_nothing(run: FabricatedRun) -> None:
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake:unfit=1"))
    assert code == 75
    assert "try another node" in said
    assert events(run, "leased") == []


def test_a_signal_ends_even_a_long_load(run: FabricatedRun) -> None:
    with running(run.root, "--engine", "fake:load_s=600") as agent:
        wait_until(lambda: any(session.state == AgentState.LOADING for session in sessions(run)))
        agent.send_signal(signal.SIGTERM)
        [(code, _)] = finish(agent, timeout_s=60)
    assert code == 0
    assert [session.state for session in sessions(run)] == [AgentState.LEFT]


def test_a_lease_whose_file_is_empty_is_treated_like_a_dead_owners(run: FabricatedRun) -> None:
    (run.root / names.lease(0, LeaseId(3, 0))).touch()
    [(code, _)] = finish(start_agent(run.root, "--engine", "fake"))
    assert code == 0
    assert set(unit_table(run, 3).column("generation").to_pylist()) == {1}


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    [(code, said)] = finish(start_agent(tmp_path, "--engine", "fake"))
    assert code == 2
    assert said.startswith("fsctx: ")
    assert "is not a run" in said
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_a_newer_schema_is_refused(run: FabricatedRun) -> None:
    manifest = run.root / names.MANIFEST
    manifest.write_text(manifest.read_text().replace('"schema": 1', '"schema": 99'))
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake"))
    assert code == 2
    assert "schema 99" in said


def test_a_full_disk_is_waited_out(small_disk: Path) -> None:
    run = quick(small_disk / "run")
    filler = small_disk / "filler"
    with running(run.root, "--engine", TEN_S) as agent:
        wait_until(lambda: n_published(run) >= 1)
        with pytest.raises(OSError, match="No space"):
            filler.write_bytes(b"x" * (64 << 20))
        assert agent.stderr is not None
        complaint = agent.stderr.readline()
        filler.unlink()
        [(code, _)] = finish(agent)
    assert "No space" in complaint
    assert code == 0
    assert len(published(run)) == 120
