"""What computing, loading and fetching cost, and who has a GPU when. Derived from the paper's figures; see paper.py."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

CLAIMS = 145_449
CONTEXT_GB = 3.7 + 10.5
"""Model and software environment."""

A10_PER_S, TITAN_PER_S = 3.39, 1.70
"""Inferences a second."""

LINK_GB_PER_S = 1.25
"""Of a node."""

FETCH_S = CONTEXT_GB / LINK_GB_PER_S
"""A node's first fetch: its own link is the limit, as peers carry what the origin cannot."""

LOAD_S = 31.0
"""From the node's disk to being ready."""

ORIGIN_GB_PER_S = 2.6
"""What all who read the shared filesystem at once get together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU, which is one agent on a node of its own."""

    rows_per_s: float
    from_s: float = 0.0
    killed_s: float | None = None
    """When its agent is killed without a warning; None: never."""

    @property
    def ready_s(self) -> float:
        """When it can begin to infer, if the context was fetched and loaded once."""
        return self.from_s + FETCH_S + LOAD_S


def static(n: int = 20) -> list[Gpu]:
    """Return GPUs that are there from the start, the two kinds by turns."""
    return [Gpu(rows_per_s=(A10_PER_S, TITAN_PER_S)[i % 2]) for i in range(n)]


def drained(first_s: float = 900.0, every_s: float = 60.0) -> list[Gpu]:
    """Return twenty GPUs that are preempted one after the other, the fast ones first."""
    speeds = sorted((gpu.rows_per_s for gpu in static()), reverse=True)
    return [Gpu(rows_per_s=speed, killed_s=first_s + i * every_s) for i, speed in enumerate(speeds, start=1)]


def growing(n_first: int, n: int, every_s: float) -> list[Gpu]:
    """Return GPUs of which some are there from the start, and one more comes every so many seconds."""
    return [Gpu(rows_per_s=gpu.rows_per_s, from_s=max(0, i - n_first + 1) * every_s) for i, gpu in enumerate(static(n))]


def ideal_s(gpus: Sequence[Gpu], claims: int, unit_rows: int = 1) -> float:
    """Return when the last claim is done at best: every GPU loads once, and then computes whole units without a pause.

    Whoever finishes a next unit first gets it, which no schedule of equal units can beat.
    """
    ends = [(gpu.ready_s + unit_rows / gpu.rows_per_s, unit_rows / gpu.rows_per_s) for gpu in gpus]
    heapq.heapify(ends)
    end_s = 0.0
    for _ in range(-(-claims // unit_rows)):
        end_s, unit_s = ends[0]
        heapq.heapreplace(ends, (end_s + unit_s, unit_s))
    return end_s


def ideal_claims(gpus: Sequence[Gpu], until_s: float, unit_rows: int = 1) -> int:
    """Return how many claims can be done at best before a time, in whole units."""
    spans = [max(0.0, min(until_s, gpu.killed_s or until_s) - gpu.ready_s) for gpu in gpus]
    return sum(int(span * gpu.rows_per_s / unit_rows) * unit_rows for span, gpu in zip(spans, gpus, strict=True))
