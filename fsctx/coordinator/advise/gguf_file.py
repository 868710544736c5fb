"""What a GGUF file says of its model, by the names of a config.json."""

from pathlib import Path
from typing import Any

from fsctx.errors import InputError

_NAMES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "feed_forward_length": "intermediate_size",
    "expert_feed_forward_length": "moe_intermediate_size",
    "expert_count": "num_experts",
    "expert_used_count": "num_experts_per_tok",
}


def config_of_gguf(path: Path) -> dict[str, Any]:
    """Return the dimensions in a GGUF file's metadata.

    Raises:
        InputError: it cannot be read.
    """
    try:
        from gguf import GGUFReader
    except ImportError:
        raise InputError(f"to read {path} takes the package gguf: pip install 'fsctx[hf]', or pass a folder") from None
    try:
        reader = GGUFReader(path)
        kind = reader.fields["general.architecture"].contents()
        found = {own: reader.fields.get(f"{kind}.{name}") for name, own in _NAMES.items()}
        config = {own: field.contents() for own, field in found.items() if field is not None}
        tokens = next(tensor for tensor in reader.tensors if tensor.name == "token_embd.weight")
    except (OSError, ValueError, KeyError, IndexError, StopIteration) as error:
        raise InputError(f"{path} is not a GGUF file of a model ({error}): pass another") from None
    is_tied = all(tensor.name != "output.weight" for tensor in reader.tensors)
    return config | {"vocab_size": int(tokens.shape[1]), "tie_word_embeddings": is_tied}
