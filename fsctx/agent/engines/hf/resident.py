"""A model on its device, and what the ways of computing need to know of it."""

import inspect
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import GenerationConfig

from fsctx.agent.engines.hf.files import Loaded

_HEAD_ROWS = 16_384
"""Vocabulary entries per piece of the float32 head: bounds its copy in memory."""

_KEPT_HEAD_BYTES = 1 << 30
"""On a CPU, converting a head for each batch costs more than a tenth of it: one up to so large is kept converted."""

_WINDOWS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "n_ctx")
_LOCAL_WINDOWS = ("sliding_window", "attention_chunk_size", "original_max_position_embeddings")
_NO_LIMIT = 1 << 40
_BATCH_TOKENS_CPU = (64, 512)
"""A CPU gains nothing from more (measured), and rows of more different lengths are padded more."""
_BATCH_TOKENS_GPU = (256, 16_384)
_TRIAL_TOKENS = 64
_BATCH_S = 2.0
"""A batch on a CPU takes about so long: an agent that is told to leave finishes it first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """A model on its device."""

    model: Any
    tokenizer: Any
    device: torch.device
    dtype: torch.dtype
    window: int
    """Tokens that a sequence may have."""
    local_window: int
    """Sequences longer than this are not attended to in full, or not at the same positions."""
    vocabulary: int
    """Tokens that it has an embedding of."""
    cache_argument: str
    """What this version of transformers calls the key-value cache."""
    keeps_logits: bool
    """Whether `forward` can be told which positions to compute logits for."""

    @property
    def tolerance(self) -> float:
        """How far, in nats, a faster way may be from the definition: half precision alone differs by hundredths.

        Quantised layers compute in half precision or in integers, whatever the others do.
        """
        is_exact = self.dtype == torch.float32 and not getattr(self.model, "is_quantized", False)
        return 1e-3 if is_exact else 0.25

    def logits(self, ids: torch.Tensor, keep: torch.Tensor, **arguments: Any) -> torch.Tensor:
        """Return float32 logits (B, K, V) at the positions `keep` (K) of token ids (B, Q)."""
        if self.keeps_logits:
            arguments["logits_to_keep"] = keep
        cache = arguments.pop("cache", None)
        if cache is not None:
            arguments[self.cache_argument] = cache
        logits: torch.Tensor = self.model(input_ids=ids, use_cache=cache is not None, **arguments).logits
        return (logits if self.keeps_logits else logits[:, keep]).float()


def make_resident(loaded: Loaded, *, device: torch.device, dtype: torch.dtype) -> Resident:
    """Prepare a loaded model for computing."""
    model = loaded.model
    if dtype != torch.float32:
        _use_float32_head(model)
    model.generation_config = _plain_generation(model, loaded.tokenizer)
    parameters = inspect.signature(model.forward).parameters
    config = model.config.get_text_config()
    return Resident(
        model=model,
        tokenizer=loaded.tokenizer,
        device=device,
        dtype=dtype,
        window=_window(config, loaded.tokenizer),
        local_window=_local_window(config),
        vocabulary=_vocabulary(model),
        cache_argument="cache" if "cache" in parameters else "past_key_values",
        keeps_logits="logits_to_keep" in parameters,
    )


def find_batch_tokens(resident: Resident) -> int:
    """Return how many tokens a batch may have: some two seconds' work on a CPU, a share of a GPU's memory."""
    if resident.device.type == "cuda":
        config = resident.model.config.get_text_config()
        free, _ = torch.cuda.mem_get_info(resident.device)
        hidden, vocabulary = config.hidden_size, config.vocab_size
        bytes_per_token = 64 * hidden + 2 * vocabulary
        return _clamp(free // 2 // bytes_per_token, _BATCH_TOKENS_GPU)
    return _clamp(int(_BATCH_S * _TRIAL_TOKENS / _trial_s(resident)), _BATCH_TOKENS_CPU)


class Float32Head(nn.Module):
    """An output layer that computes in float32 whatever the model's precision.

    Half precision has so few values near a logit that different words tie exactly.
    """

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.weight = head.weight
        self.bias = head.bias
        is_kept = head.weight.device.type == "cpu" and 4 * head.weight.numel() <= _KEPT_HEAD_BYTES
        self._converted = head.weight.float() if is_kept else None

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits (..., V) of hidden states (..., H)."""
        return float32_logits(hidden, self.weight if self._converted is None else self._converted, self.bias)


def float32_logits(hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Return float32 logits (..., V) of hidden states (..., H) and a head's weight (V, H) and bias (V)."""
    states = hidden.float()
    if weight.dtype == torch.float32:
        return nn.functional.linear(states, weight, None if bias is None else bias.float())
    logits = states.new_empty(*states.shape[:-1], len(weight))
    pieces = torch.split(logits, _HEAD_ROWS, dim=-1), torch.split(weight, _HEAD_ROWS)
    for part, rows in zip(*pieces, strict=True):
        part.copy_(nn.functional.linear(states, rows.float()))  # one piece at a time is there twice
    return logits if bias is None else logits.add_(bias.float())


def _use_float32_head(model: Any) -> None:
    head = model.get_output_embeddings()
    if isinstance(head, nn.Linear):
        model.set_output_embeddings(Float32Head(head))


def _plain_generation(model: Any, tokenizer: Any) -> Any:
    """Return settings with the model's end tokens and nothing else of its own: no sampling, no penalties.

    Padding is masked wherever it stands, so any token that the model has will do.
    """
    own = model.generation_config.eos_token_id if model.generation_config else None
    lists = (own, tokenizer.eos_token_id, model.config.get_text_config().eos_token_id)
    ends = sorted({end for one in lists for end in (one if isinstance(one, list) else [one]) if end is not None})
    pad = next((token for token in ends if token < _vocabulary(model)), 0)
    make: Any = GenerationConfig
    return make(eos_token_id=ends or None, pad_token_id=pad, do_sample=False)


def _vocabulary(model: Any) -> int:
    """Return how many tokens the model has an embedding of; a tokenizer may have more."""
    weight = getattr(model.get_input_embeddings(), "weight", None)  # a stage of a pipeline may have none
    return int(model.config.get_text_config().vocab_size if weight is None else weight.shape[0])


def _window(config: Any, tokenizer: Any) -> int:
    """Return the model's own limit, else the tokenizer's, else none."""
    own = next(
        (value for name in _WINDOWS if isinstance(value := getattr(config, name, None), int) and value > 0), None
    )
    return min(own or tokenizer.model_max_length or _NO_LIMIT, _NO_LIMIT)


def _local_window(config: Any) -> int:
    scaling = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    values = [getattr(config, name, None) for name in _LOCAL_WINDOWS]
    if isinstance(scaling, dict) and scaling.get("rope_type") in ("longrope", "dynamic"):
        values.append(
            scaling.get("original_max_position_embeddings") or getattr(config, "max_position_embeddings", None)
        )
    return min([value for value in values if isinstance(value, int) and value > 0], default=_NO_LIMIT)


@torch.inference_mode()
def _trial_s(resident: Resident) -> float:
    """Return the seconds that a few tokens take; the first pass, which also warms up, does not count."""
    ids = torch.zeros(1, _TRIAL_TOKENS, dtype=torch.long, device=resident.device)
    keep = torch.tensor([_TRIAL_TOKENS - 1], device=resident.device)
    resident.logits(ids, keep)
    began_s = time.perf_counter()
    resident.logits(ids, keep)
    return max(time.perf_counter() - began_s, 1e-6)


def _clamp(value: int, limits: tuple[int, int]) -> int:
    return max(limits[0], min(limits[1], value))
