"""Standing orders to a run's agents: `stop` (save and leave) and `drain` (finish what is held, then leave).

Orders are numbered and never removed. An agent obeys those above the number that stood when
it was submitted: so `stop` also holds for a pilot that its batch system starts again, and a later
`submit` starts agents that work.
"""

from dataclasses import dataclass
from typing import Literal

from fsctx.protocol import names
from fsctx.store import Store

Kind = Literal["stop", "drain"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """The highest number of each kind; 0 if none was given."""

    stop: int = 0
    drain: int = 0

    @property
    def last(self) -> int:
        """The number of the latest order of any kind."""
        return max(self.stop, self.drain)


def read_orders(store: Store) -> Orders:
    """Read the standing orders by one listing."""
    highest = {"stop": 0, "drain": 0}
    for name in store.list(names.CONTROL):
        order = names.parse_order(name)
        if order is not None:
            highest[order[0]] = max(order[1], highest[order[0]])
    return Orders(stop=highest["stop"], drain=highest["drain"])


def give_order(store: Store, kind: Kind) -> int:
    """Add an order and return its number."""
    number = read_orders(store).last + 1
    store.replace(names.order(kind, number), b"")
    return number
