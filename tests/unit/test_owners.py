"""What an agent concludes about the holders of leases, its own leases among them."""

import dataclasses
from pathlib import Path

import pytest
from fabricate import FabricatedRun, add_agent, fabricate, lease_unit

from fsctx.agent.owners import Owners
from fsctx.agent.watch import Patience
from fsctx.protocol import agents, leases, names
from fsctx.protocol.agents import AgentState, Session
from fsctx.protocol.names import LeaseId


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run")


def _owners(
    run: FabricatedRun, *, unit_s: float | None = None, given_back: tuple[str, ...] = (), race_factor: float = 3.0
) -> Owners[LeaseId]:
    return Owners(
        store=run.store,
        me="me",
        patience=Patience(ttl_s=60.0, stall_s=1800.0, race_factor=race_factor),
        is_dead=lambda record: False,
        owner_of=leases.owner_of,
        unit_s=lambda: unit_s,
        given_back=lambda: given_back,
    )


def test_an_agent_takes_back_a_lease_that_it_gave_back_itself(run: FabricatedRun) -> None:
    lease_unit(run, 0, agent="me")
    owners = _owners(run, given_back=("00000000.0",))
    owners.look(LeaseId(0, 0), 0.0)
    assert owners.orphans({LeaseId(0, 0): 0.0}, 0.0) == (LeaseId(0, 1),)


def test_an_agent_never_takes_a_lease_from_itself_that_it_holds(run: FabricatedRun) -> None:
    lease_unit(run, 0, agent="me")
    add_agent(run, "me")
    owners = _owners(run)
    owners.look(LeaseId(0, 0), 0.0)
    assert owners.orphans({LeaseId(0, 0): 0.0}, 10_000.0) == ()


def test_a_slow_holder_is_raced_by_others_and_not_by_itself(run: FabricatedRun) -> None:
    for unit, agent in enumerate(("me", "slow")):
        lease_unit(run, unit, agent=agent)
        add_agent(run, agent)
    owners = _owners(run, unit_s=10.0)
    held = {LeaseId(0, 0): 0.0, LeaseId(1, 0): 0.0}
    for lease_id in held:
        owners.look(lease_id, 0.0)
    assert owners.orphans(held, 29.0) == ()
    assert owners.orphans(held, 30.0) == (LeaseId(1, 1),)


@pytest.mark.parametrize(("race_factor", "is_raced"), [(3.0, True), (0.0, False)])
def test_a_holder_that_missed_two_beats_is_raced_when_it_is_late(
    run: FabricatedRun, race_factor: float, is_raced: bool
) -> None:
    lease_unit(run, 0, agent="hushed")
    add_agent(run, "hushed")
    owners = _owners(run, unit_s=30.0, race_factor=race_factor)
    for second in (10.0, 20.0, 30.0):
        owners.look(LeaseId(0, 0), second)
    assert owners.orphans({LeaseId(0, 0): 0.1}, 30.0) == (), "it is not late yet"
    assert owners.orphans({LeaseId(0, 0): 0.0}, 30.0) == ((LeaseId(0, 1),) if is_raced else ())


def test_a_holder_that_is_late_and_beats_is_left_alone(run: FabricatedRun) -> None:
    lease_unit(run, 0, agent="busy")
    add_agent(run, "busy", counter=1)
    owners = _owners(run, unit_s=10.0)
    owners.look(LeaseId(0, 0), 0.0)
    session = Session(agent="busy", counter=2, progress=0, state=AgentState.RUNNING)
    run.store.rewrite(names.session("busy"), agents.encode_session(session))
    owners.look(LeaseId(0, 0), 20.0)
    assert owners.orphans({LeaseId(0, 0): 0.0}, 29.0) == ()


def test_a_look_that_is_due_moves_what_is_due_next_on(run: FabricatedRun) -> None:
    lease_unit(run, 0, agent="hushed")
    add_agent(run, "hushed")
    owners = _owners(run)
    for second in (0.0, 19.98):
        owners.look(LeaseId(0, 0), second)
    due_s = owners.next_look_s({LeaseId(0, 0): 6.0})
    owners.look(LeaseId(0, 0), due_s)
    assert owners.next_look_s({LeaseId(0, 0): 6.0}) > due_s


def test_a_dead_neighbour_is_told_of_once_and_one_that_left_never(run: FabricatedRun) -> None:
    add_agent(run, "killed", unit=7)
    add_agent(run, "silent", unit=None)
    add_agent(run, "left", state=AgentState.LEFT, unit=None)
    owners = dataclasses.replace(_owners(run), is_dead=lambda record: True)
    owners.meet_neighbours(["killed", "silent", "left"])
    assert owners.units_of_dead_neighbours(0.0) == [7, None]
    assert owners.units_of_dead_neighbours(1.0) == []
