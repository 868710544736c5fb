"""Model files to a model in memory: from a safetensors folder, or from a GGUF file. Never from the network."""

import json
import logging
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from fsctx.agent.engines.base import UNSPLIT, Split
from fsctx.agent.engines.hf.adapter import merge_adapter
from fsctx.agent.engines.hf.errors import device_errors, first_line
from fsctx.agent.engines.hf.quantised import missing_libraries
from fsctx.errors import Misconfigured, Unfit
from fsctx.protocol.manifest import ADAPTER
from fsctx.store.mounts import mount_of, mounts

GGUF = ".gguf"
_CONFIG = "config.json"
_ADAPTER_CONFIG = "adapter_config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_CLASSIFIER = "ForSequenceClassification"
_NO_SCORES = ("ForMaskedLM", "ForPreTraining", "ForTokenClassification", "ForQuestionAnswering", "ForMultipleChoice")
_BLOCK_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model in memory, and its tokenizer."""

    model: Any
    tokenizer: Any


def read_model(path: Path, *, device: torch.device, dtype: torch.dtype, split: Split = UNSPLIT) -> Loaded:
    """Load a model folder, or a `.gguf` file, onto a device; of one that is split, this rank's share (a folder's only).

    Raises:
        Misconfigured: not a model that transformers runs without code of its own, or its weights are not whole.
        Unfit: the device cannot hold it.
    """
    silence()
    where, extra = _source(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = _read_whole(where, device, dtype, extra) if split.n_ranks == 1 else _read_share(where, dtype, split)
            if (where / ADAPTER).is_dir():
                model = merge_adapter(model, where / ADAPTER)
            tokenizer = _read_tokenizer(where, extra)
        return Loaded(model=model.eval().requires_grad_(requires_grad=False), tokenizer=tokenizer)
    except (torch.OutOfMemoryError, MemoryError) as error:
        raise Unfit(
            f"the model {path} does not fit the device {device} ({first_line(error)}): ask for more memory"
        ) from None
    except Misconfigured:
        raise
    except device_errors():
        raise
    except Exception as error:  # noqa: BLE001 - transformers raises nearly everything for files that it cannot read
        raise Misconfigured(
            f"{path} cannot be loaded as a model ({type(error).__name__}: {first_line(error)}): copy the model's files "
            "again, or take a transformers that knows it"
        ) from None


def check_split(path: Path, split: Split) -> None:
    """Refuse to split a model in a way that its layers or heads do not allow.

    Raises:
        Misconfigured: with what it has of them.
    """
    if find_spec("transformers.distributed.mixin") is None:
        raise Misconfigured(
            f"{split} takes transformers 5.24 or newer, here is {transformers.__version__}: pip install -U transformers"
        )
    where, extra = _source(path)
    if is_classifier(path) or (path / ADAPTER).is_dir():
        kind = "a classifier" if is_classifier(path) else "a model with a LoRA adapter"
        raise Misconfigured(f"{path} is {kind}, which can't be split: do without {split}")
    if extra:
        raise Misconfigured(
            f"{path} can't be split as a .gguf file: convert it to a model folder, or do without {split}"
        )
    config: Any = AutoConfig.from_pretrained(where, local_files_only=True, trust_remote_code=False).get_text_config()
    n_layers, n_heads = config.num_hidden_layers, getattr(config, "num_attention_heads", 0)
    n_kv_heads = getattr(config, "num_key_value_heads", None) or n_heads
    if split.tp > 1 and not config.base_model_tp_plan:
        raise Misconfigured(f"{path}: transformers can't split the layers of {config.model_type} models: use --tp 1")
    if split.pp > 1 and not config.base_model_pp_plan:
        raise Misconfigured(f"{path}: transformers can't cut {config.model_type} models between layers: use --pp 1")
    if n_heads % split.tp or n_kv_heads % split.tp:
        raise Misconfigured(
            f"{path} has {n_heads} attention heads and {n_kv_heads} of keys and values, which --tp {split.tp} does not "
            "divide: use a --tp that divides both"
        )
    if split.pp > n_layers:
        raise Misconfigured(f"{path} has {n_layers} layers, too few for --pp {split.pp}: use a lower one")


def is_classifier(path: Path) -> bool:
    """Tell whether a model folder holds a classifier."""
    return (path / _CONFIG).is_file() and _architecture(_config(path)).endswith(_CLASSIFIER)


def silence() -> None:
    """Keep libraries' advice and progress bars off the agent's log."""
    own: Any = transformers.logging
    own.set_verbosity_error()
    own.disable_progress_bar()
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)  # it advises at every product of matrices


def _source(path: Path) -> tuple[Path, dict[str, str]]:
    """Return the folder to load from and what transformers must be told besides."""
    if path.suffix == GGUF and path.is_file():
        return path.parent, {"gguf_file": path.name}
    if not (path / _CONFIG).is_file():
        raise Misconfigured(f"{path} is not a model: a folder with {_CONFIG} and *.safetensors, or a .gguf file")
    _refuse(path, _config(path))
    if not any(path.glob("*.safetensors")):
        raise Misconfigured(_no_weights(path))
    return path, {}


def _config(path: Path) -> dict[str, Any]:
    try:
        config = json.loads((path / _CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{path / _CONFIG} is not a model's configuration ({error}): get the file again") from None
    if not isinstance(config, dict):
        kind = type(config).__name__
        raise Misconfigured(f"{path / _CONFIG} is not a model's configuration (a {kind}): get the file again")
    return config


def _architecture(config: dict[str, Any]) -> str:
    return str((config.get("architectures") or [""])[0])


def _refuse(path: Path, config: dict[str, Any]) -> None:
    """Refuse what would be run wrongly, or not at all."""
    kind, architecture = config.get("model_type"), _architecture(config)
    if "auto_map" in config and kind not in transformers.CONFIG_MAPPING:
        raise Misconfigured(f"{path} needs code of its own to run, which fsctx does not execute: use another model")
    if (path / _ADAPTER_CONFIG).exists():
        raise Misconfigured(
            f"{path} holds a model and a LoRA adapter ({_ADAPTER_CONFIG}): plan with the adapter in a folder of its own"
        )
    is_decoder = kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES and not config.get("is_encoder_decoder")
    is_usable = architecture.endswith(_CLASSIFIER) or (is_decoder and not architecture.endswith(_NO_SCORES))
    if kind in transformers.CONFIG_MAPPING and not is_usable:
        raise Misconfigured(
            f"{path} is a {architecture or kind}, which neither continues a text nor classifies one:"
            " use a decoder (…ForCausalLM) or a classifier (…ForSequenceClassification)"
        )
    if needed := " ".join(missing_libraries(config)):
        raise Misconfigured(f"{path} is quantised and needs what is not installed here: pip install {needed}")


def _no_weights(path: Path) -> str:
    pickled = sorted(file.name for ending in ("*.bin", "*.pt", "*.pth") for file in path.glob(ending))
    if not pickled:
        return f"{path} has no weights (*.safetensors): copy the whole model folder"
    return (
        f"{path} has its weights pickled ({pickled[0]}), which fsctx does not read: where you trust it, convert it with"
        " AutoModelForCausalLM.from_pretrained(PATH).save_pretrained(NEW), and save its tokenizer there too"
    )


def _read_share(where: Path, dtype: torch.dtype, split: Split) -> Any:
    """Load what this rank holds of a model; the other ranks load the rest at the same time."""
    from transformers.distributed.configuration_utils import DistributedConfig

    from fsctx.agent.engines.hf.ranks.head import use_split_head
    from fsctx.agent.engines.hf.ranks.pipeline import loadable_in_stages, make_pipeline

    with loadable_in_stages():
        shared = DistributedConfig(tp_size=split.tp, pp_size=split.pp)
        model = _read_weights(where, dtype, {}, distributed_config=shared)
    if dtype != torch.float32:
        use_split_head(model)
    if split.pp > 1:
        make_pipeline(model, split)
    return model


def _read_whole(where: Path, device: torch.device, dtype: torch.dtype, extra: dict[str, str]) -> Any:
    """Load all of a model onto a device. A quantised one must be loaded where it is to stay."""
    if not extra and "quantization_config" in _config(where):
        return _read_weights(where, dtype, extra, device_map={"": device})
    return _read_weights(where, dtype, extra).to(device)


def _read_weights(where: Path, dtype: torch.dtype, extra: dict[str, str], **more: Any) -> Any:
    factory: Any = AutoModelForSequenceClassification if not extra and is_classifier(where) else AutoModelForCausalLM
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False, **extra, **more}
    options["ignore_mismatched_sizes"] = True  # they are refused below, by name
    if not extra:
        options |= {"use_safetensors": True, "disable_mmap": _read_ahead(sorted(where.glob("*.safetensors")))}
    model, report = factory.from_pretrained(where, dtype=dtype, output_loading_info=True, **options)
    misfits = sorted(report.get("mismatched_keys", ()))
    if misfits:
        name, own, wanted = misfits[0]
        raise Misconfigured(
            f"{where} has {len(misfits)} weights of other sizes than its {_CONFIG} says, first {name} ({_by(own)}, not "
            f"{_by(wanted)}): put the config.json that belongs to the weights there"
        )
    missing = sorted(report.get("missing_keys", ()))
    if missing:
        raise Misconfigured(f"{where} lacks {len(missing)} weights, first {missing[0]}: copy the whole model folder")
    return model


def _by(shape: Iterable[int]) -> str:
    return " × ".join(map(str, shape))


def _read_tokenizer(where: Path, extra: dict[str, str]) -> Any:
    """Load a model's tokenizer; an adapter's own goes before it, as that may have another chat template."""
    own = where / ADAPTER
    folder = own if (own / _TOKENIZER_CONFIG).is_file() else where
    return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **extra)


def _read_ahead(files: list[Path]) -> bool:
    """Read files in large blocks from start to end, so that mapping them costs no seek; tell if they mustn't be mapped.

    Over a network, mapped pages come one by one: there transformers reads each file whole into memory instead.
    """
    mounted = mounts()
    if not all(mount_of(file, mounted).is_local for file in files):
        return True
    buffer = bytearray(_BLOCK_BYTES)
    for file in files:
        with open(file, "rb", buffering=0) as source:
            while source.readinto(buffer):
                pass
    return False
