"""Which device an agent works on, and whether it works at all: asked before anything expensive."""

import os
from dataclasses import dataclass
from typing import Literal

import psutil

from fsctx.errors import InputError, Misconfigured

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

    @property
    def spec(self) -> str:
        """What `--device` would say: `cpu`, `cuda:0`."""
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"


def preflight(device: str) -> DeviceInfo:
    """Find the device that `auto`, `cpu`, `cuda` or `cuda:<n>` means, and try it.

    Imports torch only where a GPU may be there.

    Raises:
        InputError: no such kind of device.
        Unfit: it is not on this node, or it does not compute.
        Misconfigured: a GPU was asked for and torch is not installed.
    """
    kind, _, index = device.partition(":")
    if kind not in ("auto", "cpu", "cuda") or (index and not (kind == "cuda" and index.isdecimal())):
        raise InputError(f"--device {device}: use auto, cpu, cuda or cuda:<number>")
    if kind == "cpu" or (kind == "auto" and not any(map(os.path.exists, _DRIVERS))):
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
    return hf_device.try_gpu(int(index or 0))


def _cpu() -> DeviceInfo:
    memory = psutil.virtual_memory()
    return DeviceInfo(name="cpu", kind="cpu", index=0, memory_bytes=memory.total, free_bytes=memory.available)
