"""What a bucket's listings say of its units."""

from collections.abc import Iterable
from dataclasses import dataclass

from fsctx.protocol import leases, names
from fsctx.protocol.geometry import Geometry
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketView:
    """One look at a bucket. Old at once: others go on working."""

    bucket: int
    free: tuple[int, ...]
    """Units that nobody ever leased."""
    leased: dict[int, int]
    """Unit → latest generation, of units neither done nor failed."""
    done: frozenset[int]
    failed: frozenset[int]

    @property
    def is_finished(self) -> bool:
        """Whether no unit can change any more, save by `retry`."""
        return not self.free and not self.leased


def look(store: Store, geometry: Geometry, bucket: int) -> BucketView:
    """List a bucket: leases first, so that a unit leased and done in between is seen as done.

    Three listings serve up to 256 units.
    """
    generations = leases.latest(store.list(names.bucket_folder(names.LEASES, bucket)))
    failed = _units(names.parse_failed(n) for n in store.list(names.bucket_folder(names.FAILED, bucket)))
    done = _units(names.parse_published(n) for n in store.list(names.bucket_folder(names.RESULTS, bucket)))
    ended = done | failed
    return BucketView(
        bucket=bucket,
        free=tuple(u for u in geometry.units_of(bucket) if u not in generations and u not in ended),
        leased={unit: g for unit, g in sorted(generations.items()) if unit not in ended},
        done=done,
        failed=failed - done,
    )


def _units(parsed: Iterable[int | None]) -> frozenset[int]:
    return frozenset(unit for unit in parsed if unit is not None)
