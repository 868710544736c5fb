"""The card: what it is, how fast it multiplies, how much of its memory was in use."""

import contextlib
import gc
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

import fsctx
from fsctx.agent.device import DeviceInfo
from fsctx.agent.engines.hf.resident import float32_logits

_ROWS = {"cuda": 8192, "cpu": 256}
_SQUARE = {"cuda": 8192, "cpu": 512}


def describe(info: DeviceInfo) -> dict[str, Any]:
    """Return what tells this card from others, and the software that numbers depend on."""
    found: dict[str, Any] = {
        "name": info.name,
        "memory_gb": round(info.memory_bytes / 1e9, 1),
        "free_gb": round(info.free_bytes / 1e9, 1),
        "driver": None,
        "cuda": torch.version.cuda,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "fsctx": fsctx.__version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)),
        "float32_products": torch.get_float32_matmul_precision(),
    }
    if info.kind == "cuda":
        card = torch.cuda.get_device_properties(info.index)
        found |= {
            "driver": _driver(),
            "compute_capability": f"{card.major}.{card.minor}",
            "multiprocessors": card.multi_processor_count,
            "n_cards": torch.cuda.device_count(),
        }
    return found


def wait_for(device: torch.device) -> None:
    """Return when the card has done all that it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def forget(device: torch.device) -> None:
    """Give back memory that nothing uses any more, and count the peak from here on."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak_gb(device: torch.device) -> float | None:
    """Return the most memory that was in use; None on a CPU."""
    return round(torch.cuda.max_memory_allocated(device) / 1e9, 3) if device.type == "cuda" else None


def matrix_rate(n_in: int, n_out: int, dtype: torch.dtype, device: torch.device) -> float:
    """Return the best rate seen of a layer's product, in operations per second."""
    n_rows = _ROWS[device.type]
    x = torch.randn(n_rows, n_in, device=device).to(dtype)
    weight = torch.randn(n_out, n_in, device=device).to(dtype)
    return 2 * n_rows * n_in * n_out / best_s(lambda: torch.nn.functional.linear(x, weight), device)


def square_rate(dtype: torch.dtype, device: torch.device) -> float:
    """Return the same of large square matrices: nearest to what the data sheet says."""
    n = _SQUARE[device.type]
    a = torch.randn(n, n, device=device).to(dtype)
    return 2.0 * n**3 / best_s(lambda: a @ a, device)


def heads(n_hidden: int, n_words: int, dtype: torch.dtype, device: torch.device) -> dict[str, dict[str, float | str]]:
    """Compare ways to float32 logits from half precision: seconds, and the largest difference from the engine's."""
    n_rows = _ROWS[device.type] // 4
    hidden = torch.randn(n_rows, n_hidden, device=device).to(dtype)
    weight = (torch.randn(n_words, n_hidden, device=device) / n_hidden**0.5).to(dtype)
    expected = float32_logits(hidden, weight, None)

    def in_tf32() -> torch.Tensor:
        before, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, True
        try:
            return float32_logits(hidden, weight, None)
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    ways: dict[str, Callable[[], torch.Tensor]] = {
        "engine": lambda: float32_logits(hidden, weight, None),
        "tf32": in_tf32,
        "half_in_float32_out": lambda: torch.mm(hidden, weight.T, out_dtype=torch.float32),
    }
    found: dict[str, dict[str, float | str]] = {}
    for name, way in ways.items():
        try:
            wrong = float((way() - expected).abs().max())
            found[name] = {"ms": round(1e3 * best_s(way, device), 3), "differs": round(wrong, 6)}
        except (RuntimeError, TypeError) as error:  # an older torch, or a device that has no such product
            found[name] = {"refused": str(error).splitlines()[0][:80]}
    return found


def best_s(call: Callable[[], object], device: torch.device) -> float:
    """Return the shortest time that a call took, of some."""
    best = float("inf")
    for _ in range(5):
        wait_for(device)
        began_s = time.perf_counter()
        for _ in range(4):
            call()
        wait_for(device)
        best = min(best, (time.perf_counter() - began_s) / 4)
    return best


def _driver() -> str | None:
    with contextlib.suppress(Exception):  # nvidia-ml-py is optional, and there are cards of others
        import pynvml

        pynvml.nvmlInit()
        version = pynvml.nvmlSystemGetDriverVersion()
        return version if isinstance(version, str) else version.decode()
    return None
