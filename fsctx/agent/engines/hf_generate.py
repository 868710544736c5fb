"""Verdicts by generation: the model writes, the template's pattern reads."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.agent.engines.hf_encode import encode_rows, refuse, sentinel_rows
from fsctx.agent.engines.hf_errors import guarded
from fsctx.agent.engines.hf_resident import Resident
from fsctx.agent.engines.hf_text import Ids, PromptTokens
from fsctx.errors import Misconfigured
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.read_verdict import read_verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt's tokens, and the seed of what is drawn for it."""

    ids: Ids
    seed: int


class GenerateBound:
    """See `Bound`."""

    def __init__(self, resident: Resident, task: BoundTask) -> None:
        self._resident = resident
        self._template = task.template
        self._prompts = PromptTokens(resident.tokenizer, task.template)
        for encoded in self.encode(sentinel_rows(task.template)):
            if encoded.refused is not None and encoded.refused.status == Status.TOO_LONG:
                raise Misconfigured(f"template {task.template.name!r}: even of a short claim, {encoded.refused.error}")

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return encode_rows(rows, self._encode)

    @torch.inference_mode()
    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        asked: list[Asked] = [row.payload for row in batch]
        written = guarded(lambda: self._generate(asked))
        return [self._verdict(row, ids) for row, ids in zip(batch, written, strict=True)]

    def _encode(self, rows: Sequence[Row]) -> list[Encoded]:
        found = self._prompts.ids([self._prompts.text(row) for row in rows])
        return [self._encoded(row, ids) for row, ids in zip(rows, found, strict=True)]

    def _encoded(self, row: Row, ids: Ids) -> Encoded:
        n_new, window = self._template.generation.max_new_tokens, self._resident.window
        if len(ids) + n_new > window:
            error = f"{len(ids)} tokens and {n_new} for the answer are more than the model's window of {window}"
            return refuse(row.row, error, status=Status.TOO_LONG, input_tokens=len(ids))
        if not ids:
            return refuse(row.row, "the prompt has no tokens")
        asked = Asked(ids=ids, seed=seed_of(row.claim, self._template.name))
        return Encoded(row=row.row, n_tokens=len(ids) + n_new, payload=asked)

    def _generate(self, asked: Sequence[Asked]) -> list[list[int]]:
        """Return the tokens written for each prompt, up to and with the one that ended it."""
        longest = max(len(row.ids) for row in asked)
        pads = [longest - len(row.ids) for row in asked]
        device, end = self._resident.device, self._resident.model.generation_config
        ids = torch.tensor(
            [(*([end.pad_token_id] * p), *r.ids) for p, r in zip(pads, asked, strict=True)], device=device
        )
        mask = torch.tensor([[0] * p + [1] * (longest - p) for p in pads], device=device)
        out = self._resident.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=self._template.generation.max_new_tokens,
            logits_processor=LogitsProcessorList(self._processors(asked)),
            stopping_criteria=StoppingCriteriaList(self._stops(longest)),
        )
        ends = {end.pad_token_id, *(end.eos_token_id or ())}
        return [self._cut(row, ends) for row in out[:, longest:].tolist()]

    def _processors(self, asked: Sequence[Asked]) -> list[LogitsProcessor]:
        temperature = self._template.generation.temperature
        return [Drawn(temperature, [row.seed for row in asked])] if temperature else []

    def _stops(self, n_prompt: int) -> list[StoppingCriteria]:
        stop = self._template.generation.stop
        return [StopStrings(self._resident.tokenizer, stop, n_prompt)] if stop else []

    def _cut(self, ids: list[int], ends: set[int]) -> list[int]:
        """Cut a row of the output where it ended: other rows went on longer."""
        n = next((n + 1 for n, token in enumerate(ids) if token in ends), len(ids))
        stop = self._template.generation.stop
        for k in range(1, n if stop else 0):
            if _has_any(self._resident.tokenizer.decode(ids[:k]), stop):
                return ids[:k]
        return ids[:n]

    def _verdict(self, row: Encoded, ids: list[int]) -> Verdict:
        text = _until(self._resident.tokenizer.decode(ids, skip_special_tokens=True), self._template.generation.stop)
        verdict = read_verdict(text, self._template)
        return Verdict(
            row=row.row,
            verdict=verdict,
            text=text,
            status=Status.ERROR if verdict is None else Status.OK,
            error="no label could be read from the text" if verdict is None else None,
            input_tokens=len(row.payload.ids),
            output_tokens=len(ids),
        )


class Drawn(LogitsProcessor):
    """Makes the greedy choice a draw at a temperature, from numbers that each row brings of its own.

    The highest of logits / temperature + Gumbel noise is distributed as the softmax of logits / temperature.
    """

    def __init__(self, temperature: float, seeds: Sequence[int]) -> None:
        self._temperature = temperature
        self._sources = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return noisy logits (B, V)."""
        noise = torch.stack([torch.empty(scores.shape[-1]).exponential_(generator=source) for source in self._sources])
        return scores.float() / self._temperature - noise.log().to(scores.device)


class StopStrings(StoppingCriteria):
    """Ends a row as soon as its text has one of some strings."""

    def __init__(self, tokenizer: Any, stop: tuple[str, ...], n_prompt: int) -> None:
        self._tokenizer = tokenizer
        self._stop = stop
        self._n_prompt = n_prompt

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Return which rows end (B)."""
        texts = self._tokenizer.batch_decode(input_ids[:, self._n_prompt :])
        return torch.tensor([_has_any(text, self._stop) for text in texts], device=input_ids.device)


def seed_of(claim: str, template: str) -> int:
    """Return a seed that depends on the claim and the template alone, not on batch, agent or run."""
    return int.from_bytes(hashlib.sha256(f"{template}\0{claim}".encode()).digest()[:8]) >> 1


def _has_any(text: str, stop: tuple[str, ...]) -> bool:
    return any(part in text for part in stop)


def _until(text: str, stop: tuple[str, ...]) -> str:
    """Return a text up to the first of some strings."""
    return text[: min((text.find(part) for part in stop if part in text), default=len(text))]
