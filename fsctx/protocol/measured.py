"""What `fsctx tune` measures on a device and `fsctx advise` goes by."""

from dataclasses import dataclass


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
