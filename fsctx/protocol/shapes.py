"""What a model's configuration tells of its size: what it takes to hold it and to compute with it. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fsctx.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder's dimensions."""

    n_layers: int
    hidden: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    is_tied: bool = False
    """Whether the head's weights are the embedding's."""
    n_experts: int = 1
    n_active: int = 1
    """Experts that a token goes through."""
    weight_bits: int | None = None
    """Of a layer's weights, where they are quantised."""

    @property
    def layer_params(self) -> int:
        """Weights of a layer."""
        return self._attention + self.n_experts * self._expert

    @property
    def active_params(self) -> int:
        """Weights of a layer that a token is multiplied with."""
        return self._attention + self.n_active * self._expert

    def layer_bytes(self, number_bytes: int) -> float:
        """Return what a layer's weights take, which have `number_bytes` each where they are not quantised."""
        return self.layer_params * (number_bytes if self.weight_bits is None else self.weight_bits / 8)

    @property
    def table_params(self) -> int:
        """Weights of the embedding, and of the head."""
        return self.vocab * self.hidden

    @property
    def params(self) -> int:
        """Weights in all."""
        return self.n_layers * self.layer_params + self.table_params * (1 if self.is_tied else 2)

    @property
    def kv_per_token(self) -> int:
        """Numbers that a layer keeps of a token."""
        return 2 * self.n_kv_heads * self.head_dim

    def layer_flops(self, n_tokens: int, n_seen: int) -> float:
        """Return the operations of a layer for tokens that each attend to `n_seen`."""
        return n_tokens * (2.0 * self.active_params + 4.0 * self.n_heads * self.head_dim * n_seen)

    @property
    def _attention(self) -> int:
        return self.hidden * self.head_dim * 2 * (self.n_heads + self.n_kv_heads)

    @property
    def _expert(self) -> int:
        return 3 * self.hidden * self.intermediate


def shape_of(config: Mapping[str, Any], *, where: str) -> ModelShape:
    """Return the dimensions in a config.json.

    Raises:
        InputError: one that is needed is not there.
    """
    text = config.get("text_config") or config

    def number(*names: str, otherwise: int | None = None) -> int:
        found = next((text[name] for name in names if text.get(name) is not None), otherwise)
        if not isinstance(found, int) or found < 1:
            raise InputError(f"{where} has no {names[0]} that is a number: pass the config.json of a decoder model")
        return found

    hidden, n_heads = number("hidden_size", "n_embd"), number("num_attention_heads", "n_head")
    n_experts = number("num_local_experts", "num_experts", "n_routed_experts", otherwise=1)
    intermediate = number("intermediate_size", "n_inner", "ffn_dim", otherwise=4 * hidden)
    return ModelShape(
        n_layers=number("num_hidden_layers", "n_layer"),
        hidden=hidden,
        n_heads=n_heads,
        n_kv_heads=number("num_key_value_heads", otherwise=n_heads),
        head_dim=number("head_dim", otherwise=max(1, hidden // n_heads)),
        intermediate=number("moe_intermediate_size", otherwise=intermediate) if n_experts > 1 else intermediate,
        vocab=number("vocab_size"),
        is_tied=bool(text.get("tie_word_embeddings", config.get("tie_word_embeddings", False))),
        n_experts=n_experts,
        n_active=min(n_experts, number("num_experts_per_tok", otherwise=1)),
        weight_bits=_weight_bits(config.get("quantization_config")),
    )


def _weight_bits(quantised: Any) -> int | None:
    """Return the bits of a quantised weight, by the words of whichever library; None where they are not told."""
    given = _mapping(quantised)
    group = next(iter(_mapping(given.get("config_groups")).values()), None)
    told = (given.get("bits"), given.get("w_bit"), _mapping(_mapping(group).get("weights")).get("num_bits"))
    if given.get("load_in_4bit"):
        return 4
    if given.get("load_in_8bit") or given.get("quant_method") in ("fp8", "fbgemm_fp8"):
        return 8
    return next((bits for bits in told if isinstance(bits, int) and bits > 0), None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
