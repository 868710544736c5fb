"""Real agents on a sweep: how often contexts are loaded."""

from collections import Counter
from pathlib import Path

from e2e.running import events_by_agent, finish, published, start_agent
from fabricate import fabricate


def test_two_agents_load_each_context_of_a_sweep_once_at_most(tmp_path: Path) -> None:
    run = fabricate(
        tmp_path / "run", n_rows=120, unit_rows=10, models=("one", "two", "three"), templates=("brief", "long")
    )
    ended = finish(*(start_agent(run.root, "--engine", "fake:rows_per_s=300,batch_tokens=8") for _ in range(2)))
    assert [code for code, _ in ended] == [0, 0], ended
    assert published(run).num_rows == 720
    by_agent = events_by_agent(run)
    assert len(by_agent) == 2
    for events in by_agent.values():
        loads = Counter(event["context"] for event in events if event["event"] == "loaded")
        bound = Counter(event["task"] for event in events if event["event"] == "warmed_up")
        assert loads
        assert max(loads.values()) == 1, loads
        assert max(bound.values()) == 1, bound
