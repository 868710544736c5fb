"""Simulated time, processes and threads: greenlets that a scheduler switches between, one at a time.

Everything that would wait in reality (a system call, a sleep, an event) switches to the scheduler, which
resumes whoever is due next. So a history is decided by its random numbers alone.
"""

import contextlib
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import greenlet

TICK_S = 1e-6
"""A wait takes at least so long: less may be nothing to a clock that counts in floats, and be waited for ever."""

AT_ONE_TIME = 10_000
"""After so many steps in which no time passes, none ever will."""


class Stuck(Exception):
    """Raised where a history goes round without end at one moment."""


class Killed(BaseException):
    """Raised in the code of a dead process if it is ever resumed: it must do nothing more."""


@dataclass(slots=True, eq=False)
class Process:
    """A simulated process. A dead one is never resumed, a frozen one not before its time."""

    name: str
    host: str
    is_dead: bool = False
    frozen_until_s: float = 0.0
    told_to_leave_s: float | None = None
    """When SIGTERM came, in true time."""
    was_frozen: bool = False
    on_signal: Callable[[], None] | None = None
    in_flight: list[Callable[[], None]] = field(default_factory=list)
    """Requests that were sent and not yet served: they may be served after the sender's death."""


@dataclass(slots=True, eq=False)
class _Thread:
    process: Process
    run: greenlet.greenlet
    turn: int = 0
    """Counts its waits, so that an old wake-up is told from a new one."""


Waiting = deque[tuple[_Thread, int]]
"""Threads that wait for something, each with its turn."""


class Clockwork:
    """The scheduler. `now_s` is true time; hosts have clocks of their own."""

    def __init__(self, chance: Random) -> None:
        self.now_s = 0.0
        self.chance = chance
        self._due: list[tuple[float, float, int, _Thread, int]] = []
        self._n = 0
        self._main = greenlet.getcurrent()
        self._current: _Thread | None = None
        self._threads: list[_Thread] = []
        self._is_over = False
        self._deadline_s = 0.0
        self.failure: BaseException | None = None

    @property
    def process(self) -> Process:
        """The process whose code is running."""
        assert self._current is not None
        return self._current.process

    def spawn(self, process: Process, target: Callable[[], Any], *, after_s: float = 0.0) -> None:
        """Let a function run on a new thread of a process."""
        thread = _Thread(process, greenlet.greenlet(self._guarded(target), parent=self._main))
        self._threads.append(thread)  # until `close`: a greenlet that is dropped runs its `finally` at once
        self._wake(thread, after_s)

    def pause(self, seconds: float) -> None:
        """Let others run for so long."""
        thread = self._running()
        then_s = self.now_s + max(seconds, 0.0)
        if then_s < min(self._deadline_s, self._due[0][0] if self._due else self._deadline_s):
            self.now_s = then_s  # nobody else has anything to do before
            return
        thread.turn += 1
        self._wake(thread, seconds)
        self._switch(thread)

    def wait(self, waiting: Waiting, timeout_s: float | None = None) -> None:
        """Wait until somebody wakes those in `waiting`, or so long."""
        thread = self._running()
        thread.turn += 1
        waiting.append((thread, thread.turn))
        if timeout_s is not None:
            self._wake(thread, max(timeout_s, TICK_S))
        self._switch(thread)

    def wake(self, waiting: Waiting, n: int | None = None) -> None:
        """Wake the first `n` that wait, or all."""
        while waiting and (n is None or n > 0):
            thread, turn = waiting.popleft()
            if thread.turn == turn:
                self._wake(thread, 0.0)
                n = None if n is None else n - 1

    def kill(self, process: Process) -> None:
        """End a process at once. What it has sent may still arrive."""
        process.is_dead = True
        for request in process.in_flight:
            if self.chance.random() < 0.5:
                ghost = Process(name=f"{process.name}'s request", host="wire")
                self.spawn(ghost, _unheard(request), after_s=self.chance.uniform(0.0, 5.0))
        process.in_flight = []

    def signal(self, process: Process) -> None:
        """Deliver SIGTERM: its handler runs at once, between two steps of the process."""
        if process.on_signal is not None and not process.is_dead:
            process.told_to_leave_s = self.now_s if process.told_to_leave_s is None else process.told_to_leave_s
            process.on_signal()

    def freeze(self, process: Process, until_s: float) -> None:
        """Let a process do nothing until then."""
        process.frozen_until_s, process.was_frozen = until_s, True

    def run(self, until: Callable[[], bool], *, deadline_s: float) -> None:
        """Resume threads in the order of their times until something is true, nothing is left or time is up."""
        self._deadline_s, n_steps = deadline_s, 0
        while self._due and self._due[0][0] <= deadline_s and not until():
            at_s, _, _, thread, turn = heapq.heappop(self._due)
            if thread.process.is_dead or thread.turn != turn or thread.run.dead:
                continue
            if thread.process.frozen_until_s > max(at_s, self.now_s):
                self._push(thread.process.frozen_until_s, thread, turn)
                continue
            n_steps = n_steps + 1 if at_s <= self.now_s else 0
            if n_steps > AT_ONE_TIME:
                raise Stuck(f"{n_steps} steps at {self.now_s} s; the last ones are of {thread.process.name}")
            self.now_s = max(self.now_s, at_s)
            self._current = thread
            thread.turn += 1
            thread.run.switch()
            if self.failure is not None:
                raise self.failure
        if self._due and self._due[0][0] > deadline_s:
            self.now_s = max(self.now_s, deadline_s)

    def close(self) -> None:
        """End all threads: whatever they still try raises `Killed`."""
        self._is_over = True
        for thread in self._threads:
            if thread.run:  # started and not ended
                thread.run.throw(Killed)
        self._threads, self._due, self._current = [], [], None

    def _guarded(self, target: Callable[[], Any]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                target()
            except (Killed, greenlet.GreenletExit):
                pass
            except BaseException as error:  # noqa: BLE001 - reported by `run`, with the history's seed
                self.failure = error

        return guarded

    def _running(self) -> _Thread:
        if self._is_over:
            raise Killed
        assert self._current is not None
        if self._current.process.is_dead:
            raise Killed
        return self._current

    def _wake(self, thread: _Thread, seconds: float) -> None:
        self._push(self.now_s + max(seconds, 0.0), thread, thread.turn)

    def _push(self, at_s: float, thread: _Thread, turn: int) -> None:
        self._n += 1
        heapq.heappush(self._due, (at_s, self.chance.random(), self._n, thread, turn))

    def _switch(self, thread: _Thread) -> None:
        self._main.switch()
        if thread.process.is_dead or self._is_over:
            raise Killed


def _unheard(request: Callable[[], None]) -> Callable[[], None]:
    """Return a request whose sender does not live to hear of an error."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            request()

    return serve
