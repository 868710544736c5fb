"""How fast a run goes, as a watcher saw it, and how sure that is. Pure: the watcher's clock is an argument."""

import math
import statistics
from collections import deque
from dataclasses import dataclass, field

WINDOW_S = 300.0
"""What lies further back says little about now: fleets grow and shrink."""

_PARTS = 6
"""So many equal stretches of time are compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """Seconds left: at the rate that was seen, and for the rates that it may be in truth (about 95 %)."""

    likely_s: float
    least_s: float
    most_s: float | None
    """None where no bound can be given: the rate may as well be nothing."""


@dataclass(slots=True)
class Pace:
    """Rows that were done at each look."""

    _looks: deque[tuple[float, int]] = field(default_factory=deque)

    def note(self, now_s: float, done: int) -> None:
        """Note a look."""
        self._looks.append((now_s, done))
        while len(self._looks) > 2 and self._looks[1][0] <= now_s - WINDOW_S:
            self._looks.popleft()

    @property
    def rows_per_s(self) -> float | None:
        """The rate of the window; None before there is one."""
        (first_s, first), (last_s, last) = (self._looks[0], self._looks[-1]) if self._looks else ((0.0, 0), (0.0, 0))
        return (last - first) / (last_s - first_s) if last_s > first_s else None

    def left(self, rows: float) -> Left | None:
        """Reckon how long some rows take; None where nothing moved yet.

        The rates of equal parts of the window are taken for independent; their mean has a standard error, and two of
        those to each side are the spread.
        """
        rate = self.rows_per_s
        if not rate:
            return None
        rates = self._rates()
        error = 2 * statistics.stdev(rates) / math.sqrt(len(rates)) if len(rates) > 1 else rate
        slowest = rate - error
        return Left(likely_s=rows / rate, least_s=rows / (rate + error), most_s=rows / slowest if slowest > 0 else None)

    def _rates(self) -> list[float]:
        """Return the rates of the window's parts; each ends at the first look that is late enough."""
        start_s, length_s = self._looks[0][0], (self._looks[-1][0] - self._looks[0][0]) / _PARTS
        before_s, before = self._looks[0]
        rates: list[float] = []
        for now_s, done in self._looks:
            if now_s > before_s and now_s >= start_s + (len(rates) + 1) * length_s:
                rates.append((done - before) / (now_s - before_s))
                before_s, before = now_s, done
        return rates
