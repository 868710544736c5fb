"""Whether half precision is worth it: the same claims in both, by their rate and by their verdicts. Pure."""

from collections.abc import Sequence

from fsctx.protocol.measured import Half
from fsctx.protocol.verdicts import Verdict

FASTER = 1.1
"""Less is not told from noise."""

AGREEING = 0.97
"""Of the verdicts must be the same …"""

TIE_NAT = 0.25
"""… and the others must have had their best two labels no farther apart: so much do scores differ in half precision."""


def compare(dtype: str, whole: Sequence[Verdict], half: Sequence[Verdict], *, times: float) -> Half:
    """Return what became of the verdicts of rows that are in both, in any order, at `times` the rate."""
    known = {verdict.row: verdict for verdict in whole}
    half = [verdict for verdict in half if verdict.row in known]
    flipped = [known[verdict.row] for verdict in half if verdict.verdict != known[verdict.row].verdict]
    widest = max((margin(verdict) for verdict in flipped), default=0.0)
    agrees = len(half) > 0 and len(flipped) <= (1 - AGREEING) * len(half) and widest <= TIE_NAT
    return Half(
        dtype=dtype,
        times=times,
        rows=len(half),
        flips=len(flipped),
        widest_nat=widest if widest < float("inf") else None,
        is_advised=agrees and times >= FASTER,
    )


def in_words(half: Half) -> str:
    """Return a comparison with its advice, in one line."""
    flips = f"{half.flips} of {half.rows} verdicts differ from float32's"
    if half.flips and half.widest_nat is not None:
        flips += f", between labels {half.widest_nat:.2g} nat apart or less"
    advice = f"give agents --dtype {half.dtype}" if half.is_advised else "stay with float32"
    return f"{half.dtype} does {half.times:.2g} times as many claims a second; {flips}: {advice}"


def margin(verdict: Verdict) -> float:
    """Return how far a row's best two labels are apart, in nats; infinity where nothing is known of it."""
    if verdict.scores is None:
        return float("inf")
    best, second, *_ = sorted(verdict.scores, reverse=True)
    return best - second
