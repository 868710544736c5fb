"""The engine on transformers and torch. Together with the other hf_ modules, the only one that imports them."""

import gc
from collections.abc import Callable
from pathlib import Path

import torch
import transformers

from fsctx.agent.device import preflight
from fsctx.agent.engines.base import Bound, BoundTask
from fsctx.agent.engines.hf.convert import convert_gguf
from fsctx.agent.engines.hf.device import default_dtype
from fsctx.agent.engines.hf.errors import guarded
from fsctx.agent.engines.hf.files import read_model
from fsctx.agent.engines.hf.generate import GenerateBound
from fsctx.agent.engines.hf.resident import Resident, find_batch_tokens, make_resident
from fsctx.agent.engines.hf.score import ScoreBound


class HfEngine:
    """See `Engine`. `device` is what `--device` says, `dtype` what `--dtype` says, None for what suits the device."""

    def __init__(self, *, device: str = "auto", dtype: str | None = None) -> None:
        self.name = f"hf {transformers.__version__}"
        self.convert: Callable[[Path, Path], None] | None = convert_gguf
        self._device = device
        self._dtype = dtype

    def load(self, files: Path) -> "HfModel":
        """See `Engine.load`. `files` is a folder, or a `.gguf` file (slow: see `convert_gguf`)."""
        info = preflight(self._device)
        device = torch.device(info.spec)
        dtype = getattr(torch, self._dtype) if self._dtype else default_dtype(device)
        loaded = read_model(files, device=device, dtype=dtype)
        return HfModel(make_resident(loaded, device=device, dtype=dtype), name=info.name)


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
