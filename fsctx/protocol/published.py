"""Reading published verdicts, wherever they stand, and checking that they are whole."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from fsctx.errors import Damaged, Missing, StoreError
from fsctx.protocol import buckets, compaction, names, results
from fsctx.protocol.compaction import CompactedBuckets
from fsctx.protocol.geometry import Place, bucket_of
from fsctx.protocol.manifest import Manifest
from fsctx.store import Store


@dataclass(frozen=True, slots=True)
class Results:
    """Reads the verdicts of a run's units, wherever they stand: the one place that knows."""

    store: Store
    manifest: Manifest
    compacted: CompactedBuckets

    def read(self, unit: int, labels: Sequence[str]) -> pa.Table | None:
        """Read a unit's verdicts in the order of its rows; None if it is not published.

        Raises:
            StoreError: the bucket's file is listed and cannot be opened yet.
            Damaged: the published file is missing, unreadable, of another run or unit, or does not hold exactly
                the rows of the unit's slice, each once.
        """
        own = tuple(labels)
        winner = results.winning(self.store, unit)
        if winner is None:
            where, table = names.compacted(bucket_of(unit)), self._compacted(unit, own)
        else:
            where = names.result(bucket_of(unit), winner)
            try:
                table = compaction.read_result(self.store, self.manifest, own, winner)
            except Missing:
                table = self._compacted(unit, own)
                if table is None:
                    raise Damaged(f"{where} is published but not there: {_remedy(unit)}") from None
            except Damaged as error:
                raise Damaged(f"{error}: {_remedy(unit)}") from None
        return None if table is None else in_row_order(table, self.manifest.geometry.place(unit), where=where)

    def _compacted(self, unit: int, labels: tuple[str, ...]) -> pa.Table | None:
        try:
            return self.compacted.read(unit, labels)
        except Missing:
            bucket = bucket_of(unit)
            if bucket in buckets.compacted(self.store):  # a client may remember for a while that a name was absent
                raise StoreError(
                    f"{names.compacted(bucket)} is listed, but this host does not see it yet: try again in a minute"
                ) from None
            return None


def results_of(store: Store, manifest: Manifest) -> Results:
    """Return what reads a run's verdicts."""
    return Results(store, manifest, CompactedBuckets(store, manifest))


def read_unit(store: Store, manifest: Manifest, unit: int, *, labels: Sequence[str]) -> pa.Table | None:
    """Read one unit's verdicts; see `Results.read`."""
    return results_of(store, manifest).read(unit, labels)


def in_row_order(table: pa.Table, place: Place, *, where: str) -> pa.Table:
    """Return a unit's verdicts sorted by row.

    Raises:
        Damaged: they are not exactly the rows of the unit's slice, each once.
    """
    rows = table["row"].to_numpy()
    wanted = np.arange(place.first_row, place.first_row + place.n_rows)
    if np.array_equal(rows, wanted):
        return table
    order = np.argsort(rows, kind="stable")
    if np.array_equal(rows[order], wanted):
        return table.take(order)
    raise Damaged(f"{where} {_difference(rows, wanted)}: {_remedy(place.unit)}")


def _difference(rows: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> str:
    """Say how a unit's rows differ from its slice's: missing, repeated, of other units."""
    seen, counts = np.unique(rows, return_counts=True)
    found = {
        "missing": np.setdiff1d(wanted, seen),
        "more than once": seen[counts > 1],
        "of other units": np.setdiff1d(seen, wanted),
    }
    parts = [f"{len(which)} {what} (first: row {which[0]})" for what, which in found.items() if len(which)]
    return f"should hold rows {wanted[0]} to {wanted[-1]}, but has " + ", ".join(parts)


def _remedy(unit: int) -> str:
    link = names.published(bucket_of(unit), unit)
    return f"restore the file, or remove {link} so that an agent computes the unit again"
