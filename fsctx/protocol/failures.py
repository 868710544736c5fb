"""Units that were given up, and why."""

from dataclasses import dataclass

from fsctx.protocol import codec, names
from fsctx.protocol.geometry import bucket_of
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The content of a failure record. A published result of the unit outweighs it."""

    unit: int
    generation: int
    reason: str
    agent: str
    host: str


def record_failure(store: Store, failure: Failure) -> None:
    """List a unit as given up."""
    name = names.failed(bucket_of(failure.unit), failure.unit)
    store.replace(name, codec.encode(failure))


def read_failure(store: Store, unit: int) -> Failure:
    """Read why a unit was given up."""
    name = names.failed(bucket_of(unit), unit)
    return codec.decode(store.read(name), Failure, where=name)
