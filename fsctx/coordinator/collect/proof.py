"""The proof that every planned (claim, task) has exactly one verdict.

It has two parts. `prove` lists folders and reads symlinks, nothing else: which units are published, and
by which lease. `protocol.published.Results.read` then checks each unit's file as it is read: exactly the slice's
rows, each once. What both accept holds every row once; anything else raises and names the file.
"""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from fsctx.errors import Damaged, Missing
from fsctx.protocol import buckets, failures, names, results
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.sweep import Extent
from fsctx.store import Store

READERS = 8
"""Threads that read: what costs on a network filesystem is waiting, not work."""

NOT_DONE = -1
DROPPED = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedUnit:
    """A unit that was given up and has no result."""

    unit: int
    reason: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """Which units are published. Old at once while agents run, but what it says is done stays done."""

    geometry: Geometry
    generations: np.ndarray[Any, np.dtype[np.int32]]
    """By unit: the generation of the lease whose verdicts count (0 in a compacted bucket), else `NOT_DONE`, or
    `DROPPED` where a sweep will never compute it."""
    failures: tuple[FailedUnit, ...]
    superseded: int
    """Result files that do not count: somebody else's was published first."""

    def is_done(self, unit: int) -> bool:
        """Whether a unit was published."""
        return bool(self.generations[unit] >= 0)

    @property
    def rows(self) -> int:
        """Verdicts planned: claims times tasks."""
        return self.geometry.n_rows * self.geometry.n_tasks

    @property
    def missing_rows(self) -> int:
        """Verdicts of units that are not published, given up or not."""
        return self._rows_of(NOT_DONE)

    @property
    def dropped_rows(self) -> int:
        """Verdicts of units that a sweep dropped; they are not missing."""
        return self._rows_of(DROPPED)

    def _rows_of(self, kind: int) -> int:
        (units,) = np.nonzero(self.generations == kind)
        return int(np.minimum(self.geometry.unit_rows, self._rows_from(units)).sum())

    @property
    def failed_rows(self) -> int:
        """Verdicts of units that were given up; they are missing too."""
        return sum(failure.rows for failure in self.failures)

    def _rows_from(self, units: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return how many claims lie at and after each unit's first one."""
        slices = units % self.geometry.n_slices * self.geometry.stride % self.geometry.n_slices
        rest: np.ndarray[Any, Any] = self.geometry.n_rows - slices * self.geometry.unit_rows
        return rest


@dataclass(frozen=True, slots=True, kw_only=True)
class _BucketProof:
    winners: dict[int, int]
    failed: tuple[FailedUnit, ...]
    superseded: int


def prove(store: Store, geometry: Geometry, extent: Extent | None = None) -> Proof:
    """List every bucket and read its symlinks; `extent` tells which units a sweep dropped.

    Raises:
        Damaged: a published name is of a unit that this bucket does not have, or stands for what is no result of it.
    """
    generations = np.full(geometry.n_units, NOT_DONE, dtype=np.int32)
    for units in extent.dropped_units if extent else ():
        generations[units.start : units.stop] = DROPPED
    given_up: list[FailedUnit] = []
    superseded = 0
    known = buckets.compacted(store)
    with ThreadPoolExecutor(READERS) as pool:
        for found in pool.map(lambda bucket: _prove(store, geometry, bucket, known), range(geometry.n_buckets)):
            generations[list(found.winners)] = list(found.winners.values())
            given_up.extend(found.failed)
            superseded += found.superseded
    return Proof(geometry=geometry, generations=generations, failures=tuple(given_up), superseded=superseded)


def _prove(store: Store, geometry: Geometry, bucket: int, compacted: frozenset[int]) -> _BucketProof:
    return _done(geometry, bucket) if bucket in compacted else prove_bucket(store, geometry, bucket)


def prove_bucket(store: Store, geometry: Geometry, bucket: int) -> _BucketProof:
    """Look at one bucket: failures first, so that a unit done in between is seen as done."""
    given_up = store.list(names.bucket_folder(names.FAILED, bucket))
    listing = store.list(names.bucket_folder(names.RESULTS, bucket))
    if not listing and buckets.is_compacted(store, bucket):
        return _done(geometry, bucket)
    winners = dict(_winners(store, geometry, bucket, listing))
    if len(winners) < sum(names.parse_published(name) is not None for name in listing):
        return prove_bucket(store, geometry, bucket)  # it was compacted while we looked
    failed = (unit for name in given_up if (unit := names.parse_failed(name)) is not None and unit not in winners)
    files = (file for name in listing if (file := names.parse_result(name)))
    return _BucketProof(
        winners=winners,
        failed=tuple(_failed_units(store, geometry, failed)),
        superseded=sum(file.generation != winners.get(file.unit, file.generation) for file in files),
    )


def _done(geometry: Geometry, bucket: int) -> _BucketProof:
    """Return what is known of a compacted bucket."""
    return _BucketProof(winners=dict.fromkeys(geometry.units_of(bucket), 0), failed=(), superseded=0)


def _winners(store: Store, geometry: Geometry, bucket: int, listing: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield unit and generation of each published name."""
    units = geometry.units_of(bucket)
    for name in listing:
        unit = names.parse_published(name)
        if unit is None:
            continue
        if unit not in units:
            where = names.published(bucket, unit)
            raise Damaged(f"{where} is of no unit of its bucket (units {units[0]} to {units[-1]}): remove it")
        winner = results.winning(store, unit)
        if winner is not None:
            yield unit, winner.generation


def _failed_units(store: Store, geometry: Geometry, units: Iterable[int]) -> Iterator[FailedUnit]:
    for unit in sorted(units):
        try:
            reason = failures.read_failure(store, unit).reason
        except Missing:  # put back by `retry` since the listing
            continue
        yield FailedUnit(unit=unit, reason=reason, rows=geometry.place(unit).n_rows)
