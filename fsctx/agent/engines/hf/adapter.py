"""LoRA adapters: merged into the weights of their model once, so that computing costs what it costs without."""

from pathlib import Path
from typing import Any

from safetensors.torch import load_file
from torch import nn

from fsctx.errors import Misconfigured

_WEIGHTS = "adapter_model.safetensors"


def merge_adapter(model: Any, folder: Path) -> Any:
    """Merge the adapter in a folder into a model that is loaded, and return it.

    peft itself would leave out in silence what has no place in the model.

    Raises:
        Misconfigured: the adapter is not for this model, or can't be merged.
    """
    import peft  # an extra of its own

    if not (folder / _WEIGHTS).is_file():
        raise Misconfigured(f"{folder} has no {_WEIGHTS}: plan with the adapter's whole folder")
    config = peft.PeftConfig.from_pretrained(str(folder))
    if config.peft_type != peft.PeftType.LORA or getattr(config, "megatron_config", None):
        raise Misconfigured(f"{folder} is no adapter that is merged here ({config.peft_type}): merge it yourself")
    weights = load_file(folder / _WEIGHTS)
    try:
        adapted = peft.get_peft_model(model, config)
        found: Any = peft.set_peft_model_state_dict(adapted, weights)
    except (KeyError, RuntimeError, ValueError) as error:
        raise _misfit(folder, " ".join(str(error).split())) from None
    missing = [key for key in found.missing_keys if "lora_" in key]
    if found.unexpected_keys:
        raise _misfit(folder, f"the model has no {found.unexpected_keys[0]}")
    if missing:
        raise _misfit(folder, f"it lacks {missing[0]}")
    _untie(adapted)
    return adapted.merge_and_unload(safe_merge=True)


def _untie(adapted: Any) -> None:
    """Give the output layer a weight of its own where an adapter changes it, or the input's, and they share one."""
    first, last = adapted.get_input_embeddings(), adapted.get_output_embeddings()
    is_changed = hasattr(first, "base_layer") or hasattr(last, "base_layer")
    if is_changed and last is not None and first.weight is last.weight:
        layer = getattr(last, "base_layer", last)
        layer.weight = nn.Parameter(layer.weight.clone(), requires_grad=False)


def _misfit(folder: Path, seen: str) -> Misconfigured:
    shown = seen if len(seen) <= 240 else f"{seen[:240]}…"
    return Misconfigured(f"the adapter {folder} does not fit its model ({shown}): plan with the model it was made for")
