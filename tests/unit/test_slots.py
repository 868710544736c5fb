"""Transfer slots: a few agents at a time, and no slot is lost with its holder."""

from pathlib import Path
from random import Random

import pytest
from fabricate import FabricatedRun, add_agent, fabricate

from fsctx.agent.owners import Owners
from fsctx.agent.slots import TransferSlots
from fsctx.agent.watch import Patience
from fsctx.errors import StoreError
from fsctx.protocol import leases, names
from fsctx.protocol.agents import AgentState
from fsctx.protocol.names import SlotId
from fsctx.store import PosixStore


class Agent:
    """One that takes slots, with a clock of its own."""

    def __init__(self, run: FabricatedRun, name: str, *, n_slots: int = 2, store: PosixStore | None = None) -> None:
        self.now_s = 0.0
        self.given_back: list[str] = []
        self.run, self.name = run, name
        self.slots = TransferSlots(
            store=store or run.store,
            source="origin",
            n_slots=n_slots,
            agent=name,
            owners=Owners(
                store=run.store,
                me=name,
                patience=Patience(ttl_s=60.0, stall_s=1800.0),
                is_dead=lambda record: False,
                owner_of=leases.owner_of_slot,
                given_back=lambda: self.given_back,
            ),
            say_given_back=self._say,
            clock=self._clock,
            chance=Random(name),
        )
        add_agent(run, name)

    def _clock(self) -> float:
        self.now_s += 1.0
        return self.now_s

    def _say(self, slot: SlotId) -> None:
        self.given_back.append(str(slot))
        add_agent(self.run, self.name, released=tuple(self.given_back))


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    run = fabricate(tmp_path / "run")
    run.store.make_folder(names.SLOTS)
    return run


def test_there_are_as_many_holders_as_slots(run: FabricatedRun) -> None:
    agents = [Agent(run, name) for name in "abcd"]
    assert [agent.slots.take() for agent in agents] == [True, True, False, False]
    assert not agents[3].slots.take()
    assert agents[3].slots.holders() == {"a", "b"}


def test_a_slot_that_was_given_back_is_taken_by_the_next_generation(run: FabricatedRun) -> None:
    a, b = Agent(run, "a", n_slots=1), Agent(run, "b", n_slots=1)
    assert a.slots.take()
    assert not b.slots.take()
    a.slots.give_back()
    assert b.slots.take()
    assert sorted(run.store.list(names.SLOTS)) == ["origin-0.0", "origin-0.1"]


def test_the_slot_of_an_agent_that_left_is_taken(run: FabricatedRun) -> None:
    a, b = Agent(run, "a", n_slots=1), Agent(run, "b", n_slots=1)
    assert a.slots.take()
    add_agent(run, "a", state=AgentState.LEFT)
    assert b.slots.take()


def test_the_slot_of_a_silent_agent_is_taken_once_it_was_watched_for_the_time_to_live(run: FabricatedRun) -> None:
    a, b = Agent(run, "a", n_slots=1), Agent(run, "b", n_slots=1)
    assert a.slots.take()
    for b.now_s in range(0, 60, 10):
        assert not b.slots.take()
    b.now_s = 60
    assert b.slots.take()


def test_an_agent_that_takes_slots_for_ever_leaves_few_names(run: FabricatedRun) -> None:
    a = Agent(run, "a", n_slots=1)
    for _ in range(50):
        assert a.slots.take()
        a.slots.give_back()
    assert sorted(run.store.list(names.SLOTS)) == ["origin-0.48", "origin-0.49"]


def test_a_slot_that_may_be_ours_without_our_knowing_is_given_back(run: FabricatedRun) -> None:
    class Moody(PosixStore):
        def create(self, name: str, content: bytes) -> bool:
            super().create(name, content)
            raise StoreError("input/output error")

    a, b = Agent(run, "a", n_slots=1, store=Moody(run.root)), Agent(run, "b", n_slots=1)
    with pytest.raises(StoreError):
        a.slots.take()
    assert a.given_back == ["origin-0.0"]
    assert b.slots.take()
