"""What all agents of a run did, on one axis of time. Pure.

Each agent's clock places it on the axis; what it did is placed by its own monotonic clock. Hosts whose clocks differ
are shown apart by as much, and nothing is decided by that.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from fsctx.coordinator.progress import AgentView
from fsctx.coordinator.report.lives import Kind, Life, Span, Taken

Points = tuple[tuple[float, float], ...]
"""Seconds since the fleet's start, and a value that holds from then on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """An agent that ended while it held units."""

    agent: str
    at_s: float
    """Since the fleet's start."""
    reason: str | None
    """What it said; None where it ended without a word."""
    units: int
    rows_held: int
    rows_adopted: int
    """Of these: saved, and taken over by the next holders."""
    rows_lost: int
    """Computed since its last save, at most: by its pace and the time that passed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One agent of the fleet."""

    view: AgentView
    origin_s: float
    """When its log began, since the fleet's start; infinite where it wrote none."""
    spans: tuple[Span, ...]
    is_silent: bool
    """Whether it ended without a word."""

    @property
    def seconds(self) -> dict[Kind, float]:
        """Its time by kind."""
        sums = dict.fromkeys(Kind, 0.0)
        for span in self.spans:
            sums[span.kind] += span.end_s - span.start_s
        return sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All agents that ever announced themselves, and what they did together."""

    start_s: float
    """Since 1970, by the clock of the first agent."""
    length_s: float
    """Until the last event of any agent."""
    members: tuple[Member, ...]
    """In the order in which they came."""
    alive: Points
    rows: Points
    """Published."""
    evictions: tuple[Eviction, ...]


def fleet_of(views: Sequence[AgentView], lives: Sequence[Life], *, beat_s: float) -> Fleet:
    """Put agents' lives together; `beat_s`: how long an agent may live after the last event that it wrote down."""
    start_s = min((life.start_s for life in lives), default=0.0)
    end_s = max((life.end_s for life in lives), default=0.0)
    successors = Successors(lives)
    states = {view.agent: view.is_alive for view in views}
    fates = {life.agent: _fate(life, successors, end_s, is_alive=states.get(life.agent, False)) for life in lives}
    members = [_member(view, fates.get(view.agent), start_s) for view in views]
    published = sorted((at_s - start_s, rows) for life in lives for at_s, rows in life.published)
    sums = accumulate(rows for _, rows in published)
    ended = sorted((fate for fate in fates.values() if fate.is_over and fate.life.held), key=lambda f: f.life.end_s)
    return Fleet(
        start_s=start_s,
        length_s=end_s - start_s,
        members=tuple(sorted(members, key=lambda member: member.origin_s)),
        alive=_alive(fates.values(), start_s),
        rows=tuple(zip((at_s for at_s, _ in published), sums, strict=True)),
        evictions=tuple(_eviction(fate.life, successors, beat_s, start_s) for fate in ended),
    )


class Successors:
    """Knows who took a unit next."""

    def __init__(self, lives: Iterable[Life]) -> None:
        self._taken: dict[int, list[Taken]] = {}
        for life in lives:
            for lease in life.taken:
                self._taken.setdefault(lease.unit, []).append(lease)

    def of(self, lease: Taken) -> Taken | None:
        """Return the next lease of the same unit, if any agent told of one."""
        later = (other for other in self._taken[lease.unit] if other.generation > lease.generation)
        return min(later, key=lambda other: other.generation, default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fate:
    """How an agent's life ended, if it did."""

    life: Life
    is_over: bool = True
    is_silent: bool = False
    lost: tuple[Span, ...] = ()
    """From its last sign until a unit of its was taken over, or until now if none was."""


def _fate(life: Life, successors: Successors, now_s: float, *, is_alive: bool) -> _Fate:
    """Say whether an agent ended: it said so, its process is known to be gone, or others had to take its units."""
    if life.left is not None:
        return _Fate(life=life)
    next_ones = [found.at_s for lease in life.held if (found := successors.of(lease)) and found.at_s > life.end_s]
    if is_alive and not next_ones:
        return _Fate(life=life, is_over=False)
    until_s = min(next_ones, default=now_s)
    lost = Span(kind=Kind.LOST, start_s=life.end_s - life.origin_s, end_s=until_s - life.origin_s)
    return _Fate(life=life, is_silent=True, lost=(lost,) if life.held else ())


def _member(view: AgentView, fate: _Fate | None, start_s: float) -> Member:
    if fate is None:
        return Member(view=view, origin_s=math.inf, spans=(), is_silent=False)
    origin_s = fate.life.origin_s - start_s
    return Member(view=view, origin_s=origin_s, spans=fate.life.spans + fate.lost, is_silent=fate.is_silent)


def _alive(fates: Iterable[_Fate], start_s: float) -> Points:
    """Return how many agents lived from when on."""
    changes: Counter[float] = Counter()
    for fate in fates:
        changes[fate.life.start_s - start_s] += 1
        if fate.is_over:
            changes[fate.life.end_s - start_s] -= 1
    times = sorted(changes)
    return tuple(zip(times, accumulate(changes[at_s] for at_s in times), strict=True))


def _eviction(life: Life, successors: Successors, beat_s: float, start_s: float) -> Eviction:
    """Say what an agent's end cost. Rows lost are at most those it could compute since it wrote rows last."""
    n_held = sum(lease.rows for lease in life.held)
    n_adopted = sum(found.adopted for lease in life.held if (found := successors.of(lease)))
    unsaved_s = life.end_s - life.safe_s + (beat_s if life.left is None else 0.0)
    return Eviction(
        agent=life.agent,
        at_s=life.end_s - start_s,
        reason=life.left,
        units=len(life.held),
        rows_held=n_held,
        rows_adopted=n_adopted,
        rows_lost=min(max(0, n_held - n_adopted), int(life.rows_per_s * unsaved_s)),
    )
