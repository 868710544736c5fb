"""The threads of a simulated process: see `fsctx.agent.threads`, whose interface these classes have."""

from collections import deque
from collections.abc import Callable
from typing import Any

import greenlet

from simulation.clockwork import Clockwork, Killed, Process


class Threads:
    """See `fsctx.agent.threads.Threads`: the threads of one simulated process."""

    def __init__(self, clockwork: Clockwork, process: Process) -> None:
        self._clockwork = clockwork
        self._process = process

    def event(self) -> "Event":
        return Event(self._clockwork)

    def room(self, places: int) -> "Room":
        return Room(self._clockwork, places)

    def worker(self, name: str) -> "Worker":
        return Worker(self._clockwork, self._process)

    def spawn(self, name: str, target: Callable[[], None]) -> None:
        self._clockwork.spawn(self._process, target)


class Event:
    """A flag."""

    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork = clockwork
        self._is_set = False
        self._waiting: deque[Any] = deque()

    def set(self) -> None:
        self._is_set = True
        self._clockwork.wake(self._waiting)

    def clear(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._is_set:
            self._clockwork.wait(self._waiting, timeout)
        return self._is_set


class Room:
    """A counting semaphore."""

    def __init__(self, clockwork: Clockwork, places: int) -> None:
        self._clockwork = clockwork
        self._places = places
        self._waiting: deque[Any] = deque()

    def acquire(self) -> bool:
        while self._places == 0:
            self._clockwork.wait(self._waiting)
        self._places -= 1
        return True

    def release(self) -> None:
        self._places += 1
        self._clockwork.wake(self._waiting, 1)


class Outcome:
    """What becomes of a call that was handed to a worker; stands for `concurrent.futures.Future`."""

    def __init__(self, clockwork: Clockwork) -> None:
        self._done = Event(clockwork)
        self._result: Any = None
        self._error: BaseException | None = None

    def settle(self, call: Callable[[], Any]) -> None:
        try:
            self._result = call()
        except (Killed, greenlet.GreenletExit):
            raise
        except BaseException as error:  # noqa: BLE001 - raised again by `result`
            self._error = error
        self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._done.wait()
        return self._error

    def result(self, timeout: float | None = None) -> Any:
        self._done.wait()
        if self._error is not None:
            raise self._error
        return self._result


class Worker:
    """One background thread that does what it is given, in order."""

    def __init__(self, clockwork: Clockwork, process: Process) -> None:
        self._clockwork = clockwork
        self._process = process
        self._todo: deque[tuple[Outcome, Callable[[], Any]]] = deque()
        self._is_busy = False
        self._idle = Event(clockwork)
        self._idle.set()

    def submit(self, call: Callable[..., Any], *args: Any) -> Outcome:
        outcome = Outcome(self._clockwork)
        self._todo.append((outcome, lambda: call(*args)))
        self._idle.clear()
        if not self._is_busy:
            self._is_busy = True
            self._clockwork.spawn(self._process, self._work)
        return outcome

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if cancel_futures:
            self._todo.clear()
        if wait:
            self._idle.wait()

    def _work(self) -> None:
        while self._todo:
            outcome, call = self._todo.popleft()
            outcome.settle(call)
        self._is_busy = False
        self._idle.set()
