"""Putting back units that were given up."""

from collections.abc import Iterable
from dataclasses import dataclass

from fsctx.errors import InputError
from fsctx.protocol import buckets, leases, names
from fsctx.protocol.geometry import Geometry, bucket_of
from fsctx.protocol.manifest import read_manifest
from fsctx.protocol.names import LeaseId
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """Units that agents may take again, and those asked for that had not failed."""

    units: tuple[int, ...]
    not_failed: tuple[int, ...] = ()


def retry(store: Store, units: Iterable[int], *, token: str) -> PutBack:
    """Put failed units back: those named, or all of them where none is named. Safe to repeat after any crash.

    `token` is unique to the call.

    Raises:
        InputError: the folder is not a run, or it has no such unit.
    """
    geometry = read_manifest(store).geometry
    asked = sorted(set(units))
    _check_units(asked, geometry)
    wanted = sorted({bucket_of(unit) for unit in asked}) if asked else range(geometry.n_buckets)
    put_back: list[int] = []
    for bucket in wanted:
        failed = buckets.look(store, geometry, bucket).failed
        put_back += _put_back(store, bucket, sorted(failed.intersection(asked) if asked else failed), token)
    return PutBack(units=tuple(put_back), not_failed=tuple(unit for unit in asked if unit not in put_back))


def _put_back(store: Store, bucket: int, failed: list[int], token: str) -> list[int]:
    """Create leases that are born released, then remove the failure records.

    In this order, so that a unit is never seen as held by the agent that gave it up. Where somebody
    else has the lease's name (another `retry`), the unit is put back all the same.
    """
    generations = leases.latest(store.list(names.bucket_folder(names.LEASES, bucket))) if failed else {}
    for unit in failed:
        leases.take(store, LeaseId(unit, generations.get(unit, -1) + 1), leases.NOBODY, token=token)
        store.remove(names.failed(bucket, unit))
    return failed


def _check_units(units: list[int], geometry: Geometry) -> None:
    unknown = [unit for unit in units if not 0 <= unit < geometry.n_units]
    if unknown:
        raise InputError(f"unit {unknown[0]}: this run has units 0 to {geometry.n_units - 1}: see `fsctx status`")
