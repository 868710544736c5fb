"""What is asked of a driver about the GPUs of a node, before an engine is imported."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process that holds memory of a GPU."""

    pid: int
    who: str
    """Its name and user, as far as they can be seen."""
    memory_bytes: int | None

    def __str__(self) -> str:
        held = "" if self.memory_bytes is None else f" with {self.memory_bytes / 1e9:.1f} GB"
        return f"process {self.pid} ({self.who}){held}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU of this node."""

    index: int
    """In the order of the PCI bus: what CUDA takes with CUDA_DEVICE_ORDER=PCI_BUS_ID."""
    uuid: str
    name: str
    is_split: bool = False
    """Whether it is divided into MIG instances: none of them is the whole."""
    holders: tuple[Holder, ...] = ()


class Driver(Protocol):
    """Knows the GPUs of this node. MUST be cheap and MUST NOT start anything on them."""

    def gpus(self) -> Sequence[Gpu] | None:
        """Return the GPUs, by index; None where no driver answers (there may be GPUs all the same)."""


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """Has the GPUs that it is given."""

    known: Sequence[Gpu] | None

    def gpus(self) -> Sequence[Gpu] | None:
        """See `Driver.gpus`."""
        return self.known
