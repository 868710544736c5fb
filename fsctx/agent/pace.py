"""How many units to hold, from the speed that was measured. Pure."""

from dataclasses import dataclass, replace

MAX_UNITS = 64
"""So many units at most are taken per visit, however small they are."""

LEAST_S = 5.0
"""A visit of so many seconds is nobody's loss, however few units are left. Batches are cut within a visit, and few rows
are padded more, as no two are equally long."""

_NEWEST = 0.5
"""Weight of the latest visit in the measured speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The speed of this agent. `rows_per_s` is 0 until the first visit is done."""

    unit_rows: int
    hold_s: float
    """How many seconds of work to hold, half of it on the device and half of it ahead."""
    share: int = MAX_UNITS
    """So many units at most, if they are more than `LEAST_S` of work, so that in a small run everybody gets some."""
    rows_per_s: float = 0.0

    def after(self, rows: int, seconds: float) -> "Pace":
        """Return the pace after a visit of so many rows."""
        if rows == 0 or seconds <= 0:
            return self
        measured = rows / seconds
        mixed = _NEWEST * measured + (1 - _NEWEST) * self.rows_per_s if self.rows_per_s else measured
        return replace(self, rows_per_s=mixed)

    @property
    def unit_s(self) -> float | None:
        """How long a unit takes here; None until it is known."""
        return self.unit_rows / self.rows_per_s if self.rows_per_s else None

    def units_wanted(self) -> int:
        """Return how many units to take for the next visit."""
        units_per_s = self.rows_per_s / self.unit_rows
        most = min(MAX_UNITS, max(self.share, int(LEAST_S * units_per_s)))
        return max(1, min(int(self.hold_s / 2 * units_per_s), most))

    def is_ending(self, n_left: int, *, n_done: int, seconds: float) -> bool:
        """Whether a visit that did so many rows in so many seconds has so few left that the next one is to be taken."""
        rows_per_s = self.rows_per_s or self.after(n_done, seconds).rows_per_s
        return rows_per_s > 0 and n_left / rows_per_s <= self.hold_s / 2

    def fits(self, left_s: float | None) -> bool:
        """Whether to begin a unit in the seconds that are left; one longer than `hold_s` is saved in parts."""
        if left_s is None or not self.rows_per_s:
            return left_s is None or left_s > 0
        return left_s > min(self.unit_rows / self.rows_per_s, self.hold_s)
