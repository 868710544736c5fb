"""Published verdicts against recomputed ones: how far they are apart, by who computed them. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from fsctx.protocol.verdicts import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Makers:
    """What computed rows of one task."""

    model: str
    template: str
    device: str
    engine: str
    dtype: str
    """Empty where its agent's events do not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One row, as published and as computed now."""

    makers: Makers
    published: Verdict
    now: Verdict

    @property
    def is_flip(self) -> bool:
        """Whether another verdict came out."""
        return self.published.verdict != self.now.verdict

    @property
    def distance(self) -> float | None:
        """Largest difference of a label's log-probability, in nats; None where there are no scores to compare."""
        if self.published.scores is None or self.now.scores is None:
            return None
        pairs = zip(self.published.scores, self.now.scores, strict=True)
        return max(0.0 if before == after else abs(before - after) for before, after in pairs)

    def agrees(self, tolerance: float) -> bool:
        """Whether the two differ by no more than rounding does: a flip within that is a near tie."""
        if self.now.status != self.published.status:
            return False
        return self.distance <= tolerance if self.distance is not None else not self.is_flip


@dataclass(frozen=True, slots=True, kw_only=True)
class Disagreement:
    """The rows of some makers."""

    makers: Makers
    rows: int
    flips: int
    near_ties: int
    """Flips whose log-probabilities agree within the tolerance all the same."""
    beyond: int
    """Rows that differ by more than the tolerance."""
    largest: float | None
    """Largest difference of a log-probability, in nats."""
    worst_rows: tuple[int, ...]
    """Numbers of a few rows beyond the tolerance, the worst first."""


N_WORST = 5


def compare(rows: Iterable[Replayed], *, tolerance: float) -> Iterator[Disagreement]:
    """Yield the disagreement with each kind of makers, in the order in which they come."""
    by_makers: dict[Makers, list[Replayed]] = {}
    for row in rows:
        by_makers.setdefault(row.makers, []).append(row)
    for makers, own in by_makers.items():
        beyond = [row for row in own if not row.agrees(tolerance)]
        distances = [row.distance for row in own if row.distance is not None]
        worst = sorted(beyond, key=lambda row: -(row.distance if row.distance is not None else float("inf")))
        yield Disagreement(
            makers=makers,
            rows=len(own),
            flips=sum(row.is_flip for row in own),
            near_ties=sum(row.is_flip and row.agrees(tolerance) for row in own),
            beyond=len(beyond),
            largest=max(distances, default=None),
            worst_rows=tuple(row.published.row for row in worst[:N_WORST]),
        )
