"""(e) A fleet that is preempted all the time, in simulated time: calls on the filesystem, work lost, time to finish.

Modelled, not run: 10,000 real agents do not fit one machine. The rules are those of the real code: each agent knows
only what it listed; three listings for a look at a bucket; one unit in work, the next one leased `AHEAD_S` before its
end; rows saved every `SAVE_S`; after `FRUITLESS` looks an agent waits and lists a bucket each time to live; who waits
makes the calls of `Tail`. The agent whose bucket it is, and a deputy among very many, find an orphan while they wait,
and not before: silent for the time to live since they saw its last beat, or for two beats and longer held, as they
saw it, than a unit takes (`--race`). While units are free orphans are found by `Patrol`, `FOUND_S` after the kill.

Simplified: every unit takes the same time, a pilot that is preempted is replaced at once, each start costs `LOAD_S`;
everybody knows who is there, there are no guests, and a watcher's successor goes on where it was; an orphan that was
found is taken at once, by whoever waits or needs a unit next, and nobody races a holder that lives. `FOUND_S` is not
derived: up to a time to live until the lease was listed twice, one of silence, and half a unit.

The ideal is all work divided by all agents, and one start: nothing is lost, nobody starts again, and everybody knows
what is free. A preemption costs it a start and half a save (25 s in 6,000 s here: 0.4 %), whatever is done at the end.
The floor is the ideal, one unit, and one time to live, as nobody may say sooner that an agent is dead; racing goes
below it.
"""

import heapq
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from fsctx.agent.scout import FRUITLESS
from fsctx.agent.tail import DEPUTIES_FROM, GUEST_LOOKS, KEPT_TTLS, LIST_PER_S, OFTEN, SELDOM
from fsctx.agent.watch import HUSHED
from fsctx.protocol.geometry import UNITS_PER_BUCKET

TTL_S, SAVE_S, LOAD_S = 60.0, 30.0, 10.0
CALLS_PER_LOOK, CALLS_PER_UNIT, CALLS_PER_BEAT = 3, 7, 1
AHEAD_S = 15.0
FOUND_S = (90.0, 180.0)
PATROL_CALLS_PER_TTL = 3 + 3
"""A bucket is listed again, and an owner read in each round: more than was seen."""
IS_RACING, IS_ON_PATROL = True, True
BEAT_S = TTL_S / 6
TICK_S = 10.0


@dataclass(slots=True)
class _Agent:
    born_s: float
    killed_s: float
    held: list[int] = field(default_factory=list)
    """Units, the one in work first."""
    began_s: float = 0.0
    seen: list[int] = field(default_factory=list)
    """Free units at the last look."""
    n_fruitless: int = 0
    wakes_s: float = LOAD_S
    ahead_s: float = float("inf")
    """From then on it leases the next unit."""


@dataclass(slots=True)
class Fleet:
    """One run of a fleet."""

    n_agents: int
    n_units: int
    unit_s: float
    preempted_per_min: float
    chance: Random = field(default_factory=lambda: Random(1))
    calls: Counter[int] = field(default_factory=Counter)
    """Minute → calls."""
    lost_s: float = 0.0
    n_preempted: int = 0
    end_s: float = 0.0
    _free: list[list[int]] = field(default_factory=list)
    _n_open: list[int] = field(default_factory=list)
    """Bucket → units that are not done."""
    _taken_s: dict[int, float] = field(default_factory=dict)
    """Unit → when its latest lease was taken."""
    _killed_s: dict[int, float] = field(default_factory=dict)
    """Unit → when its holder was killed; until it is an orphan."""
    _is_tail: bool = False
    _left_s: dict[int, float] = field(default_factory=dict)
    """Unit → work that is left, where rows of it were saved."""
    _orphans: list[int] = field(default_factory=list)
    _idle_s: dict[int, float] = field(default_factory=dict)
    """Agent that waits → since when."""
    _agents: list[_Agent] = field(default_factory=list)
    _due: list[tuple[float, str, int, float]] = field(default_factory=list)
    _n_done: int = 0

    def run(self) -> None:
        """Let everything happen."""
        units = range(self.n_units)
        self._free = [list(units[start : start + UNITS_PER_BUCKET]) for start in units[::UNITS_PER_BUCKET]]
        self._n_open = [len(bucket) for bucket in self._free]
        for number in range(self.n_agents):
            self._agents.append(self._born(0.0))
            self._push(LOAD_S, "seek", number)
            self._push(self._agents[number].killed_s, "preempt", number)
        while self._n_done < self.n_units:
            now_s, what, number, mark = heapq.heappop(self._due)
            if what == "orphan":
                self._orphan(now_s, number, mark)
            elif what == "tick":
                self._tick(now_s)
            elif mark == self._agents[number].born_s:  # else of the agent that was here before
                self._act(now_s, what, number)

    def _act(self, now_s: float, what: str, number: int) -> None:
        if what == "preempt":
            self._preempt(now_s, number)
        elif what == "done":
            self._finish(now_s, number)
        elif now_s == self._agents[number].wakes_s:  # else it found something in the meantime
            self._seek(now_s, number)

    def _born(self, now_s: float) -> _Agent:
        return _Agent(now_s, now_s + self.chance.expovariate(self.preempted_per_min / 60))

    def _push(self, at_s: float, what: str, number: int) -> None:
        heapq.heappush(self._due, (at_s, what, number, self._agents[number].born_s))

    def _count(self, now_s: float, n_calls: float) -> None:
        self.calls[int(now_s // 60)] += round(n_calls)

    def _seek(self, now_s: float, number: int) -> None:
        """Lease until one unit is in work, and, where it is time, one ahead."""
        agent = self._agents[number]
        while len(agent.held) < (1 if now_s < agent.ahead_s else 2):
            unit = self._take(now_s, agent)
            if unit is None:
                self._rest(now_s, number)
                break
            agent.held.append(unit)
            self._taken_s[unit] = now_s
            self._idle_s.pop(number, None)
            if len(agent.held) == 1:
                self._begin(now_s, number)

    def _take(self, now_s: float, agent: _Agent) -> int | None:
        if self._orphans:
            return self._orphans.pop()
        while True:
            while agent.seen:
                unit = agent.seen.pop()
                bucket = self._free[unit // UNITS_PER_BUCKET]
                self._count(now_s, 1)
                if unit in bucket:
                    bucket.remove(unit)
                    return unit
                agent.seen = []  # somebody goes before us: look again
            if agent.n_fruitless >= FRUITLESS:
                return None
            self._look(now_s, agent)

    def _look(self, now_s: float, agent: _Agent) -> None:
        self._count(now_s, CALLS_PER_LOOK)
        while True:
            bucket = self.chance.randrange(len(self._free))
            if self._n_open[bucket] or agent.n_fruitless < FRUITLESS - 1:
                break  # who waits knows by one listing what was compacted
        free = self._free[bucket]
        agent.n_fruitless = 0 if free else agent.n_fruitless + 1
        cut = self.chance.randrange(len(free)) if free else 0
        agent.seen = free[cut:] + free[:cut]

    def _rest(self, now_s: float, number: int) -> None:
        """Wait for an orphan, or until it is time to list one more bucket."""
        agent = self._agents[number]
        agent.n_fruitless = FRUITLESS - 1
        agent.wakes_s = now_s + TTL_S * self.chance.uniform(0.8, 1.2)
        self._push(agent.wakes_s, "seek", number)
        if not agent.held and number not in self._idle_s:
            self._idle_s[number] = now_s
            for unit in [unit for unit in self._killed_s if number in self._watchers(unit)]:
                self._watch(now_s, unit, number)
        if not self._is_tail:
            self._is_tail = True
            self._tick(now_s)

    def _watchers(self, unit: int) -> tuple[int, ...]:
        """Return whose bucket it is, and the deputy."""
        first = unit // UNITS_PER_BUCKET * self.n_agents // len(self._free)
        if self.n_agents <= DEPUTIES_FROM:
            return (first,)
        return first, (first + self.n_agents // 2) % self.n_agents

    def _watch(self, now_s: float, unit: int, watcher: int) -> None:
        """Let an agent that waits find out that the holder of a unit is silent."""
        idle_s, killed_s = self._idle_s[watcher], self._killed_s[unit]
        look_s = TTL_S / (OFTEN if watcher == self._watchers(unit)[0] else SELDOM)
        last_beat_s = max(idle_s, killed_s - self.chance.uniform(0.0, BEAT_S)) + self.chance.uniform(0.0, look_s)
        orphan_s = last_beat_s + TTL_S
        if IS_RACING:
            late_s = max(idle_s, self._taken_s[unit]) + self.unit_s
            hushed_s = last_beat_s + TTL_S / HUSHED
            orphan_s = min(orphan_s, max(late_s + self.chance.uniform(0.0, look_s), hushed_s))
        heapq.heappush(self._due, (max(now_s, orphan_s), "orphan", unit, killed_s))

    def _tick(self, now_s: float) -> None:
        """Count the calls of those who wait."""
        n_idle, n_leased = len(self._idle_s), sum(self._n_open) - sum(map(len, self._free))
        listings = max(min(LIST_PER_S, n_idle), n_idle * (CALLS_PER_LOOK + 1) / TTL_S)
        looks = (GUEST_LOOKS + n_leased * (OFTEN + SELDOM * (self.n_agents > DEPUTIES_FROM))) / TTL_S
        self._count(now_s, TICK_S * (listings + looks + n_idle * 2 / (KEPT_TTLS * TTL_S)))
        heapq.heappush(self._due, (now_s + TICK_S, "tick", 0, 0.0))

    def _begin(self, now_s: float, number: int) -> None:
        agent = self._agents[number]
        agent.began_s = now_s
        end_s = now_s + self._left_s.get(agent.held[0], self.unit_s)
        agent.ahead_s = agent.wakes_s = max(now_s, end_s - AHEAD_S)
        self._push(agent.ahead_s, "seek", number)
        self._push(end_s, "done", number)

    def _finish(self, now_s: float, number: int) -> None:
        agent = self._agents[number]
        self._n_open[agent.held.pop(0) // UNITS_PER_BUCKET] -= 1
        self._n_done, self.end_s = self._n_done + 1, now_s
        in_time = CALLS_PER_BEAT / BEAT_S + IS_ON_PATROL * PATROL_CALLS_PER_TTL / TTL_S
        self._count(now_s, CALLS_PER_UNIT + self.unit_s * in_time)
        if agent.held:
            self._begin(now_s, number)
        elif self._n_done < self.n_units:
            agent.ahead_s = float("inf")
            self._seek(now_s, number)

    def _preempt(self, now_s: float, number: int) -> None:
        """Kill without warning; another one comes. What it held is an orphan once a watcher saw it silent."""
        agent = self._agents[number]
        self.n_preempted += 1
        if agent.held:
            worked_s = now_s - agent.began_s
            saved_s = worked_s // SAVE_S * SAVE_S
            self.lost_s += worked_s - saved_s
            self._left_s[agent.held[0]] = self._left_s.get(agent.held[0], self.unit_s) - saved_s
        for unit in agent.held:
            self._lose(now_s, unit)
        self._idle_s.pop(number, None)
        self._agents[number] = self._born(now_s)
        self._agents[number].wakes_s = now_s + LOAD_S
        self._push(now_s + LOAD_S, "seek", number)
        self._push(self._agents[number].killed_s, "preempt", number)

    def _lose(self, now_s: float, unit: int) -> None:
        self._killed_s[unit] = now_s
        for watcher in self._watchers(unit):
            if watcher in self._idle_s:
                self._watch(now_s, unit, watcher)
        if IS_ON_PATROL:
            heapq.heappush(self._due, (now_s + self.chance.uniform(*FOUND_S), "orphan", unit, now_s))

    def _orphan(self, now_s: float, unit: int, killed_s: float) -> None:
        if self._killed_s.get(unit) != killed_s:
            return  # another one found it before
        del self._killed_s[unit]
        self._orphans.append(unit)
        if self._idle_s:
            self._seek(now_s, next(reversed(self._idle_s)))


def measure(*, n_agents: int, n_units: int, unit_s: float) -> dict[str, object]:
    """Let a fleet do a run; return the figures."""
    fleet = Fleet(n_agents=n_agents, n_units=n_units, unit_s=unit_s, preempted_per_min=0.01)
    fleet.run()
    ideal_s = n_units * unit_s / n_agents + LOAD_S
    floor_s = ideal_s + unit_s + TTL_S
    minutes = range(int(fleet.end_s // 60))
    per_s = [round(fleet.calls[minute] / 60) for minute in minutes]
    return {
        "agents": n_agents,
        "units": n_units,
        "unit_s": unit_s,
        "preempted": fleet.n_preempted,
        "calls_per_s": {"first minute": per_s[0], "middle": per_s[len(per_s) // 2], "largest": max(per_s)},
        "lost": round(fleet.lost_s / (n_units * unit_s), 5),
        "end_s": round(fleet.end_s),
        "ideal_s": round(ideal_s),
        "over_ideal": round(fleet.end_s / ideal_s - 1, 4),
        "over_floor": round(fleet.end_s / floor_s - 1, 4),
        "goal": "lost < 0.01, over_ideal < 0.03",
    }
