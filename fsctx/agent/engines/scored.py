"""From the labels' scores to verdicts, in any engine."""

import math
from collections.abc import Callable, Sequence

from fsctx.agent.engines.base import Encoded
from fsctx.errors import EngineError
from fsctx.protocol.verdicts import Status, Verdict

NOT_NUMBERS = "the model gave scores that are not finite numbers"
"""Of one row, an error of the row; of all rows of a batch, one of the engine, which is flagged if none succeeds."""


def verdicts_of(
    batch: Sequence[Encoded],
    scores: Sequence[Sequence[float]],
    labels: Sequence[str],
    *,
    n_input: Callable[[Encoded], int],
) -> list[Verdict]:
    """Return each row's likeliest label; an error of the row where its scores are no finite numbers.

    `n_input` tells how many tokens a row's prompt has.

    Raises:
        EngineError: no row has such scores.
    """
    if not any(map(_is_finite, scores)):
        raise EngineError(NOT_NUMBERS)
    return [
        _verdict(row, own, labels, n_input=n_input(row)) if _is_finite(own) else without_numbers(row, n_input(row))
        for row, own in zip(batch, scores, strict=True)
    ]


def without_numbers(row: Encoded, n_input: int) -> Verdict:
    """Return the verdict of a row whose scores, or logits while it was written, are no finite numbers."""
    return Verdict(row=row.row, status=Status.ERROR, error=NOT_NUMBERS, input_tokens=n_input)


def _verdict(row: Encoded, scores: Sequence[float], labels: Sequence[str], *, n_input: int) -> Verdict:
    best = max(range(len(scores)), key=scores.__getitem__)
    return Verdict(row=row.row, verdict=labels[best], scores=tuple(scores), input_tokens=n_input)


def _is_finite(scores: Sequence[float]) -> bool:
    return all(map(math.isfinite, scores))
