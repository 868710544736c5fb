"""Telling a run's agents to leave."""

from dataclasses import dataclass

from fsctx.coordinator.status import read_agents
from fsctx.protocol.manifest import read_manifest
from fsctx.protocol.orders import Kind, give_order
from fsctx.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """An order that was given, and how many agents seemed alive to hear it."""

    run: str
    number: int
    n_alive: int


def stop(store: Store, kind: Kind) -> Told:
    """Give an order to all agents that were submitted so far, to pilots that still wait in a queue too.

    Agents hear it with their next beat. Safe to repeat; no agent at all is fine.

    Raises:
        InputError: the folder is not a run.
    """
    manifest = read_manifest(store)
    number = give_order(store, kind)
    alive = [agent for agent in read_agents(store, manifest) if agent.is_alive]
    return Told(run=manifest.run, number=number, n_alive=len(alive))
