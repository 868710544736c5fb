"""When half precision is advised, and what is said of it."""

import pytest

from fsctx.agent.precision import compare, in_words
from fsctx.protocol.measured import Half
from fsctx.protocol.verdicts import Verdict


def rows(n: int, *, flipped: int = 0, margin: float = 1.0) -> list[Verdict]:
    """Return verdicts with two labels' scores, of which the first some are the other label's."""
    return [Verdict(row=n, verdict="ba"[n >= flipped], scores=(-1.0, -1.0 - margin)) for n in range(n)]


def half(*, times: float = 2.0, flipped: int = 0, margin: float = 1.0) -> Half:
    return compare("bfloat16", rows(100, margin=margin), rows(100, flipped=flipped), times=times)


@pytest.mark.parametrize(
    ("found", "is_advised"),
    [
        (half(), True),
        (half(flipped=3, margin=0.25), True),
        (half(flipped=3, margin=0.5), False),
        (half(flipped=4, margin=0.1), False),
        (half(times=1.05), False),
    ],
)
def test_half_precision_is_advised_where_it_is_faster_and_few_rows_flip_that_were_near_ties(
    found: Half, is_advised: bool
) -> None:
    assert found.is_advised == is_advised


def test_rows_are_compared_by_their_number_and_those_that_were_not_computed_do_not_count() -> None:
    found = compare("bfloat16", rows(10, margin=0.5), list(reversed(rows(4, flipped=1))), times=0.5)
    assert (found.rows, found.flips, found.widest_nat) == (4, 1, 0.5)


def test_rows_that_only_half_precision_has_room_for_are_not_compared_and_none_are_no_agreement() -> None:
    more = [*rows(10, flipped=1)[:1], Verdict(row=99, verdict="a", scores=(-1.0, -2.0))]
    assert compare("bfloat16", rows(10), more, times=2.0).rows == 1
    assert not compare("bfloat16", rows(10), more[1:], times=2.0).is_advised


def test_a_flip_of_a_row_without_scores_is_no_near_tie() -> None:
    whole = [Verdict(row=n, verdict="a", text="a") for n in range(100)]
    found = compare("bfloat16", whole, rows(100, flipped=1), times=2.0)
    assert (found.flips, found.widest_nat, found.is_advised) == (1, None, False)


def test_the_advice_is_one_line_with_rate_and_agreement() -> None:
    assert in_words(half(flipped=2, margin=0.125)) == (
        "bfloat16 does 2 times as many claims a second; 2 of 100 verdicts differ from float32's, "
        "between labels 0.12 nat apart or less: give agents --dtype bfloat16"
    )
    assert in_words(half(times=0.4)).endswith("0 of 100 verdicts differ from float32's: stay with float32")
