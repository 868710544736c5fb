"""Watching the owners of old leases while units are free, so that few orphans are left for the end of a run.

Who takes units of a bucket sees its leases anyway, at each look. Those that stood at looks more than a time to live
apart are suspect: a few of their owners are read at a time, as often as it takes to judge them (see `watch`). What an
agent left behind, with nothing free but something leased, it lists again, one bucket in a time to live. All of this
goes by the clock: at most a call in five seconds or so (at a time to live of a minute), however short the units are.
"""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from random import Random

from fsctx.agent.owners import Owners
from fsctx.agent.search import Search
from fsctx.protocol.names import LeaseId

ROUNDS = 3.5
"""So many rounds in the time to live: looks further apart than half of it count for nothing."""

SUSPECTS = 3
"""So many owners are watched at once."""


@dataclass(slots=True, kw_only=True)
class Patrol:
    """What one scout watches beside its work. `ttl_s` is the time to live."""

    search: Search
    owners: Owners[LeaseId]
    chance: Random
    ttl_s: float
    _suspects: dict[LeaseId, float] = field(default_factory=dict)
    """Lease → since when its owner is watched."""
    _cleared: dict[LeaseId, float] = field(default_factory=dict)
    """Lease → when its owner was found alive."""
    _list_s: float = float("-inf")
    """When to list a bucket that was left behind."""

    @property
    def every_s(self) -> float:
        """How long from round to round."""
        return self.ttl_s / ROUNDS

    def round(self, now_s: float) -> int | None:
        """Look at suspects; return a bucket to list again, seldom any."""
        self._choose(now_s)
        for lease_id in self._suspects:
            self.owners.look(lease_id, now_s)
        if now_s < self._list_s:
            return None
        bucket = self.search.left_behind(now_s - self.ttl_s)
        if bucket is not None:
            self._list_s = now_s + self.ttl_s
        return bucket

    def orphans(self, now_s: float) -> tuple[LeaseId, ...]:
        """Return the next generations of suspects that may be taken over now. A live holder is not raced meanwhile."""
        return self.owners.orphans(dict.fromkeys(self._standing(), now_s), now_s)

    def doubted(self, now_s: float) -> tuple[LeaseId, ...]:
        """Return suspects that seem to be orphans: one more look at their owners tells."""
        return self.owners.doubted(self._standing(), now_s)

    def _standing(self) -> list[LeaseId]:
        return [lease_id for lease_id in self._suspects if self.search.is_leased(lease_id)]

    def _choose(self, now_s: float) -> None:
        """Drop those that live, or are suspect no more; suspect others instead."""
        age_s = max(self.ttl_s, self.owners.unit_s() or 0.0)
        old = self.search.old_leases(age_s)
        alive = [lease_id for lease_id, since_s in self._suspects.items() if self.owners.lived_since(lease_id, since_s)]
        self._cleared = {i: s for i, s in self._cleared.items() if i in old and now_s - s < age_s}
        self._cleared |= dict.fromkeys(alive, now_s)
        kept = {i: s for i, s in self._suspects.items() if i in old and i not in self._cleared}
        others = [lease_id for lease_id in old if lease_id not in self._cleared and lease_id not in kept]
        chosen = self.chance.sample(others, min(len(others), SUSPECTS - len(kept)))
        self._suspects = kept | dict.fromkeys(chosen, now_s)


@dataclass(slots=True, kw_only=True)
class Rounds:
    """Has rounds made now and then by the thread that scouts, while another one keeps the device busy."""

    go: Callable[[], None]
    every_s: float
    clock: Callable[[], float]
    _latest: Future[None] | None = None
    _began_s: float = float("-inf")

    def next(self, worker: Executor) -> None:
        """Have a round made, if it is time for one and the latest one has ended."""
        if self._latest is not None and not self._latest.done():
            return
        if self._latest is not None:
            self._latest.result()  # raises what it did not expect
        self._latest, now_s = None, self.clock()
        if now_s - self._began_s >= self.every_s:
            self._began_s, self._latest = now_s, worker.submit(self.go)
