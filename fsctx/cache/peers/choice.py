"""Which chunk to ask of whom. Pure: knows no clock, thread or network.

A chunk that few have comes first, so that many have it soon; among equals chance decides, so that nodes that
begin together bring different chunks and have something for each other.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

ORIGIN = "origin"
"""Stands for the shared filesystem where a source is named; no agent has this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flight:
    """A chunk on its way here."""

    source: str
    since_s: float


@dataclass(slots=True, kw_only=True)
class Choice:
    """What is missing here, who has it, and what is on its way. Chunks are numbers."""

    missing: set[int]
    chance: Random
    late_s: float
    """A chunk that is on its way for so long may be asked of another source too."""
    _held: dict[str, set[int]] = field(default_factory=dict)
    _coming: dict[str, set[int]] = field(default_factory=dict)
    _flights: dict[int, list[Flight]] = field(default_factory=dict)

    def saw(self, peer: str, held: set[int], coming: set[int]) -> bool:
        """Remember what a peer has, and what it reads from the origin; True if it gets on."""
        gets_on = bool(coming or held - self._held.get(peer, set()))
        self._held[peer], self._coming[peer] = held, coming
        return gets_on

    def lost(self, peer: str) -> None:
        """Forget a peer: another may bring what was on its way from this one."""
        self._held.pop(peer, None)
        self._coming.pop(peer, None)
        for number in self._flights:
            self.failed(number, peer)

    def from_peer(self, peer: str, now_s: float) -> int | None:
        """Take the rarest chunk that a peer has and nobody sends yet; None if there is none."""
        return self._take(peer, self.missing & self._held.get(peer, set()), now_s)

    def from_origin(self, now_s: float) -> int | None:
        """Take a chunk that no known peer has or reads; None if there is none."""
        return self._take(ORIGIN, self.wanted_of_origin, now_s)

    def from_origin_anyway(self, now_s: float) -> int | None:
        """Take a chunk whoever else has it: the peers had their time."""
        for numbers in (self.wanted_of_origin, self.missing):
            found = self._take(ORIGIN, numbers, now_s)
            if found is not None:
                return found
        left = self.missing - self.read_now
        return self._depart(ORIGIN, min(left), now_s) if left else None

    def arrived(self, number: int) -> None:
        """Note that a chunk is here."""
        self.missing.discard(number)
        self._flights.pop(number, None)

    def failed(self, number: int, source: str) -> None:
        """Note that a source did not bring a chunk: another may."""
        flights = [flight for flight in self._flights.get(number, []) if flight.source != source]
        self._flights[number] = flights

    @property
    def wanted_of_origin(self) -> set[int]:
        """What is missing here that no known peer has or reads."""
        return self.missing.difference(*self._held.values(), *self._coming.values())

    def has_use_for(self, peer: str) -> bool:
        """Whether a peer has anything that is missing here."""
        return bool(self.missing & self._held.get(peer, set()))

    @property
    def read_now(self) -> set[int]:
        """What is on its way from the origin."""
        return {n for n, flights in self._flights.items() if any(flight.source == ORIGIN for flight in flights)}

    def _take(self, source: str, numbers: Iterable[int], now_s: float) -> int | None:
        free = [n for n in numbers if self._is_free(n, source, now_s)]
        if not free:
            return None
        rarity = {n: sum(n in held for held in self._held.values()) for n in free}
        fewest = min(rarity.values())
        return self._depart(source, self.chance.choice(sorted(n for n in free if rarity[n] == fewest)), now_s)

    def _is_free(self, number: int, source: str, now_s: float) -> bool:
        flights = self._flights.get(number, [])
        return all(flight.source != source and now_s - flight.since_s >= self.late_s for flight in flights)

    def _depart(self, source: str, number: int, now_s: float) -> int:
        self._flights.setdefault(number, []).append(Flight(source=source, since_s=now_s))
        return number
