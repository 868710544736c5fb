"""Pins: what a live process uses is not removed by another.

A pin is a shared flock, a removal needs an exclusive one, so the kernel lets go of a dead process's pins. The lock
files are never unlinked: a lock on a file without a name would be a lock that nobody else sees.
"""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator
from pathlib import Path


class Pins:
    """The pins of one user of the cache. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Path, int] = {}

    def take(self, path: Path) -> None:
        """Pin what `path` stands for; waits while another process removes it."""
        with self._lock:
            if path not in self._held:
                self._held[path] = locked(path, fcntl.LOCK_SH)

    def release(self) -> None:
        """Let go of everything."""
        with self._lock:
            while self._held:
                os.close(self._held.popitem()[1])


@contextlib.contextmanager
def unpinned(path: Path) -> Iterator[bool]:
    """Tell whether nobody has a pin, this process included; if so, nobody gets one until the end of the block."""
    try:
        fd = locked(path, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
        return
    try:
        yield True
    finally:
        os.close(fd)


def locked(path: Path, how: int) -> int:
    """Return a descriptor of a lock file that is locked as flock(2) says; closing it lets go.

    Raises:
        BlockingIOError: another process holds it, where `how` does not wait.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, how)
    except BaseException:
        os.close(fd)
        raise
    return fd
