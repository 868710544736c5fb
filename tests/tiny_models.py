"""Tiny random models with a tokenizer, made in a folder: for tests in which the weights do not matter."""

import warnings
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    BertConfig,
    Gemma2Config,
    Gemma3TextConfig,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
    RobertaConfig,
)

NLI = ("entailment", "neutral", "contradiction")
CHAT = (
    "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
CHAT_WITHOUT_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}" + CHAT

_TEXT = [
    "Claim: the Danube flows through Vienna. SUPPORTED REFUTED NOT ENOUGH INFO is true or false",
    "You are a careful fact checker. Answer with the verdict alone. What is known shows that the claim is",
    "Земля вращается вокруг Солнца. 水在一百度沸腾。 7 × 6 = 42",
]
_COMMON: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "initializer_range": 0.4,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 1,
}
CONFIGS: dict[str, Any] = {
    "llama": lambda v: LlamaConfig(vocab_size=v, **_COMMON),
    "qwen2": lambda v: Qwen2Config(vocab_size=v, **_COMMON),
    "qwen3": lambda v: Qwen3Config(vocab_size=v, **_COMMON),
    "gemma2": lambda v: Gemma2Config(vocab_size=v, sliding_window=256, query_pre_attn_scalar=8, **_COMMON),
    "gemma3": lambda v: Gemma3TextConfig(vocab_size=v, sliding_window=256, query_pre_attn_scalar=8, **_COMMON),
    "mistral": lambda v: MistralConfig(vocab_size=v, sliding_window=16, **_COMMON),
    "mamba": lambda v: MambaConfig(vocab_size=v, hidden_size=32, num_hidden_layers=2, initializer_range=0.4),
}


def make_model(folder: Path, kind: str = "llama", *, chat: str | None = CHAT, seed: int = 0, **changes: Any) -> Path:
    """Write a random model of a kind, with `changes` to its sizes, and its tokenizer; return the folder."""
    tokenizer = _tokenizer(chat)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        config = CONFIGS[kind](len(tokenizer))
        config.update(changes)
        model = AutoModelForCausalLM.from_config(config)
        model.save_pretrained(folder)
    return folder


def make_classifier(folder: Path, kind: str = "bert", *, names: tuple[str, ...] = NLI) -> Path:
    """Write a random classifier with classes of these names and its tokenizer; return the folder."""
    tokenizer = _tokenizer(None)
    tokenizer.pad_token = "</s>"
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = {"bert": BertConfig, "roberta": RobertaConfig}[kind](
        vocab_size=len(tokenizer),
        max_position_embeddings=128,
        initializer_range=0.4,
        pad_token_id=1,
        id2label=dict(enumerate(names)),
        label2id={name: index for index, name in enumerate(names)},
        **sizes,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    return folder


def make_adapter(folder: Path, base: Path, *, seed: int = 0, auto: Any = AutoModelForCausalLM, **config: Any) -> Path:
    """Write a random LoRA adapter for a model as peft writes them; return the folder. `config`: as `LoraConfig`."""
    import peft

    chosen: dict[str, Any] = {"r": 4, "target_modules": ["q_proj", "v_proj", "down_proj"], **config}
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lora = peft.LoraConfig(init_lora_weights=False, **chosen)  # random, and not such that it changes nothing
        peft.get_peft_model(auto.from_pretrained(base), lora).save_pretrained(folder)
    return folder


def _tokenizer(chat: str | None) -> PreTrainedTokenizerFast:
    special = ["<s>", "</s>", "<|start|>", "<|end|>"]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(_TEXT, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=special[2:],
        model_max_length=1 << 40,
    )
    fast.chat_template = chat
    return fast
