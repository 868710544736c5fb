"""What an agent knows of the run's units, and which of them it prefers. Data only: no file is touched here."""

from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice
from random import Random

from fsctx.protocol.buckets import BucketView
from fsctx.protocol.geometry import Geometry, bucket_of
from fsctx.protocol.manifest import Task
from fsctx.protocol.names import LeaseId
from fsctx.protocol.sweep import Extent, extent_of

VIEW_S = 60.0
"""A view older than this is looked at again before its free units are taken."""

_LEVELS = 4
"""Preference: 0 the resident task, 1 the resident context, 2 contexts whose files are on this node, 3 any other."""


class Search:
    """Knowledge from listings, and the order in which buckets are looked at.

    The order is shuffled by agent, and so is the place in a bucket where it begins to take units:
    agents seldom try for the same lease.
    """

    def __init__(
        self, geometry: Geometry, tasks: Sequence[Task], chance: Random, *, extent: Extent | None = None
    ) -> None:
        self._geometry = geometry
        self._extent = extent or extent_of(geometry, None)
        self._waiting = frozenset(self._extent.waiting)
        self._tasks = tasks
        self._chance = chance
        self._resident: int | None = None
        self._on_node: frozenset[str] = frozenset()
        self._refused: set[int] = set()
        order = list(range(geometry.n_buckets))
        chance.shuffle(order)
        self._unfinished = dict.fromkeys(order)
        self._resting: set[int] = set()
        """Unfinished buckets in which nothing is to do until more units are opened."""
        self._free: dict[int, list[int]] = {}
        """Bucket → its free units; no bucket without any, as each step goes through them."""
        self._seen_s: dict[int, float] = {}
        self._leased: dict[int, dict[LeaseId, float]] = {}
        self._unlooked: tuple[dict[int, None], ...] = ()
        self.begin_round(order)

    def begin_round(self, buckets: Iterable[int]) -> None:
        """Put buckets down for a look, those of preferred tasks first."""
        self._unlooked = tuple({} for _ in range(_LEVELS))
        for bucket in buckets:
            levels = [level for task in self._open_tasks_of(bucket) if (level := self._level(task)) is not None]
            if levels and bucket not in self._resting:
                self._unlooked[min(levels)][bucket] = None

    def settle(self, task: int) -> None:
        """Note which task is resident: its units come first from now on."""
        if task != self._resident:
            self._resident = task
            self._prefer_anew()

    def found_on_node(self, contexts: Collection[str]) -> None:
        """Note whose files are on this node: to make one of these resident takes no fetching."""
        if self._on_node != frozenset(contexts):
            self._on_node = frozenset(contexts)
            self._prefer_anew()

    def widen(self, extent: Extent) -> None:
        """Take in that a sweep opened more units, and dropped others."""
        self._extent = extent
        self._waiting = frozenset(extent.waiting)
        self._resting.clear()
        self.begin_round(self._unfinished)

    def refuse(self, tasks: Collection[int]) -> None:
        """Note tasks that this agent cannot do; all that is open is looked at again."""
        self._refused.update(tasks)
        self._free.clear()
        self._leased.clear()
        self.begin_round(self._unfinished)

    @property
    def refuses_some(self) -> bool:
        """Whether there is a task that this agent cannot do."""
        return bool(self._refused)

    @property
    def refuses_all(self) -> bool:
        """Whether there is no task that this agent can do."""
        return len(self._refused) == len(self._tasks)

    @property
    def unfinished(self) -> list[int]:
        """Buckets in which some unit may still be open to this agent."""
        return [bucket for bucket in self._unfinished if self._is_wanted(bucket)]

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left that this agent could ever do."""
        return self._waiting <= self._refused and not any(self._is_wanted(bucket) for bucket in self._unfinished)

    @property
    def leased(self) -> dict[LeaseId, float]:
        """The latest generations seen of units that somebody holds or held, and when each was seen first."""
        return {lease_id: since_s for known in self._leased.values() for lease_id, since_s in known.items()}

    def old_leases(self, age_s: float) -> dict[LeaseId, float]:
        """Return the leases of the resident task that were found standing again by a look so much later."""
        return {
            lease_id: since_s
            for bucket, known in self._leased.items()
            for lease_id, since_s in known.items()
            if self.seen_s(bucket) - since_s >= age_s and self._level_of(lease_id.unit) == 0
        }

    def left_behind(self, before_s: float) -> int | None:
        """Return the bucket seen longest ago, before a time, where nothing was free any more but something leased."""
        left = (b for b, known in self._leased.items() if known and b not in self._free and self.seen_s(b) < before_s)
        return min(left, key=self.seen_s, default=None)

    def best_first(self, lease_ids: Iterable[LeaseId]) -> list[LeaseId]:
        """Return leases in the order of preference."""
        return sorted(lease_ids, key=lambda lease_id: self._level_of(lease_id.unit) or 0)

    def seen_s(self, bucket: int) -> float:
        """Return when a bucket was looked at last."""
        return self._seen_s.get(bucket, float("-inf"))

    def is_leased(self, lease_id: LeaseId) -> bool:
        """Whether a generation is the latest seen of a unit that somebody holds or held."""
        return lease_id in self._leased.get(bucket_of(lease_id.unit), ())

    def next_step(self, now_s: float, wanted: int = 1) -> tuple[tuple[LeaseId, ...], int | None]:
        """Return up to `wanted` free leases of one task, the best, or else the next bucket to look at, or neither."""
        self._forget_old_views(now_s)
        for level in range(_LEVELS):
            if free := self._free_of_level(level, wanted):
                return free, None
            if self._unlooked[level]:
                return (), next(iter(self._unlooked[level]))
        return (), None

    def _free_of_level(self, level: int, wanted: int) -> tuple[LeaseId, ...]:
        """Return free leases of one task. It stops at the last one: a step costs the same however many are free."""
        units = (unit for free in self._free.values() for unit in free if self._level_of(unit) == level)
        first = next(units, None)
        if first is None:
            return ()
        task = self._geometry.task_of(first)
        same = chain([first], (unit for unit in units if self._geometry.task_of(unit) == task))
        return tuple(LeaseId(unit, 0) for unit in islice(same, wanted))

    def saw(self, view: BucketView, now_s: float) -> None:
        """Take in a look at a bucket."""
        for queue in self._unlooked:
            queue.pop(view.bucket, None)
        free = [unit for unit in view.free if self._is_open(unit)]
        leased = [LeaseId(unit, g) for unit, g in view.leased.items() if self._is_open(unit)]
        self._free.pop(view.bucket, None)
        if free:
            cut = self._chance.randrange(len(free))
            self._free[view.bucket] = free[cut:] + free[:cut]
        known = self._leased.get(view.bucket, {})
        self._leased[view.bucket] = {lease_id: known.get(lease_id, now_s) for lease_id in leased}
        self._seen_s[view.bucket] = now_s
        if free or leased:
            self._unfinished[view.bucket] = None  # also one that was finished, and has a unit put back
            self._resting.discard(view.bucket)
        elif self._extent.may_grow_in(self._geometry.units_of(view.bucket)):
            self._resting.add(view.bucket)
        else:
            self._forget(view.bucket)

    def saw_compacted(self, buckets: Iterable[int]) -> None:
        """Take in which buckets were compacted: nothing is left to do in them."""
        for bucket in self._unfinished.keys() & set(buckets):
            for queue in self._unlooked:
                queue.pop(bucket, None)
            self._forget(bucket)

    def tried(self, lease_id: LeaseId) -> None:
        """Note that a lease was tried, whatever came of it: it is not tried again before the next look."""
        bucket = bucket_of(lease_id.unit)
        free = self._free.get(bucket, [])
        if lease_id.unit in free:
            free.remove(lease_id.unit)
            if not free:
                del self._free[bucket]

    def stands(self, lease_id: LeaseId, now_s: float) -> None:
        """Note that a generation exists, ours or somebody else's."""
        known = self._leased.setdefault(bucket_of(lease_id.unit), {})
        for generation in range(lease_id.generation):
            known.pop(LeaseId(lease_id.unit, generation), None)
        known[lease_id] = now_s

    def _prefer_anew(self) -> None:
        """Put what is down for a look down again: the preferences changed."""
        self.begin_round([bucket for queue in self._unlooked for bucket in queue])

    def _forget(self, bucket: int) -> None:
        self._unfinished.pop(bucket, None)
        self._free.pop(bucket, None)
        self._leased.pop(bucket, None)

    def _forget_old_views(self, now_s: float) -> None:
        old = [bucket for bucket in self._free if now_s - self._seen_s[bucket] > VIEW_S]
        if old:
            for bucket in old:
                self._free.pop(bucket)
            self.begin_round([*old, *(bucket for queue in self._unlooked for bucket in queue)])

    def _level_of(self, unit: int) -> int | None:
        return self._level(self._geometry.task_of(unit))

    def _level(self, task: int) -> int | None:
        if task in self._refused:
            return None
        if task == self._resident:
            return 0
        context = self._tasks[task].context
        if self._resident is not None and context == self._tasks[self._resident].context:
            return 1
        return 2 if context in self._on_node else 3

    def _is_open(self, unit: int) -> bool:
        return self._level_of(unit) is not None and self._extent.is_open(unit)

    def _open_tasks_of(self, bucket: int) -> list[int]:
        return self._extent.tasks_open_in(self._geometry.units_of(bucket))

    def _is_wanted(self, bucket: int) -> bool:
        return bucket not in self._resting and any(task not in self._refused for task in self._open_tasks_of(bucket))
