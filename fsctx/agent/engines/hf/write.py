"""Writing: prompts' tokens in, the model's tokens out, in batches that change nothing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache, LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList

from fsctx.agent.engines.hf.choice import Choices, Chosen, Held
from fsctx.agent.engines.hf.resident import Resident
from fsctx.agent.engines.hf.text import Ids
from fsctx.agent.engines.hf.tree import PrefixLayer, common_length, compute_prefix
from fsctx.errors import EngineError
from fsctx.templates.model import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A prompt's tokens, and the seed of what is drawn for it."""

    ids: Ids
    seed: int


class Writer:
    """Continues prompts on one resident model. With a prefix, prompts that begin with it are read from there on.

    A batch is padded between the prefix and the rest, or before the prompts where there is none:

        [prefix, from the cache | padding | the rest of the prompt] what is written
    """

    def __init__(
        self, resident: Resident, generation: Generation, *, prefix: Ids = (), choices: Choices | None = None
    ) -> None:
        self.prefix = prefix
        self._choices = choices
        self._resident = resident
        self._generation = generation
        self._layers: list[PrefixLayer] = compute_prefix(resident, prefix) if prefix else []
        settings = resident.model.generation_config
        self._pad: int = settings.pad_token_id
        self._ends = set(settings.eos_token_id or ())

    def behind(self, prefix: Ids) -> "Writer":
        """Return the same from a prefix on."""
        return Writer(self._resident, self._generation, prefix=prefix, choices=self._choices)

    def takes(self, row: Asked) -> bool:
        """Tell whether a prompt can be continued from the prefix."""
        n_prefix, n_tokens = len(self.prefix), len(row.ids) + self._generation.max_new_tokens
        begins = len(row.ids) > n_prefix and row.ids[:n_prefix] == self.prefix
        return begins and n_tokens <= self._resident.local_window

    def write(self, asked: Sequence[Asked]) -> list[list[int] | None]:
        """Return the tokens written for each prompt, up to and with the one that ended it.

        None stands for a row whose logits were no numbers at some step.
        """
        ids, mask = self._padded(asked)
        watch = Watch(len(asked), ids.device)
        out = self._resident.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=self._generation.max_new_tokens,
            logits_processor=LogitsProcessorList([watch, *self._processors(asked, ids.shape[1])]),
            stopping_criteria=StoppingCriteriaList(self._stops(ids.shape[1])),
            **self._cached(len(asked)),
        )
        written = out[:, ids.shape[1] :].tolist()
        return [None if is_bad else self._cut(row) for row, is_bad in zip(written, watch.is_bad.tolist(), strict=True)]

    def first_logits(self, asked: Sequence[Asked]) -> torch.Tensor:
        """Return the logits (B, V) of the first token to write."""
        ids, mask = self._padded(asked)
        out = self._resident.model.generate(
            input_ids=ids,
            attention_mask=mask,
            max_new_tokens=1,
            output_logits=True,
            return_dict_in_generate=True,
            **self._cached(len(asked)),
        )
        logits: torch.Tensor = out.logits[0].float()
        return logits

    def _padded(self, asked: Sequence[Asked]) -> tuple[torch.Tensor, torch.Tensor]:
        """Return ids and attention mask, each (B, P + longest rest)."""
        n_prefix, longest = len(self.prefix), max(len(row.ids) for row in asked)
        pads = [longest - len(row.ids) for row in asked]
        ids = [(*self.prefix, *([self._pad] * pad), *row.ids[n_prefix:]) for pad, row in zip(pads, asked, strict=True)]
        mask = [[1] * n_prefix + [0] * pad + [1] * (longest - n_prefix - pad) for pad in pads]
        device = self._resident.device
        return torch.tensor(ids, device=device), torch.tensor(mask, device=device)

    def _cached(self, n_rows: int) -> dict[str, Any]:
        """Return the argument that hands the prefix' keys and values over, one copy for each row."""
        if not self._layers:
            return {}
        cache: Any = DynamicCache(config=self._resident.model.config)
        for number, layer in enumerate(self._layers):
            keys, values = layer.expanded(n_rows)
            cache.update(keys, values, number)
        return {self._resident.cache_argument: cache}

    def _processors(self, asked: Sequence[Asked], n_prompt: int) -> list[LogitsProcessor]:
        temperature = self._generation.temperature
        drawn: list[LogitsProcessor] = [Drawn(temperature, [row.seed for row in asked])] if temperature else []
        return [*drawn, Held(self._choices, n_prompt)] if self._choices else drawn

    def _stops(self, n_prompt: int) -> list[StoppingCriteria]:
        if self._choices:
            return [Chosen(self._choices, n_prompt)]
        stop = self._generation.stop
        return [StopStrings(self._resident.tokenizer, stop, n_prompt)] if stop else []

    def _cut(self, ids: list[int]) -> list[int]:
        """Cut a row of the output where it ended: other rows went on longer."""
        chosen = self._choices.chosen(ids) if self._choices else None
        if self._choices and chosen is not None:
            return list(self._choices.sequences[chosen])
        n = next((n + 1 for n, token in enumerate(ids) if token in self._ends), len(ids))
        stop = self._generation.stop
        for k in range(1, n if stop else 0):
            if _has_any(self._resident.tokenizer.decode(ids[:k]), stop):
                return ids[:k]
        return ids[:n]


class Watch(LogitsProcessor):
    """Notes which rows' logits are no numbers; changes nothing, and lets no GPU wait for it."""

    def __init__(self, n_rows: int, device: torch.device) -> None:
        self.is_bad = torch.zeros(n_rows, dtype=torch.bool, device=device)

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, V) as they are."""
        self.is_bad |= scores.isnan().any(dim=-1)
        return scores


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


def checked_writer(plain: Writer, sentinels: Sequence[Asked], *, tolerance: float) -> Writer:
    """Return a writer from the sentinels' common prefix, once it was seen to agree with one without.

    Raises:
        EngineError: it does not agree on this model.
    """
    contexts = [row.ids for row in sentinels]
    prefix = contexts[0][: max(0, min(common_length(contexts), min(map(len, contexts)) - 1))]
    writer = plain.behind(prefix)
    rows = sorted((row for row in sentinels if writer.takes(row)), key=lambda row: len(row.ids))
    if not rows or not prefix:
        raise EngineError("the prompts begin with nothing constant that fits the model's local window")
    chosen = [rows[0], rows[-1]]
    expected = torch.cat([plain.first_logits([row]) for row in chosen]).log_softmax(-1)
    found = writer.first_logits(chosen).log_softmax(-1)
    likely = expected.topk(5).indices
    wrong = float((found.gather(1, likely) - expected.gather(1, likely)).abs().max())
    if not wrong <= tolerance:
        raise EngineError(f"the first tokens' log-probabilities differ by {wrong:.2g} nat from those of whole prompts")
    return writer


def _has_any(text: str, stop: tuple[str, ...]) -> bool:
    return any(part in text for part in stop)
