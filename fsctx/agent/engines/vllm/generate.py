"""Verdicts by generation: the model writes, the template's pattern reads."""

from collections.abc import Sequence
from typing import Any

from fsctx.agent.engines.base import Encoded, Row
from fsctx.agent.engines.hf.encode import encode_rows, refuse, sentinel_rows
from fsctx.agent.engines.hf.generate import seed_of
from fsctx.agent.engines.hf.text import PromptTokens
from fsctx.agent.engines.scored import NOT_NUMBERS, without_numbers
from fsctx.agent.engines.vllm.messages import Ids, Write
from fsctx.agent.engines.vllm.prefix import shared_tokens
from fsctx.agent.engines.vllm.process import Computing
from fsctx.agent.engines.written import until_stop, verdict_of
from fsctx.errors import EngineError, Misconfigured
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.model import Template


class GenerateBound:
    """See `Bound`."""

    def __init__(self, computing: Computing, tokenizer: Any, template: Template) -> None:
        self._computing = computing
        self._loaded = computing.loaded
        self._tokenizer = tokenizer
        self._template = template
        self._choices = tuple(label.words for label in template.labels) if template.generation.choice else ()
        self._n_new = max(template.generation.max_new_tokens, *(len(words) + 1 for words in self._choices), 0)
        self._prompts = PromptTokens(tokenizer, template, vocabulary=self._loaded.vocabulary)
        self._n_shared = 0
        prompts = self._sentinels()
        self._n_shared = shared_tokens([prompt.ids for prompt in prompts], self._loaded.block_tokens)
        self._computing.ask(prompts)  # so that the prefix is in vLLM's cache

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return encode_rows(rows, self._encode)

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        written = self._computing.ask([row.payload for row in batch])
        if not any(written):
            raise EngineError(NOT_NUMBERS)
        return [self._verdict(row, ids) for row, ids in zip(batch, written, strict=True)]

    def _encode(self, rows: Sequence[Row]) -> list[Encoded]:
        found = self._prompts.ids([self._prompts.text(row) for row in rows])
        return [self._encoded(row, ids) for row, ids in zip(rows, found, strict=True)]

    def _encoded(self, row: Row, ids: Ids) -> Encoded:
        settings, window, n_new = self._template.generation, self._loaded.window, self._n_new
        if len(ids) + n_new > window:
            error = f"{len(ids)} tokens and {n_new} for the answer are more than the model's window of {window}"
            return refuse(row.row, error, status=Status.TOO_LONG, input_tokens=len(ids))
        if not ids:
            return refuse(row.row, "the prompt has no tokens")
        write = Write(
            ids=ids,
            max_new_tokens=n_new,
            temperature=settings.temperature,
            seed=seed_of(row.claim, self._template.name),
            stop=settings.stop,
            choices=self._choices,
        )
        return Encoded(row=row.row, n_tokens=max(1, len(ids) - self._n_shared) + n_new, payload=write)

    def _verdict(self, row: Encoded, ids: Sequence[float]) -> Verdict:
        if not ids:
            return without_numbers(row, len(row.payload.ids))
        text = until_stop(self._tokenizer.decode(list(ids), skip_special_tokens=True), self._template)
        return verdict_of(row.row, text, self._template, input_tokens=len(row.payload.ids), output_tokens=len(ids))

    def _sentinels(self) -> list[Write]:
        """Return some prompts to learn the task's constant tokens from.

        Raises:
            Misconfigured: the template alone is longer than the window.
        """
        encoded = self.encode(sentinel_rows(self._template))
        for row in encoded:
            if row.refused is not None and row.refused.status == Status.TOO_LONG:
                raise Misconfigured(f"template {self._template.name!r}: even of a short claim, {row.refused.error}")
        return [row.payload for row in encoded if row.refused is None]
