"""Finds and takes work: observe, decide, act, until there is some, or a reason to wait or to leave."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from fsctx.agent.decide import Inspect, Leave, Look, Situation, Take, Wait, decide
from fsctx.agent.owners import Owners
from fsctx.agent.search import Search
from fsctx.errors import Missing, StoreError
from fsctx.protocol import buckets, leases, results
from fsctx.protocol.geometry import Geometry, bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import Store

LOOK_AGAIN = 4
"""In the tail so many unfinished buckets are listed again at each turn."""

FIRST_WAIT_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Leases that are now ours, all of one task."""

    leases: tuple[LeaseId, ...]


@dataclass(slots=True, kw_only=True)
class Scout:
    """Takes leases for one agent. One thread uses it.

    `reason_to_leave` says why nothing must be begun any more, or None; `give_back` declares a lease released.
    """

    store: Store
    geometry: Geometry
    search: Search
    owners: Owners[LeaseId]
    agent: str
    chance: Random
    reason_to_leave: Callable[[], str | None]
    give_back: Callable[[LeaseId], None]
    longest_wait_s: float
    idle_exit_s: float | None = None
    _wait_s: float = FIRST_WAIT_S
    _idle_since_s: float | None = None

    def step(self, now_s: float, wanted: int) -> Found | Wait | Leave | None:
        """Do one action. None where it brought no work yet: call again at once."""
        match decide(self._observe(now_s, wanted)):
            case Take(ids, is_takeover):
                return self._take(ids, now_s, is_takeover=is_takeover)
            case Look(bucket):
                self.look(bucket, now_s)
                return None
            case Inspect(ids):
                for lease_id in ids:
                    self.owners.look(lease_id, now_s)
                return self._rest(now_s)
            case Wait():
                return self._rest(now_s)
            case Leave() as leave:
                return leave

    def first_task(self, now_s: float) -> int | None:
        """Look until a free unit is seen and return its task; None if there is none. Takes nothing."""
        self.skip_compacted(now_s)
        while True:
            free, bucket = self.search.next_step(now_s)
            if free:
                return self.geometry.task_of(free[0].unit)
            if bucket is None:
                return None
            self.look(bucket, now_s)

    def skip_compacted(self, now_s: float) -> None:
        """Learn by one listing of all buckets that were finished long ago."""
        for bucket in buckets.compacted(self.store):
            self.search.saw(buckets.compacted_view(self.geometry, bucket), now_s)

    def look(self, bucket: int, now_s: float) -> None:
        """List a bucket."""
        self.search.saw(buckets.look(self.store, self.geometry, bucket), now_s)

    def _observe(self, now_s: float, wanted: int) -> Situation:
        free, bucket = self.search.next_step(now_s)
        is_tail = not free and bucket is None
        leased = self.search.leased if is_tail else []
        return Situation(
            leave=self.reason_to_leave(),
            free=self._one_task(free),
            bucket=bucket,
            orphans=self._one_task(self.owners.orphans(leased, now_s)),
            watched=self.owners.due(leased),
            is_finished=self.search.is_finished,
            is_idle_too_long=self._is_idle_too_long(now_s),
            wanted=wanted,
            wait_s=self._wait_s,
        )

    def _one_task(self, ids: tuple[LeaseId, ...]) -> tuple[LeaseId, ...]:
        return tuple(i for i in ids if self.geometry.task_of(i.unit) == self.geometry.task_of(ids[0].unit))

    def _take(self, ids: tuple[LeaseId, ...], now_s: float, *, is_takeover: bool) -> Found | None:
        """Try for leases; an orphan whose result was published in the meantime is not worth the work."""
        mine: list[LeaseId] = []
        for lease_id in ids:
            self.search.tried(lease_id)
            try:
                is_mine = leases.take(self.store, lease_id, self.agent)
                self.search.stands(lease_id)
                if is_mine and not self._is_pointless(lease_id, is_takeover=is_takeover):
                    mine.append(lease_id)
            except Missing:
                self.look(bucket_of(lease_id.unit), now_s)  # the bucket was compacted: this tells
                break
            except StoreError:
                self.give_back(lease_id)  # it may be ours without our knowing
                if not mine:
                    raise
                break
        if not mine:
            return None
        self._wait_s, self._idle_since_s = FIRST_WAIT_S, None
        return Found(leases=tuple(mine))

    def _is_pointless(self, lease_id: LeaseId, *, is_takeover: bool) -> bool:
        """Whether the unit is done, or others read in our session that we gave this very lease back.

        That is so where an earlier try for it failed: the next generation is ours to take then, as anybody's.
        """
        if str(lease_id) in self.owners.given_back():
            return True
        return is_takeover and results.winning(self.store, lease_id.unit) is not None

    def _rest(self, now_s: float) -> Wait | None:
        """Put some buckets down for another look and wait, longer each time, with a random spread."""
        if self._idle_since_s is None:
            self._idle_since_s = now_s
        unfinished = self.search.unfinished
        self.search.begin_round(self.chance.sample(unfinished, min(LOOK_AGAIN, len(unfinished))))
        if self.owners.orphans(self.search.leased, now_s):
            return None
        wait_s = self._wait_s * self.chance.uniform(0.8, 1.2)
        self._wait_s = min(2 * self._wait_s, self.longest_wait_s)
        return Wait(wait_s)

    def _is_idle_too_long(self, now_s: float) -> bool:
        if self.idle_exit_s is None or self._idle_since_s is None:
            return False
        return now_s - self._idle_since_s >= self.idle_exit_s
