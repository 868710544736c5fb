"""What `fsctx tune` measures on a device and `fsctx advise` goes by."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """The same claims in half precision, against float32."""

    dtype: str
    times: float
    """Its rate, over that of float32."""
    rows: int
    """That were computed in both: no more of them once half precision has taken as long as float32 took for all."""
    flips: int
    """Rows with another verdict."""
    widest_nat: float | None
    """Of those, how far float32's best two labels were apart at most; None where that is not known."""
    is_advised: bool
    """Whether it is faster, few verdicts differ, and those were near ties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How fast an engine computes on a device."""

    device: str
    engine: str
    dtype: str
    model: str
    flops_per_s: float
    """Operations a second, of a large batch."""
    layer_s: float
    """Seconds that a layer takes however little it computes: calls from the host, mostly."""
    rows_per_s: float
    """Of the claims that were tried, in batches as large as the agent's."""
    half: Half | None = None
    """On a CPU, where no precision was asked for."""
