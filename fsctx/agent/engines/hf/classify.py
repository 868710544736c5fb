"""Verdicts of classifiers (NLI models and others): the class whose name is a label's words.

A classifier reads a template's `text`, or its `user` alone, as one text; `system` and `user` as a pair: premise and
hypothesis.
"""

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fsctx.agent.device import preflight
from fsctx.agent.engines.base import Bound, BoundTask, Encoded, Row
from fsctx.agent.engines.hf.device import default_dtype
from fsctx.agent.engines.hf.encode import encode_rows, refuse
from fsctx.agent.engines.hf.errors import guarded
from fsctx.agent.engines.hf.files import read_model
from fsctx.agent.engines.scored import verdicts_of
from fsctx.errors import Misconfigured
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.model import Template
from fsctx.templates.render import Renderer

_BATCH_TOKENS = {"cpu": 512, "cuda": 16_384}
_NO_LIMIT = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoder:
    """A classifier on its device."""

    model: Any
    tokenizer: Any
    device: torch.device
    window: int
    classes: dict[str, int]
    """Name, in lower case → index."""


def load_classifier(files: Path, *, device: str, dtype: str | None) -> "Classifier":
    """Load a classifier onto a device.

    Raises:
        Misconfigured: its classes have no names.
    """
    info = preflight(device)
    where = torch.device(info.spec)
    precision = getattr(torch, dtype) if dtype else default_dtype(where)
    loaded = read_model(files, device=where, dtype=precision)
    names = {str(name).casefold(): index for index, name in loaded.model.config.id2label.items()}
    if len(names) < 2 or all(name == f"label_{index}" for name, index in names.items()):
        raise Misconfigured(f"{files}: its classes have no names: give them in config.json (id2label, label2id)")
    encoder = Encoder(
        model=loaded.model,
        tokenizer=loaded.tokenizer,
        device=where,
        window=_window(loaded.model, loaded.tokenizer),
        classes=names,
    )
    return Classifier(encoder, name=info.name)


class Classifier:
    """See `Model`."""

    def __init__(self, encoder: Encoder, *, name: str) -> None:
        self.device = name
        self.dtype = str(encoder.model.dtype).removeprefix("torch.")
        self.batch_tokens = _BATCH_TOKENS[encoder.device.type]
        self._encoder: Encoder | None = encoder

    def bind(self, task: BoundTask) -> Bound:
        """See `Model.bind`."""
        if self._encoder is None:
            raise ValueError("bind() after close()")
        if task.method != "score":
            raise Misconfigured("a classifier does not generate text: plan with --method score")
        return ClassifyBound(self._encoder, task.template)

    def close(self) -> None:
        """See `Model.close`."""
        self._encoder = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


class ClassifyBound:
    """See `Bound`."""

    def __init__(self, encoder: Encoder, template: Template) -> None:
        if template.examples:
            raise Misconfigured(
                f"template {template.name!r} has examples, which a classifier can't read: leave them out"
            )
        self._encoder = encoder
        self._names = template.label_names
        self._classes = _classes_of(template, encoder.classes)
        self._renderer = Renderer(template)

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return encode_rows(rows, lambda some: [self._encode(row) for row in some])

    @torch.inference_mode()
    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        scores = guarded(lambda: self._score([row.payload for row in batch]))  # (B, labels)
        return verdicts_of(batch, scores.tolist(), self._names, n_input=lambda row: row.n_tokens)

    def _encode(self, row: Row) -> Encoded:
        prompt = self._renderer.prompt(row.claim, row.columns)
        texts = [prompt.text] if prompt.text is not None else [message.content for message in prompt.messages]
        fed = dict(self._encoder.tokenizer(*texts, truncation=False, verbose=False))
        n_tokens = len(fed["input_ids"])
        if n_tokens > self._encoder.window:
            error = f"{n_tokens} tokens are more than the model's window of {self._encoder.window}"
            return refuse(row.row, error, status=Status.TOO_LONG, input_tokens=n_tokens)
        return Encoded(row=row.row, n_tokens=n_tokens, payload=fed)

    def _score(self, fed: Sequence[dict[str, list[int]]]) -> torch.Tensor:
        """Return log-probabilities (B, labels), of all classes that the model has."""
        padded = self._encoder.tokenizer.pad(list(fed), padding=True, return_tensors="pt").to(self._encoder.device)
        logits: torch.Tensor = self._encoder.model(**padded).logits.float()  # (B, classes)
        return logits.log_softmax(dim=-1)[:, self._classes]


def _classes_of(template: Template, classes: dict[str, int]) -> list[int]:
    """Return the index of each label's class.

    Raises:
        Misconfigured: no class is called as one of the labels' words.
    """
    strange = [label.words for label in template.labels if label.words.strip().casefold() not in classes]
    if strange:
        raise Misconfigured(
            f"template {template.name!r}: the model has no class {strange[0]!r}; it has {', '.join(classes)}: "
            "write these as the labels' words"
        )
    return [classes[label.words.strip().casefold()] for label in template.labels]


def _window(model: Any, tokenizer: Any) -> int:
    """Return how many tokens a text may have: positions, less those that some models never use."""
    limits = [_NO_LIMIT, tokenizer.model_max_length]
    for name, table in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(table, torch.nn.Embedding):
            limits.append(table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1))
    positions = getattr(model.config, "max_position_embeddings", None)
    return int(min([*limits, positions] if positions else limits))
