"""GPUs as torch sees them: finding one, trying it, and the precision that suits it."""

import torch

from fsctx.agent.device import DeviceInfo
from fsctx.errors import Unfit

_TRIAL = 256
_BFLOAT16_SINCE = 8
"""First CUDA compute capability (Ampere) that has bfloat16 arithmetic."""


def has_gpu() -> bool:
    """Tell whether torch finds a GPU that this process may use."""
    return bool(torch.cuda.is_available())


def try_gpu(index: int) -> DeviceInfo:
    """Multiply two matrices on a GPU and compare with the CPU's product.

    Raises:
        Unfit: no such GPU, or it does not compute.
    """
    if not has_gpu() or index >= torch.cuda.device_count():
        seen = torch.cuda.device_count() if has_gpu() else 0
        raise Unfit(f"cuda:{index} is not on this node (torch sees {seen} GPUs): try another node or --device cpu")
    try:
        wrong = _error_of_a_product(index)
        free, total = torch.cuda.mem_get_info(index)
        name = torch.cuda.get_device_name(index)
    except RuntimeError as error:
        raise Unfit(f"cuda:{index} fails ({_first_line(error)}): try another node") from None
    if not wrong < 1e-2:
        raise Unfit(f"cuda:{index} ({name}) multiplies wrongly, by {wrong:.3g}: try another node, report this one")
    return DeviceInfo(name=name, kind="cuda", index=index, memory_bytes=total, free_bytes=free)


def default_dtype(device: torch.device) -> torch.dtype:
    """Return the precision for a device: bfloat16 where it has it, float16 on older GPUs, float32 on the CPU."""
    if device.type != "cuda":
        return torch.float32
    major, _ = torch.cuda.get_device_capability(device)
    return torch.bfloat16 if major >= _BFLOAT16_SINCE else torch.float16


def _error_of_a_product(index: int) -> float:
    generator = torch.Generator().manual_seed(0)
    a = torch.rand(_TRIAL, _TRIAL, generator=generator)
    on_gpu = (a.to(f"cuda:{index}") @ a.to(f"cuda:{index}")).cpu()
    product = a @ a
    return float((on_gpu - product).abs().max() / product.abs().max())


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
