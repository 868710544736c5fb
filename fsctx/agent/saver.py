"""Writes what a unit's work brought: published results, saved partials, failures. And adopts what others saved."""

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from fsctx.agent.unitwork import UnitWork, merge_saved
from fsctx.errors import Damaged, Missing
from fsctx.protocol import attempts, buckets, failures, names, results, verdicts
from fsctx.protocol.attempts import Attempt
from fsctx.protocol.failures import Failure
from fsctx.protocol.geometry import Place, bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.protocol.verdicts import Origin
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Saver:
    """Writes for one agent. `origin` tells the provenance of rows computed under a generation."""

    store: Store
    run: str
    labels: Callable[[int], tuple[str, ...]]
    """Task → its labels."""
    origin: Callable[[int], Origin]
    """Generation → provenance."""

    def encode(self, work: UnitWork) -> bytes:
        """Return a unit's verdicts as the content of a file."""
        table = work.table(self.labels(work.place.task), self.origin(work.lease_id.generation))
        return verdicts.to_parquet(table, run=self.run, unit=work.lease_id.unit)

    def write(self, work: UnitWork, content: bytes) -> None:
        """Write a complete unit's verdicts, without publishing them."""
        results.write(self.store, work.lease_id, content)

    def publish(self, work: UnitWork) -> bool:
        """Publish what was written; False where another holder's result was first."""
        winner = results.publish(self.store, work.lease_id)
        if work.n_saved or work.n_adopted:
            self._clean_up(work.lease_id)
        return winner == work.lease_id

    def is_compacted(self, work: UnitWork) -> bool:
        """Whether a unit's bucket was finished by others and compacted, so that there is no place for its work."""
        return buckets.is_compacted(self.store, bucket_of(work.lease_id.unit))

    def save(self, work: UnitWork) -> None:
        """Save the rows that are done, for whoever holds the unit next."""
        name = names.partial(bucket_of(work.lease_id.unit), work.lease_id)
        self.store.replace(name, self.encode(work))

    def attempt(self, work: UnitWork, rows: tuple[int, ...]) -> None:
        """Note which rows are tried now."""
        attempts.write_attempt(self.store, work.lease_id, rows)

    def attempts(self, lease_id: LeaseId) -> list[Attempt]:
        """Return what earlier holders of a unit tried last, oldest first."""
        return attempts.read_attempts(self.store, lease_id.unit)

    def adopt(self, lease_id: LeaseId, place: Place) -> pa.Table | None:
        """Return the rows that earlier holders of a unit saved; None if there are none.

        A saved file that is damaged, or of another run, unit or task, is not used.
        """
        return merge_saved(self._saved(lease_id, place), place)

    def give_up(self, lease_id: LeaseId, reason: str) -> None:
        """List a unit as failed."""
        origin = self.origin(lease_id.generation)
        failure = Failure(
            unit=lease_id.unit,
            generation=lease_id.generation,
            reason=reason,
            agent=origin.agent,
            host=origin.host,
        )
        failures.record_failure(self.store, failure)

    def _saved(self, lease_id: LeaseId, place: Place) -> list[pa.Table]:
        tables = []
        for saved in self._saved_names(lease_id.unit):
            name = names.partial(bucket_of(saved.unit), saved)
            try:
                with self.store.open(name) as source:
                    labels = self.labels(place.task)
                    tables.append(
                        verdicts.from_parquet(source, run=self.run, unit=saved.unit, labels=labels, where=name)
                    )
            except (Missing, Damaged):
                continue
        return tables

    def _saved_names(self, unit: int) -> list[LeaseId]:
        """Return the leases of a unit under which rows were saved, latest first."""
        listing = self.store.list(names.bucket_folder(names.PARTIAL, bucket_of(unit)))
        found = [lease_id for name in listing if (lease_id := names.parse_result(name)) is not None]
        return sorted((lease_id for lease_id in found if lease_id.unit == unit), reverse=True)

    def _clean_up(self, lease_id: LeaseId) -> None:
        """Remove a published unit's partials: they are of no more use to anybody."""
        for saved in self._saved_names(lease_id.unit):
            self.store.remove(names.partial(bucket_of(saved.unit), saved))
        for name in attempts.attempts_names(self.store, lease_id.unit) if lease_id.generation else ():
            self.store.remove(name)
