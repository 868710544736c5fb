"""What people do to a run meanwhile: they look, collect what there is, stop it, put failed units back."""

import contextlib
from dataclasses import dataclass, field

from fsctx.coordinator.collect import proof
from fsctx.coordinator.retry import retry
from fsctx.coordinator.status import read_status
from fsctx.errors import Damaged, StoreError
from fsctx.protocol import names, orders, published
from fsctx.protocol.geometry import bucket_of
from fsctx.store import PosixStore
from simulation.laws import LawBroken, Laws
from simulation.verdicts import expected_rows, rows_of_table
from simulation.world import Simulation


@dataclass(slots=True)
class Reader:
    """Looks at the run again and again, as status and collect --partial do; what is done stays done."""

    simulation: Simulation
    laws: Laws
    done: set[int] = field(default_factory=set)

    def read(self, store: PosixStore) -> None:
        while not self.laws.units <= self.done:
            self.simulation.clockwork.pause(self.simulation.chance.uniform(1.0, 200.0))
            try:
                read_status(store)
                self._collect(store)
            except StoreError:
                continue
            except Damaged as error:
                if not self.laws.is_of_planted(error):
                    raise LawBroken(f"law 2: a reader saw damage: {error}") from error

    def _collect(self, store: PosixStore) -> None:
        """Prove the bucket and read one unit of it."""
        winners = proof.prove_bucket(store, self.simulation.manifest.geometry, 0).winners
        if not self.done <= winners.keys():
            raise LawBroken("law 2: a reader saw a published unit disappear")
        self.done |= winners.keys()
        if winners:
            unit = self.simulation.chance.choice(sorted(winners))
            if not is_right(self.simulation, store, unit):
                raise LawBroken(f"law 2: a reader got something else than the verdicts of unit {unit}")


def is_right(simulation: Simulation, store: PosixStore, unit: int) -> bool:
    """Whether `collect` reads a unit's verdicts, and the right ones."""
    table = published.read_unit(store, simulation.manifest, unit, labels=simulation.labels)
    return table is not None and rows_of_table(table) == expected_rows(simulation, unit)


def stop_run(store: PosixStore) -> None:
    """Run `fsctx stop`."""
    with contextlib.suppress(StoreError):
        orders.give_order(store, "stop")


def retry_failed(simulation: Simulation, store: PosixStore) -> None:
    """Run `fsctx retry`."""
    with contextlib.suppress(StoreError):
        retry(store, [], token=str(simulation.chance.random()))


def remove_planted(store: PosixStore, unit: int) -> None:
    """Do what the message about a planted link says: remove it."""
    name = names.published(bucket_of(unit), unit)
    target = store.target(name)
    if target is not None and "/" in target:
        store.remove(name)
