"""What an agent did, as JSON lines in its folder: buffered, and written by the heartbeat."""

import threading
from collections.abc import Callable
from typing import Any

import msgspec

from fsctx.protocol import names
from fsctx.store import Store


class EventLog:
    """Collects events of one agent. Thread-safe; `flush` is the only call that touches a file.

    Every event has `at_s` (seconds on the agent's monotonic clock since its start) and `time` (UTC, for people).
    """

    def __init__(self, store: Store, agent: str, *, clock: Callable[[], float], utc: Callable[[], str]) -> None:
        self._store = store
        self._name = names.events(agent)
        self._clock = clock
        self.utc = utc
        self._start_s = clock()
        self._lock = threading.Lock()
        self._lines: list[bytes] = []

    def add(self, kind: str, **fields: Any) -> None:
        """Note an event. Never a prompt, never a secret."""
        at_s = round(self._clock() - self._start_s, 4)
        line = msgspec.json.encode({"at_s": at_s, "time": self.utc(), "event": kind, **fields})
        with self._lock:
            self._lines.append(line)

    def flush(self) -> None:
        """Append what was noted; kept for the next time where the filesystem refuses."""
        with self._lock:
            lines, self._lines = self._lines, []
        if lines:
            try:
                self._store.append(self._name, b"\n".join(lines) + b"\n")
            except BaseException:
                with self._lock:
                    self._lines = lines + self._lines
                raise
