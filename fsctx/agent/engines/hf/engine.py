"""The engine on transformers and torch. Together with the other hf_ modules, the only one that imports them."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import transformers

from fsctx.agent.device import preflight
from fsctx.agent.engines.base import UNSPLIT, Bound, BoundTask, Model, Split
from fsctx.agent.engines.hf.classify import load_classifier
from fsctx.agent.engines.hf.convert import convert_gguf
from fsctx.agent.engines.hf.device import default_dtype
from fsctx.agent.engines.hf.errors import guarded
from fsctx.agent.engines.hf.files import check_split, is_classifier, read_model
from fsctx.agent.engines.hf.generate import GenerateBound
from fsctx.agent.engines.hf.resident import Resident, find_batch_tokens, make_resident
from fsctx.agent.engines.hf.score import ScoreBound

if TYPE_CHECKING:
    from fsctx.agent.engines.hf.ranks.model import MultiRank


class HfEngine:
    """See `Engine`. `device` is what `--device` says, `dtype` what `--dtype` says, None for what suits the device.

    `is_apart`: each load is a process of its own, which imports all that it needs and ends with the model.
    """

    def __init__(
        self, *, device: str = "auto", dtype: str | None = None, split: Split = UNSPLIT, is_apart: bool = False
    ) -> None:
        self.name = f"hf {transformers.__version__}"
        self.convert: Callable[[Path, Path], None] | None = convert_gguf
        self._device = device
        self._dtype = dtype
        self._split = split
        self._is_apart = is_apart
        self._ranks: MultiRank | None = None

    def load(self, files: Path) -> Model:
        """See `Engine.load`. `files` is a folder, or a `.gguf` file (slow: see `convert_gguf`)."""
        if self._split == UNSPLIT and not self._is_apart:
            return load_on(files, device=self._device, dtype=self._dtype)
        from fsctx.agent.engines.hf.ranks.model import MultiRank  # whose ranks import this module

        device = self._device
        if self._split != UNSPLIT:
            check_split(files, self._split)
            device = preflight(device).kind
        last = self._ranks
        most_tokens = last.batch_tokens // 2 if last is not None and last.ran_out else None
        self._ranks = MultiRank(files, device=device, dtype=self._dtype, split=self._split, most_tokens=most_tokens)
        return self._ranks


def load_on(files: Path, *, device: str, dtype: str | None, split: Split = UNSPLIT) -> Model:
    """Load a model onto a device; of one that is split, what this rank holds, which all ranks do at a time."""
    if split == UNSPLIT and is_classifier(files):
        return load_classifier(files, device=device, dtype=dtype)
    info = preflight(device)
    where = torch.device(info.spec)
    precision = getattr(torch, dtype) if dtype else default_dtype(where)
    loaded = read_model(files, device=where, dtype=precision, split=split)
    return HfModel(make_resident(loaded, device=where, dtype=precision), name=info.name)


class HfModel:
    """See `Model`."""

    def __init__(self, resident: Resident, *, name: str) -> None:
        self.device = name
        self.dtype = str(resident.dtype).removeprefix("torch.")
        self.batch_tokens = guarded(lambda: find_batch_tokens(resident))
        self._resident: Resident | None = resident

    def bind(self, task: BoundTask) -> Bound:
        """See `Model.bind`."""
        if self._resident is None:
            raise ValueError("bind() after close()")
        return ScoreBound(self._resident, task) if task.method == "score" else GenerateBound(self._resident, task)

    def close(self) -> None:
        """See `Model.close`. Bounds of this model must be dropped too."""
        self._resident = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
