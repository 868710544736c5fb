"""Who decides a rung, when, and that nothing but published verdicts enters into it."""

from pathlib import Path
from random import Random

import pytest
from fabricate import Undurable
from sweeping import MINE, OTHERS, Worker, look_at_all, plan_sweep, referee

from fsctx.agent.runfiles import RunFiles, read_run
from fsctx.agent.search import Search
from fsctx.coordinator.retry import retry
from fsctx.errors import StoreError
from fsctx.protocol import decisions, failures, leases, names
from fsctx.protocol.decisions import read_decisions, read_extent
from fsctx.protocol.names import LeaseId
from fsctx.store import PosixStore

ACCURACIES = {"good": 0.9, "fair": 0.85, "poor": 0.3}


@pytest.fixture
def run(tmp_path: Path) -> RunFiles:
    return plan_sweep(tmp_path / "sweep", ACCURACIES, n_rows=400, unit_rows=10)


def worker(run: RunFiles) -> Worker:
    return Worker(run=run, accuracies=ACCURACIES)


def first_rung(run: RunFiles) -> list[int]:
    return list(read_extent(run.store, run.manifest).open_units())


def names_of(run: RunFiles, tasks: list[int]) -> list[str]:
    return [run.manifest.tasks[task].template for task in tasks]


def give_up(run: RunFiles, unit: int) -> None:
    leases.take(run.store, LeaseId(unit, 0), "gone")
    failure = failures.Failure(unit=unit, generation=0, reason="damaged", agent="gone", host="host")
    failures.record_failure(run.store, failure)


def test_whoever_finds_the_rung_over_drops_who_is_clearly_worse_and_opens_the_next(run: RunFiles) -> None:
    worker(run).finish(first_rung(run))
    judge = referee(run)
    look_at_all(judge.search, run)
    assert judge.search.unfinished == []
    assert not judge.search.is_finished, "more may be opened"
    assert judge.turn(MINE, 0.0)
    (decision,) = read_decisions(run.store, run.manifest)
    assert names_of(run, [judged.task for judged in decision.tasks]) == ["good", "fair", "poor"]
    assert names_of(run, [judged.task for judged in decision.dropped]) == ["poor"]
    assert decision.tasks[0].rows == 100
    look_at_all(judge.search, run)
    extent = read_extent(run.store, run.manifest)
    free = {lease_id.unit for lease_id in judge.search.next_step(0.0)[0]}
    assert free
    assert all(extent.is_open(unit) for unit in free)


def test_nothing_is_decided_while_a_unit_is_held_and_it_is_looked_for(run: RunFiles) -> None:
    *rest, last = first_rung(run)
    worker(run).finish(rest)
    leases.take(run.store, LeaseId(last, 0), "other")
    judge = referee(run)
    look_at_all(judge.search, run)
    assert not judge.turn(MINE, 0.0)
    assert list(judge.search.leased) == [LeaseId(last, 0)]
    worker(run).finish([last])
    assert not judge.turn(MINE, 0.0), "what the search has not seen to be over is not"
    judge.search.begin_round(judge.search.unfinished)
    look_at_all(judge.search, run)
    assert judge.turn(MINE, 0.0)


def test_who_has_not_the_turn_decides_only_when_nobody_else_does(run: RunFiles) -> None:
    worker(run).finish(first_rung(run))
    judge = referee(run)
    look_at_all(judge.search, run)
    ttl_s = run.manifest.ttl_s
    assert not judge.turn(OTHERS, 0.0)
    assert not judge.turn(OTHERS, ttl_s), "not before the time to live"
    assert judge.turn(OTHERS, 2 * ttl_s)


def test_all_agents_go_by_the_decision_that_was_published_first(run: RunFiles) -> None:
    worker(run).finish(first_rung(run))
    late, first = referee(run, "late-1-b"), referee(run, "first-1-a")
    for judge in (late, first):
        look_at_all(judge.search, run)
    given_up = late._look()
    assert given_up is not None
    tasks = late._judge(given_up)
    assert first.turn(MINE, 0.0)
    assert tasks == first.made[0].tasks, "both decide the same"
    assert late.turn(MINE, 0.0)
    assert late.made == first.made
    assert late.made[0].agent == "first-1-a"


def test_a_decision_is_not_changed_where_its_publication_raised_an_error(run: RunFiles) -> None:
    class Moody(PosixStore):
        is_calm = False

        def publish(self, name: str, target: str) -> str:
            winner = super().publish(name, target)
            if self.is_calm:
                return winner
            raise StoreError("the reply was lost")

    worker(run).finish(first_rung(run))
    store = Moody(run.store.root, system=Undurable())
    judge = referee(read_run(store))
    look_at_all(judge.search, run)
    times = iter(["first", "second"])
    judge.utc = lambda: next(times)
    for _ in range(2):
        with pytest.raises(StoreError, match="the reply was lost"):
            judge._decide()
    store.is_calm = True
    assert judge._decide()
    (decision,) = read_decisions(run.store, run.manifest)
    assert decision.time == "first"


def test_units_that_were_given_up_keep_nobody_waiting(run: RunFiles) -> None:
    lost, *rest = first_rung(run)
    give_up(run, lost)
    worker(run).finish(rest)
    judge = referee(run)
    look_at_all(judge.search, run)
    assert judge.turn(MINE, 0.0)
    rows = {judged.task: judged.rows for judged in judge.made[0].tasks}
    assert rows == {0: 90, 1: 100, 2: 100}


def test_a_unit_put_back_is_found_by_the_one_who_would_decide(run: RunFiles) -> None:
    lost, *rest = first_rung(run)
    give_up(run, lost)
    worker(run).finish(rest)
    judge = referee(run)
    look_at_all(judge.search, run)
    retry(run.store, [], token="x")
    assert not judge.turn(MINE, 0.0)
    assert list(judge.search.leased) == [LeaseId(lost, 1)]


def test_an_agent_that_cannot_do_what_is_left_waits_for_those_who_hold_it_and_for_no_others(run: RunFiles) -> None:
    n = run.manifest.geometry.n_slices
    worker(run).finish(unit for unit in first_rung(run) if unit < 2 * n)
    search = Search(run.manifest.geometry, run.manifest.tasks, Random(1), extent=read_extent(run.store, run.manifest))
    search.refuse([2])
    judge = referee(run, search=search)
    look_at_all(search, run)
    leases.take(run.store, LeaseId(2 * n, 0), "other")
    assert not judge.turn(MINE, 0.0)
    assert not judge.is_stuck
    worker(run).finish([2 * n])
    assert not judge.turn(MINE, 0.0)
    assert judge.is_stuck


def test_an_agent_that_must_leave_decides_nothing(run: RunFiles) -> None:
    worker(run).finish(first_rung(run))
    judge = referee(run, leave="SIGTERM was received")
    look_at_all(judge.search, run)
    assert not judge.turn(MINE, 0.0)
    assert run.store.list(names.SWEEP) == []


def test_a_result_that_is_listed_and_cannot_be_seen_yet_is_no_reason_to_decide_without_it(
    run: RunFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker(run).finish(first_rung(run))
    judge = referee(run)
    look_at_all(judge.search, run)
    target = PosixStore.target
    unseen = names.published(0, first_rung(run)[3])
    monkeypatch.setattr(PosixStore, "target", lambda self, name: None if name == unseen else target(self, name))
    with pytest.raises(StoreError, match="does not see its result yet"):
        judge.turn(MINE, 0.0)
    assert decisions.read_decisions(run.store, run.manifest) == ()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("budget", [None, 0.5])
def test_of_eight_templates_the_one_is_found_that_the_full_sweep_finds_at_half_the_cost(
    tmp_path: Path, seed: int, budget: float | None
) -> None:
    accuracies = dict(
        zip("abcdefgh", Random(seed).sample([0.75, 0.6, 0.55, 0.5, 0.5, 0.45, 0.4, 0.35], 8), strict=True)
    )
    n_rows = 1_000
    most = None if budget is None else int(budget * 8 * n_rows)
    run = plan_sweep(tmp_path / f"seed-{seed}", accuracies, n_rows=n_rows, unit_rows=12, budget=most)
    sweeper = Worker(run=run, accuracies=accuracies)
    sweeper.sweep()
    extent = read_extent(run.store, run.manifest)
    n_done = sum(run.manifest.geometry.place(unit).n_rows for unit in sweeper.done)
    assert n_done == 8 * n_rows - extent.dropped_rows
    assert n_done <= 4 * n_rows
    on_all = {task: sweeper.accuracy(task) for task in range(8)}
    kept = [task for task in range(8) if extent.planned[task] == run.manifest.geometry.n_slices]
    assert max(kept, key=lambda task: on_all[task]) == max(on_all, key=lambda task: on_all[task])
