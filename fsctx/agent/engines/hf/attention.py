"""Attention on a CPU to a prefix that all rows share: one product with all rows' queries, and no copy for each row."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from fsctx.errors import EngineError

_NAME = "fsctx_shared_prefix"
_KNOWN = {"scaling", "dropout", "sliding_window", "use_cache", "output_attentions", "position_ids"}
"""What a layer may pass: of these, only the scaling means anything where the mask is ours and nothing is trained."""

KeysAndValues = tuple[torch.Tensor, torch.Tensor]


def use_shared_prefix(model: Any) -> bool:
    """Make a model's layers attend as here when `shared_prefix` is given, as before when not; tell if that is so."""
    if model.config.get_text_config()._attn_implementation not in ("sdpa", _NAME):
        return False
    AttentionInterface.register(_NAME, _attention)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)
    return True


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **given: Any,
) -> tuple[torch.Tensor, None]:
    """Return what transformers asks of an attention: outputs (B, Q, heads, D), and no weights."""
    prefix: Sequence[KeysAndValues] | None = given.pop("shared_prefix", None)
    if prefix is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, **given)
    unknown = sorted({name for name, value in given.items() if value is not None} - _KNOWN)
    if unknown or attention_mask is None:
        raise EngineError(f"its attention takes {', '.join(unknown) or 'no mask'}")
    scaling = given.get("scaling")
    scaled = query * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    return attend(scaled, (key, value), prefix[module.layer_idx], attention_mask).transpose(1, 2), None


def attend(query: torch.Tensor, own: KeysAndValues, prefix: KeysAndValues, mask: torch.Tensor) -> torch.Tensor:
    """Return outputs (B, heads, Q, D) of scaled queries that see a whole prefix, and of their own row what `mask` lets.

    `own` is (B, kv_heads, Q, D) each, `prefix` (1, kv_heads, P, D) each, `mask` is added (B, 1, Q, Q).
    """
    n_rows, n_heads, n_tokens, n_dim = query.shape
    n_kv, n_prefix = own[0].shape[1], prefix[0].shape[2]
    grouped = query.view(n_rows, n_kv, n_heads // n_kv, n_tokens, n_dim)  # (B, kv, G, Q, D)
    by_kv = grouped.transpose(0, 1).reshape(n_kv, -1, n_dim)  # (kv, B·G·Q, D)
    near = (grouped @ own[0].unsqueeze(2).mT).add_(mask.unsqueeze(1)).transpose(0, 1)  # (kv, B, G, Q, Q)
    likeness = query.new_empty(*by_kv.shape[:2], n_prefix + n_tokens)
    likeness[..., :n_prefix] = by_kv @ prefix[0][0].mT
    likeness[..., n_prefix:] = near.reshape(*by_kv.shape[:2], n_tokens)
    weights = likeness.softmax(dim=-1)
    of_prefix = weights[..., :n_prefix] @ prefix[1][0]  # (kv, B·G·Q, D)
    of_own = weights[..., n_prefix:].reshape(n_kv, n_rows, -1, n_tokens) @ own[1].transpose(0, 1)  # (kv, B, G·Q, D)
    return (of_prefix.view(of_own.shape) + of_own).transpose(0, 1).reshape(query.shape)
