from random import Random

from fsctx.agent.search import VIEW_S, Search
from fsctx.protocol.buckets import BucketView
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.manifest import Task
from fsctx.protocol.names import LeaseId

ONE = [Task(context="c", model="m", template="t", method="score")]
SWEEP = [
    Task(context=context, model=context, template=template, method="score")
    for context in ("c1", "c2")
    for template in ("t1", "t2")
]


def geometry(n_units: int, n_tasks: int = 1) -> Geometry:
    return Geometry(n_rows=n_units // n_tasks, unit_rows=1, slices_per_shard=256, n_tasks=n_tasks)


def view(search_geometry: Geometry, bucket: int, **known: object) -> BucketView:
    units = set(search_geometry.units_of(bucket))
    done = frozenset(known.get("done", ()))  # type: ignore[call-overload]
    leased = dict(known.get("leased", {}))  # type: ignore[call-overload]
    return BucketView(
        bucket=bucket,
        free=tuple(sorted(units - done - leased.keys())),
        leased=leased,
        done=done,
        failed=frozenset(),
    )


def look_at_all(search: Search, shape: Geometry, **known: object) -> None:
    while True:
        _, bucket = search.next_step(0.0)
        if bucket is None:
            return
        search.saw(view(shape, bucket, **known), 0.0)


def test_every_bucket_is_looked_at_before_there_is_nothing_to_do() -> None:
    shape = geometry(1000)
    search = Search(shape, ONE, Random(1))
    looked = []
    while (bucket := search.next_step(0.0)[1]) is not None:
        looked.append(bucket)
        search.saw(view(shape, bucket, leased=dict.fromkeys(shape.units_of(bucket), 0)), 0.0)
    assert sorted(looked) == [0, 1, 2, 3]
    assert not search.is_finished
    assert len(search.leased) == 1000


def test_agents_begin_in_different_places() -> None:
    shape = geometry(100)
    first = set()
    for seed in range(20):
        search = Search(shape, ONE, Random(seed))
        search.saw(view(shape, 0), 0.0)
        first.add(search.next_step(0.0)[0][0])
    assert len(first) > 10


def test_a_tried_lease_is_not_free_any_more() -> None:
    shape = geometry(3)
    search = Search(shape, ONE, Random(1))
    search.saw(view(shape, 0), 0.0)
    search.tried(LeaseId(1, 0))
    assert search.leased == {}
    search.stands(LeaseId(1, 0), 5.0)
    free, _ = search.next_step(0.0, 3)
    assert {lease_id.unit for lease_id in free} == {0, 2}
    assert search.leased == {LeaseId(1, 0): 5.0}


def test_a_lease_is_known_until_its_next_generation_or_its_unit_s_end_is_seen() -> None:
    shape = geometry(3)
    search = Search(shape, ONE, Random(1))
    assert not search.is_leased(LeaseId(1, 0))
    search.stands(LeaseId(1, 0), 5.0)
    assert search.is_leased(LeaseId(1, 0))
    search.stands(LeaseId(1, 1), 6.0)
    assert not search.is_leased(LeaseId(1, 0))
    search.saw(view(shape, 0, done=[1]), 7.0)
    assert not search.is_leased(LeaseId(1, 1))


class _Careful(Geometry):
    """Counts how often a unit's task is asked for."""

    n_asked = 0

    def task_of(self, unit: int) -> int:
        _Careful.n_asked += 1
        return super().task_of(unit)


def test_a_step_looks_at_no_more_units_than_are_wanted_of_one_task() -> None:
    shape = _Careful(n_rows=40_000, unit_rows=1, slices_per_shard=256, n_tasks=1)
    search = Search(shape, ONE, Random(1))
    search.settle(0)
    for bucket in range(shape.n_buckets):
        search.saw(view(shape, bucket), 0.0)
    _Careful.n_asked = 0
    free, _ = search.next_step(0.0, 5)
    assert len(set(free)) == 5
    assert _Careful.n_asked < 20


def test_free_leases_of_one_step_are_of_one_task() -> None:
    shape = geometry(40, n_tasks=4)
    search = Search(shape, SWEEP, Random(1))
    look_at_all(search, shape)
    free, _ = search.next_step(0.0, 40)
    assert len(free) == 10
    assert len({shape.task_of(lease_id.unit) for lease_id in free}) == 1


def test_a_run_is_finished_when_all_buckets_are() -> None:
    shape = geometry(300)
    search = Search(shape, ONE, Random(1))
    for bucket in range(2):
        assert not search.is_finished
        search.saw(view(shape, bucket, done=shape.units_of(bucket)), 0.0)
    assert search.is_finished
    assert search.next_step(0.0) == ((), None)


def test_an_old_view_is_looked_at_again_before_its_units_are_taken() -> None:
    shape = geometry(10)
    search = Search(shape, ONE, Random(1))
    search.saw(view(shape, 0), 0.0)
    assert search.next_step(VIEW_S)[0]
    assert search.next_step(VIEW_S + 1) == ((), 0)


def test_units_of_the_resident_task_come_first_then_those_of_its_context() -> None:
    shape = geometry(40, n_tasks=4)
    search = Search(shape, SWEEP, Random(1))
    search.settle(1)
    look_at_all(search, shape)
    order = []
    while free := search.next_step(0.0)[0]:
        order.append(shape.task_of(free[0].unit))
        search.tried(free[0])
    assert order[:20] == [1] * 10 + [0] * 10
    assert set(order[20:]) == {2, 3}


def test_buckets_of_the_resident_task_are_looked_at_before_others() -> None:
    shape = geometry(4 * 512, n_tasks=4)
    search = Search(shape, SWEEP, Random(1))
    search.settle(2)
    looked = []
    while (bucket := search.next_step(0.0)[1]) is not None:
        looked.append(bucket)
        search.saw(view(shape, bucket, leased=dict.fromkeys(shape.units_of(bucket), 0)), 0.0)
    assert set(looked[:2]) == {4, 5}
    assert set(looked[2:4]) == {6, 7}


def test_refused_tasks_are_left_to_others_and_do_not_keep_the_agent() -> None:
    shape = geometry(40, n_tasks=4)
    search = Search(shape, SWEEP, Random(1))
    look_at_all(search, shape)
    search.refuse([2, 3])
    look_at_all(search, shape)
    tasks = set()
    while free := search.next_step(0.0)[0]:
        tasks.add(shape.task_of(free[0].unit))
        search.tried(free[0])
    assert tasks == {0, 1}
    search.saw(view(shape, 0, done=range(20)), 0.0)
    assert search.is_finished


def test_contexts_on_this_node_come_before_those_that_must_be_fetched() -> None:
    shape = geometry(1024, n_tasks=4)
    search = Search(shape, SWEEP, Random(1))
    search.found_on_node({"c2"})
    look_at_all(search, shape)
    assert SWEEP[shape.task_of(search.next_step(0.0)[0][0].unit)].context == "c2"
    search.settle(0)
    look_at_all(search, shape)
    assert shape.task_of(search.next_step(0.0)[0][0].unit) == 0, "what is resident comes first all the same"


def test_buckets_of_contexts_on_this_node_are_looked_at_first() -> None:
    shape = geometry(4 * 256, n_tasks=4)
    for seed in range(5):
        search = Search(shape, SWEEP, Random(seed))
        search.found_on_node({"c1"})
        _, bucket = search.next_step(0.0)
        assert bucket in (0, 1)


def test_leases_of_the_resident_context_are_the_best_of_those_given_up() -> None:
    shape = geometry(40, n_tasks=4)
    search = Search(shape, SWEEP, Random(1))
    search.settle(2)
    order = search.best_first([LeaseId(0, 1), LeaseId(39, 1), LeaseId(20, 1)])
    assert [shape.task_of(lease_id.unit) for lease_id in order] == [2, 3, 0]
