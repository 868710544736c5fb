"""How many claims make a unit. Pure."""

from collections.abc import Sequence

from fsctx.errors import InputError
from fsctx.protocol.geometry import MAX_BUCKETS, UNITS_PER_BUCKET, Geometry

MAX_UNITS = MAX_BUCKETS * UNITS_PER_BUCKET
MAX_SLICES_PER_SHARD = 256
SHARD_ROWS = 1_048_576
CALLS_PER_UNIT = 12
"""Metadata calls that an agent may spend on a unit (law 8)."""

_UNIT_S = 30.0
_SLOW_FLOPS = 1e12
"""What a slow device computes per second in earnest."""
_TOKENS_PER_CLAIM = 40
_MIN_UNIT_ROWS = 16
SPREAD = 64
"""So many slices at least, where there are rows enough: agents must have something to share."""


def choose_unit_rows(n_rows: int, *, n_tasks: int, n_params: Sequence[float], spread: int = SPREAD) -> int:
    """Choose the rows of a unit: at most some tens of seconds on a slow device, and enough units to share."""
    s_per_claim = 2 * max(n_params, default=0) * _TOKENS_PER_CLAIM / _SLOW_FLOPS
    by_time = int(min(_UNIT_S / s_per_claim, n_rows)) if s_per_claim else n_rows
    by_spread = -(-n_rows // spread)
    wanted = max(min(by_time, by_spread), min(_MIN_UNIT_ROWS, n_rows))
    return max(wanted, smallest_unit_rows(n_rows, n_tasks=n_tasks))


def smallest_unit_rows(n_rows: int, *, n_tasks: int) -> int:
    """Return how many rows a unit needs for the run to have no more units than a run may have."""
    if n_tasks > MAX_UNITS:
        raise InputError(
            f"{n_tasks:,} tasks are more than the {MAX_UNITS:,} units that a run may have: plan several runs"
        )
    return max(1, -(-n_rows // (MAX_UNITS // n_tasks)))


def slices_per_shard(unit_rows: int) -> int:
    """Return how many row groups a shard holds: about a million rows, and no more than 256."""
    return max(1, min(MAX_SLICES_PER_SHARD, SHARD_ROWS // unit_rows))


def lay_out(n_rows: int, *, unit_rows: int, n_tasks: int) -> Geometry:
    """Return a run's geometry.

    Raises:
        InputError: that makes more units than a run may have.
    """
    geometry = Geometry(
        n_rows=n_rows, unit_rows=unit_rows, slices_per_shard=slices_per_shard(unit_rows), n_tasks=n_tasks
    )
    if geometry.n_units > MAX_UNITS:
        smallest = smallest_unit_rows(n_rows, n_tasks=n_tasks)
        raise InputError(
            f"--unit-rows {unit_rows} makes {geometry.n_units:,} units of {n_rows:,} rows and {n_tasks} task(s), "
            f"more than {MAX_UNITS:,}: pass --unit-rows {smallest} or more, or auto"
        )
    return geometry
