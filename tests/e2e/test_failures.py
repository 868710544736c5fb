"""Failures that are not preemption: poison rows, engines that die, bad nodes, stalls, stragglers."""

import signal
from pathlib import Path

import pytest
from e2e.running import events, finish, n_published, published, running, start_agent, wait_until
from fabricate import FabricatedRun, fabricate

from fsctx.agent.careful import CAREFUL_FROM
from fsctx.protocol import names


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    made = fabricate(tmp_path / "run", n_rows=48, unit_rows=8)
    manifest = made.root / names.MANIFEST
    text = manifest.read_text().replace('"ttl_s": 15.0', '"ttl_s": 1.0').replace('"hold_s": 30.0', '"hold_s": 0.2')
    manifest.write_text(text)
    return made


def test_a_row_that_kills_its_agents_is_found_and_named_and_everything_else_is_done(run: FabricatedRun) -> None:
    deaths = 0
    while n_published(run) < 6:
        [(code, said)] = finish(start_agent(run.root, "--engine", "fake:crash_row=19"))
        assert code in (0, -signal.SIGKILL), said
        deaths += code != 0
        assert deaths < 15
    bad = [row for row in published(run).to_pylist() if row["status"] != "ok"]
    assert [row["row"] for row in bad] == [19]
    assert "agents died again and again" in bad[0]["error"]
    assert deaths > CAREFUL_FROM
    assert run.store.list(names.bucket_folder(names.PARTIAL, 0)) == []


def test_an_engine_that_dies_is_loaded_again_and_its_rows_are_not_lost(run: FabricatedRun) -> None:
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake:lost_after=2,batch_tokens=8"))
    assert "loading the model again" in said
    assert len(events(run, "engine_died")) == 4
    assert code == 75
    finish(start_agent(run.root, "--engine", "fake"))
    assert {row["status"] for row in published(run).to_pylist()} == {"ok"}


def test_a_node_on_which_every_row_fails_publishes_nothing_and_leaves_with_75(run: FabricatedRun) -> None:
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake:broken=1"))
    assert code == 75
    assert "none succeeded" in said
    assert len([row for row in _rows(run) if row["status"] != "ok"]) <= 8
    finish(start_agent(run.root, "--engine", "fake"))
    assert n_published(run) == 6


def test_a_unit_of_an_agent_that_hangs_is_taken_over_after_the_stall_time(run: FabricatedRun) -> None:
    with running(run.root, "--engine", "fake:hang_row=3") as hanging:
        wait_until(lambda: any(event["unit"] == 0 for event in events(run, "leased")))
        [(code, _)] = finish(start_agent(run.root, "--engine", "fake", "--stall", "2", "--race", "0"))
        assert hanging.poll() is None
    assert code == 0
    assert n_published(run) == 6


def test_a_slow_agent_is_raced_and_the_first_result_counts(run: FabricatedRun) -> None:
    with running(run.root, "--engine", "fake:rows_per_s=0.1,batch_tokens=2", "--max-units", "1") as slow:
        wait_until(lambda: events(run, "leased"))
        [(code, _)] = finish(start_agent(run.root, "--engine", "fake:rows_per_s=200"))
        assert slow.poll() is None
    assert code == 0
    assert n_published(run) == 6


def _rows(run: FabricatedRun) -> list[dict[str, object]]:
    return published(run).to_pylist() if n_published(run) == 6 else []
