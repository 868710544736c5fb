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
from fsctx.protocol.names import LeaseId, SlotId
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
    return _owner_in(store, names.lease(bucket_of(lease_id.unit), lease_id))


def take_slot(store: Store, slot_id: SlotId, owner: str) -> bool:
    """Create one generation of a transfer slot's lease; True if it is now `owner`'s. See `take`."""
    return store.create(names.slot(slot_id), codec.encode(Lease(owner=owner)))


def owner_of_slot(store: Store, slot_id: SlotId) -> str | None:
    """Read who holds a transfer slot. See `owner_of`."""
    return _owner_in(store, names.slot(slot_id))


def latest_slots(listing: Iterable[str], source: str) -> dict[int, SlotId]:
    """Return number → latest generation of a source's transfer slots, from a listing of all slots."""
    found = sorted(slot for slot in map(names.parse_slot, listing) if slot is not None and slot.source == source)
    return {slot.number: slot for slot in found}


def _owner_in(store: Store, name: str) -> str | None:
    try:
        return codec.decode(store.read(name), Lease, where=name).owner
    except (Missing, Damaged, InputError, msgspec.MsgspecError):
        return None


def latest(listing: Iterable[str]) -> dict[int, int]:
    """Return unit → highest generation, from a listing of a bucket of leases."""
    generations: dict[int, int] = {}
    for lease_id in map(names.parse_lease, listing):
        if lease_id is not None and lease_id.generation > generations.get(lease_id.unit, -1):
            generations[lease_id.unit] = lease_id.generation
    return generations
