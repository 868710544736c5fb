"""From an assignment (indices, short or full UUIDs) to one GPU. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from fsctx.agent.gpus.base import Gpu
from fsctx.errors import Misconfigured, Unfit

ORDER = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
"""Makes CUDA count GPUs as the driver and the batch systems do; by default it puts the fastest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The GPU to work on. CUDA then sees it alone, as `cuda:0`."""

    visible: str
    """What CUDA_VISIBLE_DEVICES must say: the index, or the name as assigned where no driver could be asked."""
    gpu: Gpu | None
    """None where no driver could be asked."""

    @property
    def name(self) -> str:
        """Its UUID, else what it was called when it was assigned."""
        return self.gpu.uuid if self.gpu else self.visible


def choose_gpu(number: int, *, assigned: Sequence[str] | None, gpus: Sequence[Gpu] | None) -> Chosen | None:
    """Return GPU `number` of those assigned, or of all on the node where nothing was assigned.

    None where nothing is known of either.

    Raises:
        Misconfigured: the job was not assigned so many.
        Unfit: it is not on this node, or not a whole GPU.
    """
    if assigned is None:
        assigned = None if gpus is None else [str(gpu.index) for gpu in gpus]
        if assigned is None:
            return None
        if number >= len(assigned):
            raise Unfit(f"cuda:{number} is not on this node ({len(assigned)} GPUs): try another node or --device cpu")
    if number >= len(assigned):
        raise Misconfigured(
            f"cuda:{number} was asked for and this job was assigned {len(assigned)} GPUs: let the job request more"
        )
    name = assigned[number]
    _check_is_whole(name)
    if gpus is None:
        return Chosen(visible=name, gpu=None)
    gpu = _find(name, gpus)
    if gpu.is_split:
        raise Unfit(f"GPU {gpu.index} ({gpu.name}, {gpu.uuid}) is split by MIG, and fsctx uses whole GPUs: try another")
    return Chosen(visible=str(gpu.index), gpu=gpu)


def choose_gpus(first: int, n: int, *, assigned: Sequence[str] | None, gpus: Sequence[Gpu] | None) -> list[Chosen]:
    """Return `n` GPUs, from number `first` on; none where nothing is known of them.

    Raises:
        Misconfigured: the job was not assigned so many.
        Unfit: the node has not so many, or one of them is not whole.
    """
    known = assigned if assigned is not None else gpus
    if n > 1 and known is not None and first + n > len(known):
        error = Unfit if assigned is None else Misconfigured
        whose = "this node has" if assigned is None else "this job was assigned"
        raise error(
            f"a model split over {n} devices from cuda:{first} on needs {first + n} GPUs, and {whose} {len(known)}: "
            "request more, or lower --tp or --pp"
        )
    chosen = [choose_gpu(first + number, assigned=assigned, gpus=gpus) for number in range(n)]
    return [one for one in chosen if one is not None]


def _check_is_whole(name: str) -> None:
    if name.upper().startswith("MIG"):
        raise Unfit(
            f"this job was assigned {name}, a MIG part of a GPU, and fsctx uses whole GPUs: request one of those"
        )


def _find(name: str, gpus: Sequence[Gpu]) -> Gpu:
    """Return the GPU that a name means: its index, its UUID, or the beginning of that."""
    if name.isdecimal():
        found = [gpu for gpu in gpus if gpu.index == int(name)]
    else:
        found = [gpu for gpu in gpus if gpu.uuid.lower().startswith(name.lower())]
    if len(found) != 1:
        known = ", ".join(f"{gpu.index} {gpu.uuid}" for gpu in gpus) or "none"
        what = "is not among" if not found else "may be several of"
        raise Unfit(f"the GPU {name} that was assigned {what} this node's ({known}): try another node, report this one")
    return found[0]
