"""Finds out that a rung of a sweep is over, and decides it, or learns what another agent decided."""

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from random import Random

from fsctx.agent.events import EventLog
from fsctx.agent.judging import Marks, budget_left, judge, merged
from fsctx.agent.marking import Marker
from fsctx.agent.rota import Rota
from fsctx.agent.runfiles import RunFiles
from fsctx.agent.search import Search
from fsctx.agent.slices import Slices
from fsctx.protocol import buckets, decisions
from fsctx.protocol.geometry import bucket_of
from fsctx.protocol.sweep import Decision, Extent, Judged, Sweep, extent_of


@dataclass(slots=True, kw_only=True)
class Referee:
    """One agent's part in the decisions of a sweep; one thread uses it.

    Whoever the rota names decides at once, the others where nothing was decided for a time to live or two. That is
    courtesy: any agent decides the same, and the first decision that is published counts.
    """

    run: RunFiles
    search: Search
    slices: Slices
    agent: str
    events: EventLog
    chance: Random
    utc: Callable[[], str]
    clock: Callable[[], float]
    reason_to_leave: Callable[[], str | None]
    made: tuple[Decision, ...] = ()
    is_stuck: bool = False
    """Whether the rung waits for tasks that this agent cannot do, and that nobody works on."""
    _draft: Decision | None = None
    """What this agent decided on the rung: where its publication raised an error, it may be published all the same."""
    _from_s: float | None = None
    """When this agent decides, whoever's turn it is."""

    @property
    def is_waiting(self) -> bool:
        """Whether anything is still to be decided."""
        return bool(self._extent.waiting)

    def turn(self, rota: Rota, now_s: float) -> bool:
        """Look for a decision, and make it if this agent should; return whether units were opened."""
        if self.learn():
            return True
        if self.search.unfinished:
            return False
        if self._from_s is None:
            self._from_s = now_s + self.run.manifest.ttl_s * self.chance.uniform(1.0, 2.0)
        if not rota.has(len(self.made)) and now_s < self._from_s:
            return False
        return self._decide()

    def learn(self) -> bool:
        """Take in what was decided by now; return whether that is anything new."""
        known = decisions.read_decisions(self.run.store, self.run.manifest)
        if len(known) <= len(self.made):
            return False
        self._take_in(known)
        return True

    def _decide(self) -> bool:
        if self._draft is None:
            given_up = self._look()
            tasks = None if given_up is None else self._judge(given_up)
            if tasks is None:
                return False
            self._draft = Decision(rung=len(self.made), tasks=tasks, agent=self.agent, time=self.utc())
        winner = decisions.publish(self.run.store, self._draft)
        is_mine = winner == self._draft
        self.events.add("decided", rung=winner.rung, dropped=len(winner.dropped), is_mine=is_mine)
        self._take_in((*self.made, winner))
        return True

    def _take_in(self, known: Sequence[Decision]) -> None:
        self.made, self._draft, self._from_s, self.is_stuck = tuple(known), None, None, False
        self.search.widen(self._extent)

    def _look(self) -> frozenset[int] | None:
        """Look at all open units: return those given up where the others are done, else None, and tell the search."""
        geometry, extent = self.run.manifest.geometry, self._extent
        compacted = buckets.compacted(self.run.store)
        given_up: set[int] = set()
        is_over, is_held = True, False
        for bucket in sorted({bucket_of(unit) for unit in extent.open_units()} - compacted):
            view = buckets.look(self.run.store, geometry, bucket)
            is_over &= not any(extent.is_open(unit) for unit in (*view.free, *view.leased))
            is_held |= bool(view.leased)
            given_up |= view.failed
            self.search.saw(view, self.clock())
        self.is_stuck = not is_over and not is_held and self.search.refuses_some
        return frozenset(given_up) if is_over else None

    def _judge(self, given_up: Collection[int]) -> tuple[Judged, ...] | None:
        """Judge the tasks that have this rung; None where the agent must leave first."""
        manifest, extent, sweep, rung = self.run.manifest, self._extent, self._sweep, len(self.made)
        marker = Marker(self.run, self.slices)
        found: dict[int, list[Marks]] = {task: [] for task in extent.waiting}
        with contextlib.closing(self.slices):
            for unit in extent.open_units():
                if self.reason_to_leave() is not None:
                    return None
                task = manifest.geometry.task_of(unit)
                if task in found and unit not in given_up:
                    found[task].append(marker.mark(unit))
        marks = {task: merged(parts) for task, parts in found.items()}
        after = [sweep.least_rows(manifest.geometry, n_tasks=n, rung=rung + 1) for n in range(len(marks) + 1)]
        left = budget_left(sweep, manifest.geometry, extent.planned, rung)
        return judge(marks, sweep, left=left, after=after)

    @property
    def _sweep(self) -> Sweep:
        assert self.run.manifest.sweep is not None
        return self.run.manifest.sweep

    @property
    def _extent(self) -> Extent:
        return extent_of(self.run.manifest.geometry, self.run.manifest.sweep, self.made)
