"""The engine interface: what computes verdicts on a device.

These classes are the specification; every engine of models passes tests/contract/test_engines.py.

    Engine.load(files)  →  Model.bind(task)  →  Bound.encode(rows)  →  Bound.infer(batch)

`load` is the expensive step and happens once per agent; `bind` is done once per task (it computes the
constant prefix of the prompt); `encode` runs on a background thread while the device works; `infer`
runs on the device. Which rows form a batch is the agent's business (see `fsctx.agent.batching`):
no outcome may depend on it by more than 1e-3 nat in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fsctx.protocol.manifest import Method
from fsctx.protocol.verdicts import Verdict
from fsctx.templates.model import Template


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """Over how many devices a model is spread."""

    tp: int = 1
    """Devices that share every layer (tensor parallelism)."""
    pp: int = 1
    """Groups of those, each with some of the layers, one behind the other (pipeline parallelism)."""

    @property
    def n_ranks(self) -> int:
        """How many devices, and processes, that takes."""
        return self.tp * self.pp

    def __str__(self) -> str:
        return f"--tp {self.tp} --pp {self.pp}"


UNSPLIT = Split()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One claim as the shard holds it."""

    row: int
    """Row number in the run."""
    claim: str
    """Not empty: empty claims never reach an engine."""
    columns: dict[str, Any] = field(default_factory=dict)
    """The input's other columns that the template uses, by their own names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoded:
    """A row ready for the device, or one that can't go there."""

    row: int
    n_tokens: int
    """What the row costs on the device, in tokens beyond the constant prefix; batches are cut by it."""
    payload: Any = None
    """The engine's own."""
    refused: Verdict | None = None
    """Set where the row is too long or its prompt can't be made: its verdict, without the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundTask:
    """What a model is bound to: a template and how verdicts come about."""

    template: Template
    method: Method


class Bound(Protocol):
    """A resident model bound to one task."""

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """Render and tokenise, without the device; one `Encoded` per row, in order.

        Thread-safe; never raises for a row.

        Raises:
            Unfit: the engine has ended; load the model again.
        """

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """Compute the verdicts of rows that were not refused, in order, one each.

        Raises:
            OutOfMemory: the batch does not fit; the same rows in smaller batches may.
            EngineError: the batch failed; the model is usable all the same.
        """


class Model(Protocol):
    """A model that is resident on a device."""

    device: str
    """What the `device` column says: `cpu`, or the device's model such as `NVIDIA A10`."""
    dtype: str
    batch_tokens: int
    """How many tokens (`Encoded.n_tokens`, padded to the longest) a batch may have to begin with."""

    def bind(self, task: BoundTask) -> Bound:
        """Prepare for a task.

        Raises:
            Misconfigured: this model can never do this task (labels that cannot be told apart, a template
                longer than the window, a chat asked of a tokenizer that has none).
        """

    def close(self) -> None:
        """Free the device's memory."""


class Engine(Protocol):
    """Loads models."""

    name: str
    """What the `engine` column says, with its version: `hf 5.24.0`."""
    convert: Callable[[Path, Path], None] | None
    """Makes a model folder (second) of a GGUF file (first), once per node, checked before it returns.
    None where the engine reads such files as they are."""

    def load(self, files: Path) -> Model:
        """Load a model from a folder (or a single file) and keep it on the device.

        Raises:
            Misconfigured: not a model that this engine can run.
            Unfit: this device cannot hold it.
        """
