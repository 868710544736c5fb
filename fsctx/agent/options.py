"""What `fsctx agent` can be asked for."""

from dataclasses import dataclass
from pathlib import Path

from fsctx.agent.engines.base import UNSPLIT, Split
from fsctx.agent.residency import ContextMode


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What `fsctx agent` was asked for; see its `--help`."""

    engine: str = "auto"
    device: str = "auto"
    dtype: str | None = None
    split: Split = UNSPLIT
    context: ContextMode = ContextMode.FULL
    cache: Path
    cache_quota_bytes: int | None = None
    has_peers: bool = True
    peer_address: str | None = None
    peer_wait_s: float | None = None
    idle_exit_s: float | None = None
    max_units: int | None = None
    walltime_s: float | None = None
    save_s: float | None = None
    stall_s: float = 1800.0
    race_factor: float = 3.0
    fs_ops_per_s: float | None = None
    failure_delay_s: float | None = None
    since_order: int | None = None
    submission: str | None = None
