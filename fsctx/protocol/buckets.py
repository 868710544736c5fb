"""What a bucket's listings say of its units."""

from collections.abc import Iterable
from dataclasses import dataclass

from fsctx.errors import Missing
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
    is_compacted: bool = False

    @property
    def is_finished(self) -> bool:
        """Whether no unit can change any more, save by `retry`."""
        return not self.free and not self.leased


def look(store: Store, geometry: Geometry, bucket: int) -> BucketView:
    """List a bucket: leases first, so that a unit leased and done in between is seen as done.

    Three listings serve up to 256 units, two where nobody ever took one. Results are listed last: where their
    folder is gone, the bucket was compacted, whatever the listings before it said.
    """
    folder = names.bucket_folder(names.LEASES, bucket)
    generations = leases.latest(store.list(folder))
    if not generations and store.has_folder(folder):  # it goes last in a compaction: so nothing was ever done here
        return _untouched(geometry, bucket)
    failed = _units(names.parse_failed(n) for n in store.list(names.bucket_folder(names.FAILED, bucket)))
    published = store.list(names.bucket_folder(names.RESULTS, bucket))
    if not published and is_compacted(store, bucket):
        return compacted_view(geometry, bucket)
    done = _units(names.parse_published(n) for n in published)
    ended = done | failed
    return BucketView(
        bucket=bucket,
        free=tuple(u for u in geometry.units_of(bucket) if u not in generations and u not in ended),
        leased={unit: g for unit, g in sorted(generations.items()) if unit not in ended},
        done=done,
        failed=failed - done,
    )


def compacted_view(geometry: Geometry, bucket: int) -> BucketView:
    """Return what is known of a bucket that was compacted: all its units are done."""
    units = frozenset(geometry.units_of(bucket))
    return BucketView(bucket=bucket, free=(), leased={}, done=units, failed=frozenset(), is_compacted=True)


def _untouched(geometry: Geometry, bucket: int) -> BucketView:
    units = tuple(geometry.units_of(bucket))
    return BucketView(bucket=bucket, free=units, leased={}, done=frozenset(), failed=frozenset())


def compacted(store: Store) -> frozenset[int]:
    """Return the buckets that were compacted, by one listing: the first thing to ask of a long run."""
    return _units(names.parse_compacted(name) for name in store.list(names.RESULTS))


def is_compacted(store: Store, bucket: int) -> bool:
    """Whether a bucket in which no results are listed was compacted; a folder that plan made has no other end.

    Raises:
        Missing: neither the folder nor the merged file is there: the run itself may be gone.
    """
    folder = names.bucket_folder(names.RESULTS, bucket)
    if store.has_folder(folder):
        return False
    if bucket in compacted(store):
        return True
    raise Missing(f"{store.root}/{folder} is gone, and no {names.compacted(bucket)} stands for it")


def _units(parsed: Iterable[int | None]) -> frozenset[int]:
    return frozenset(unit for unit in parsed if unit is not None)
