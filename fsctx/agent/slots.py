"""Transfer slots: how many agents of a run read a source at once. A courtesy: nothing but time depends on them."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from fsctx.agent.owners import Owners
from fsctx.errors import StoreError
from fsctx.protocol import leases, names
from fsctx.protocol.names import SlotId
from fsctx.store import Store


@dataclass(slots=True, kw_only=True)
class TransferSlots:
    """The slots of one source, as one agent sees them. One thread uses it.

    They are leases like those of units: taken by creating a name exclusively, given back by saying so in one's
    session, taken over from who is gone by creating the next generation.
    """

    store: Store
    source: str
    n_slots: int
    agent: str
    owners: Owners[SlotId]
    say_given_back: Callable[[SlotId], None]
    clock: Callable[[], float]
    chance: Random
    _mine: SlotId | None = None
    _latest: dict[int, SlotId] = field(default_factory=dict)

    def take(self) -> bool:
        """Try to get a slot: one listing, a look at the holders, and a creation where one seems to be free.

        Raises:
            StoreError: the filesystem refused.
        """
        self._latest = leases.latest_slots(self.store.list(names.SLOTS), self.source)
        now_s, held = self.clock(), list(self._latest.values())
        for slot in self.owners.due(dict.fromkeys(held, 0.0), now_s):
            self.owners.look(slot, now_s)
        never = [SlotId(self.source, n, 0) for n in range(self.n_slots) if n not in self._latest]
        orphans = self.owners.orphans(dict.fromkeys(held, now_s), now_s)
        free = [slot for slot in (*never, *orphans) if slot.number < self.n_slots]
        if free:
            self._mine = self._create(self.chance.choice(free))
        return self._mine is not None

    def give_back(self) -> None:
        """Say that the slot is free, if there is one."""
        mine, self._mine = self._mine, None
        if mine is not None:
            self.say_given_back(mine)

    def holders(self) -> frozenset[str]:
        """Return the agents that were seen to hold slots at the last try."""
        found = (self.owners.holder(slot) for slot in self._latest.values())
        return frozenset(name for name in found if name is not None)

    def _create(self, slot: SlotId) -> SlotId | None:
        try:
            if not leases.take_slot(self.store, slot, self.agent):
                return None
        except StoreError:
            self.say_given_back(slot)  # it may be ours without our knowing
            raise
        if slot.generation >= 2:  # keeps the folder small; who still sees the old one takes a slot too many at worst
            with suppress(StoreError):
                self.store.remove(names.slot(SlotId(slot.source, slot.number, slot.generation - 2)))
        return slot
