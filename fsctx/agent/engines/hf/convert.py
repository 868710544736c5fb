"""GGUF files to safetensors folders: 19 s once instead of at every start (measured, SmolLM2-135M)."""

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoTokenizer

from fsctx.agent.engines.hf.errors import first_line
from fsctx.agent.engines.hf.files import read_model
from fsctx.errors import Damaged, Misconfigured, NoSpace

_PROBE = "Is it true?\n 1234 – да, 是的 🙂"
_MODE = 0o644


def convert_gguf(source: Path, target: Path) -> None:
    """Write a GGUF file's model as a folder: float32 safetensors, config, tokenizer with its chat template.

    Checks what it wrote by reading it back. `target` is new or empty.

    Raises:
        Misconfigured: not a GGUF file that transformers can read.
        NoSpace: the disk of `target` is full.
        Damaged: what was read back is not what was written.
    """
    loaded = read_model(source, device=torch.device("cpu"), dtype=torch.float32)
    model, tokenizer = loaded.model, loaded.tokenizer
    if not all(bool(torch.isfinite(tensor).all()) for tensor in model.state_dict().values()):
        raise Misconfigured(f"{source} holds weights that are not finite numbers: get the file again")
    _forget_quantization(model)
    target.mkdir(exist_ok=True)
    _check_space(model, target)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.save_pretrained(target, safe_serialization=True)
            tokenizer.save_pretrained(target)
    except SafetensorError as error:
        raise NoSpace(
            f"{target}: the converted model could not be written ({first_line(error)}): free some space"
        ) from None
    _complete_config(target)
    _verify(model, tokenizer, target)
    for path in target.iterdir():
        path.chmod(_MODE)  # safetensors writes files that only their owner may read


def _forget_quantization(model: Any) -> None:
    """Make transformers write plain weights: it would refuse, or write a config that asks for a GGUF file."""
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config


def _check_space(model: Any, target: Path) -> None:
    needed = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    free = shutil.disk_usage(target).free
    if free < needed:
        raise NoSpace(
            f"{target} has {free / 1e9:.2f} GB free and the converted model needs {needed / 1e9:.2f} GB:"
            " free some space (`fsctx cache prune`), or pass --cache DIR on another disk"
        )


def _complete_config(target: Path) -> None:
    """Add the top-level `rope_theta` that older readers take; without it they use another value silently."""
    path = target / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    theta = (config.get("rope_parameters") or {}).get("rope_theta")
    if theta is not None:
        config.setdefault("rope_theta", theta)
    path.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _verify(model: Any, tokenizer: Any, target: Path) -> None:
    """Read everything back: weights bit by bit, config, tokenizer."""
    written = _read_back(target)
    expected = model.state_dict()
    tied = set(expected) - set(written)
    is_same = all(name in expected and torch.equal(expected[name], tensor) for name, tensor in written.items())
    if not is_same or not tied <= set(getattr(model, "_tied_weights_keys", None) or ()):
        raise Damaged(f"{target}: the converted weights differ from those written: check the node's disk")
    config = AutoConfig.from_pretrained(target, local_files_only=True)
    again = AutoTokenizer.from_pretrained(target, local_files_only=True)
    if config.model_type != model.config.model_type or again.encode(_PROBE) != tokenizer.encode(_PROBE):
        raise Damaged(f"{target}: the converted model's config or tokenizer differs from the GGUF file's")
    if again.chat_template != tokenizer.chat_template:
        raise Damaged(f"{target}: the converted model's chat template differs from the GGUF file's")


def _read_back(target: Path) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    for path in sorted(target.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    return tensors
