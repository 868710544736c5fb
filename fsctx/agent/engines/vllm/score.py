"""Verdicts by scoring, as hf defines them: the label whose tokens are the most likely after the prompt."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from fsctx.agent.engines.base import Encoded, Row
from fsctx.agent.engines.hf.encode import encode_rows, refuse, sentinel_rows
from fsctx.agent.engines.hf.text import LabelTokens, Pair, PromptTokens, control_tokens, fault_of_labels
from fsctx.agent.engines.scored import verdicts_of
from fsctx.agent.engines.vllm.labels import questions, scores
from fsctx.agent.engines.vllm.prefix import shared_tokens
from fsctx.agent.engines.vllm.process import Computing
from fsctx.errors import Misconfigured
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.model import Template


class ScoreBound:
    """See `Bound`.

    A claim is some prompts of vLLM, one behind the other, so that its prefix cache gives all but the first the blocks
    that they share.
    """

    def __init__(self, computing: Computing, tokenizer: Any, template: Template) -> None:
        self._computing = computing
        self._loaded = computing.loaded
        self._names = template.label_names
        prompts = PromptTokens(tokenizer, template, vocabulary=self._loaded.vocabulary)
        self._prompts = prompts
        self._labels = LabelTokens(prompts, [label.words for label in template.labels], control_tokens(tokenizer))
        self._n_shared = 0
        pairs = self._sentinels(template)
        self._n_shared = shared_tokens([pair.context for pair in pairs], self._loaded.block_tokens)
        self._scores(pairs)  # so that the prefix is in vLLM's cache

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return encode_rows(rows, self._encode)

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        found = self._scores([row.payload for row in batch])
        return verdicts_of(batch, found, self._names, n_input=lambda row: len(row.payload.context))

    def _encode(self, rows: Sequence[Row]) -> list[Encoded]:
        pairs = self._labels.pairs([self._prompts.text(row) for row in rows])
        return [self._encoded(row.row, pair) for row, pair in zip(rows, pairs, strict=True)]

    def _encoded(self, row: int, pair: Pair) -> Encoded:
        n_context, n_label, window = len(pair.context), max(map(len, pair.labels)), self._loaded.window
        if n_context + n_label > window:
            error = f"{n_context} tokens and {n_label} for the label are more than the model's window of {window}"
            return refuse(row, error, status=Status.TOO_LONG, input_tokens=n_context)
        fault = fault_of_labels(pair.labels, self._names)
        if fault is not None or not pair.context:
            return refuse(row, fault or "the prompt has no tokens", input_tokens=n_context)
        return Encoded(row=row, n_tokens=self._cost(pair), payload=pair)

    def _cost(self, pair: Pair) -> int:
        n_context = len(pair.context)
        n_tail = n_context % self._loaded.block_tokens  # no whole block: computed for each prompt
        n_again = n_tail * (len(questions(pair.context, pair.labels)) - 1)
        return max(1, n_context - self._n_shared) + n_again + sum(map(len, pair.labels))

    def _scores(self, pairs: Sequence[Pair]) -> list[tuple[float, ...]]:
        asked = [questions(pair.context, pair.labels) for pair in pairs]
        answers = iter(self._computing.ask([question for own in asked for question in own]))
        return [scores(pair.labels, list(islice(answers, len(own)))) for pair, own in zip(pairs, asked, strict=True)]

    def _sentinels(self, template: Template) -> list[Pair]:
        """Return some prompts to learn the task's constant tokens from, and check the labels on them.

        Raises:
            Misconfigured: the labels cannot be told apart, or the template alone is longer than the window.
        """
        texts = [self._prompts.text(row) for row in sentinel_rows(template)]
        pairs = self._labels.pairs_in_full(texts)
        if self._labels.pairs(texts) != pairs:
            self._labels.do_without_short_cut()
        for n, pair in enumerate(pairs):
            refused = self._encoded(n, pair).refused
            if refused is not None:
                raise Misconfigured(
                    f"template {template.name!r} cannot be scored by this model: even of a short claim, {refused.error}"
                )
        return pairs
