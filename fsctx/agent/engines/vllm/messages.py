"""What goes between the agent and the process that computes. Imports nothing of vLLM."""

from dataclasses import dataclass
from pathlib import Path

from fsctx.agent.engines.base import Split
from fsctx.agent.engines.vllm.options import VllmOptions
from fsctx.errors import FsctxError

Ids = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to load, where."""

    files: Path
    kind: str
    """`cpu` or `cuda`."""
    index: int
    """Of the first GPU among those that can be seen."""
    dtype: str | None
    split: Split
    options: VllmOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was loaded."""

    device: str
    dtype: str
    batch_tokens: int
    window: int
    vocabulary: int
    block_tokens: int
    """Keys and values are shared in blocks of so many tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """Asks for the log-probabilities that some tokens come next."""

    ids: Ids
    tokens: Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Follow:
    """Asks for the log-probability of each of some tokens, one behind the other."""

    context: Ids
    tokens: Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """Asks for the tokens that the model writes next."""

    ids: Ids
    max_new_tokens: int
    temperature: float
    seed: int
    stop: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    """Where given, it writes one of these."""


@dataclass(frozen=True, slots=True)
class Failed:
    """What was asked for failed. `Unfit`: this process computes nothing any more."""

    error: FsctxError


Question = Read | Follow | Write
Answer = tuple[float, ...] | Ids
"""The log-probabilities in order; of a `Write` the tokens, none where their log-probabilities were no numbers."""
