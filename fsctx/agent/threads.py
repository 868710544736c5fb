"""The threads of an agent, behind a seam: the simulator runs the same code on simulated ones."""

import threading
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Protocol


class Event(Protocol):
    """A flag that can be waited for; see `threading.Event`."""

    def set(self) -> None:
        """Raise the flag."""

    def clear(self) -> None:
        """Lower the flag."""

    def is_set(self) -> bool:
        """Whether the flag is raised."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the flag is raised or so many seconds are over; return whether it is raised."""


class Room(Protocol):
    """A counting semaphore; see `threading.Semaphore`."""

    def acquire(self) -> bool:
        """Take a place, waiting for one if need be."""

    def release(self) -> None:
        """Give a place back."""


class Threads(Protocol):
    """Makes what runs and waits beside the main thread."""

    def event(self) -> Event:
        """Return a new flag."""

    def room(self, places: int) -> Room:
        """Return a new semaphore."""

    def worker(self, name: str) -> Executor:
        """Return one background thread that does what it is given, in order."""

    def spawn(self, name: str, target: Callable[[], None]) -> None:
        """Run a function on a thread that does not keep the process alive."""


class OsThreads:
    """Real threads."""

    def event(self) -> Event:
        """See `Threads.event`."""
        return threading.Event()

    def room(self, places: int) -> Room:
        """See `Threads.room`."""
        return threading.Semaphore(places)

    def worker(self, name: str) -> Executor:
        """See `Threads.worker`."""
        return ThreadPoolExecutor(1, thread_name_prefix=name)

    def spawn(self, name: str, target: Callable[[], None]) -> None:
        """See `Threads.spawn`."""
        threading.Thread(target=target, name=name, daemon=True).start()
