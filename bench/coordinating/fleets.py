"""(c) More agents on one run: how many calls of the filesystem a unit takes, compaction and heartbeats among them.

The runs are planned as anybody's, with the time to live of network filesystems.
"""

from pathlib import Path

from planning import make_plan

from coordinating import pilots

UNIT_ROWS = 4


def measure(folder: Path, *, fleets: tuple[int, ...], units_per_agent: int, least_units: int) -> dict[str, object]:
    """Let fleets do runs; return calls per unit and by kind."""
    found = [_one(folder / f"fleet-{n}", n, max(least_units, n * units_per_agent)) for n in fleets]
    calls = [float(str(fleet["calls_per_unit"])) for fleet in found]
    return {"fleets": found, "growth": round(max(calls) / calls[0] - 1, 3), "goal": "growth < 0.2"}


def _one(folder: Path, n_agents: int, n_units: int) -> dict[str, object]:
    folder.mkdir()
    claims = folder / "claims.txt"
    claims.write_text("".join(f"Claim number {i} is true.\n" for i in range(n_units * UNIT_ROWS)))
    make_plan(claims, run=folder / "run", unit_rows=UNIT_ROWS, ttl_s=60.0)
    ended = pilots.work(folder / "run", n_agents)
    n_done = sum(ledger.units_done for ledger in ended.ledgers)
    assert n_done == n_units, f"{n_done} of {n_units} units were done"
    total = sum(ended.calls.values())
    return {
        "agents": n_agents,
        "units": n_units,
        "units_per_s": round(n_units / ended.seconds, 1),
        "calls_per_unit": round(total / n_units, 3),
        "calls": {kind: round(n / n_units, 3) for kind, n in ended.calls.items() if n * 1000 > n_units},
    }
