"""A folder with a LoRA adapter: whether it can be merged, and the model that it is for."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fsctx.errors import InputError

CONFIG = "adapter_config.json"
_WEIGHTS = "adapter_model.safetensors"
_PICKLE = "adapter_model.bin"


def check_adapter(folder: Path, paths: Sequence[str], config: Mapping[str, Any]) -> None:
    """Check an adapter's folder, of which `paths` belong to it.

    Raises:
        InputError: no agent could merge it into a model.
    """
    kind = config.get("peft_type")
    if kind != "LORA":
        raise InputError(f"adapter {folder} is of type {kind}; only LORA is merged into a model: merge it yourself")
    if _WEIGHTS not in paths:
        raise InputError(_no_weights(folder))
    others = [path for path in paths if path.endswith(".safetensors") and path != _WEIGHTS]
    if others:
        raise InputError(
            f"model folder {folder} holds an adapter ({CONFIG}) and other weights ({others[0]}): pass a folder that "
            "holds one of the two"
        )


def base_of(config: Mapping[str, Any]) -> str:
    """Return the REF of the model that an adapter says it is for; empty where it says none."""
    name, revision = config.get("base_model_name_or_path"), config.get("revision")
    return f"{name}@{revision}" if name and revision else str(name or "")


def check_base(folder: Path, ref: str, *, kind: str, config: Mapping[str, Any]) -> None:
    """Check the model that the adapter in `folder` is for.

    Raises:
        InputError: nothing can be merged into its weights.
    """
    if kind not in ("hf", "classifier"):
        raise InputError(f"adapter {folder} can't be merged into {ref} ({kind}): pass the model's folder with --base")
    if "quantization_config" in config:
        raise InputError(
            f"adapter {folder} is for {ref}, whose quantised weights it can't be merged into exactly: pass the model "
            "before it was quantised with --base"
        )


def _no_weights(folder: Path) -> str:
    if not (folder / _PICKLE).exists():
        return f"adapter {folder} has no {_WEIGHTS}: copy the whole folder"
    return (
        f"adapter {folder} has its weights as a pickle only ({_PICKLE}), which can run code: where you trust it, load "
        "it with peft once and save_pretrained(NEW)"
    )
