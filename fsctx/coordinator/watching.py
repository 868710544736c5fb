"""Watching agents over several looks: whose heartbeat stands still."""

import dataclasses
from dataclasses import dataclass

from fsctx.coordinator.progress import RunState, Status

LAST_WORDS_S = 15.0
"""An agent whose counter stood still for so long is not waited for once the run is over: it may have died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A counter, and when this watcher first saw it, on its own monotonic clock."""

    counter: int
    seen_s: float


def with_silences(status: Status, before: dict[str, Beat], now_s: float) -> tuple[Status, dict[str, Beat]]:
    """Return a status in which agents say how long their counters stood still, and what to remember for the next look.

    Clocks of other hosts are not asked: silence is what this watcher itself saw.
    """
    beats: dict[str, Beat] = {}
    for agent in status.agents:
        last = before.get(agent.agent)
        is_same = last is not None and last.counter == agent.counter
        beats[agent.agent] = last if last is not None and is_same else Beat(counter=agent.counter, seen_s=now_s)
    watched = tuple(
        dataclasses.replace(agent, silent_s=now_s - beats[agent.agent].seen_s) if agent.is_alive else agent
        for agent in status.agents
    )
    return dataclasses.replace(status, agents=watched), beats


def is_over(status: Status) -> bool:
    """Whether nothing is left to do or to see: agents leave some seconds after the last unit is done."""
    is_finished = status.state in (RunState.DONE, RunState.INCOMPLETE)
    return is_finished and all(not a.is_alive or (a.silent_s or 0.0) >= LAST_WORDS_S for a in status.agents)
