"""The rows of one leased unit: what is to do, what was adopted, what is done. Data only."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

import pyarrow as pa
import pyarrow.compute as pc

from fsctx.agent.careful import CAREFUL_FROM, Care, take_care
from fsctx.agent.engines.base import Row
from fsctx.protocol.attempts import Attempt
from fsctx.protocol.geometry import Place
from fsctx.protocol.names import LeaseId
from fsctx.protocol.verdicts import Origin, Status, Verdict, to_table


@dataclass(slots=True, kw_only=True)
class UnitWork:
    """A unit that this agent holds."""

    lease_id: LeaseId
    place: Place
    todo: list[Row]
    """Rows that need the engine."""
    adopted: pa.Table | None = None
    """Rows that earlier holders saved, as they computed them."""
    verdicts: list[Verdict] = field(default_factory=list)
    care: Care | None = None
    """Set where earlier holders died again and again."""
    n_saved: int = 0
    """How many of `verdicts` were handed over to be saved."""

    @property
    def n_adopted(self) -> int:
        """Number of rows that earlier holders computed."""
        return 0 if self.adopted is None else int(self.adopted.num_rows)

    @property
    def n_left(self) -> int:
        """Number of rows of the slice that have no verdict yet."""
        return self.place.n_rows - self.n_adopted - len(self.verdicts)

    @property
    def is_complete(self) -> bool:
        """Whether every row of the slice has its verdict."""
        return self.n_left == 0

    @property
    def has_news(self) -> bool:
        """Whether rows were finished since the last save."""
        return len(self.verdicts) > self.n_saved

    def snapshot(self) -> "UnitWork":
        """Return a copy that another thread may write out while rows are added here; they count as saved."""
        self.n_saved = len(self.verdicts)
        return replace(self, verdicts=list(self.verdicts))

    def table(self, labels: Sequence[str], origin: Origin) -> pa.Table:
        """Return all rows that have a verdict, in order."""
        own = to_table(sorted(self.verdicts, key=attrgetter("row")), labels, origin)
        if self.adopted is None:
            return own
        return pa.concat_tables([self.adopted.replace_schema_metadata(), own]).sort_by("row")


def begin(
    lease_id: LeaseId,
    place: Place,
    rows: Sequence[Row],
    adopted: pa.Table | None = None,
    attempts: Sequence[Attempt] = (),
) -> UnitWork:
    """Return a unit's work: rows already adopted are done, and empty claims need no engine.

    `attempts` are those of earlier holders: from generation `CAREFUL_FROM` on they tell what to be careful with.
    """
    done = set() if adopted is None else set(adopted.column("row").to_pylist())
    todo = [row for row in rows if row.row not in done]
    refused = {row.row: "the claim is empty" for row in todo if not row.claim.strip()}
    care = None
    if lease_id.generation >= CAREFUL_FROM:
        care = take_care([row.row for row in todo if row.row not in refused], attempts)
        refused |= dict.fromkeys(care.given_up, "agents died again and again while they computed this row alone")
    return UnitWork(
        lease_id=lease_id,
        place=place,
        todo=[row for row in todo if row.row not in refused],
        adopted=adopted,
        verdicts=[Verdict(row=row, status=Status.ERROR, error=why) for row, why in refused.items()],
        care=care,
    )


def merge_saved(tables: Iterable[pa.Table], place: Place) -> pa.Table | None:
    """Return the rows of saved tables, each once, the first table's first; rows outside of the slice are left out."""
    merged: pa.Table | None = None
    for table in tables:
        inside = (pc.field("row") >= place.first_row) & (pc.field("row") < place.first_row + place.n_rows)
        fresh = table.filter(inside)
        if merged is not None:
            fresh = fresh.filter(pc.invert(pc.is_in(fresh.column("row"), merged.column("row").combine_chunks())))
        fresh = _first_of_each(fresh)
        merged = fresh if merged is None else pa.concat_tables([merged, fresh])
    return merged if merged is not None and merged.num_rows else None


def _first_of_each(table: pa.Table) -> pa.Table:
    rows = table.column("row").to_pylist()
    first = {row: i for i, row in reversed(list(enumerate(rows)))}
    return table if len(first) == len(rows) else table.take(sorted(first.values()))
