"""Finds and takes work: observe, decide, act, until there is some, or a reason to wait or to leave."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fsctx.agent.decide import Inspect, Leave, Look, Situation, Take, Wait, decide
from fsctx.agent.owners import Owners
from fsctx.agent.patrol import Patrol
from fsctx.agent.search import Search
from fsctx.agent.tail import Tail
from fsctx.errors import Missing, StoreError
from fsctx.protocol import buckets, leases, results
from fsctx.protocol.geometry import Geometry, bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import Store

FRUITLESS = 8
"""After so many buckets without a free unit it is no hurry any more to look at others: hardly any is free."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Leases that are now ours, all of one task."""

    leases: tuple[LeaseId, ...]


@dataclass(slots=True, kw_only=True)
class Scout:
    """Takes leases for one agent. One thread uses it.

    `tail` says what to look at while nothing is free, `patrol` what to watch before.

    `reason_to_leave` says why nothing must be begun any more, or None; `give_back` declares a lease released.
    """

    store: Store
    geometry: Geometry
    search: Search
    owners: Owners[LeaseId]
    tail: Tail
    patrol: Patrol
    agent: str
    reason_to_leave: Callable[[], str | None]
    give_back: Callable[[LeaseId], None]
    clock: Callable[[], float]
    """Says since when leases stand: after calls that may have hung, `now_s` is long ago."""
    idle_exit_s: float | None = None
    _n_fruitless: int = 0
    """Looks since there was work."""
    _idle_since_s: float | None = None

    def step(self, now_s: float, wanted: int) -> Found | Wait | Leave | None:
        """Do one action. None where it brought no work yet: call again at once."""
        match decide(self._observe(now_s, wanted)):
            case Take(ids, is_takeover):
                return self._take(ids, now_s, is_takeover=is_takeover)
            case Look(bucket):
                self.look(bucket)
                self._go_on(now_s)
                return None
            case Inspect(ids):
                for lease_id in ids:
                    self.owners.look(lease_id, now_s)
                return None
            case Wait() as wait:
                self._idle_since_s = now_s if self._idle_since_s is None else self._idle_since_s
                self.tail.rest()
                return wait
            case Leave() as leave:
                return leave

    def first_task(self, now_s: float) -> int | None:
        """Look until a free unit is seen and return its task; None if there is none. Takes nothing."""
        self.search.saw_compacted(buckets.compacted(self.store))
        if self.tail.referee is not None:
            self.tail.referee.learn()
        while True:
            free, bucket = self.search.next_step(now_s)
            if free:
                return self.geometry.task_of(free[0].unit)
            if bucket is None:
                return None
            self.look(bucket)

    def go_round(self, now_s: float) -> None:
        """Watch others' leases, while there is work."""
        bucket = self.patrol.round(now_s)
        if bucket is not None:
            self.look(bucket)

    def look(self, bucket: int) -> None:
        """List a bucket."""
        view = buckets.look(self.store, self.geometry, bucket)
        self.search.saw(view, self.clock())

    def _observe(self, now_s: float, wanted: int) -> Situation:
        leave = self.reason_to_leave()
        free, bucket = self.search.next_step(now_s, wanted)
        is_tail = leave is None and not free and bucket is None
        if is_tail:
            self.search.begin_round(self.tail.turn(now_s))
            free, bucket = self.search.next_step(now_s, wanted)
        orphans = self.owners.orphans(self.search.leased, now_s) if is_tail else self.patrol.orphans(now_s)
        return Situation(
            leave=leave,
            free=free,
            bucket=bucket,
            orphans=self._one_task(self.search.best_first(orphans)),
            doubted=() if is_tail else self.patrol.doubted(now_s),
            watched=self.tail.due(now_s) if is_tail else (),
            is_finished=is_tail and (self.search.is_finished or self.tail.is_stuck),
            is_idle_too_long=self._is_idle_too_long(now_s),
            wanted=wanted,
            wait_s=self.tail.wait_s(now_s) if is_tail else 0.0,
            refuses_some=self.search.refuses_some,
        )

    def _one_task(self, ids: Sequence[LeaseId]) -> tuple[LeaseId, ...]:
        return tuple(i for i in ids if self.geometry.task_of(i.unit) == self.geometry.task_of(ids[0].unit))

    def _take(self, ids: tuple[LeaseId, ...], now_s: float, *, is_takeover: bool) -> Found | None:
        """Try for leases; an orphan whose result was published in the meantime is not worth the work."""
        mine: list[LeaseId] = []
        for lease_id in ids:
            try:
                if not self._try(lease_id, is_takeover=is_takeover):
                    break
            except StoreError:
                self.give_back(lease_id)  # it may be ours without our knowing
                if not mine:
                    raise
                break
            mine.append(lease_id)
        if not mine:
            return None
        if not is_takeover and self._n_fruitless >= FRUITLESS:
            self.search.begin_round(self.search.unfinished)  # something is free after all
        self._n_fruitless, self._idle_since_s = 0, None
        self.tail.begin_again()
        return Found(leases=tuple(mine))

    def _try(self, lease_id: LeaseId, *, is_takeover: bool) -> bool:
        self.search.tried(lease_id)
        bucket = bucket_of(lease_id.unit)
        try:
            is_mine = leases.take(self.store, lease_id, self.agent)
            self.search.stands(lease_id, self.clock())
            if is_mine and not self._is_pointless(lease_id, is_takeover=is_takeover):
                return True
        except Missing:
            self.look(bucket)  # the bucket was compacted: this tells
            return False
        if not is_takeover:
            self.look(bucket)  # somebody goes before us here: begin at another place
        return False

    def _is_pointless(self, lease_id: LeaseId, *, is_takeover: bool) -> bool:
        """Whether the unit is done, or others read in our session that we gave this very lease back.

        That is so where an earlier try for it failed: the next generation is ours to take then, as anybody's.
        """
        if str(lease_id) in self.owners.given_back():
            return True
        if not is_takeover:
            return False
        is_published = results.winning(self.store, lease_id.unit) is not None
        return is_published or buckets.is_compacted(self.store, bucket_of(lease_id.unit))

    def _go_on(self, now_s: float) -> None:
        """After a look: end the search for free units where many looks found none."""
        self._n_fruitless += 1
        if self._n_fruitless == FRUITLESS and not self.search.next_step(now_s)[0]:
            self.search.begin_round([])

    def _is_idle_too_long(self, now_s: float) -> bool:
        if self.idle_exit_s is None or self._idle_since_s is None:
            return False
        return now_s - self._idle_since_s >= self.idle_exit_s
