"""An agent whose model is in several processes."""

from pathlib import Path

import psutil
import pytest
from e2e.running import finish, start_agent, wait_until
from e2e.test_contexts import events
from planning import make_plan

pytest.importorskip("transformers")

from tiny_models import make_model


@pytest.mark.slow
def test_an_agent_that_loses_a_rank_loads_again_and_does_all_the_work(tmp_path: Path) -> None:
    claims = tmp_path / "claims.txt"
    claims.write_text("".join(f"claim {number}\n" for number in range(1500)))
    models = (str(make_model(tmp_path / "model")),)
    make_plan(claims, run=tmp_path / "run", models=models, unit_rows=10, ttl_s=1.0)  # its first words come early
    agent = start_agent(tmp_path / "run", "--device", "cpu", "--tp", "2", "--no-peers")
    try:
        wait_until(lambda: events(tmp_path / "run", "inferred"), timeout_s=120)
        ranks = [child for child in psutil.Process(agent.pid).children() if "spawn_main" in " ".join(child.cmdline())]
        assert len(ranks) == 2
        ranks[1].kill()
    finally:
        ((code, said),) = finish(agent, timeout_s=200)
    assert code == 0, said
    assert "the engine died (rank 1 ended with exit code -9" in said
    assert not any(rank.is_running() for rank in ranks)


@pytest.mark.slow
def test_with_less_context_each_unit_is_computed_by_a_new_process_even_where_the_home_cannot_be_written(
    tmp_path: Path,
) -> None:
    claims = tmp_path / "claims.txt"
    claims.write_text("".join(f"claim {number}\n" for number in range(4)))
    make_plan(claims, run=tmp_path / "run", models=(str(make_model(tmp_path / "model")),), unit_rows=2)
    options = ("--device", "cpu", "--context", "partial", "--no-peers")
    environ = {"HOME": "/proc", "XDG_CACHE_HOME": "", "HF_HOME": ""}  # nobody can make a file there
    ((code, said),) = finish(start_agent(tmp_path / "run", *options, environ=environ), timeout_s=300)
    assert code == 0, said
    assert len(events(tmp_path / "run", "loaded")) == 2
    assert len(events(tmp_path / "run", "published")) == 2
