"""Real agents on sweeps: how often contexts are loaded, and who is dropped."""

from collections import Counter
from pathlib import Path

from e2e.running import events_by_agent, finish, published, running, start_agent, wait_until
from fabricate import fabricate
from sweeping import plan_sweep

from fsctx.coordinator.collect.collect import Request, collect
from fsctx.coordinator.status import read_status
from fsctx.protocol.decisions import read_decisions


def test_two_agents_load_each_context_of_a_sweep_once_at_most(tmp_path: Path) -> None:
    run = fabricate(
        tmp_path / "run", n_rows=120, unit_rows=10, models=("one", "two", "three"), templates=("brief", "long")
    )
    engine = "fake:rows_per_s=80,batch_tokens=8"  # nine seconds for one alone: neither begins too late to have some
    ended = finish(*(start_agent(run.root, "--engine", engine) for _ in range(2)))
    assert [code for code, _ in ended] == [0, 0], ended
    assert published(run).num_rows == 720
    by_agent = events_by_agent(run.root)
    assert len(by_agent) == 2
    for events in by_agent.values():
        loads = Counter(event["context"] for event in events if event["event"] == "loaded")
        bound = Counter(event["task"] for event in events if event["event"] == "warmed_up")
        assert loads
        assert max(loads.values()) == 1, loads
        assert max(bound.values()) == 1, bound


def test_agents_of_which_one_is_killed_drop_the_worse_templates_and_agree_on_it(tmp_path: Path) -> None:
    accuracies = {"good": 0.9, "fair": 0.5, "poor": 0.3}
    run = plan_sweep(tmp_path / "sweep", accuracies, n_rows=600, unit_rows=12, ttl_s=2.0)
    engine = "fake:rows_per_s=400," + ",".join(f"accuracy:{name}={share}" for name, share in accuracies.items())
    with running(run.store.root, "--engine", engine) as victim:
        others = [start_agent(run.store.root, "--engine", engine) for _ in range(2)]
        wait_until(lambda: read_decisions(run.store, run.manifest))
        victim.kill()
        ended = finish(*others)
    assert [code for code, _ in ended] == [0, 0], ended
    summary = collect(run.store, Request())
    assert summary.sweep is not None
    assert [summary.sweep.names[task] for task in summary.sweep.survivors] == ["fake, good"]
    assert {task.template for task in summary.sweep.dropped} == {"fair", "poor"}
    assert (summary.missing, summary.duplicates) == (0, 0)
    assert summary.rows + summary.dropped == 1800
    assert read_status(run.store).state == "done"
    again = finish(start_agent(run.store.root, "--engine", engine))
    assert again[0][0] == 0, "nothing to do is a success"
