"""How the claims of a sweep that stops early are divided into growing samples. Pure."""

import math
from dataclasses import replace

from fsctx.errors import InputError
from fsctx.protocol.geometry import Geometry
from fsctx.protocol.sweep import Sweep

CONFIDENCE = 0.95
"""So likely at least is the truly best task never dropped as clearly worse."""

SPREAD = 512
"""So many slices a sweep has at least, where there are rows enough: samples are made of slices."""

_FIRST_ROWS, _FIRST_SLICES = 100, 8
"""The first rung has so many labelled rows, from so many places of the claims, at least: they may be sorted."""

_MAX_RUNGS = 7
"""So the first rung is at least a 64th of the claims: each rung costs a wait for its last unit."""

_GOLDEN = 0.6180339887498949


def divide(geometry: Geometry, *, n_labelled: int, budget: int | None) -> tuple[Geometry, Sweep]:
    """Return the geometry with its slices spread over the rungs, and the rungs.

    Each rung doubles the sample. `n_labelled` claims tell tasks apart; what a sample has of them is taken for its
    share. The level is shared by all tests that could drop the best task (Bonferroni):
    one for each other task at each decision.

    Raises:
        InputError: there are too few labelled claims or units for two rungs, or the budget is too small.
    """
    spread = replace(geometry, stride=_stride(geometry.n_slices))
    ends = _ends(spread, n_labelled)
    n_tests = (len(ends) - 1) * max(1, geometry.n_tasks - 1)
    sweep = Sweep(ends=ends, level=(1 - CONFIDENCE) / n_tests, budget=budget)
    least = sweep.least_rows(spread, n_tasks=geometry.n_tasks, rung=0)
    if budget is not None and budget < least:
        raise InputError(
            f"--budget {budget}: to choose among {geometry.n_tasks} tasks on {geometry.n_rows:,} claims takes "
            f"{least:,} inferences (the full sweep: {geometry.n_rows * geometry.n_tasks:,}): pass at least {least}"
        )
    return spread, sweep


def _ends(geometry: Geometry, n_labelled: int) -> tuple[int, ...]:
    ends = [geometry.n_slices]
    while len(ends) < _MAX_RUNGS:
        half = -(-ends[0] // 2)
        if half < _FIRST_SLICES or geometry.rows_before(half) * n_labelled < _FIRST_ROWS * geometry.n_rows:
            break
        ends.insert(0, half)
    if len(ends) == 1:
        raise InputError(
            f"--sweep halving: {n_labelled:,} claims with a gold label in {geometry.n_slices:,} unit(s) are too few to "
            f"begin with {_FIRST_ROWS} of them in {_FIRST_SLICES} units: pass more of them, a smaller --unit-rows, or "
            "no --sweep"
        )
    return tuple(ends)


def _stride(n_slices: int) -> int:
    """Return the number nearest to the golden section of `n_slices` that has no divisor in common with it."""
    wanted = max(1, round(n_slices * _GOLDEN))
    return min((n for n in range(1, n_slices + 1) if math.gcd(n, n_slices) == 1), key=lambda n: abs(n - wanted))
