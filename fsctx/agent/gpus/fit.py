"""Whether a GPU has room for a run's contexts, and who is in the way if not."""

from collections.abc import Iterable

from fsctx.agent.device import DeviceInfo
from fsctx.errors import Unfit
from fsctx.protocol.manifest import Context

BATCH_BYTES = 256 << 20
"""The least that computing a batch takes beside the weights: batches are cut to what is free."""


def least_bytes(contexts: Iterable[Context], n_devices: int = 1) -> int:
    """Return what the smallest of these contexts needs at the very least, of each device that it is split over.

    Files in float32 become half their size on a GPU. Loading tells exactly; this spares hopeless nodes the copy.
    Nobody knows what an application makes of its files: nothing is asked for it.
    """
    weights = (context for context in contexts if context.kind not in ("folder", "file", "none"))
    return min((context.size_bytes // 2 // n_devices + BATCH_BYTES for context in weights), default=0)


def check_fits(device: DeviceInfo, needed_bytes: int) -> None:
    """Refuse a GPU that has not enough memory left.

    Raises:
        Unfit: with what is free and what is needed.
    """
    if device.kind == "cuda" and device.free_bytes < needed_bytes:
        raise Unfit(
            f"{device.name} has {device.free_bytes / 1e9:.1f} of {device.memory_bytes / 1e9:.1f} GB free and the "
            f"smallest model of this run needs {needed_bytes / 1e9:.1f} GB: try another node, or ask for more memory"
        )


def check_holds(device: DeviceInfo, context: Context, *, n_devices: int) -> None:
    """Refuse a context that so many GPUs like this one can't hold, with how many can.

    Raises:
        Unfit: its weights alone are too large.
    """
    room = device.free_bytes - BATCH_BYTES
    if device.kind != "cuda" or least_bytes([context], n_devices) <= device.free_bytes:
        return
    wanted = f"on {-(-context.size_bytes // 2 // room)} such GPUs or more (--tp, --pp)" if room > 0 else "elsewhere"
    raise Unfit(
        f"its weights take {context.size_bytes / 2e9:.1f} GB or more and {n_devices} {device.name} with "
        f"{device.free_bytes / 1e9:.1f} GB free can't hold them: run it {wanted}"
    )


def holders_of(device: DeviceInfo | None) -> str:
    """Return in words which processes held memory of a GPU before this one; empty where none were seen."""
    chosen = device.chosen if device is not None else None
    holders = chosen.gpu.holders if chosen is not None and chosen.gpu is not None else ()
    return f"; the GPU is held by {', '.join(map(str, holders))}" if holders else ""
