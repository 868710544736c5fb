"""Which other agents to ask: found by listing the run's peers, remembered by how they behaved."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from fsctx.cache.peers.client import Fault, PeerFailed
from fsctx.errors import StoreError
from fsctx.protocol import peers
from fsctx.protocol.peers import PeerRecord
from fsctx.store import Store

PUT_OFF_S = 30.0
"""So long is a peer not asked that could not be reached or was too slow, and twice as long each further time."""


@dataclass(slots=True, kw_only=True)
class Neighbours:
    """The peers of one agent, for as long as it lives. Only one thread uses it."""

    store: Store
    me: PeerRecord
    chance: Random
    clock: Callable[[], float]
    pulse: Callable[[str], int | None] = lambda _: -1
    """Returns an agent's heartbeat, as a number that moves while it lives; None: it is known to be gone. MAY raise
    `StoreError`."""
    _records: dict[str, PeerRecord] = field(default_factory=dict)
    _dropped: set[str] = field(default_factory=set)
    _off: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Peer → when it may be asked again, and for how long it was put off."""
    _last_pulses: dict[str, int] = field(default_factory=dict)
    """Peer that gave nothing → its heartbeat then: while that stands still, it is not asked again."""

    def find(self, n: int, *, known: Iterable[str], first: Iterable[str] = ()) -> list[PeerRecord]:
        """Return up to `n` peers that may be asked now and are not `known`: these `first`, then others by chance.

        One listing, and for each of `n` at most its heartbeat and, the first time, its record.

        Raises:
            StoreError: the filesystem refused.
        """
        others = [name for name in peers.list_peers(self.store) if name not in known and self._may_ask(name)]
        self.chance.shuffle(others)
        others.sort(key=lambda name: name not in first)
        records = (self._record(name) for name in others[:n])
        return [record for record in records if record is not None]

    def failed(self, agent: str, error: PeerFailed) -> None:
        """Remember that a peer gave nothing: put it off; for good if its bytes were wrong."""
        if error.fault == Fault.WRONG:
            self._dropped.add(agent)
        with suppress(StoreError):
            self._last_pulses[agent] = self.pulse(agent) or 0
        self._put_off(agent)

    def _put_off(self, agent: str) -> None:
        _, for_s = self._off.get(agent, (0.0, PUT_OFF_S / 2))
        self._off[agent] = (self.clock() + 2 * for_s, 2 * for_s)

    def rest(self, agent: str, for_s: float) -> None:
        """Do not ask a peer for a while, without blame: it has nothing new."""
        _, blamed_s = self._off.get(agent, (0.0, PUT_OFF_S / 2))
        self._off[agent] = (self.clock() + for_s, blamed_s)

    def _may_ask(self, agent: str) -> bool:
        until_s, _ = self._off.get(agent, (0.0, 0.0))
        return agent != self.me.agent and agent not in self._dropped and self.clock() >= until_s

    def _record(self, agent: str) -> PeerRecord | None:
        """Read a peer's record, once. One that shares this node's cache has nothing that is not here."""
        record = self._records.get(agent) or peers.read_peer(self.store, agent)
        if record is None or record.agent != agent:
            self.rest(agent, PUT_OFF_S)
            return None
        self._records[agent] = record
        if record.cache == self.me.cache:
            self._dropped.add(agent)
            return None
        return record if self._is_alive(agent) else None

    def _is_alive(self, agent: str) -> bool:
        """Tell whether a peer may answer: agents that were killed leave their records behind."""
        pulse = self.pulse(agent)
        if pulse is None:
            self._dropped.add(agent)
            return False
        if pulse == self._last_pulses.get(agent):
            self._put_off(agent)
            return False
        return True
