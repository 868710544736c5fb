"""What an agent concludes about the holders of leases, its own leases among them."""

from pathlib import Path

import pytest
from fabricate import FabricatedRun, add_agent, fabricate, lease_unit

from fsctx.agent.owners import Owners
from fsctx.agent.watch import Patience
from fsctx.protocol import leases
from fsctx.protocol.names import LeaseId


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run")


def _owners(run: FabricatedRun, *, unit_s: float | None = None, given_back: tuple[str, ...] = ()) -> Owners[LeaseId]:
    return Owners(
        store=run.store,
        me="me",
        patience=Patience(ttl_s=60.0, stall_s=1800.0),
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
