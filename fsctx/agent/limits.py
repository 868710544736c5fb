"""How much an agent takes on, and when it takes on no more."""

from dataclasses import dataclass

from fsctx.agent.leaving import Leaving
from fsctx.agent.pace import Pace


@dataclass(slots=True, kw_only=True)
class Limits:
    """What the loop knows and the scout asks for. `max_units` and the walltime bound it, if given."""

    leaving: Leaving
    pace: Pace
    max_units: int | None = None
    n_taken: int = 0
    """Units taken so far."""
    is_one_by_one: bool = False
    """Whether a visit has one unit, however small."""

    def reason(self) -> str | None:
        """Return why no further unit must be begun; None if there is no reason."""
        if self.leaving.soon:
            return self.leaving.soon
        if self.max_units is not None and self.n_taken >= self.max_units:
            return f"--max-units {self.max_units} is reached"
        if not self.pace.fits(self.leaving.left_s):
            return "the walltime leaves no time for another unit"
        return None

    def wanted(self) -> int:
        """Return how many units to take for the next visit, at least 1."""
        wanted = 1 if self.is_one_by_one else self.pace.units_wanted()
        return wanted if self.max_units is None else max(1, min(wanted, self.max_units - self.n_taken))
