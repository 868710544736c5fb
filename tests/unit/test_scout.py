"""How an agent takes leases where the filesystem does not say whether it has them."""

from pathlib import Path
from random import Random

import pytest
from fabricate import FabricatedRun, fabricate

from fsctx.agent.owners import Owners
from fsctx.agent.patrol import Patrol
from fsctx.agent.scout import Found, Scout
from fsctx.agent.search import Search
from fsctx.agent.tail import Tail
from fsctx.agent.watch import Patience
from fsctx.errors import StoreError
from fsctx.protocol import leases
from fsctx.protocol.names import LeaseId
from fsctx.store import PosixStore


class _Moody(PosixStore):
    """Says of the first creation that nothing is known."""

    n_created = 0

    def create(self, name: str, content: bytes) -> bool:
        self.n_created += 1
        if self.n_created == 1:
            raise StoreError(f"{name}: input/output error")
        return super().create(name, content)


def _scout(run: FabricatedRun, store: PosixStore) -> Scout:
    given_back: list[str] = []
    patience = Patience(ttl_s=60.0, stall_s=1800.0)
    owners = Owners(
        store=store,
        me="me",
        patience=patience,
        is_dead=lambda r: False,
        owner_of=leases.owner_of,
        given_back=lambda: given_back,
    )
    search = Search(run.geometry, run.manifest.tasks, Random(1))
    tail = Tail(
        store=store,
        geometry=run.geometry,
        search=search,
        owners=owners,
        me="me",
        chance=Random(1),
        ttl_s=60.0,
    )
    return Scout(
        store=store,
        geometry=run.geometry,
        search=search,
        owners=owners,
        tail=tail,
        patrol=Patrol(search=search, owners=owners, chance=Random(1), ttl_s=60.0),
        agent="me",
        reason_to_leave=lambda: None,
        give_back=lambda lease_id: given_back.append(str(lease_id)),
        clock=lambda: 0.0,
    )


def test_a_lease_that_was_given_back_after_an_error_is_never_held_but_its_next_generation(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4)
    scout = _scout(run, _Moody(run.root))
    scout.first_task(0.0)
    with pytest.raises(StoreError):
        scout.step(0.0, 1)
    found = None
    for second in range(1, 20):
        found = scout.step(float(second), 1)
        if isinstance(found, Found):
            break
    assert found == Found(leases=(LeaseId(0, 1),))
