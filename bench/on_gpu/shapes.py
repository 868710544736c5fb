"""SmolLM2's shapes with random weights and a tokenizer made here: speed asks for no more, and nothing is fetched."""

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, PreTrainedTokenizerFast

from fsctx.agent.engines.hf.engine import HfModel
from fsctx.agent.engines.hf.files import Loaded, silence
from fsctx.agent.engines.hf.resident import make_resident
from fsctx.templates.load import load_template

_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_PIECES = 1200
"""Tokens of the tokenizer made here: as many make a claim of about as many tokens as with SmolLM2's own (49,152)."""

_SIZES = {  # hidden, intermediate, layers, heads, those of keys and values, vocabulary
    "tiny": (64, 128, 4, 4, 2, 1536),
    "135M": (576, 1536, 30, 9, 3, 49_152),
    "360M": (960, 2560, 32, 15, 5, 49_152),
    "1.7B": (2048, 8192, 24, 32, 32, 49_152),
}


def config_of(shape: str, n_words: int = 0) -> LlamaConfig:
    """Return a shape as transformers' configuration, with at least so many words."""
    hidden, intermediate, layers, heads, kv_heads, vocabulary = _SIZES[shape]
    return LlamaConfig(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        vocab_size=max(vocabulary, n_words),
        max_position_embeddings=8192,
        rope_theta=100_000.0,
        initializer_range=hidden**-0.5,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )


def write_tokenizer(folder: Path, claims: Sequence[str]) -> Path:
    """Write a tokenizer that learnt from claims and the templates' texts; return the folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=_PIECES, special_tokens=list(_SPECIAL), initial_alphabet=alphabet, show_progress=False
    )
    texts = [text for name in ("fever", "fever-examples") for text in [str(load_template(name).system)] * 4]
    tokenizer.train_from_iterator([*claims, *texts], trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    fast.chat_template = _CHAT
    fast.save_pretrained(folder)
    return folder


def write_model(folder: Path, shape: str, *, dtype: torch.dtype, device: torch.device, like: Path) -> Path:
    """Write a random model of a shape, and another folder's tokenizer; return the folder."""
    loaded = _random(shape, dtype, device, like)
    silence()
    loaded.tokenizer.save_pretrained(folder)
    loaded.model.save_pretrained(folder)
    return folder


def load_random(shape: str, *, dtype: torch.dtype, device: torch.device, like: Path) -> HfModel:
    """Return a random model of a shape on the device, with another folder's tokenizer, without writing it."""
    return HfModel(make_resident(_random(shape, dtype, device, like), device=device, dtype=dtype), name=shape)


def size_bytes(shape: str, dtype: torch.dtype) -> int:
    """Return about how large a shape's weights are."""
    hidden, intermediate, layers, heads, kv_heads, vocabulary = _SIZES[shape]
    layer = hidden * (2 * hidden + 2 * hidden * kv_heads // heads + 3 * intermediate)
    return dtype.itemsize * (layers * layer + vocabulary * hidden)


def _random(shape: str, dtype: torch.dtype, device: torch.device, like: Path) -> Loaded:
    tokenizer = AutoTokenizer.from_pretrained(like)
    torch.manual_seed(0)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config_of(shape, len(tokenizer)), dtype=dtype)
    return Loaded(model=model.eval().requires_grad_(requires_grad=False), tokenizer=tokenizer)
