"""Contexts, nodes and peers for tests: real servers and clients on the loopback, each node with a cache of its own."""

import dataclasses
import hashlib
import random
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from fsctx.cache import NodeCache
from fsctx.cache.chunks import Brought, Chunk, Incoming, Shelf
from fsctx.cache.origin import read_chunk
from fsctx.cache.peers.client import ClientLimits, PeerClient
from fsctx.cache.peers.fetch import Fetch, Sources
from fsctx.cache.peers.neighbours import Neighbours
from fsctx.cache.peers.server import PeerServer, ServerLimits
from fsctx.cache.peers.transit import Patience
from fsctx.errors import StoreError
from fsctx.protocol import names, peers
from fsctx.protocol.manifest import Context, ModelFile, digest_of
from fsctx.protocol.peers import PeerRecord
from fsctx.store import PosixStore

CHUNK = 10_000
SECRET = "s" * 43


def make_context(origin: Path, *, n_chunks: int = 12) -> Context:
    """A folder of two files, and its record."""
    origin.mkdir(parents=True)
    contents = {"config.json": b"{}", "weights": Random(1).randbytes(n_chunks * CHUNK - 77)}
    files = []
    for name, content in contents.items():
        (origin / name).write_bytes(content)
        pieces = [content[at : at + CHUNK] for at in range(0, len(content), CHUNK)]
        chunks = tuple(hashlib.sha256(piece).hexdigest() for piece in pieces)
        files.append(ModelFile(path=name, size_bytes=len(content), chunks=chunks))
    context = Context(digest="", kind="hf", name="m", origin=str(origin), files=tuple(files), chunk_bytes=CHUNK)
    return dataclasses.replace(context, digest=digest_of(context))


@dataclass
class FreeSlots:
    """Slots that are there for everybody, or for nobody."""

    n: int = 1
    is_held: bool = False

    def take(self) -> bool:
        self.is_held = self.n > 0
        return self.is_held

    def give_back(self) -> None:
        self.is_held = False

    def holders(self) -> frozenset[str]:
        return frozenset()


@dataclass
class Node(AbstractContextManager["Node"]):
    """A node with a cache, which may serve it and fetch into it."""

    store: PosixStore
    context: Context
    root: Path
    name: str
    slots: FreeSlots = field(default_factory=FreeSlots)
    patience: Patience = field(default_factory=Patience)
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    read: list[Chunk] = field(default_factory=list)
    """What was read of the origin."""
    client_limits: ClientLimits = field(default_factory=ClientLimits)
    origin: Callable[[Context, Chunk], bytes] = read_chunk
    _stack: ExitStack = field(default_factory=ExitStack)

    def __exit__(self, *exception: object) -> None:
        self._stack.close()

    @property
    def shelf(self) -> Shelf:
        return Shelf(self.root, [self.context])

    @property
    def record(self) -> PeerRecord:
        return PeerRecord(agent=self.name, host="here", address="127.0.0.1", port=1, cache=self.name)

    def serve(
        self, *, secret: str = SECRET, limits: ServerLimits | None = None, address: str = "127.0.0.1"
    ) -> PeerRecord:
        server = PeerServer(self.shelf, frozenset([self.context.digest]), secret, limits=limits)
        port = server.start(address)
        self._stack.callback(server.stop)
        return announce(self.store, self.name, port, address=address)

    def fetch(self) -> dict[str, int]:
        """Fetch with the peers' help; return bytes by source."""
        return self.fetch_with(self.sources())

    def fetch_with(self, sources: Sources) -> dict[str, int]:
        cache = NodeCache(self.root)
        return cache.fetch(self.context, lambda incoming: Fetch(incoming, sources).run()).bytes_by_source

    def fill(self) -> None:
        """Take everything from the origin."""
        NodeCache(self.root).fetch(self.context)

    def keep(self, numbers: Iterable[int]) -> None:
        """Take some chunks from the origin, as one that is still fetching."""

        def bring(incoming: Incoming) -> Brought:
            for number in numbers:
                incoming.put(incoming.chunks[number], read_chunk(self.context, incoming.chunks[number]))
            raise StoreError("enough for now")

        with suppress(StoreError):
            NodeCache(self.root).fetch(self.context, bring)

    def sources(self) -> Sources:
        def read(context: Context, chunk: Chunk) -> bytes:
            self.read.append(chunk)
            return self.origin(context, chunk)

        chance = random.Random(self.name)
        return Sources(
            neighbours=Neighbours(store=self.store, me=self.record, chance=chance, clock=time.monotonic),
            connect=lambda record: PeerClient(record, SECRET, limits=self.client_limits),
            slots=self.slots,
            clock=time.monotonic,
            chance=chance,
            event=lambda kind, **fields: self.events.append((kind, fields)),
            origin=read,
            patience=self.patience,
        )


def announce(store: PosixStore, agent: str, port: int, *, cache: str = "", address: str = "127.0.0.1") -> PeerRecord:
    store.make_folder(names.PEERS)
    record = PeerRecord(agent=agent, host="here", address=address, port=port, cache=cache or agent)
    peers.announce(store, record)
    return record
