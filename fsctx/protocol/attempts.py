"""What a careful holder of a unit is about to try: written before, so that its death tells which rows did it."""

from dataclasses import dataclass

from fsctx.errors import Damaged, InputError, Missing
from fsctx.protocol import codec, names
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """The rows that were computed together last under a lease."""

    generation: int
    rows: tuple[int, ...]


def write_attempt(store: Store, lease_id: LeaseId, rows: tuple[int, ...]) -> None:
    """Note which rows are tried now, in place of those before."""
    attempt = Attempt(generation=lease_id.generation, rows=rows)
    store.replace(names.attempt(bucket_of(lease_id.unit), lease_id), codec.encode(attempt))


def attempts_names(store: Store, unit: int) -> list[str]:
    """Return the names of a unit's attempts."""
    bucket = bucket_of(unit)
    found = [names.parse_attempt(name) for name in store.list(names.bucket_folder(names.PARTIAL, bucket))]
    return [names.attempt(bucket, lease_id) for lease_id in found if lease_id is not None and lease_id.unit == unit]


def read_attempts(store: Store, unit: int) -> list[Attempt]:
    """Read what earlier holders of a unit tried last, oldest first."""
    attempts = []
    for name in attempts_names(store, unit):
        try:
            attempts.append(codec.decode(store.read(name), Attempt, where=name))
        except (Missing, Damaged, InputError):
            continue
    return sorted(attempts, key=lambda attempt: attempt.generation)
