"""What the threads of one fetch share: what is missing, what is on its way, what came from where, and the end."""

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from fsctx.cache.chunks import Brought, Chunk, Incoming, bitmap, numbers_in
from fsctx.cache.peers.choice import ORIGIN, Choice
from fsctx.cache.peers.wire import ChunkMap

PEER = "peer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long peers are waited for before the origin is read without a slot."""

    silence_s: float = 10.0
    """… without a byte from a peer, or news that one gets on,"""
    longest_s: float = 30.0
    """… and in all; `size_bytes / bytes_per_s` is added. So much longer than without peers may a fetch last."""
    bytes_per_s: float = 20e6

    @staticmethod
    def within(longest_s: float) -> "Patience":
        """Return the patience that lasts so long, whatever the size."""
        return Patience(silence_s=min(Patience().silence_s, longest_s), longest_s=longest_s, bytes_per_s=math.inf)


@dataclass(slots=True, kw_only=True)
class Transit:
    """A context on its way here. Thread-safe; `chunks` are numbered as in the record."""

    incoming: Incoming
    choice: Choice
    patience: Patience
    clock: Callable[[], float]
    error: BaseException | None = None
    """What ended it before its time."""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _over: threading.Event = field(default_factory=threading.Event)
    _n_putting: int = 0
    _bytes: dict[str, int] = field(default_factory=lambda: {PEER: 0, ORIGIN: 0})
    _began_s: float = field(init=False)
    _heard_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self._heard_s = self.clock()

    @property
    def is_over(self) -> bool:
        """Whether nobody shall bring anything any more."""
        return self._over.is_set()

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing."""
        return not self.choice.missing

    @property
    def brought(self) -> Brought:
        """What came, by source; what came twice counts twice."""
        return Brought(bytes_by_source={source: n for source, n in self._bytes.items() if n})

    @property
    def coming(self) -> bytes:
        """The bitmap of the chunks that are read from the origin now."""
        with self._changed:
            return bitmap(self.choice.read_now, len(self.incoming.chunks))

    @property
    def is_origin_wanted(self) -> bool:
        """Whether something is missing that no known peer has or reads."""
        with self._changed:
            return bool(self.choice.wanted_of_origin)

    @property
    def is_origin_read(self) -> bool:
        """Whether a chunk is read from the origin just now."""
        with self._changed:
            return bool(self.choice.read_now)

    @property
    def is_overdue(self) -> bool:
        """Whether the peers had their time: the origin is read then, with a slot or without."""
        now_s, patience = self.clock(), self.patience
        longest_s = patience.longest_s + self.incoming.context.size_bytes / patience.bytes_per_s
        return now_s - self._heard_s >= patience.silence_s or now_s - self._began_s >= longest_s

    def chunk(self, number: int) -> Chunk:
        """Return a chunk by its number."""
        return self.incoming.chunks[number]

    def saw(self, peer: str, chunk_map: ChunkMap) -> bool:
        """Take in a peer's map; True if the peer has anything that is missing here."""
        n_chunks = len(self.incoming.chunks)
        with self._changed:
            if self.choice.saw(peer, numbers_in(chunk_map.held, n_chunks), numbers_in(chunk_map.coming, n_chunks)):
                self._heard_s = self.clock()  # what it gets will be had of it
            return self.choice.has_use_for(peer)

    def lost(self, peer: str) -> None:
        """Forget a peer: another may bring what was on its way from this one."""
        with self._changed:
            self.choice.lost(peer)
            self._changed.notify_all()

    def next_of_peer(self, peer: str) -> int | None:
        """Take a chunk to ask a peer for."""
        with self._changed:
            return self.choice.from_peer(peer, self.clock())

    def next_of_origin(self, *, has_slot: bool) -> int | None:
        """Take a chunk to read from the origin, if that is allowed by now."""
        with self._changed:
            if self.is_overdue:
                return self.choice.from_origin_anyway(self.clock())
            return self.choice.from_origin(self.clock()) if has_slot else None

    def failed(self, number: int, source: str) -> None:
        """Note that a source did not bring a chunk."""
        with self._changed:
            self.choice.failed(number, source)
            self._changed.notify_all()

    def put(self, number: int, source: str, data: bytes | memoryview) -> None:
        """Check and write a chunk, unless all is over: its file may be closed then.

        Raises:
            WrongBytes, OSError: see `Incoming.put`.
        """
        with self._changed:
            if self.is_over:
                return
            self._n_putting += 1
            self._bytes[PEER if source != ORIGIN else ORIGIN] += len(data)
        try:
            self.incoming.put(self.chunk(number), data)
            with self._changed:
                self.choice.arrived(number)
        finally:
            with self._changed:
                self._n_putting -= 1
                self._changed.notify_all()

    def hear(self) -> None:
        """Note that bytes come from a peer."""
        self._heard_s = self.clock()

    def wait(self, seconds: float) -> None:
        """Wait for a change."""
        with self._changed:
            if not self.is_over and not self.is_whole:
                self._changed.wait(seconds)

    def rest(self, seconds: float) -> None:
        """Wait for the end, so long at most."""
        self._over.wait(seconds)

    def fail(self, error: BaseException) -> None:
        """End all for a reason, which the waiting thread raises."""
        with self._changed:
            self.error = self.error or error
            self._over.set()
            self._changed.notify_all()

    def end(self) -> None:
        """Let nobody write any more, and wait for who does just now: that is a matter of the disk alone."""
        with self._changed:
            self._over.set()
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._n_putting == 0)
