"""How a unit is computed whose holders died again and again: by halves, to find the row that kills them. Pure.

A preempted holder dies silently too. So dying costs a unit nothing but care, and a row is given up only
where agents died while they computed it alone.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fsctx.protocol.attempts import Attempt

CAREFUL_FROM = 5
"""From this generation on a unit is handled with care."""

LONE_DEATHS = 2
"""So many agents must die over a row alone before it is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What to do with the rows of a unit that nobody finished yet."""

    given_up: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    """Rows to compute together, group by group; what is finished is saved after each."""


def take_care(todo: Sequence[int], attempts: Sequence[Attempt]) -> Care:
    """Divide rows into groups, given what earlier holders tried last (oldest first).

    The rows that the last one died over are divided by two, so a row that kills is alone after log2(rows) deaths.
    """
    lone = Counter(attempt.rows[0] for attempt in attempts if len(attempt.rows) == 1)
    given_up = tuple(row for row in todo if lone[row] >= LONE_DEATHS)
    left = [row for row in todo if row not in given_up]
    suspects = next((found for attempt in reversed(attempts) if (found := _common(left, attempt.rows))), ())
    rest = tuple(row for row in left if row not in suspects)
    groups = (*_halves(suspects), rest) if suspects else _halves(tuple(left))
    return Care(given_up=given_up, groups=tuple(group for group in groups if group))


def _common(left: Sequence[int], rows: Sequence[int]) -> tuple[int, ...]:
    return tuple(row for row in left if row in rows)


def _halves(rows: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    half = (len(rows) + 1) // 2
    return rows[:half], rows[half:]
