"""Leases: names that are created exclusively once and never reused.

A unit's lease has generations 0, 1, 2, …: to take an orphan is to create the next one, and the
server of the filesystem decides who wins. Safety does not rest on leases: two holders of
one unit cost work, never a verdict (see `results`).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from fsctx.errors import Damaged, InputError, Missing
from fsctx.protocol import codec, names
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import Store

NOBODY = ""
"""Owner of a lease that was born released: `retry` creates such ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The content of a lease file."""

    owner: str
    """Agent that holds it, or `NOBODY`."""
    token: str = ""
    """Makes the content unique where the owner does not."""


def take(store: Store, lease_id: LeaseId, owner: str, *, token: str = "") -> bool:
    """Create one generation of a unit's lease; True if it is now `owner`'s.

    An agent MUST NOT try one generation twice: its name is what makes the content unique.
    """
    content = codec.encode(Lease(owner=owner, token=token))
    return store.create(names.lease(bucket_of(lease_id.unit), lease_id), content)


def owner_of(store: Store, lease_id: LeaseId) -> str | None:
    """Read who holds a lease; None where its file says nothing (yet): its owner died while writing, or is about to."""
    name = names.lease(bucket_of(lease_id.unit), lease_id)
    try:
        return codec.decode(store.read(name), Lease, where=name).owner
    except (Missing, Damaged, InputError, msgspec.MsgspecError):
        return None


def latest(listing: Iterable[str]) -> dict[int, int]:
    """Return unit → highest generation, from a listing of a bucket of leases."""
    generations: dict[int, int] = {}
    for name in listing:
        lease_id = names.parse_lease(name)
        if lease_id is not None:
            generations[lease_id.unit] = max(lease_id.generation, generations.get(lease_id.unit, -1))
    return generations
