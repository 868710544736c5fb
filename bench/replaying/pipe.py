"""A link in simulated time whose bandwidth is shared evenly by all who use it."""

from collections import deque
from typing import Any

from simulation.clockwork import Clockwork


class Pipe:
    """Carries `gb_per_s` in all. Whenever somebody comes or goes, the others' shares change."""

    def __init__(self, clockwork: Clockwork, gb_per_s: float) -> None:
        self._clockwork = clockwork
        self._gb_per_s = gb_per_s
        self._n = 0
        self._each_gb = 0.0
        """What a transfer would have got that had been there from the start."""
        self._since_s = 0.0
        self._waiting: deque[Any] = deque()

    def transfer(self, gb: float) -> None:
        """Return when so much was carried."""
        self._change(+1)
        target_gb = self._each_gb + gb
        try:
            while (left_gb := target_gb - self._got_gb()) > 1e-9:
                self._clockwork.wait(self._waiting, left_gb * self._n / self._gb_per_s)
        finally:
            self._change(-1)

    def _got_gb(self) -> float:
        if self._n:
            return self._each_gb + (self._clockwork.now_s - self._since_s) * self._gb_per_s / self._n
        return self._each_gb

    def _change(self, by: int) -> None:
        self._each_gb, self._since_s = self._got_gb(), self._clockwork.now_s
        self._n += by
        self._clockwork.wake(self._waiting)
