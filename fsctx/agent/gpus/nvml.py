"""The driver of NVIDIA's GPUs, by nvidia-ml-py: an optional package, imported here alone."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import psutil

from fsctx.agent.gpus.base import Gpu, Holder

Answer = TypeVar("Answer")


class Nvml:
    """See `Driver`."""

    def gpus(self) -> Sequence[Gpu] | None:
        """See `Driver.gpus`."""
        try:
            import pynvml
        except ImportError:
            return None
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:  # no driver, or not one of this machine
            return None
        try:
            return [_gpu(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
        except pynvml.NVMLError:
            return None
        finally:
            pynvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    mode = _ask(nvml, lambda: nvml.nvmlDeviceGetMigMode(handle)[0], otherwise=0)
    running: list[Any] = _ask(nvml, lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle), otherwise=[])
    return Gpu(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(handle),
        name=nvml.nvmlDeviceGetName(handle),
        is_split=mode == nvml.NVML_DEVICE_MIG_ENABLE,
        holders=tuple(
            Holder(pid=process.pid, who=_who(process.pid), memory_bytes=process.usedGpuMemory) for process in running
        ),
    )


def _ask(nvml: Any, call: Callable[[], Answer], *, otherwise: Answer) -> Answer:
    """Ask what not every GPU knows, and not every user may."""
    try:
        return call()
    except nvml.NVMLError:
        return otherwise


def _who(pid: int) -> str:
    try:
        process = psutil.Process(pid)
        return f"{process.name()} of {process.username()}"
    except psutil.Error:  # ended since, or in another pid namespace
        return "not to be seen from here"
