"""What was found: printed as soon as it is known, kept for the JSON line."""

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One way of computing verdicts, measured. None stands for what means nothing here."""

    part: str
    way: str
    dtype: str
    batch: int
    """Tokens that a batch may have; of transformers' own ways, rows."""
    claims: int
    claims_per_s: float
    of_ceiling: float | None = None
    """Share of the card's measured rate of matrix products in this precision."""
    as_float32: float | None = None
    """Share of verdicts that are those of float32."""
    nat: float | None = None
    """The largest difference of a label's log-probability from float32."""
    peak_gb: float | None = None
    """The most memory of the card that was in use."""


@dataclass(slots=True, kw_only=True)
class Findings:
    """Everything found."""

    card: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    notes: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        """Print a line of the table."""
        if not self.lines:
            print(
                f"{'part':<14}{'way':<22}{'precision':<10}{'batch':>7}{'claims':>8}{'claims/s':>11}"
                f"{'of ceiling':>12}{'as float32':>12}{'nat':>9}{'peak GB':>9}"
            )
        self.lines.append(line)
        print(
            f"{line.part:<14}{line.way:<22}{line.dtype:<10}{line.batch:>7}{line.claims:>8}{line.claims_per_s:>11.1f}"
            f"{_shown(line.of_ceiling, '.3f'):>12}{_shown(line.as_float32, '.4f'):>12}{_shown(line.nat, '.4f'):>9}"
            f"{_shown(line.peak_gb, '.2f'):>9}",
            flush=True,
        )

    def note(self, part: str, **found: Any) -> None:
        """Print numbers that are no line of the table."""
        self.notes.setdefault(part, {}).update(found)
        print(f"{part:<14}" + ", ".join(f"{name} {value}" for name, value in found.items()), flush=True)

    def skip(self, part: str, reason: str) -> None:
        """Say that a part, or the rest of it, is not measured, and why."""
        self.skipped[part] = reason
        print(f"{part:<14}skipped: {reason}", flush=True)

    def fail(self, part: str, reason: str) -> None:
        """Say that a part failed; what it had found before stays."""
        self.failed[part] = reason
        print(f"{part:<14}FAILED: {reason}", flush=True)

    def document(self, seconds: float) -> dict[str, Any]:
        """Return all of it."""
        return {"bench": "gpu", "seconds": round(seconds, 1), **asdict(self)}


def _shown(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
