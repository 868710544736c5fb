"""What an agent needs of a node to hold a context: an estimate from its files alone, on the generous side.

A batch takes what memory is left, so a device needs the weights and room for a small batch with its keys and values;
more is faster.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from fsctx.protocol.manifest import Context

MB = 1 << 20

BYTES_PER_PARAM = {"gguf": 0.6} | dict.fromkeys(("hf", "classifier", "lora", "fake", "folder", "file", "none"), 2.0)
"""Of a context's files, about; an application's are taken for weights."""

_GPU_BYTES_PER_PARAM = 2
_CPU_BYTES_PER_PARAM = 4
_GPU_ROOM_MB = 1536
"""The driver's own, a prefix's keys and values, and a batch of a few prompts."""
_PROCESS_MB = 1536
"""The interpreter, the engine's libraries, the claims in hand."""
_DISK_ROOM_MB = 512
_OVERHEAD = 1.15
"""Activations and fragmentation grow with the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """In MiB. `gpu_memory_mb` is 0 for a context without weights."""

    gpu_memory_mb: int = 0
    memory_mb: int = _PROCESS_MB
    disk_mb: int = _DISK_ROOM_MB


def needs_of(contexts: Iterable[Context], *, on_gpu: bool, environment: Context | None = None) -> Needs:
    """Return what an agent needs that computes these contexts, one at a time, and caches them and its environment."""
    found = list(contexts)
    weights = [context.size_bytes / BYTES_PER_PARAM[context.kind] for context in found]
    largest = max(weights, default=0.0)
    gpu_mb = largest * _GPU_BYTES_PER_PARAM * _OVERHEAD / MB
    # A GGUF file is unpacked in memory before it is stored; safetensors pass through it on the way to a GPU.
    unpacked = [n for n, context in zip(weights, found, strict=True) if context.kind == "gguf" or not on_gpu]
    memory_mb = max(unpacked, default=0.0) * _CPU_BYTES_PER_PARAM * _OVERHEAD / MB
    disk_bytes = sum(_disk_bytes(context) for context in found)
    if environment is not None and environment.environment is not None:
        disk_bytes += environment.size_bytes + environment.environment.unpacked_bytes
    return Needs(
        gpu_memory_mb=round(gpu_mb + _GPU_ROOM_MB) if on_gpu and largest else 0,
        memory_mb=round(_PROCESS_MB + max(memory_mb, gpu_mb * 0.5 if on_gpu else 0.0)),
        disk_mb=round(_DISK_ROOM_MB + disk_bytes / MB),
    )


def _disk_bytes(context: Context) -> float:
    """Return what the node's cache holds of a context; a GGUF file is kept converted as well."""
    converted = context.size_bytes / BYTES_PER_PARAM["gguf"] * _CPU_BYTES_PER_PARAM if context.kind == "gguf" else 0
    return context.size_bytes + converted
