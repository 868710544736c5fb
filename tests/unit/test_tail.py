"""The end of a run on a simulated clock: how many calls those who wait make, and how soon an orphan runs again."""

import pytest
from tailing import Tail

from fsctx.agent.rota import before_me, draw_up
from fsctx.agent.tail import DEPUTIES_FROM
from fsctx.protocol.geometry import bucket_of

TTL_S = 60.0
QUIET_FROM_S = 65.0
"""By then everybody looked around once."""


def _taken_again_s(tail: Tail, unit: int, since_s: float) -> float:
    return min(taken.at_s for taken in tail.taken if taken.lease_id.unit == unit) - since_s


def test_200_agents_with_150_units_left_make_fewer_than_50_calls_a_second_and_run_an_orphan_within_the_ttl() -> None:
    tail = Tail(n_agents=200, n_leased=150, n_open=6, n_buckets=20, seed=1)
    unit, holder = next(iter(tail.owner_of.items()))

    def kill() -> None:
        holder.killed_s = tail.files.now_s

    tail.run(132.0, at={QUIET_FROM_S: kill})
    assert tail.calls_per_s(QUIET_FROM_S, 132.0) < 50
    assert _taken_again_s(tail, unit, QUIET_FROM_S) <= 1.1 * TTL_S
    assert {taken.lease_id.unit for taken in tail.taken} <= {u for u, h in tail.owner_of.items() if h is holder}


def test_a_late_unit_of_a_killed_holder_is_raced_after_two_beats_and_no_unit_of_a_live_one() -> None:
    tail = Tail(n_agents=200, n_leased=150, n_open=6, n_buckets=20, seed=1, unit_s=42.0)
    killed = list(tail.owner_of.values())[:5]

    def kill() -> None:
        for holder in killed:
            holder.killed_s = tail.files.now_s

    tail.run(125.0, at={QUIET_FROM_S: kill})  # after three times the usual time the others would be raced as well
    assert tail.calls_per_s(QUIET_FROM_S, 125.0) < 50
    again = [taken for taken in tail.taken if tail.owner_of[taken.lease_id.unit] in killed]
    assert len(again) == len(tail.taken) == 5, "one racer each"
    assert max(taken.at_s for taken in again) < QUIET_FROM_S + 0.8 * TTL_S


def test_with_race_turned_off_nobody_is_raced() -> None:
    tail = Tail(n_agents=8, n_leased=8, n_open=2, n_buckets=4, unit_s=1.0, race_factor=0.0)
    holder = next(iter(tail.owner_of.values()))

    def kill() -> None:
        holder.killed_s = tail.files.now_s

    tail.run(400.0, at={300.0: kill})
    assert {tail.owner_of[taken.lease_id.unit].name for taken in tail.taken} == {holder.name}
    assert min(taken.at_s for taken in tail.taken) >= 300.0 + TTL_S - TTL_S / 6


def test_among_very_many_a_deputy_finds_an_orphan_whose_watcher_has_work() -> None:
    tail = Tail(n_agents=DEPUTIES_FROM + 40, n_leased=40, n_open=4, n_buckets=8, seed=4)
    unit, holder = next(iter(tail.owner_of.items()))
    everybody = list(tail.files.holders)
    watcher = next(name for name in everybody if draw_up(name, everybody).has(bucket_of(unit)))
    assert not draw_up(watcher, everybody).is_deputy_for(bucket_of(unit))
    tail.keep_busy({watcher})

    def kill() -> None:
        holder.killed_s = tail.files.now_s

    tail.run(180.0, at={QUIET_FROM_S: kill})
    assert _taken_again_s(tail, unit, QUIET_FROM_S) <= 1.1 * TTL_S


def _small(**shape: int) -> Tail:
    return Tail(n_agents=8, n_leased=8, n_open=2, n_buckets=4, ttl_s=TTL_S, **shape)


@pytest.mark.parametrize("seed", range(2))
def test_a_unit_runs_again_at_once_when_its_holder_died_on_the_same_host(seed: int) -> None:
    tail = _small(agents_per_host=4, seed=seed)
    unit, holder = next(iter(tail.owner_of.items()))

    def kill() -> None:
        holder.killed_s = tail.files.now_s

    tail.run(130.0, at={100.0: kill})
    assert _taken_again_s(tail, unit, 100.0) <= TTL_S / 10


@pytest.mark.parametrize("seed", range(2))
def test_so_does_the_unit_of_a_holder_that_died_before_it_ever_said_where_it_works(seed: int) -> None:
    tail = _small(agents_per_host=4, seed=seed)
    unit, holder = next(iter(tail.owner_of.items()))
    holder.unit, holder.killed_s = None, -1.0
    neighbours = {other.name for other in tail.files.holders.values() if other.host == holder.host}
    begins_s = min(at_s for at_s, _, name in tail._due if name in neighbours - {holder.name})
    tail.run(TTL_S)
    assert _taken_again_s(tail, unit, begins_s) <= 2.0


@pytest.mark.parametrize("seed", range(2))
def test_a_unit_runs_again_at_the_next_look_when_its_holder_left(seed: int) -> None:
    tail = _small(seed=seed)
    unit, holder = next(iter(tail.owner_of.items()))

    def leave() -> None:
        holder.left_s = tail.files.now_s

    tail.run(130.0, at={100.0: leave})
    assert _taken_again_s(tail, unit, 100.0) <= TTL_S / 10


@pytest.mark.parametrize("seed", range(2))
def test_of_few_agents_half_may_die_and_every_unit_of_theirs_runs_again_within_the_ttl(seed: int) -> None:
    tail = _small(seed=seed)
    dead = list(tail.files.holders.values())[::2]

    def kill() -> None:
        for holder in dead:
            holder.killed_s = tail.files.now_s

    tail.run(180.0, at={100.0: kill})
    for unit, holder in tail.owner_of.items():
        if holder in dead:
            assert _taken_again_s(tail, unit, 100.0) <= 1.1 * TTL_S


def test_agents_that_died_long_ago_leave_no_bucket_without_a_watcher() -> None:
    tail = Tail(n_agents=24, n_leased=8, n_open=2, n_buckets=4, seed=3)
    holders = {id(holder) for holder in tail.owner_of.values()}
    for holder in [holder for holder in tail.files.holders.values() if id(holder) not in holders]:
        holder.killed_s = -500.0
    tail.run(500.0)
    absent = [name for scout in tail.alive() for name in scout.tail._absent]
    assert absent, "nobody noticed"
    for bucket in tail.opened:
        assert any(scout.tail._rota.has(bucket) for scout in tail.alive())


def test_every_bucket_is_the_part_of_exactly_one_of_those_who_know_of_each_other() -> None:
    names = [f"host{i % 3}-{i}-abc" for i in range(20)]
    rotas = [draw_up(name, names) for name in names]
    for bucket in range(200):
        assert sum(rota.has(bucket) for rota in rotas) == 1
        assert sum(rota.is_deputy_for(bucket) for rota in rotas) == 1
    assert all(rota.n_agents == 20 for rota in rotas)


def test_who_leaves_hands_its_buckets_to_the_next_and_moves_no_others() -> None:
    names = [f"host{i}-{i}-abc" for i in range(20)]
    heir = "host0-0-abc"
    gone = before_me(heir, names)[0]
    left = [name for name in names if name != gone]
    for name in left:
        before, after = draw_up(name, names), draw_up(name, left)
        moved = [bucket for bucket in range(500) if before.has(bucket) != after.has(bucket)]
        assert bool(moved) == (name == heir)
