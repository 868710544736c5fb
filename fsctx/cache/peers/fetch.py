"""Brings a context's missing chunks from several peers and the origin at once.

The calling thread tends: it finds peers, takes and gives back the right to read the origin, and ends. Each peer
has a thread and a connection of its own, the origin has a thread. A source that fails only loses its turn: what it
should have brought is asked of another. Nothing is waited for without an end: see `Patience`.
"""

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Protocol

from fsctx.cache.chunks import Brought, Chunk, Incoming
from fsctx.cache.origin import read_chunk
from fsctx.cache.peers.choice import Choice
from fsctx.cache.peers.client import Fault, PeerClient, PeerFailed
from fsctx.cache.peers.neighbours import Neighbours
from fsctx.cache.peers.transit import Patience, Transit
from fsctx.cache.peers.workers import ask, read_origin
from fsctx.errors import StoreError
from fsctx.protocol.manifest import Context
from fsctx.protocol.peers import PeerRecord

_TICK_S = 0.2
_LOOK_EVERY_S = 1.0
_LONGEST_LOOK_S = 8.0
_USELESS_S = 10.0
"""A neighbour that had nothing for so long makes room for another."""


class Slots(Protocol):
    """The right to read the origin: a courtesy among agents, so that a crowd of them reads it a few times only."""

    def take(self) -> bool:
        """Try to get a slot; MUST NOT wait for one. MAY raise `StoreError`."""

    def give_back(self) -> None:
        """Give the slot back, if there is one."""

    def holders(self) -> frozenset[str]:
        """Return the agents that were seen to hold slots at the last try."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where chunks come from, and who is told about it."""

    neighbours: Neighbours
    connect: Callable[[PeerRecord], PeerClient]
    slots: Slots
    clock: Callable[[], float]
    chance: Random
    event: Callable[..., None]
    origin: Callable[[Context, Chunk], bytes] = read_chunk
    """Reads a chunk from the origin. MAY raise `FsctxError` and `OSError`."""
    tend: Callable[[], None] = lambda: None
    """Called from time to time: makes known what is here by now. MAY raise `StoreError`."""
    patience: Patience = field(default_factory=Patience)
    n_neighbours: int = 6


class Fetch:
    """One context on its way to this node."""

    def __init__(self, incoming: Incoming, sources: Sources) -> None:
        self.digest = incoming.context.digest
        self._sources = sources
        self._transit = _transit(incoming, sources)
        self._met: dict[str, bool] = {}
        """Neighbour → whether it answered yet."""
        self._failures: queue.SimpleQueue[tuple[str, PeerFailed]] = queue.SimpleQueue()
        self._useless: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._has_slot = False
        self._origin_error: Exception | None = None
        self._began_s = self._look_s = self._slot_s = sources.clock()
        self._look_every_s, self._slot_every_s = _LOOK_EVERY_S, _LOOK_EVERY_S / 2

    @property
    def coming(self) -> bytes:
        """The bitmap of the chunks that are read from the origin now."""
        return self._transit.coming

    def run(self) -> Brought:
        """Bring everything.

        Raises:
            Damaged: the origin's bytes are not those that were planned.
            FsctxError, OSError: the origin cannot be read, and no peer brings what is missing; or the disk refuses.
        """
        self._spawn("origin", self._read_origin)
        try:
            while not self._transit.is_whole:
                self._check()
                self._tend()
                self._transit.wait(_TICK_S)
        finally:
            self._transit.end()
            self._remember_failures()  # a peer whose bytes were wrong is told of before others bring the right ones
            with suppress(StoreError):
                self._sources.slots.give_back()
        return self._transit.brought

    def _check(self) -> None:
        if self._transit.error is not None:
            raise self._transit.error
        if self._origin_error is not None and self._transit.is_overdue:
            raise self._origin_error

    def _tend(self) -> None:
        """Do what is due. What the shared filesystem refuses is tried again: it only makes things faster."""
        now_s = self._sources.clock()
        self._remember_failures()
        self._let_useless_rest()
        with suppress(StoreError):
            self._sources.tend()
            self._look_for_neighbours(now_s)
            self._mind_slot(now_s)

    def _remember_failures(self) -> None:
        while not self._failures.empty():
            agent, error = self._failures.get()
            self._sources.neighbours.failed(agent, error)
            if error.fault == Fault.WRONG:
                self._sources.event("peer_dropped", peer=agent, why=str(error))

    def _let_useless_rest(self) -> None:
        while not self._useless.empty():
            self._sources.neighbours.rest(self._useless.get(), _USELESS_S)

    def _look_for_neighbours(self, now_s: float) -> None:
        n_free = self._sources.n_neighbours - len(self._met)
        if n_free <= 0 or now_s < self._look_s:
            return
        first = self._sources.slots.holders() if self._has_slot else frozenset()
        found = self._sources.neighbours.find(n_free, known=list(self._met), first=first)
        self._look_every_s = _LOOK_EVERY_S if found else min(2 * self._look_every_s, _LONGEST_LOOK_S)
        self._look_s = now_s + self._look_every_s * self._sources.chance.uniform(0.8, 1.2)
        for record in found:
            self._met[record.agent] = False
            self._spawn(f"peer {record.agent}", partial(self._ask, record))

    def _mind_slot(self, now_s: float) -> None:
        """Take a slot where chunks are wanted that nobody has, and give it back where none are."""
        is_wanted = self._transit.is_origin_wanted
        if self._has_slot and not is_wanted and not self._transit.is_origin_read:
            self._has_slot = False
            self._sources.slots.give_back()
        is_early = not all(list(self._met.values())) and now_s - self._began_s < _LOOK_EVERY_S
        if is_wanted and not self._has_slot and not is_early and now_s >= self._slot_s:
            self._slot_every_s = min(2 * self._slot_every_s, _LONGEST_LOOK_S)
            self._slot_s = now_s + self._slot_every_s * self._sources.chance.uniform(0.8, 1.2)
            self._has_slot = self._sources.slots.take()

    def _ask(self, record: PeerRecord) -> None:
        """Ask one peer. Runs on a thread of its own."""
        agent, client = record.agent, self._sources.connect(record)
        try:
            ask(self._transit, agent, client, has_room=self._has_room, answered=lambda: self._met.update({agent: True}))
            self._useless.put(agent)
        except PeerFailed as error:
            self._failures.put((agent, error))
        finally:
            client.close()
            self._transit.lost(agent)
            self._met.pop(agent, None)

    def _has_room(self, useless_s: float) -> bool:
        return useless_s < _USELESS_S or len(self._met) < self._sources.n_neighbours

    def _read_origin(self) -> None:
        read_origin(
            self._transit, self._sources.origin, has_slot=lambda: self._has_slot, refused=self._refused_by_origin
        )

    def _refused_by_origin(self, error: Exception) -> None:
        """Remember what the origin said: it is the end only if no peer brings what is missing."""
        self._origin_error = error

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        def run() -> None:
            try:
                target()
            except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
                self._transit.fail(error)

        threading.Thread(target=run, name=name, daemon=True).start()


def _transit(incoming: Incoming, sources: Sources) -> Transit:
    missing, patience = set(incoming.missing()), sources.patience
    return Transit(
        incoming=incoming,
        choice=Choice(
            missing={number for number, chunk in enumerate(incoming.chunks) if chunk in missing},
            chance=sources.chance,
            late_s=patience.silence_s + incoming.context.chunk_bytes / patience.bytes_per_s,
        ),
        patience=patience,
        clock=sources.clock,
    )
