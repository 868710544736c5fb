"""Which device an agent works on, and whether it works at all: asked before anything expensive."""

import dataclasses
import os
from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Literal

import psutil

from fsctx.agent.gpus.base import Driver, Gpu
from fsctx.agent.gpus.choose import ORDER, Chosen, choose_gpus
from fsctx.errors import InputError, Misconfigured, Unfit

_DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Device files of NVIDIA's, AMD's and WSL's drivers: without one, there is no need to import torch to ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInfo:
    """A device that answered."""

    name: str
    """`cpu`, or the device's model such as `NVIDIA A10`."""
    kind: Literal["cpu", "cuda"]
    index: int
    memory_bytes: int
    free_bytes: int
    chosen: Chosen | None = None
    """The GPU as it was assigned and as its driver knows it; None where nothing is known, or none was chosen."""

    @property
    def spec(self) -> str:
        """What `--device` would say: `cpu`, `cuda:0`."""
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"


def find_device(
    asked: str,
    *,
    assigned: Sequence[str] | None,
    driver: Driver,
    environ: MutableMapping[str, str],
    is_used: bool = True,
    n: int = 1,
) -> DeviceInfo:
    """Find the device that `asked` means among those assigned, let engines see it alone, and try it.

    `auto` is the first GPU assigned, else any on the node, else the CPU: a GPU that was assigned and fails is not
    passed over in silence. Of `n` GPUs that are wanted, this is the first. `is_used` is false where engines need no
    device. Sets `environ` for what is imported later.

    Raises:
        InputError, Unfit, Misconfigured: see `preflight`, `choose_gpus`.
    """
    kind, number = parse_device(asked)
    gpus = None if kind == "cpu" else driver.gpus()
    if kind == "cpu" or (kind == "auto" and not _may_have_gpu(assigned, gpus)):
        return _cpu()
    seen = choose_gpus(number, n, assigned=assigned, gpus=gpus)
    chosen = seen[0] if seen else None
    if seen:
        environ.update(ORDER, CUDA_VISIBLE_DEVICES=",".join(one.visible for one in seen))
        asked = "cuda:0" if assigned or kind == "cuda" else "auto"
    if not is_used:
        return dataclasses.replace(_cpu(), chosen=chosen)
    if assigned and not has_driver():
        raise Unfit(f"the GPU {assigned[number]} was assigned, and this node has no driver of GPUs: try another node")
    return dataclasses.replace(preflight(asked), chosen=chosen)


def _may_have_gpu(assigned: Sequence[str] | None, gpus: Sequence[Gpu] | None) -> bool:
    if assigned is not None:
        return bool(assigned)
    return has_driver() if gpus is None else bool(gpus)


def count_gpus(assigned: Sequence[str] | None, driver: Driver) -> int:
    """Return how many GPUs an agent may use here.

    Raises:
        InputError: there are some, and they cannot be counted.
    """
    if assigned is not None:
        return len(assigned)
    gpus = driver.gpus()
    if gpus is None and has_driver():
        raise InputError("--device all: the GPUs cannot be counted: pip install nvidia-ml-py, or pass --device cuda:N")
    return len(gpus or ())


def parse_device(device: str) -> tuple[str, int]:
    """Return the kind (`auto`, `cpu` or `cuda`) and number of a device.

    Raises:
        InputError: no such kind of device.
    """
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and not (kind == "cuda" and index.isdecimal())):
        raise InputError(f"--device {device}: use auto, all, cpu, cuda or cuda:<number>")
    return kind, int(index or 0)


def has_driver() -> bool:
    """Whether there is a driver of GPUs on this node."""
    return any(map(os.path.exists, _DRIVERS))


def preflight(device: str) -> DeviceInfo:
    """Try the device that `auto`, `cpu`, `cuda` or `cuda:<n>` means to engines: what they see, counted by them.

    Imports torch only where a GPU may be there.

    Raises:
        InputError: no such kind of device.
        Unfit: it is not on this node, or it does not compute.
        Misconfigured: a GPU was asked for and torch is not installed.
    """
    kind, number = parse_device(device)
    if kind == "cpu" or (kind == "auto" and not has_driver()):
        return _cpu()
    try:
        from fsctx.agent.engines.hf import device as hf_device
    except ImportError as error:
        if kind == "auto":
            return _cpu()
        raise Misconfigured(
            f"--device {device} needs a library that is not installed ({error}): pip install 'fsctx[hf]'"
        ) from None
    if kind == "auto" and not hf_device.has_gpu():
        return _cpu()
    return hf_device.try_gpu(number)


def _cpu() -> DeviceInfo:
    memory = psutil.virtual_memory()
    return DeviceInfo(name="cpu", kind="cpu", index=0, memory_bytes=memory.total, free_bytes=memory.available)
