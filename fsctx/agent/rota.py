"""Who looks at which bucket while nothing is free: agents share the open buckets among themselves. Pure.

All agents list the same folder of agents, and stand on a circle at places that follow from their names. A bucket
stands on it too, and belongs to the next agent. Nobody speaks to anybody, and who comes or goes moves few buckets.
It is courtesy, not safety: a bucket that two watch, or nobody, costs calls or time, no verdict.
"""

import functools
import hashlib
from bisect import bisect_left
from collections.abc import Collection
from dataclasses import dataclass

MAX_NEIGHBOURS = 16

_GOLDEN = 0.6180339887498949
"""Multiples of it spread evenly over the circle, however many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rota:
    """One agent's part of the circle, whose length is 1."""

    place: float = 0.0
    reach: float = 1.0
    """How far it is back to the agent before this one."""
    n_agents: int = 1
    neighbours: tuple[str, ...] = ()
    """Some agents of the same host, by their names."""

    def has(self, bucket: int) -> bool:
        """Whether a bucket is this agent's to watch."""
        return (self.place - bucket * _GOLDEN) % 1.0 < self.reach

    def is_deputy_for(self, bucket: int) -> bool:
        """Whether this agent stands in for the one whose bucket it is: half the circle lies between them."""
        return (self.place + 0.5 - bucket * _GOLDEN) % 1.0 < self.reach


def draw_up(me: str, agents: Collection[str]) -> Rota:
    """Return the part of `me` among some agents."""
    before = before_me(me, agents)
    near = sorted(agent for agent in before if _host_of(agent) == _host_of(me))
    after_me = bisect_left(near, me) % max(1, len(near))  # not the same few for everybody
    return Rota(
        place=_place(me),
        reach=_distance(before[0], me) if before else 1.0,
        n_agents=len(before) + 1,
        neighbours=tuple([*near[after_me:], *near[:after_me]][:MAX_NEIGHBOURS]),
    )


def before_me(me: str, agents: Collection[str]) -> list[str]:
    """Return the other agents, the one that stands next before `me` first."""
    return sorted((agent for agent in agents if agent != me), key=lambda agent: _distance(agent, me))


def _distance(agent: str, me: str) -> float:
    return (_place(me) - _place(agent)) % 1.0


@functools.lru_cache(maxsize=4096)
def _place(agent: str) -> float:
    return int.from_bytes(hashlib.sha256(agent.encode()).digest()[:6]) / 2**48


def _host_of(agent: str) -> str:
    """Return the host in an agent's name (see `host.agent_name`): a hint where to look, no more."""
    return agent.rsplit("-", 2)[0]
