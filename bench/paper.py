"""The experiments of arXiv 2510.14024, repeated in simulated time by the agents' real code. Some minutes.

    static     20 GPUs of two speeds, 145,449 claims, 100 a unit, in the three ways
    batches    the same with 1 to 3,000 claims a unit
    drain      one GPU is preempted each minute, until none is left
    growth     from 4 to 20 GPUs, and up to 186

Real: all that an agent does (`replaying/cluster.py` tells): leases, order, pace, publication, saving, compaction.
Simulated: clock, threads, the shared filesystem. Modelled: what a GPU, a load and a fetch take. Peers are not
simulated: in full and partial a node fetches the context once, as fast as its link lets it (10 Gbit/s).

What things cost is derived from the paper's own results:
  rates     full takes 2,900 s, of which 42 s are the first fetch (14.2 GB) and load: 50.9 claims/s on 20 GPUs.
            That an A10 is twice as fast as a TITAN X is assumed: 3.39 and 1.70 claims/s.
  load      partial takes 5,300 s, so a unit of 100 takes 31 s longer. (Its 141,100 s at one claim a unit mean 19 s:
            the paper's figures do not agree on one number, so that row comes out too slow.)
  fetch     agnostic takes 10,400 s: all who read the shared filesystem at once share 2.6 GB/s.
  drain     from minute 15 on, fast GPUs first; killed without a warning.   assumed: the paper's totals fit it
  growth    one GPU more every 300 s; one every 4 s.                        assumed: the paper's times fit it

`ideal`: every GPU fetches and loads once, then computes without a pause, and the work can be cut anywhere.
`by unit`: the best schedule of units that cannot be cut, knowing all speeds. It is exact: the units are equal, so
whoever would finish one first gets it. Goal: within 5 % of it. `loss` is the distance from either, for ideal and by
unit; where whole units alone cost more than 5 %, no scheduler reaches the ideal with them, smaller units do.
Where units are many, fewer claims are done (`--units`): what is lost at a run's end weighs more there.
The last line is one JSON document.

    python bench/paper.py [static] [batches] [drain] [growth] [--units 15000] [--claims 145449]
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))  # the simulator is there

from replaying import costs
from replaying.cluster import replay
from replaying.costs import Gpu

from fsctx.agent.residency import ContextMode

DRAIN_END_S = 900.0 + 20 * 60.0
NEVER_S = 1e7
GOALS = {"loss_by_unit": 0.05, "drain_claims": 62_900}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table. Of a drained cluster the claims count, else the seconds."""

    what: str
    mode: str
    unit_rows: int
    claims: int
    ours: float
    ideal: float | None
    by_unit: float | None
    paper: float | None
    loads: int
    unit: str = "s"

    @property
    def all_s(self) -> float | None:
        """Seconds in proportion to all claims, the first load apart, where fewer were done and a load is lost a unit.

        Not so in full, where what is lost is lost at the end.
        """
        if self.unit != "s" or self.mode == ContextMode.FULL or self.claims == costs.CLAIMS:
            return None
        ready_s = costs.FETCH_S + costs.LOAD_S
        return ready_s + (self.ours - ready_s) * costs.CLAIMS / self.claims

    @property
    def loss(self) -> float | None:
        """How much worse than the ideal."""
        return self._worse_than(self.ideal)

    @property
    def loss_by_unit(self) -> float | None:
        """How much worse than the best schedule of whole units."""
        return self._worse_than(self.by_unit)

    def _worse_than(self, best: float | None) -> float | None:
        if best is None:
            return None
        return self.ours / best - 1 if self.unit == "s" else 1 - self.ours / best


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How much is simulated."""

    claims: int
    units: int

    def claims_of(self, unit_rows: int) -> int:
        """Return how many claims to do with units of so many rows."""
        return min(self.claims, self.units * unit_rows)


def static(size: Size) -> Iterator[Row]:
    for mode, paper in ((ContextMode.FULL, 2900), (ContextMode.PARTIAL, 5300), (ContextMode.AGNOSTIC, 10_400)):
        yield timed("20 GPUs", costs.static(), size, mode=mode, paper=paper)


def batches(size: Size) -> Iterator[Row]:
    for unit_rows in (1, 10, 1000, 3000):
        yield timed("20 GPUs", costs.static(), size, unit_rows=unit_rows)
    few = Size(claims=min(size.claims, 1000), units=size.units)  # 8 s a claim: a thousand tell
    yield timed("20 GPUs", costs.static(), few, mode=ContextMode.PARTIAL, unit_rows=1, paper=141_100)
    for unit_rows in (1000, 3000):
        yield timed("20 GPUs", costs.static(), size, mode=ContextMode.PARTIAL, unit_rows=unit_rows)


def drain(size: Size) -> Iterator[Row]:
    gpus = costs.drained()
    for mode, paper in ((ContextMode.FULL, 62_900), (ContextMode.PARTIAL, 46_000), (ContextMode.AGNOSTIC, None)):
        done = replay(gpus, mode=mode, claims=size.claims, unit_rows=100, until_s=DRAIN_END_S)
        is_full = mode == ContextMode.FULL
        yield Row(
            what="20 GPUs less one a minute",
            mode=mode,
            unit_rows=100,
            claims=size.claims,
            ours=done.claims,
            ideal=costs.ideal_claims(gpus, DRAIN_END_S) if is_full else None,
            by_unit=costs.ideal_claims(gpus, DRAIN_END_S, 100) if is_full else None,
            paper=paper,
            loads=done.loads,
            unit="claims",
        )


def growth(size: Size) -> Iterator[Row]:
    yield timed("4 to 20 GPUs", costs.growing(4, 20, 300.0), size, paper=5000)
    for unit_rows in (100, 25):
        yield timed("1 to 186 GPUs", costs.growing(1, 186, 4.0), size, unit_rows=unit_rows, paper=783)


def timed(
    what: str,
    gpus: Sequence[Gpu],
    size: Size,
    *,
    mode: ContextMode = ContextMode.FULL,
    unit_rows: int = 100,
    paper: float | None = None,
) -> Row:
    """Let GPUs do a run to its end."""
    claims = size.claims_of(unit_rows)
    done = replay(gpus, mode=mode, claims=claims, unit_rows=unit_rows, until_s=NEVER_S)
    assert done.claims == claims, f"{done.claims} of {claims} claims were published"
    is_full = mode == ContextMode.FULL
    return Row(
        what=what,
        mode=mode,
        unit_rows=unit_rows,
        claims=claims,
        ours=done.seconds,
        ideal=costs.ideal_s(gpus, claims) if is_full else None,
        by_unit=costs.ideal_s(gpus, claims, unit_rows) if is_full else None,
        paper=paper,
        loads=done.loads,
    )


EXPERIMENTS: dict[str, Callable[[Size], Iterator[Row]]] = {
    "static": static,
    "batches": batches,
    "drain": drain,
    "growth": growth,
}

HEADS = ("", "context", "unit", "claims", "loads", "ours", "ideal", "by unit", "loss", "by unit", "all claims", "paper")


def line(row: Row) -> tuple[str, ...]:
    """Return a row's cells."""
    return (
        row.what,
        row.mode,
        f"{row.unit_rows:,}",
        f"{row.claims:,}",
        f"{row.loads:,}",
        f"{row.ours:,.0f} {row.unit}",
        *("" if value is None else f"{value:,.0f}" for value in (row.ideal, row.by_unit)),
        *("" if loss is None else f"{loss:.1%}" for loss in (row.loss, row.loss_by_unit)),
        "" if row.all_s is None else f"{row.all_s:,.0f} s",
        "" if row.paper is None else f"{row.paper:,.0f}",
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("experiments", nargs="*", choices=[[], *EXPERIMENTS], help="all if none is named")
    parser.add_argument("--claims", type=int, default=costs.CLAIMS)
    parser.add_argument("--units", type=int, default=15_000, help="at most so many units a run")
    options = parser.parse_args()
    size = Size(claims=options.claims, units=options.units)
    widths = (26, 9, 6, 8, 7, 14, 8, 8, 7, 8, 13, 8)
    print("".join(head.rjust(width) for head, width in zip(HEADS, widths, strict=True)))
    rows = []
    for name in options.experiments or EXPERIMENTS:
        for row in EXPERIMENTS[name](size):
            rows.append(row)
            print("".join(cell.rjust(width) for cell, width in zip(line(row), widths, strict=True)), flush=True)
    told = [asdict(row) | {"loss": row.loss, "loss_by_unit": row.loss_by_unit} for row in rows]
    print(json.dumps({"bench": "paper", "rows": told, "goals": GOALS, "is_goal_met": is_goal_met(rows)}))
    return 0


def is_goal_met(rows: Sequence[Row]) -> bool:
    """Tell whether full is near the best that its units allow, and does as much as the paper while it loses GPUs."""
    full = [row for row in rows if row.mode == ContextMode.FULL]
    is_near = all(row.loss_by_unit is None or row.loss_by_unit < GOALS["loss_by_unit"] for row in full)
    return is_near and all(row.ours >= GOALS["drain_claims"] for row in full if row.unit == "claims")


if __name__ == "__main__":
    sys.exit(main())
