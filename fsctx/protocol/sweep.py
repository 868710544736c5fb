"""A sweep that stops early: which units are open, by arithmetic from the manifest and from the decisions made.

Slices belong to rungs by their position (see `Geometry`). All tasks begin with rung 0; each decision drops tasks and
opens the next rung to the others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from fsctx.protocol.geometry import Geometry


class Reason(StrEnum):
    """Why a task was dropped."""

    WORSE = "worse"
    """It was clearly worse than the leader."""
    BUDGET = "budget"
    """It was among the last, and the budget does not suffice for all that are perhaps as good as the leader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """The manifest's part about a sweep that stops early."""

    ends: tuple[int, ...]
    """By rung: how many slices it has together with those before it. The last one has all."""
    level: float
    """A task is clearly worse than the leader where chance alone would bring that about more seldom than so."""
    budget: int | None = None
    """Most inferences of the whole run."""

    def least_rows(self, geometry: Geometry, *, n_tasks: int, rung: int) -> int:
        """Return the inferences of a rung and all after it where tasks are halved after each: fewer, no budget buys."""
        total = 0
        for later in range(rung, len(self.ends)):
            start = self.ends[later - 1] if later else 0
            n_rows = geometry.rows_before(self.ends[later]) - geometry.rows_before(start)
            total += n_rows * -(-n_tasks // 2 ** (later - rung))
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A task that a decision was about."""

    task: int
    rows: int
    """Rows that it was judged by: those with a gold label that its template knows."""
    right: int
    p: float | None = None
    """How often chance alone makes it look so much worse than the leader; None of the leader."""
    dropped: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was decided when a rung was over. Published once, never changed."""

    rung: int
    tasks: tuple[Judged, ...]
    """Those that had this rung, best first: the leader is the first."""
    agent: str
    """Who decided; any other would have decided the same."""
    time: str
    """UTC, ISO 8601; for people, never compared."""

    @property
    def dropped(self) -> tuple[Judged, ...]:
        """The tasks that get no later rung."""
        return tuple(judged for judged in self.tasks if judged.dropped is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """How far the tasks of a run go, by position: `open[task]` are open, from `planned[task]` on they are dropped."""

    geometry: Geometry
    open: tuple[int, ...]
    planned: tuple[int, ...]

    @property
    def waiting(self) -> list[int]:
        """The tasks that may get more units, by a decision that is still to be made."""
        return [task for task, end in enumerate(self.open) if end < self.planned[task]]

    @property
    def dropped_units(self) -> list[range]:
        """The units that nobody will ever compute, by task."""
        n = self.geometry.n_slices
        return [range(task * n + end, (task + 1) * n) for task, end in enumerate(self.planned) if end < n]

    @property
    def dropped_rows(self) -> int:
        """Number of verdicts that nobody will ever compute."""
        return sum(self.geometry.n_rows - self.geometry.rows_before(end) for end in self.planned)

    def is_open(self, unit: int) -> bool:
        """Whether a unit may be leased."""
        task, position = divmod(unit, self.geometry.n_slices)
        return position < self.open[task]

    def open_units(self) -> Iterator[int]:
        """Yield all units that may be leased, or might have been."""
        for task, end in enumerate(self.open):
            first = task * self.geometry.n_slices
            yield from range(first, first + end)

    def tasks_open_in(self, units: range) -> list[int]:
        """Return the tasks that have an open unit among some."""
        return [task for task, first, _ in self._parts(units) if first < self.open[task]]

    def may_grow_in(self, units: range) -> bool:
        """Whether among some units is one that is not open, and may be later."""
        parts = self._parts(units)
        return any(max(first, self.open[task]) < min(end, self.planned[task]) for task, first, end in parts)

    def _parts(self, units: range) -> Iterator[tuple[int, int, int]]:
        """Yield task, first position and end of each task's part of some units."""
        n = self.geometry.n_slices
        for task in range(units[0] // n, units[-1] // n + 1):
            yield task, max(units.start - task * n, 0), min(units.stop - task * n, n)


def extent_of(geometry: Geometry, sweep: Sweep | None, decisions: Sequence[Decision] = ()) -> Extent:
    """Return what is open after some decisions, which are those of the first rungs. One task alone has all of it."""
    everything = (geometry.n_slices,) * geometry.n_tasks
    if sweep is None:
        return Extent(geometry=geometry, open=everything, planned=everything)
    ends = {judged.task: sweep.ends[decision.rung] for decision in decisions for judged in decision.dropped}
    is_decided = geometry.n_tasks - len(ends) == 1
    until = geometry.n_slices if is_decided else sweep.ends[len(decisions)]
    return Extent(
        geometry=geometry,
        open=tuple(ends.get(task, until) for task in range(geometry.n_tasks)),
        planned=tuple(ends.get(task, geometry.n_slices) for task in range(geometry.n_tasks)),
    )
