"""What an agent knows of the others that hold leases: who owns what, and whether they are alive."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from fsctx.agent import watch
from fsctx.agent.watch import Patience, Watch
from fsctx.protocol import agents, leases
from fsctx.protocol.agents import AgentRecord, AgentState, Session
from fsctx.protocol.names import LeaseId, SlotId
from fsctx.store import Store

Id = TypeVar("Id", LeaseId, SlotId)

AT_ONCE = 8
"""So many owners are read per look: the rest has its turn at the next ones."""

JUST_NOW_S = 0.1
"""A look is not repeated so soon."""


@dataclass(slots=True)
class _Owner:
    """What is remembered of one owner."""

    watch: Watch | None = None
    is_gone: bool = False
    """Whether it left, or its process is dead: for good."""
    released: frozenset[str] = frozenset()
    record: AgentRecord | None = None


@dataclass(slots=True)
class Owners(Generic[Id]):
    """Watches the holders of leases. `is_dead` says of a record whether its process is known to be dead."""

    store: Store
    me: str
    patience: Patience
    is_dead: Callable[[AgentRecord], bool]
    owner_of: Callable[[Store, Id], str | None]
    """Reads who holds a lease; None where nobody is named."""
    unit_s: Callable[[], float | None] = lambda: None
    """How long this agent needs for a unit, once it knows."""
    given_back: Callable[[], Iterable[str]] = tuple
    """The leases that this agent itself gave back."""
    _since_s: dict[Id, float] = field(default_factory=dict)
    """When this agent first meant to look at a lease's owner."""
    _of_lease: dict[Id, str] = field(default_factory=dict)
    _owners: dict[str, _Owner] = field(default_factory=dict)

    def orphans(self, leased: Mapping[Id, float], now_s: float) -> tuple[Id, ...]:
        """Return the next generations of the leases whose holders are gone, or silent when just looked at.

        `leased` says of each lease since when it is known to stand: whoever keeps one for too long is raced.
        """
        return tuple(id_.next for id_, since_s in leased.items() if self._is_orphan(id_, since_s, now_s))

    def doubted(self, leased: Iterable[Id], now_s: float) -> tuple[Id, ...]:
        """Return the leases whose holders were silent at a look that is too old by now to go by."""
        watches = ((id_, owner.watch) for id_ in leased if (owner := self._owners.get(self._of_lease.get(id_, "?"))))
        return tuple(id_ for id_, seen in watches if seen and self._is_doubted(seen, now_s))

    def _is_doubted(self, seen: Watch, now_s: float) -> bool:
        return watch.was_silent(seen, self.patience) and not watch.is_fresh(seen, now_s, self.patience)

    def lived_since(self, lease_id: Id, since_s: float) -> bool:
        """Whether the holder of a lease was seen to live after a time, or is this agent."""
        name = self._of_lease.get(lease_id, "?")
        seen = owner.watch if (owner := self._owners.get(name)) else None
        return name == self.me or (seen is not None and seen.counter_since_s > since_s)

    def due(self, watched: Mapping[Id, float], now_s: float) -> tuple[Id, ...]:
        """Return some leases, one per owner, whose owners are to be looked at now, the latest first.

        `watched` says of each lease how often its owner is looked at, in seconds.
        """
        for id_ in watched:
            self._since_s.setdefault(id_, now_s)
        late = sorted((at_s, id_) for at_s, id_ in self._next_looks(watched) if at_s <= now_s)
        return tuple(id_ for _, id_ in late[:AT_ONCE])

    def knows(self, lease_id: Id) -> bool:
        """Whether it is known whose lease this is."""
        return lease_id in self._of_lease

    def next_look_s(self, watched: Mapping[Id, float]) -> float:
        """Return when the next look is due."""
        return min((at_s for at_s, _ in self._next_looks(watched)), default=float("inf"))

    def _next_looks(self, watched: Mapping[Id, float]) -> Iterable[tuple[float, Id]]:
        one_of: dict[str, Id] = {self._of_lease.get(id_, _nameless(id_)): id_ for id_ in watched}
        return ((self._next_look_s(owner, id_, watched[id_]), id_) for owner, id_ in one_of.items())

    def _next_look_s(self, owner_name: str, lease_id: Id, every_s: float) -> float:
        """Return when an owner is due: if it was found silent, no later than when that begins to mean something."""
        owner = self._owners.get(owner_name)
        if owner_name in (self.me, leases.NOBODY) or (owner is not None and owner.is_gone):
            return float("inf")
        if owner is None or owner.watch is None:
            return self._since_s.get(lease_id, float("-inf")) + every_s
        due_s = min(owner.watch.looked_s + every_s, watch.telling_s(owner.watch, self.patience))
        return max(due_s, owner.watch.looked_s + JUST_NOW_S)  # sooner it would not be looked at, and be due for ever

    def meet_neighbours(self, names: Iterable[str]) -> None:
        """Get to know agents of this host: of them alone it is known at once when they are dead."""
        for name in names:
            owner = self._owners.setdefault(name, _Owner())
            if owner.record is None:
                owner.record = agents.read_agent(self.store, name)

    def units_of_dead_neighbours(self, now_s: float) -> list[int | None]:
        """Return at which units agents of this host were when they died, each once; None of one that never said."""
        units: list[int | None] = []
        for name, owner in self._owners.items():
            if not owner.is_gone and owner.record is not None and self.is_dead(owner.record):
                session = agents.read_session(self.store, name)
                owner.watch = watch.look(owner.watch, session, now_s, self.patience)
                owner.is_gone = True
                if session is None or session.state != AgentState.LEFT:  # who left says so of all its units
                    units.append(session.unit if session else None)
        return units

    def gone(self, now_s: float) -> frozenset[str]:
        """Return the agents that are known to be gone, or silent when just looked at."""
        return frozenset(name for name, owner in self._owners.items() if self._is_gone_or_silent(owner, now_s))

    def _is_gone_or_silent(self, owner: _Owner, now_s: float) -> bool:
        return owner.is_gone or (owner.watch is not None and watch.is_silent(owner.watch, now_s, self.patience))

    def look(self, lease_id: Id, now_s: float) -> None:
        """Look at the owner of a lease: its session, and, once, its record.

        A lease whose file names nobody is treated like an owner that never announced itself.
        """
        owner_name = self._of_lease.get(lease_id)
        if owner_name is None or owner_name == _nameless(lease_id):
            owner_name = self.owner_of(self.store, lease_id)
            owner_name = _nameless(lease_id) if owner_name is None else owner_name
            self._of_lease[lease_id] = owner_name
        owner = self._owners.setdefault(owner_name, _Owner())
        self._since_s.setdefault(lease_id, now_s)
        if owner_name in (leases.NOBODY, self.me):
            owner.is_gone = owner_name == leases.NOBODY
            return
        if owner.watch is not None and now_s < owner.watch.looked_s + JUST_NOW_S:
            return  # for another of its leases
        session = None if owner_name == _nameless(lease_id) else agents.read_session(self.store, owner_name)
        owner.watch = watch.look(owner.watch, session, now_s, self.patience)
        owner.is_gone = self._is_gone(owner_name, owner, session)
        owner.released = frozenset(session.released) if session else owner.released

    def holder(self, lease_id: Id) -> str | None:
        """Return who holds a lease, as far as it was looked at and somebody is named."""
        name = self._of_lease.get(lease_id)
        return None if name in (None, leases.NOBODY, _nameless(lease_id)) else name

    def forget(self, leased: Iterable[Id]) -> None:
        """Drop what is known of leases that are not in `leased` any more."""
        keep = set(leased)
        self._of_lease = {id_: owner for id_, owner in self._of_lease.items() if id_ in keep}

    def _is_gone(self, name: str, owner: _Owner, session: Session | None) -> bool:
        if session is not None and session.state == AgentState.LEFT:
            return True
        if owner.record is None and session is not None:
            owner.record = agents.read_agent(self.store, name)
        return owner.record is not None and self.is_dead(owner.record)

    def _is_orphan(self, lease_id: Id, since_s: float, now_s: float) -> bool:
        name = self._of_lease.get(lease_id, "?")
        if name == self.me:  # else one who is alone waits for itself for ever
            return str(lease_id) in self.given_back()
        owner = self._owners.get(name)
        if owner is None:
            return False
        if str(lease_id) in owner.released or self._is_straggler(owner, now_s - since_s, now_s):
            return True
        return self._is_gone_or_silent(owner, now_s)

    def _is_straggler(self, owner: _Owner, kept_s: float, now_s: float) -> bool:
        """Whether a holder that may live is so slow that a race is worth the work: the first result counts."""
        unit_s = self.unit_s()
        if not self.patience.race_factor or unit_s is None:
            return False
        if kept_s >= max(self.patience.race_factor * unit_s, self.patience.race_from_s):
            return True
        is_hushed = owner.watch is not None and watch.is_hushed(owner.watch, now_s, self.patience)
        return is_hushed and kept_s >= unit_s


def _nameless(lease_id: LeaseId | SlotId) -> str:
    return f"?{lease_id}"
