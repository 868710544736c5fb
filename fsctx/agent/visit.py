"""A visit: units of one task that are leased, read, tokenised and computed together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fsctx.agent.engines.base import Bound, Encoded
from fsctx.agent.unitwork import UnitWork
from fsctx.protocol.verdicts import Verdict


@dataclass(slots=True)
class Visit:
    """Units that are held, with what the device needs for them. `works` shrinks as they are completed."""

    task: int
    works: list[UnitWork]
    encoded: list[Encoded] | None = None
    """None until a bound model tokenised the rows."""
    _work_of_row: dict[int, UnitWork] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._work_of_row = {row.row: work for work in self.works for row in work.todo}

    @property
    def is_careful(self) -> bool:
        """Whether the holders of a unit died again and again: then not even its tokenising is done ahead."""
        return any(work.care is not None for work in self.works)

    @property
    def n_left(self) -> int:
        """Rows without a verdict."""
        return sum(work.n_left for work in self.works)

    @property
    def n_done(self) -> int:
        """Rows that were computed in this visit."""
        return len(self._work_of_row) - self.n_left

    def encode(self, bound: Bound) -> Sequence[Encoded]:
        """Tokenise all rows that need no care, unless that is done."""
        if self.encoded is None:
            self.encoded = bound.encode([row for work in self.works if work.care is None for row in work.todo])
        return self.encoded

    def take_in(self, verdicts: Iterable[Verdict]) -> None:
        """Give verdicts to their units."""
        for verdict in verdicts:
            self._work_of_row[verdict.row].verdicts.append(verdict)

    def pop_complete(self) -> list[UnitWork]:
        """Hand out the units whose rows are all there."""
        complete = [work for work in self.works if work.is_complete]
        self.works = [work for work in self.works if not work.is_complete]
        return complete
