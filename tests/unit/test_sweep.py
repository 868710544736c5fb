"""Sweeps that stop early: what is open, who is dropped, and that a decision stands."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fabricate import FabricatedRun, fabricate

from fsctx.agent.judging import Marks, chance_of_worse, judge
from fsctx.coordinator.plan.sweeping import divide
from fsctx.errors import Damaged, InputError
from fsctx.protocol import codec, decisions, names
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.sweep import Decision, Judged, Reason, Sweep, extent_of

SWEEP = Sweep(ends=(2, 4, 8), level=0.05)


def geometry(n_rows: int = 80, *, unit_rows: int = 10, n_tasks: int = 3, stride: int = 3) -> Geometry:
    return Geometry(n_rows=n_rows, unit_rows=unit_rows, slices_per_shard=8, n_tasks=n_tasks, stride=stride)


def decision(rung: int, *dropped: int, agent: str = "a") -> Decision:
    tasks = tuple(Judged(task=task, rows=9, right=3, dropped=Reason.WORSE) for task in dropped)
    return Decision(rung=rung, tasks=(Judged(task=0, rows=9, right=8), *tasks), agent=agent, time="")


def marks(*right: int, n: int = 100) -> Marks:
    """A task that is right on the first rows of each hundred."""
    is_right = np.concatenate([np.arange(n) < share for share in right])
    return Marks(rows=np.arange(len(is_right)), is_right=is_right)


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    made = fabricate(tmp_path / "run", n_rows=80, unit_rows=10, templates=("x", "y", "z"))
    made.store.make_folder(names.SWEEP)
    return replace(made, manifest=replace(made.manifest, sweep=SWEEP))


def test_each_slice_has_one_position_and_each_row_is_before_the_end_once() -> None:
    for n_rows in (80, 73, 9):
        shape = geometry(n_rows, stride=3)
        assert sorted(shape.position_of(number) for number in range(shape.n_slices)) == list(range(shape.n_slices))
        places = [shape.place(unit) for unit in range(shape.n_slices)]
        for end in range(shape.n_slices + 1):
            assert shape.rows_before(end) == sum(place.n_rows for place in places[:end])


def test_all_tasks_begin_with_the_first_rung_and_survivors_get_the_next() -> None:
    shape = geometry()
    begun = extent_of(shape, SWEEP)
    assert list(begun.open_units()) == [0, 1, 8, 9, 16, 17]
    assert begun.dropped_units == []
    then = extent_of(shape, SWEEP, [decision(0, 1)])
    assert list(then.open_units()) == [0, 1, 2, 3, 8, 9, 16, 17, 18, 19]
    assert then.dropped_units == [range(10, 16)]
    assert then.dropped_rows == 60
    assert then.waiting == [0, 2]


def test_a_task_that_is_left_alone_has_all_claims_at_once() -> None:
    alone = extent_of(geometry(), SWEEP, [decision(0, 1, 2)])
    assert alone.open == (8, 2, 2)
    assert alone.waiting == []


def test_a_bucket_is_kept_in_mind_only_where_units_may_be_opened_in_it() -> None:
    extent = extent_of(geometry(), SWEEP, [decision(0, 1)])
    assert extent.may_grow_in(range(4, 6))
    assert not extent.may_grow_in(range(10, 16)), "dropped"
    assert not extent.may_grow_in(range(4)), "open already"
    assert extent.tasks_open_in(range(2, 20)) == [0, 1, 2]
    assert extent.tasks_open_in(range(4, 8)) == []


def test_who_is_clearly_worse_is_dropped_and_who_may_be_as_good_goes_on() -> None:
    found = judge({0: marks(70), 1: marks(40), 2: marks(68)}, SWEEP, left=None, after=())
    assert [(judged.task, judged.dropped) for judged in found] == [(0, None), (2, None), (1, Reason.WORSE)]
    assert [judged.right for judged in found] == [70, 68, 40]


def test_the_chance_is_that_of_the_sign_test() -> None:
    ten_apart = marks(70), marks(60)
    assert chance_of_worse(*ten_apart) == pytest.approx(0.5**10), "ten rows, each of them the leader's"
    one_each = Marks(rows=np.arange(2), is_right=np.array([True, False])), marks(1, n=1)
    assert chance_of_worse(*one_each) == 1.0
    no_common = Marks(rows=np.array([500]), is_right=np.array([True])), marks(0)
    assert chance_of_worse(*no_common) == 1.0


def test_rows_are_compared_by_their_numbers_whatever_their_order() -> None:
    one, other = marks(70), marks(60)
    turned = Marks(rows=other.rows[::-1].copy(), is_right=other.is_right[::-1].copy())
    assert chance_of_worse(one, turned) == chance_of_worse(one, other)


def test_a_budget_drops_the_last_of_those_that_may_be_as_good() -> None:
    tied = {0: marks(70), 1: marks(69), 2: marks(68)}
    after = [0, 100, 150, 250]
    assert [judged.dropped for judged in judge(tied, SWEEP, left=250, after=after)] == [None] * 3
    assert [judged.dropped for judged in judge(tied, SWEEP, left=249, after=after)] == [None, None, Reason.BUDGET]
    assert [judged.dropped for judged in judge(tied, SWEEP, left=0, after=after)] == [None, *[Reason.BUDGET] * 2]


def test_tasks_without_marks_are_no_error_and_drop_nobody() -> None:
    nothing = Marks(rows=np.array([], np.int64), is_right=np.array([], np.bool_))
    assert not any(judged.dropped for judged in judge({0: nothing, 1: nothing}, SWEEP, left=None, after=()))


def test_the_least_cost_halves_after_each_rung() -> None:
    assert SWEEP.least_rows(geometry(), n_tasks=3, rung=0) == 3 * 20 + 2 * 20 + 1 * 40
    assert SWEEP.least_rows(geometry(), n_tasks=3, rung=2) == 3 * 40


@pytest.mark.parametrize("seed", range(20))
def test_no_course_of_a_sweep_costs_more_than_its_budget(seed: int) -> None:
    chance = np.random.default_rng(seed)
    shape, sweep = divide(geometry(2000, n_tasks=8, stride=1), n_labelled=2000, budget=None)
    least = sweep.least_rows(shape, n_tasks=8, rung=0)
    budget = int(chance.integers(least, 16_000))
    sweep = replace(sweep, budget=budget)
    made: list[Decision] = []
    while (extent := extent_of(shape, sweep, made)).waiting:
        tied = {task: marks(int(chance.integers(60, 70))) for task in extent.waiting}
        rung = len(made)
        after = [sweep.least_rows(shape, n_tasks=k, rung=rung + 1) for k in range(len(tied) + 1)]
        spent = sum(shape.rows_before(min(end, sweep.ends[rung])) for end in extent.planned)
        made.append(Decision(rung=rung, tasks=judge(tied, sweep, left=budget - spent, after=after), agent="a", time=""))
    assert 16_000 - extent.dropped_rows <= budget


def test_a_plan_doubles_its_samples_and_spreads_them_over_the_claims() -> None:
    shape, sweep = divide(geometry(10_000, n_tasks=8, stride=1), n_labelled=10_000, budget=None)
    assert sweep.ends == (16, 32, 63, 125, 250, 500, 1000)
    assert sweep.level == pytest.approx(0.05 / (6 * 7))
    tenths = [shape.place(position).slice // 100 for position in range(16)]
    assert set(tenths) == set(range(10)), "the first rung has slices of every tenth of the input"


def test_the_first_rung_has_a_hundred_claims_that_tell_tasks_apart() -> None:
    shape, sweep = divide(geometry(10_000, stride=1), n_labelled=500, budget=None)
    assert [shape.rows_before(end) for end in sweep.ends] == [2500, 5000, 10_000]


@pytest.mark.parametrize(("n_rows", "unit_rows", "n_labelled"), [(150, 10, 150), (1000, 100, 1000), (1000, 10, 190)])
def test_too_few_claims_labels_or_units_are_refused_with_what_to_do(
    n_rows: int, unit_rows: int, n_labelled: int
) -> None:
    with pytest.raises(InputError, match=r"too few to begin with .* pass more of them, a smaller --unit-rows, or no"):
        divide(geometry(n_rows, unit_rows=unit_rows, stride=1), n_labelled=n_labelled, budget=None)


def test_a_budget_that_cannot_suffice_is_refused_with_the_least_that_does() -> None:
    shape = geometry(10_000, n_tasks=8, stride=1)
    with pytest.raises(InputError, match=r"takes (.*) inferences .*pass at least") as refused:
        divide(shape, n_labelled=10_000, budget=100)
    least = int(str(refused.value).rpartition("at least ")[2])
    assert divide(shape, n_labelled=10_000, budget=least)[1].budget == least


def test_the_first_decision_counts_for_everybody(run: FabricatedRun) -> None:
    first, late = decision(0, 1, agent="a-1-x"), decision(0, 2, agent="b-1-x")
    assert decisions.publish(run.store, first) == first
    assert decisions.publish(run.store, late) == first
    assert decisions.publish(run.store, first) == first, "safe to repeat"
    assert decisions.read_decisions(run.store, run.manifest) == (first,)
    assert sorted(run.store.list(names.SWEEP)) == ["000", "000.a-1-x.json"], "nothing is left of the late one"


def test_decisions_are_read_up_to_the_first_rung_that_has_none(run: FabricatedRun) -> None:
    decisions.publish(run.store, decision(1, 2))
    assert decisions.read_decisions(run.store, run.manifest) == ()
    decisions.publish(run.store, decision(0, 1))
    assert [found.rung for found in decisions.read_decisions(run.store, run.manifest)] == [0, 1]


@pytest.mark.parametrize("target", ["../run.json", "001.a.json", "000.gone.json", "000.torn.json", "000.other.json"])
def test_a_decision_that_no_agent_made_is_damage(run: FabricatedRun, target: str) -> None:
    run.store.replace(f"{names.SWEEP}/000.torn.json", b"{")
    run.store.replace(f"{names.SWEEP}/000.other.json", codec.encode(decision(1, 2)))
    (run.root / names.decision(0)).symlink_to(target)
    with pytest.raises(Damaged, match="restore it"):
        decisions.read_decisions(run.store, run.manifest)
