"""Figures as the coordinates of SVG paths; words and numbers around them are HTML, which a phone can wrap. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from fsctx.coordinator.collect.calibration import Calibration
from fsctx.coordinator.report.fleet import Member, Points
from fsctx.coordinator.report.lives import Kind

WIDTH, HEIGHT = 400, 100
"""Of every figure, in its own units; the page stretches it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """A quantity over time, as a line of steps."""

    path: str
    top: float
    """The largest value: the upper end of its axis."""
    samples: Points
    """The same for those who read it: a few moments, evenly spread."""


def steps(points: Points, length_s: float, *, n_samples: int = 11) -> Steps:
    """Draw a quantity that changes at points, from 0 until `length_s`."""
    top = max((value for _, value in points), default=0.0) or 1.0
    moments = [length_s * i / WIDTH for i in range(WIDTH + 1)]
    values = _sampled(points, moments)
    path = [f"M0 {_y(values[0], top)}"]
    for x, (before, value) in enumerate(pairwise(values), start=1):
        if value != before:
            path.append(f"H{x}V{_y(value, top)}")
    few = [length_s * i / (n_samples - 1) for i in range(n_samples)]
    samples = tuple(zip(few, _sampled(points, few), strict=True))
    return Steps(path="".join([*path, f"H{WIDTH}"]), top=top, samples=samples)


def timeline(member: Member, length_s: float) -> dict[Kind, str]:
    """Draw an agent's time: for each kind a path of dashes. Each of `WIDTH` columns shows what took most of it."""
    width_s = length_s / WIDTH or 1.0
    columns: list[dict[Kind, float]] = [{} for _ in range(WIDTH)]
    for span in member.spans:
        start_s, end_s = member.origin_s + span.start_s, member.origin_s + span.end_s
        for column in range(int(start_s / width_s), min(WIDTH, int(end_s / width_s) + 1)):
            inside_s = min(end_s, (column + 1) * width_s) - max(start_s, column * width_s)
            if inside_s > 0:
                columns[column][span.kind] = columns[column].get(span.kind, 0.0) + inside_s
    return _dashes([max(found, key=found.__getitem__) if found else None for found in columns])


def reliability(calibration: Calibration) -> tuple[str, list[tuple[float, float, float]]]:
    """Draw accuracy over confidence in a square of `HEIGHT`: the line, and its points, larger where more rows are."""
    most = max(b.rows for b in calibration.bins)
    sizes = [round(1 + 3 * math.sqrt(b.rows / most), 1) for b in calibration.bins]
    places = [(round(b.confidence * HEIGHT, 1), round((1 - b.accuracy) * HEIGHT, 1)) for b in calibration.bins]
    points = [(x, y, size) for (x, y), size in zip(places, sizes, strict=True)]
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in places), points


def _dashes(kinds: Sequence[Kind | None]) -> dict[Kind, str]:
    paths: dict[Kind, str] = {}
    start = 0
    for column in range(1, len(kinds) + 1):
        if column == len(kinds) or kinds[column] != kinds[start]:
            kind = kinds[start]
            if kind is not None:
                paths[kind] = f"{paths.get(kind, '')}M{start} 5h{column - start}"
            start = column
    return paths


def _sampled(points: Points, moments: Sequence[float]) -> list[float]:
    """Return the value at each of some rising moments; 0 before the first point."""
    values, value, position = [], 0.0, 0
    for moment in moments:
        while position < len(points) and points[position][0] <= moment:
            value = points[position][1]
            position += 1
        values.append(value)
    return values


def _y(value: float, top: float) -> str:
    return f"{HEIGHT * (1 - value / top):.1f}".removesuffix(".0")
