"""What a model and its ranks say to each other, over pipes between processes of one agent."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fsctx.agent.engines.base import BoundTask, Encoded, Row, Split


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a rank is started with."""

    rank: int
    split: Split
    files: Path
    device: str
    """`cpu`, or `cuda`: each rank takes the GPU of its number. One alone takes any that `--device` can say."""
    dtype: str | None
    meeting: Path
    """A file, not there yet, by which the ranks find each other."""
    parent: int


@dataclass(frozen=True, slots=True)
class Loaded:
    """The first thing that a rank says: the model is resident."""

    device: str
    dtype: str
    batch_tokens: int


@dataclass(frozen=True, slots=True)
class Bind:
    """Bind a task, known by a number from now on."""

    number: int
    task: BoundTask


@dataclass(frozen=True, slots=True)
class Infer:
    """Compute a batch of a bound task: asked of all ranks, and answered by the first with verdicts."""

    number: int
    batch: Sequence[Encoded]


@dataclass(frozen=True, slots=True)
class Encode:
    """Encode rows for a bound task: asked of the first rank alone, on a pipe of its own."""

    number: int
    rows: Sequence[Row]


@dataclass(frozen=True, slots=True)
class Failed:
    """What a rank answers where it raised."""

    error: Exception
