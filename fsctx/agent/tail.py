"""What an agent looks at while nothing is free, and how often: the calls of all who wait stay bounded.

Each open lease has a watcher (see `rota`), who looks at its owner ten times in the time to live: a unit whose
holder was killed runs again within the time to live and a tenth. Others look at it too, less often the more
agents there are, in case the watcher died as well or still has work. Among very many each lease has a deputy for that.
All who wait share what they list.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from fsctx.agent.owners import Owners
from fsctx.agent.rota import Rota, before_me, draw_up
from fsctx.agent.search import Search
from fsctx.protocol import agents, buckets
from fsctx.protocol.agents import AgentState
from fsctx.protocol.geometry import MAX_UNCOMPACTED_BUCKETS, Geometry, bucket_of
from fsctx.protocol.names import LeaseId
from fsctx.store import Store

if TYPE_CHECKING:
    from fsctx.agent.referee import Referee

OFTEN, SELDOM = 10.5, 3.0
"""A lease's watcher looks at its owner so many times in the time to live, the busiest and the guests seldom."""

GUEST_LOOKS = 420.0
"""So many times in the time to live all together look at leases of which others are the watchers."""

DEPUTIES_FROM = int(GUEST_LOOKS / 2)
"""Among more agents than this each is a guest so seldom that its looks tell nothing: so each lease has a deputy."""

LIST_PER_S = 9.0
"""All who wait list so many folders a second."""

ONE_PER_S = 20.0
"""Nobody looks at more owners a second than this."""

KEPT_TTLS = 3.0
"""So many times to live an agent goes by one listing of agents, and is the guest of the same leases."""

ROLL = 8
"""Of so many that stand before it at most an agent asks whether they are there."""

LOOK_AGAIN = 4
"""So many buckets at most are listed again at a turn."""

FIRST_WAIT_S = 0.25


@dataclass(slots=True, kw_only=True)
class Tail:
    """The patience of one scout. `ttl_s` is the time to live."""

    store: Store
    geometry: Geometry
    search: Search
    owners: Owners[LeaseId]
    me: str
    chance: Random
    ttl_s: float
    referee: "Referee | None" = None
    """Of a run whose sweep stops early."""
    _rota: Rota = field(default_factory=Rota)
    _met_s: float = float("-inf")
    _roll: dict[str, int | None] = field(default_factory=dict)
    """Agent → its heartbeat's counter when it was asked last."""
    _absent: set[str] = field(default_factory=set)
    _list_s: float = float("-inf")
    """When to list again."""
    _pause_s: float | None = None
    """How long to pause after what is being listed."""
    _wait_s: float = FIRST_WAIT_S
    """Grows from turn to turn."""
    _guest_of: frozenset[LeaseId] = frozenset()
    """Leases of which others are the watchers; chosen anew at each listing of agents, and when all have ended."""
    _suspects: set[int] = field(default_factory=set)
    """Buckets in which an agent of this host, now dead, may have left leases: where it did not say, all."""
    _watched: dict[LeaseId, float] = field(default_factory=dict)
    """Lease → how often to look at its owner, in seconds."""

    def begin_again(self) -> None:
        """There was work: be eager the next time."""
        self._wait_s, self._list_s = FIRST_WAIT_S, float("-inf")

    def rest(self) -> None:
        """Note that a turn brought nothing: the next one is later."""
        self._wait_s = min(2 * self._wait_s, self.ttl_s / OFTEN)

    def turn(self, now_s: float) -> list[int]:
        """Begin a turn: return the buckets to list, seldom any."""
        if now_s >= self._met_s + KEPT_TTLS * self.ttl_s:
            self._meet(now_s)
        units = self.owners.units_of_dead_neighbours(now_s)
        lost = [bucket_of(unit) for unit in units if unit is not None]
        self._suspects.update(lost if None not in units else self.search.unfinished)
        self._watched = self._choose_leases()
        if self._pause_s is not None:  # the pause begins when all is listed, however long that takes
            self._list_s, self._pause_s = now_s + self._pause_s, None
        return [*lost, *self._listing(now_s)] if now_s >= self._list_s else lost

    def due(self, now_s: float) -> tuple[LeaseId, ...]:
        """Return the leases whose owners are to be looked at now."""
        return self.owners.due(self._watched, now_s)

    def wait_s(self, now_s: float) -> float:
        """Return how long nothing is to do."""
        due_s = min(self._list_s, self.owners.next_look_s(self._watched), self._met_s + KEPT_TTLS * self.ttl_s)
        return max(0.0, due_s - now_s)

    def _meet(self, now_s: float) -> None:
        """Learn who the others are."""
        present = set(agents.list_agents(self.store)) - self.owners.gone(now_s)
        self._call_roll(before_me(self.me, present - self._absent))
        self._rota = draw_up(self.me, present - self._absent)
        self.owners.meet_neighbours(self._rota.neighbours)
        self._met_s, self._guest_of = now_s, frozenset()

    def _call_roll(self, before: Sequence[str]) -> None:
        """Ask those next before this agent, up to the first that lives: the buckets of the dead are its own."""
        for name in before[:ROLL]:
            session = agents.read_session(self.store, name)
            counter = session.counter if session else None
            if (session and session.state == AgentState.LEFT) or (name in self._roll and self._roll[name] == counter):
                self._absent.add(name)
            elif name in self._roll:
                break
            self._roll[name] = counter

    def _choose_leases(self) -> dict[LeaseId, float]:
        """Return the leases to watch, and how often."""
        leased = self.search.leased
        at_most = int(ONE_PER_S * self.ttl_s / SELDOM)
        mine = [id_ for id_ in leased if self._rota.has(bucket_of(id_.unit))][:at_most]
        every_s = max(self._wait_s, min(self.ttl_s / SELDOM, len(mine) / ONE_PER_S))
        deputy_for = [id_ for id_ in leased if self._is_deputy_for(bucket_of(id_.unit))][:at_most]
        guest_of = self._be_guest(list(leased))
        guest_every_s = max(self._wait_s, len(guest_of) * self._rota.n_agents * self.ttl_s / GUEST_LOOKS)
        suspect = [id_ for id_ in leased if self._is_suspect(id_)][:at_most]
        seldom = dict.fromkeys(guest_of, guest_every_s) | dict.fromkeys(deputy_for, self.ttl_s / SELDOM)
        return seldom | dict.fromkeys(mine, every_s) | dict.fromkeys(suspect, 0.0)

    def _is_suspect(self, lease_id: LeaseId) -> bool:
        return bucket_of(lease_id.unit) in self._suspects and not self.owners.knows(lease_id)

    def _is_deputy_for(self, bucket: int) -> bool:
        return self._rota.n_agents > DEPUTIES_FROM and self._rota.is_deputy_for(bucket)

    def _be_guest(self, leased: Sequence[LeaseId]) -> frozenset[LeaseId]:
        self._guest_of &= frozenset(leased)
        if not self._guest_of:
            n_guests = max(1, int(GUEST_LOOKS / SELDOM / self._rota.n_agents))
            self._guest_of = frozenset(self.chance.sample(leased, min(n_guests, len(leased))))
        return self._guest_of

    @property
    def is_stuck(self) -> bool:
        """See `Referee.is_stuck`."""
        return self.referee is not None and self.referee.is_stuck

    def _listing(self, now_s: float) -> list[int]:
        """Choose the buckets to list now, and how long to list nothing then."""
        n_calls = 0
        if self.referee is not None and self.referee.is_waiting:
            n_calls = 1
            if self.referee.turn(self._rota, now_s):
                self.begin_again()
                return self.search.unfinished
        if self.geometry.n_buckets > MAX_UNCOMPACTED_BUCKETS:
            n_calls += 1
            self.search.saw_compacted(buckets.compacted(self.store))
        chosen = self._choose_buckets()
        n_calls += 3 * len(chosen)
        share_s = self._rota.n_agents * n_calls / LIST_PER_S * self.chance.uniform(0.8, 1.2)
        self._pause_s = min(max(share_s, self._wait_s), self.ttl_s)
        return chosen

    def _choose_buckets(self) -> list[int]:
        """Take those that were not seen for the longest time: all of this agent's that were never seen, else few."""
        unfinished = self.search.unfinished
        mine = [bucket for bucket in unfinished if self._rota.has(bucket) or self._is_deputy_for(bucket)]
        is_mine_wanted = mine and self.chance.random() < 0.75
        oldest = sorted(mine if is_mine_wanted else unfinished, key=self.search.seen_s)
        never = [bucket for bucket in mine if self.search.seen_s(bucket) == float("-inf")]
        return never[: 2 * LOOK_AGAIN] or oldest[: max(1, LOOK_AGAIN // self._rota.n_agents)]
