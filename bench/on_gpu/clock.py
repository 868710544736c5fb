"""The budget of time, and each part's share of it."""

import time
from collections.abc import Callable


class Skipped(Exception):
    """Something is not measured, with the reason."""


class Clock:
    """Says how much time is left, to all and to the part that is being done."""

    def __init__(self, budget_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._began_s = now()
        self._end_s = self._part_end_s = self._began_s + budget_s

    @property
    def gone_s(self) -> float:
        """Seconds since the beginning."""
        return self._now() - self._began_s

    def begin(self, share_s: float, *, least_s: float) -> None:
        """Begin a part, which may take so long.

        Raises:
            Skipped: less than it needs is left.
        """
        left_s = self._end_s - self._now()
        if left_s < least_s:
            raise Skipped(f"the time is out: {max(0.0, left_s):.0f} s are left, it takes {least_s:g} at least")
        self._part_end_s = self._now() + min(share_s, left_s)

    def take(self, wanted_s: float) -> float:
        """Return the seconds that the part may go on for, at most those that are wanted.

        Raises:
            Skipped: its share is used up.
        """
        left_s = self._part_end_s - self._now()
        if left_s <= 0:
            raise Skipped("the rest of it: the share of time is used up")
        return min(wanted_s, left_s)
