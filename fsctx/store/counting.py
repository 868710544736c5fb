"""Counts the calls that a store makes, and keeps them under a budget.

A call is one method of `System`: what the server sees of it is one to four requests (a `create` opens, writes,
may sync, closes). Reading on in a file that is open is not counted.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import BinaryIO

from fsctx.store.system import System

_WINDOW_S = 60.0
"""A rate is of the last minute."""

BURST_S = 1.0
"""So many seconds of a budget may be saved up while nothing is asked of the filesystem."""


class Budget:
    """At most so many calls a second, kept by waiting; threads wait in the order in which they came.

    `wait` sleeps for so many seconds, or shorter where there is a reason not to wait any more.
    """

    def __init__(self, per_s: float, *, wait: Callable[[float], object], clock: Callable[[], float]) -> None:
        self._every_s = 1.0 / per_s
        self._wait = wait
        self._clock = clock
        self._lock = threading.Lock()
        self._next_s = clock() - BURST_S

    def spend(self) -> None:
        """Take one call out of the budget, waiting until it is due."""
        with self._lock:
            now_s = self._clock()
            due_s = max(self._next_s, now_s - BURST_S)
            self._next_s = due_s + self._every_s
        if due_s > now_s:
            self._wait(due_s - now_s)


class Meter:
    """How many calls there were, by kind. Thread-safe."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._kinds: Counter[str] = Counter()
        self._looks: deque[tuple[float, int]] = deque([(clock(), 0)])

    def count(self, kind: str) -> None:
        """Count one call."""
        with self._lock:
            self._kinds[kind] += 1

    def by_kind(self) -> dict[str, int]:
        """Return the calls so far by kind, the most frequent first."""
        with self._lock:
            return dict(self._kinds.most_common())

    def read(self) -> tuple[int, float]:
        """Return the calls so far, and the calls a second of about the last minute."""
        with self._lock:
            now_s, total = self._clock(), self._kinds.total()
            while len(self._looks) > 1 and self._looks[1][0] <= now_s - _WINDOW_S:
                self._looks.popleft()
            then_s, before = self._looks[0]
            self._looks.append((now_s, total))
        return total, (total - before) / (now_s - then_s) if now_s > then_s else 0.0


class CountingSystem(System):
    """A system whose calls are counted, and wait for their turn once `limit` was called."""

    def __init__(self, system: System, meter: Meter) -> None:
        self._system = system
        self.meter = meter
        self._budget: Budget | None = None

    def limit(self, budget: Budget) -> None:
        """Keep a budget from now on."""
        self._budget = budget

    def _count(self, kind: str) -> System:
        if self._budget is not None:
            self._budget.spend()
        self.meter.count(kind)
        return self._system

    def listdir(self, path: str) -> list[str]:
        """See `System.listdir`."""
        return self._count("listdir").listdir(path)

    def read(self, path: str) -> bytes:
        """See `System.read`."""
        return self._count("read").read(path)

    def open(self, path: str) -> BinaryIO:
        """See `System.open`."""
        return self._count("open").open(path)

    def create(self, path: str, content: bytes, *, is_durable: bool) -> None:
        """See `System.create`."""
        self._count("create").create(path, content, is_durable=is_durable)

    def create_private(self, path: str, content: bytes) -> None:
        """See `System.create_private`."""
        self._count("create").create_private(path, content)

    def overwrite(self, path: str, content: bytes) -> None:
        """See `System.overwrite`."""
        self._count("overwrite").overwrite(path, content)

    def append(self, path: str, content: bytes) -> None:
        """See `System.append`."""
        self._count("append").append(path, content)

    def rename(self, source: str, target: str) -> None:
        """See `System.rename`."""
        self._count("rename").rename(source, target)

    def symlink(self, target: str, path: str) -> None:
        """See `System.symlink`."""
        self._count("symlink").symlink(target, path)

    def link(self, source: str, path: str) -> None:
        """See `System.link`."""
        self._count("link").link(source, path)

    def readlink(self, path: str) -> str:
        """See `System.readlink`."""
        return self._count("readlink").readlink(path)

    def unlink(self, path: str) -> None:
        """See `System.unlink`."""
        self._count("unlink").unlink(path)

    def makedirs(self, path: str) -> None:
        """See `System.makedirs`."""
        self._count("makedirs").makedirs(path)

    def rmdir(self, path: str) -> None:
        """See `System.rmdir`."""
        self._count("rmdir").rmdir(path)
