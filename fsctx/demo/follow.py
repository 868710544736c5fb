"""Watching the demo's run until it is done, and killing an agent on the way."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fsctx.coordinator.progress import RunState, Status
from fsctx.coordinator.status import read_status
from fsctx.demo.fleet import Fleet, choose_victim, units_in_hand
from fsctx.demo.screen import Screen
from fsctx.errors import NotComplete
from fsctx.protocol import names
from fsctx.protocol.geometry import Geometry
from fsctx.store import Store

LOOK_S = 0.3
KILL_AT = 1 / 2
"""Share of the claims that are done when an agent is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """How a run went: the last look at it, and which agent was killed, if one was."""

    status: Status
    killed: str | None


def follow(
    store: Store,
    geometry: Geometry,
    fleet: Fleet,
    screen: Screen,
    *,
    wait: Callable[[float], object] = time.sleep,
) -> Watched:
    """Watch until every unit is done, and kill one agent when it is time.

    Raises:
        NotComplete: no agent is left and work is; says where to look.
    """
    killed: str | None = None
    while True:
        n_running = fleet.n_running  # before the look: who has left by then has written all
        status = read_status(store)
        screen.show(status)
        if status.state in (RunState.DONE, RunState.INCOMPLETE):
            return Watched(status=status, killed=killed)
        if not n_running:
            raise NotComplete(_all_gone(store, fleet, status))
        if killed is None and is_time(status):
            killed = _kill_one(fleet, status, units_in_hand(store, geometry), screen)
        wait(LOOK_S)


def is_time(status: Status) -> bool:
    """Whether enough is done for an agent to be killed."""
    return status.rows.done >= KILL_AT * status.rows.total


def _kill_one(fleet: Fleet, status: Status, held: Mapping[str, int], screen: Screen) -> str | None:
    """Kill an agent; None where there is none to kill now."""
    victim = choose_victim(status, held)
    process = fleet.kill(victim.agent) if victim else None
    if victim is None or process is None:
        return None
    n_held = held[victim.agent]
    screen.say(
        f"{status.rows.done:,} claims are done. Killing {victim.agent} now (SIGKILL to process {process.pid}), "
        f"with {n_held} unit{'s' * (n_held != 1)} in hand: it can save nothing more and tell nobody."
    )
    screen.say("Nothing else is touched. The other agent finds out by itself and takes them over.")
    return victim.agent


def _all_gone(store: Store, fleet: Fleet, status: Status) -> str:
    rows = status.rows
    logs = ", ".join(f"{store.root}/{pilot.log}" for pilot in fleet.pilots if pilot.log)
    said = [line for pilot in fleet.pilots if pilot.log and (line := _last_line(store, pilot.log))]
    seen = f" (the last words: {said[-1]})" if said else ""
    return f"all agents are gone with {rows.done:,} of {rows.total:,} claims done{seen}: look into {logs or names.LOGS}"


def _last_line(store: Store, log: str) -> str:
    lines = store.read(log).decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""
