"""How orphans are found while units are free: by those who work, beside their work."""

from collections import Counter
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from fabricate import FabricatedRun, add_agent, fabricate, finish_unit, lease_unit

from fsctx.agent.owners import Owners
from fsctx.agent.patrol import ROUNDS, SUSPECTS, Patrol, Rounds
from fsctx.agent.scout import Found, Scout
from fsctx.agent.search import Search
from fsctx.agent.tail import Tail
from fsctx.agent.watch import Patience
from fsctx.protocol import agents, leases, names
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.names import LeaseId
from fsctx.store import PosixStore

TTL_S = 60.0
EVERY_S = TTL_S / ROUNDS


class _Counting(PosixStore):
    """Counts what is read and listed."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.n_read: Counter[str] = Counter()

    def read(self, name: str) -> bytes:
        self.n_read[name.partition("/")[0]] += 1
        return super().read(name)

    def list(self, name: str) -> list[str]:
        self.n_read["listings"] += 1
        return super().list(name)


@dataclass(slots=True)
class _Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def _at(scout: Scout, now_s: float) -> Scout:
    """Return a scout for which it is that late."""
    assert isinstance(scout.clock, _Clock)
    scout.clock.now_s = now_s
    return scout


def _scout(run: FabricatedRun, *, unit_s: float = 10.0) -> Scout:
    store, chance = _Counting(run.root), Random(1)
    owners = Owners(
        store=store,
        me="me",
        patience=Patience(ttl_s=TTL_S, stall_s=1800.0),
        is_dead=lambda _: False,
        owner_of=leases.owner_of,
        unit_s=lambda: unit_s,
    )
    search = Search(run.geometry, run.manifest.tasks, chance)
    search.settle(0)
    return Scout(
        store=store,
        geometry=run.geometry,
        search=search,
        owners=owners,
        tail=Tail(
            store=store, geometry=run.geometry, search=search, owners=owners, me="me", chance=chance, ttl_s=TTL_S
        ),
        patrol=Patrol(search=search, owners=owners, chance=chance, ttl_s=TTL_S),
        agent="me",
        reason_to_leave=lambda: None,
        give_back=lambda _: None,
        clock=_Clock(),
    )


def _beat(run: FabricatedRun, agent: str, counter: int, state: AgentState = AgentState.RUNNING) -> None:
    session = Session(agent=agent, counter=counter, progress=0, state=state)
    run.store.rewrite(names.session(agent), agents.encode_session(session))


def _reads(scout: Scout) -> Counter[str]:
    assert isinstance(scout.store, _Counting)
    return scout.store.n_read


def _see_again(scout: Scout, *, until_s: float = TTL_S) -> float:
    """Look at the bucket at once and a time to live later; return when."""
    _at(scout, 0.0).look(0)
    _at(scout, until_s).look(0)
    return until_s


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    """A run of one bucket of which others hold three units; nothing beats unless told."""
    made = fabricate(tmp_path / "run", n_rows=80, unit_rows=4)
    for unit, agent in enumerate(("one", "two", "three")):
        lease_unit(made, unit, agent=agent)
        add_agent(made, agent)
    return made


def test_law_7_an_orphan_is_taken_before_free_units_once_its_owner_was_silent_for_the_time_to_live(
    run: FabricatedRun,
) -> None:
    scout = _scout(run)
    began_s = now_s = _see_again(scout)
    counter = 1
    while now_s < began_s + TTL_S:
        _at(scout, now_s).go_round(now_s)
        assert scout.patrol.orphans(now_s) == ()
        counter += 1
        for agent in ("two", "three"):
            _beat(run, agent, counter)
        now_s += EVERY_S
    _at(scout, now_s).go_round(now_s)
    _at(scout, now_s).look(0)
    assert _at(scout, now_s).step(now_s, 4) == Found(leases=(LeaseId(0, 1),))
    found = _at(scout, now_s).step(now_s, 2)
    assert isinstance(found, Found)
    assert {lease_id.generation for lease_id in found.leases} == {0}


def test_what_an_old_look_says_is_asked_again_before_anything_is_taken(run: FabricatedRun) -> None:
    scout = _scout(run)
    now_s = _see_again(scout)
    for _ in range(5):
        _at(scout, now_s).go_round(now_s)
        now_s += EVERY_S
    now_s += TTL_S / 6  # the look at which all three were silent counts no more
    _at(scout, now_s).look(0)
    _beat(run, "one", 2)
    _beat(run, "two", 2)
    assert scout.patrol.orphans(now_s) == ()
    assert _at(scout, now_s).step(now_s, 4) is None
    assert _at(scout, now_s).step(now_s, 4) == Found(leases=(LeaseId(2, 1),))


def test_a_lease_is_old_since_its_listing_came_however_long_that_hung(
    run: FabricatedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    scout = _scout(run)

    def listing(store: _Counting, name: str) -> list[str]:
        _at(scout, 1000.0)
        return PosixStore.list(store, name)

    monkeypatch.setattr(_Counting, "list", listing)
    _at(scout, 0.0).look(0)
    assert set(scout.search.leased.values()) == {1000.0}


def test_units_of_an_agent_that_left_are_taken_at_once(run: FabricatedRun) -> None:
    scout = _scout(run)
    now_s = _see_again(scout)
    _beat(run, "two", 2, AgentState.LEFT)
    _at(scout, now_s).go_round(now_s)
    assert _at(scout, now_s).step(now_s, 4) == Found(leases=(LeaseId(1, 1),))


def test_nobody_is_raced_while_units_are_free(run: FabricatedRun) -> None:
    scout = _scout(run, unit_s=1.0)
    now_s = _see_again(scout)
    for _ in range(3):  # all are silent, for less than the time to live
        _at(scout, now_s).go_round(now_s)
        now_s += EVERY_S
    assert scout.patrol.orphans(now_s) == ()


def test_young_leases_and_those_of_long_units_are_not_suspect(run: FabricatedRun) -> None:
    scout = _scout(run, unit_s=100.0)
    for now_s in (0.0, 50.0, 99.0):
        _at(scout, now_s).look(0)
        before = _reads(scout).total()
        _at(scout, now_s).go_round(now_s)
        assert _reads(scout).total() == before
    _at(scout, 100.0).look(0)
    _at(scout, 100.0).go_round(100.0)
    assert _reads(scout)["leases"] == 3


def test_law_8_however_many_leases_are_old_a_round_reads_a_few_owners_and_lists_one_bucket_in_a_time_to_live(
    tmp_path: Path,
) -> None:
    run = fabricate(tmp_path / "run", n_rows=256, unit_rows=1)
    for unit in range(256):
        lease_unit(run, unit, agent=f"agent{unit}")
        add_agent(run, f"agent{unit}")
    scout = _scout(run)
    now_s = _see_again(scout)
    _reads(scout).clear()
    end_s, counter = now_s + 10 * TTL_S, 1
    while now_s < end_s:
        counter += 1
        for unit in range(256):
            _beat(run, f"agent{unit}", counter)
        _at(scout, now_s).go_round(now_s)
        now_s += EVERY_S
    n_rounds = 10 * ROUNDS + 1
    assert _reads(scout)["listings"] <= 3 * 10
    assert _reads(scout)["agents"] + _reads(scout)["leases"] <= 2 * SUSPECTS * n_rounds


def test_a_bucket_that_was_left_behind_is_listed_again_until_it_is_finished(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=8, unit_rows=4)
    for unit in range(2):
        lease_unit(run, unit)
    scout = _scout(run)
    _at(scout, 0.0).look(0)
    _at(scout, TTL_S).go_round(TTL_S)
    assert scout.search.seen_s(0) == 0.0
    _at(scout, TTL_S + 1.0).go_round(TTL_S + 1.0)
    assert scout.search.seen_s(0) == TTL_S + 1.0
    for unit in range(2):
        finish_unit(run, unit)
    _at(scout, 2 * TTL_S + 3.0).go_round(2 * TTL_S + 3.0)
    assert scout.search.is_finished


class _Slow(Executor):
    """Does what it is given when told to."""

    def __init__(self) -> None:
        self.given: list[Future[None]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        self.given.append(Future())
        return self.given[-1]


def test_a_round_begins_when_it_is_time_and_never_before_the_last_one_ended() -> None:
    now_s, worker = 0.0, _Slow()
    rounds = Rounds(go=lambda: None, every_s=10.0, clock=lambda: now_s)
    for now_s, n in ((-5.0, 1), (0.0, 1), (30.0, 1)):
        rounds.next(worker)
        assert len(worker.given) == n, now_s
    worker.given[0].set_result(None)
    for now_s, n in ((4.9, 1), (5.0, 2)):
        rounds.next(worker)
        assert len(worker.given) == n, now_s


def test_a_round_that_ends_with_an_error_of_the_code_is_not_passed_over() -> None:
    worker = _Slow()
    rounds = Rounds(go=lambda: None, every_s=0.0, clock=lambda: 1.0)
    rounds.next(worker)
    worker.given[0].set_exception(KeyError("a fault"))
    with pytest.raises(KeyError, match="a fault"):
        rounds.next(worker)
