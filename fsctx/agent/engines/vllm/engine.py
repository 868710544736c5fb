"""The engine on vLLM, as the agent sees it: prompts become tokens here, and are computed in a process of their own."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from fsctx.agent.device import preflight
from fsctx.agent.engines.base import UNSPLIT, Bound, BoundTask, Split
from fsctx.agent.engines.hf.convert import convert_gguf
from fsctx.agent.engines.hf.errors import first_line
from fsctx.agent.engines.hf.files import silence
from fsctx.agent.engines.vllm.generate import GenerateBound
from fsctx.agent.engines.vllm.installed import Installed
from fsctx.agent.engines.vllm.messages import Job
from fsctx.agent.engines.vllm.options import VllmOptions
from fsctx.agent.engines.vllm.process import Computing
from fsctx.agent.engines.vllm.score import ScoreBound
from fsctx.errors import EngineError, Misconfigured, Unfit

_CONFIG = "config.json"
_DECODER = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")
"""How the names of models end that continue a text."""


class VllmEngine:
    """See `Engine`. `device` is what `--device` says, `dtype` what `--dtype` says, None for what suits the device."""

    def __init__(
        self,
        installed: Installed,
        *,
        device: str = "auto",
        dtype: str | None = None,
        split: Split = UNSPLIT,
        options: VllmOptions | None = None,
    ) -> None:
        self.name = f"vllm {installed.version}"
        self.convert: Callable[[Path, Path], None] | None = convert_gguf
        self._device = device
        self._dtype = dtype
        self._split = split
        self._options = options or VllmOptions()

    def load(self, files: Path) -> "VllmModel":
        """See `Engine.load`. `files` is a folder."""
        _check_files(files)
        info = preflight(self._device)
        job = Job(
            files=files,
            kind=info.kind,
            index=info.index,
            dtype=self._dtype,
            split=self._split,
            options=self._options,
        )
        return VllmModel(Computing(job), _read_tokenizer(files))


class VllmModel:
    """See `Model`."""

    def __init__(self, computing: Computing, tokenizer: Any) -> None:
        loaded = computing.loaded
        self.device = loaded.device
        self.dtype = loaded.dtype
        self.batch_tokens = loaded.batch_tokens
        self.computing = computing
        self._tokenizer = tokenizer

    def bind(self, task: BoundTask) -> Bound:
        """See `Model.bind`."""
        make = ScoreBound if task.method == "score" else GenerateBound
        try:
            return make(self.computing, self._tokenizer, task.template)
        except EngineError as error:
            raise Misconfigured(f"vLLM refuses prompts of template {task.template.name!r} ({error})") from None

    def close(self) -> None:
        """See `Model.close`."""
        self.computing.close()


def _check_files(files: Path) -> None:
    if files.is_file():  # no room to convert it on this node
        raise Unfit(f"{files} is one file and vLLM is given model folders: free some space for the converted one")
    missing = [what for what in (_CONFIG, "*.safetensors") if not any(files.glob(what))]
    if missing:
        raise Misconfigured(f"{files} is not a model for vLLM, it lacks {missing[0]}: copy or convert the whole model")
    try:
        architectures = json.loads((files / _CONFIG).read_text(encoding="utf-8")).get("architectures") or [""]
    except (ValueError, AttributeError) as error:
        raise Misconfigured(f"{files / _CONFIG} is not a model's configuration ({error})") from None
    if not str(architectures[0]).endswith(_DECODER):
        raise Misconfigured(f"{files} is a {architectures[0] or 'model of unknown kind'}: use --engine hf for it")


def _read_tokenizer(files: Path) -> Any:
    silence()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return AutoTokenizer.from_pretrained(files, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # noqa: BLE001 - transformers raises nearly everything for files that it cannot read
        raise Misconfigured(f"{files} has no tokenizer that can be read ({first_line(error)})") from None
