"""Who serves its node's cache, and the secret that agents of a run show each other.

A peer's record is a hint: whoever it names may be dead, and what it holds is asked of the peer itself.
"""

import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field

from fsctx.errors import Damaged, InputError, StoreError
from fsctx.protocol import codec, names
from fsctx.store import Store

_SECRET_BYTES = 43
"""Length of a secret: 256 bits in URL-safe base64."""

_MOST_PORT = 0xFFFF

_LOOKS = 20
_LOOK_EVERY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRecord:
    """peers/<agent>.json: where an agent serves its node's cache, and what was in it when this was written."""

    agent: str
    host: str
    address: str
    """IPv4 or IPv6, without brackets."""
    port: int
    cache: str
    """Names the cache: agents that share one have nothing to fetch from each other."""
    contexts: dict[str, bytes] = field(default_factory=dict)
    """Context → bitmap of its chunks."""


def announce(store: Store, record: PeerRecord) -> None:
    """Write or rewrite a peer's record; only that agent does."""
    store.replace(names.peer(record.agent), codec.encode(record))


def withdraw(store: Store, agent: str) -> None:
    """Remove a peer's record."""
    store.remove(names.peer(agent))


def list_peers(store: Store) -> list[str]:
    """Return the agents that have a record as peers, in no order."""
    return [agent for agent in map(names.parse_peer, store.list(names.PEERS)) if agent is not None]


def read_peer(store: Store, agent: str) -> PeerRecord | None:
    """Read a peer's record; None where it is missing, cannot be read, or names no address."""
    name = names.peer(agent)
    try:
        record = codec.decode(store.read(name), PeerRecord, where=name)
        ipaddress.ip_address(record.address)
    except (StoreError, Damaged, InputError, ValueError):
        return None
    return record if 0 < record.port <= _MOST_PORT else None


def shared_secret(store: Store, *, sleep: Callable[[float], None]) -> str:
    """Return the run's secret; the first agent makes it. Whoever reads it empty waits a moment for its writer.

    Raises:
        StoreError: it cannot be read (it is another user's), or nobody wrote it.
    """
    mine = secrets.token_urlsafe(32)
    if store.create_private(names.PEERS_KEY, mine.encode()):
        return mine
    for _ in range(_LOOKS):
        found = store.read(names.PEERS_KEY).decode(errors="replace")
        if len(found) == _SECRET_BYTES:
            return found
        sleep(_LOOK_EVERY_S)
    raise StoreError(f"{store.root}/{names.PEERS_KEY} is not a secret: remove it, agents then make a new one")
