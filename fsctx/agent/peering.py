"""An agent's part among its peers: serves the node's cache, and brings contexts with the others' help."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random

from fsctx.agent.heartbeat import Heartbeat
from fsctx.agent.options import AgentOptions
from fsctx.agent.owners import Owners
from fsctx.agent.slots import TransferSlots
from fsctx.agent.watch import Patience as HolderPatience
from fsctx.agent.world import World
from fsctx.cache.chunks import Brought, Incoming, Shelf
from fsctx.cache.peers.address import cache_name
from fsctx.cache.peers.choice import ORIGIN
from fsctx.cache.peers.client import PeerClient
from fsctx.cache.peers.fetch import Fetch, Sources
from fsctx.cache.peers.neighbours import Neighbours
from fsctx.cache.peers.server import PeerServer
from fsctx.cache.peers.transit import Patience
from fsctx.cache.root import prepare_root
from fsctx.errors import FsctxError, StoreError
from fsctx.protocol import agents, leases, names, peers
from fsctx.protocol.agents import AgentState
from fsctx.protocol.manifest import Context
from fsctx.protocol.peers import PeerRecord
from fsctx.store import Store

ORIGIN_READERS = 2
"""So many agents read the origin at once while the others wait for what these bring."""

_ANNOUNCE_S = 2.0
"""So long after the first time is told again what is here; each time twice as long after the time before."""


@dataclass(slots=True, kw_only=True)
class Board:
    """Where one agent tells what its node's cache holds. One thread uses it."""

    store: Store
    record: PeerRecord
    held: Callable[[], dict[str, bytes]]
    clock: Callable[[], float]
    _tell_s: float = 0.0
    _wait_s: float = _ANNOUNCE_S

    def begin(self) -> None:
        """Begin to tell of a fetch."""
        self._wait_s, self._tell_s = _ANNOUNCE_S, self.clock() + _ANNOUNCE_S

    def tell_in_time(self) -> None:
        """Tell if that is due: a fetch of whatever length tells a few times only (law 8).

        Raises:
            StoreError: the filesystem refused.
        """
        if self.clock() >= self._tell_s:
            self._wait_s *= 2
            self._tell_s = self.clock() + self._wait_s
            self.tell()

    def tell(self) -> None:
        """Tell now. Raises like `tell_in_time`."""
        peers.announce(self.store, replace(self.record, contexts=self.held()))

    def withdraw(self) -> None:
        """Tell that nothing is served any more. Raises like `tell_in_time`."""
        peers.withdraw(self.store, self.record.agent)


@dataclass(slots=True)
class Underway:
    """The fetch that is under way, if one is."""

    fetch: Fetch | None = None

    def coming(self, digest: str) -> bytes:
        """Return the bitmap of what is read from the origin now. Any thread may ask."""
        fetch = self.fetch
        return fetch.coming if fetch is not None and fetch.digest == digest else b""


@dataclass(slots=True, kw_only=True)
class Peering:
    """What one agent serves and fetches. One thread uses it."""

    board: Board
    sources: Sources
    stop_serving: Callable[[], None]
    underway: Underway

    def bring(self, incoming: Incoming) -> Brought:
        """Bring a context; see `fsctx.cache.chunks.Bring`."""
        self.board.begin()
        self.underway.fetch = Fetch(incoming, self.sources)
        try:
            return self.underway.fetch.run()
        finally:
            self.underway.fetch = None
            with suppress(StoreError):
                self.board.tell()

    def stop(self) -> None:
        """Serve no more."""
        self.stop_serving()
        with suppress(StoreError):
            self.board.withdraw()


@dataclass(frozen=True, slots=True, kw_only=True)
class PeeringParts:
    """What an agent has by the time that it looks for peers."""

    store: Store
    contexts: Sequence[Context]
    """Those that have files."""
    ttl_s: float
    options: AgentOptions
    heartbeat: Heartbeat
    world: World


def start_peering(parts: PeeringParts, address: str | None) -> Peering | None:
    """Serve this node's cache at an address and return what fetches with the peers' help; None where that cannot be."""
    events = parts.heartbeat.events
    if address is None:
        events.add("no_peers", why="this node has no address that others could reach")
        return None
    try:
        return _start(parts, address)
    except (FsctxError, OSError) as error:
        events.add("no_peers", why=str(error))
        return None


def _start(parts: PeeringParts, address: str) -> Peering:
    store, root, heartbeat = parts.store, parts.options.cache, parts.heartbeat
    for folder in (names.PEERS, names.SLOTS):
        store.make_folder(folder)
    secret = peers.shared_secret(store, sleep=parts.world.sleep)
    prepare_root(root)
    shelf, digests, underway = Shelf(root, parts.contexts), [context.digest for context in parts.contexts], Underway()
    server = PeerServer(shelf, frozenset(digests), secret, coming=underway.coming)
    record = PeerRecord(
        agent=heartbeat.agent,
        host=heartbeat.session.host,
        address=address,
        port=server.start(address),
        cache=cache_name(root),
    )
    board = Board(
        store=store,
        record=record,
        held=lambda: {digest: shelf.held(digest) for digest in digests},
        clock=parts.world.clock,
    )
    with suppress(StoreError):  # it is told again with the first fetch
        board.tell()
    heartbeat.events.add("serving", address=address, port=record.port)
    return Peering(board=board, sources=_sources(parts, board, secret), stop_serving=server.stop, underway=underway)


def _sources(parts: PeeringParts, board: Board, secret: str) -> Sources:
    options, world, chance = parts.options, parts.world, Random(board.record.agent)
    return Sources(
        neighbours=Neighbours(
            store=parts.store, me=board.record, chance=chance, clock=world.clock, pulse=_pulse_in(parts)
        ),
        connect=lambda peer: PeerClient(peer, secret),
        slots=_slots(parts, chance),
        clock=world.clock,
        chance=chance,
        event=parts.heartbeat.events.add,
        tend=board.tell_in_time,
        patience=Patience() if options.peer_wait_s is None else Patience.within(options.peer_wait_s),
    )


def _pulse_in(parts: PeeringParts) -> Callable[[str], int | None]:
    """Return what tells how far an agent's heartbeat is; None for one that left or is known to be dead."""

    def pulse(agent: str) -> int | None:
        session, record = agents.read_session(parts.store, agent), agents.read_agent(parts.store, agent)
        is_gone = session is not None and session.state == AgentState.LEFT
        if is_gone or (record is not None and parts.world.is_dead(record)):
            return None
        return -1 if session is None else session.counter

    return pulse


def _slots(parts: PeeringParts, chance: Random) -> TransferSlots:
    heartbeat, store = parts.heartbeat, parts.store
    owners = Owners(
        store=store,
        me=heartbeat.agent,
        patience=HolderPatience(ttl_s=parts.ttl_s, stall_s=parts.options.stall_s),
        is_dead=parts.world.is_dead,
        owner_of=leases.owner_of_slot,
        given_back=lambda: heartbeat.session.released,
    )
    return TransferSlots(
        store=store,
        source=ORIGIN,
        n_slots=ORIGIN_READERS,
        agent=heartbeat.agent,
        owners=owners,
        say_given_back=heartbeat.release,
        clock=parts.world.clock,
        chance=chance,
    )
