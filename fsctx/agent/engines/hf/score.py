"""Verdicts by scoring: the label whose words are the most likely after the prompt."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import torch

from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.agent.engines.hf.encode import encode_rows, refuse, sentinel_rows
from fsctx.agent.engines.hf.errors import first_line, guarded
from fsctx.agent.engines.hf.plain import score_plainly, score_sequences
from fsctx.agent.engines.hf.resident import Resident
from fsctx.agent.engines.hf.text import Ids, LabelTokens, Pair, PromptTokens, control_tokens, fault_of_labels
from fsctx.agent.engines.hf.tree import Tree, common_length
from fsctx.agent.engines.scored import verdicts_of
from fsctx.errors import EngineError, Misconfigured, OutOfMemory
from fsctx.protocol.verdicts import Status, Verdict

log = logging.getLogger(__name__)


class ScoreBound:
    """See `Bound`."""

    def __init__(self, resident: Resident, task: BoundTask) -> None:
        self._resident = resident
        self._names = task.template.label_names
        prompts = PromptTokens(resident.tokenizer, task.template, vocabulary=resident.vocabulary)
        words = [label.words for label in task.template.labels]
        self._prompts = prompts
        self._labels = LabelTokens(prompts, words, control_tokens(resident.tokenizer))
        sentinels = self._sentinels(task)
        self.tree = _try_tree(resident, sentinels)

    @torch.inference_mode()
    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        pairs: list[Pair] = [row.payload for row in batch]
        scores = guarded(lambda: self._score(pairs))
        return verdicts_of(batch, scores, self._names, n_input=lambda row: len(row.payload.context))

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return encode_rows(rows, self._encode)

    def _encode(self, rows: Sequence[Row]) -> list[Encoded]:
        pairs = self._labels.pairs([self._prompts.text(row) for row in rows])
        return [self._encoded(row.row, pair) for row, pair in zip(rows, pairs, strict=True)]

    def _encoded(self, row: int, pair: Pair) -> Encoded:
        n_context, n_label = len(pair.context), max(map(len, pair.labels))
        if n_context + n_label > self._resident.window:
            error = (
                f"{n_context} tokens and {n_label} for the label are more than the model's window"
                f" of {self._resident.window}"
            )
            return refuse(row, error, status=Status.TOO_LONG, input_tokens=n_context)
        fault = fault_of_labels(pair.labels, self._names)
        if fault is not None or not pair.context:
            return refuse(row, fault or "the prompt has no tokens", input_tokens=n_context)
        return Encoded(row=row, n_tokens=self._cost(pair), payload=pair)

    def _cost(self, pair: Pair) -> int:
        if self.tree is not None and self.tree.takes(pair):
            return self.tree.cost(pair)
        return sum(len(pair.context) + len(label) for label in pair.labels)

    def _score(self, pairs: Sequence[Pair]) -> list[list[float]]:
        """Return each row's scores: in one pass those whose labels have the same tokens, plainly the rest."""
        passes: dict[tuple[Ids, ...] | None, list[int]] = defaultdict(list)
        for n, pair in enumerate(pairs):
            passes[pair.labels if self.tree is not None and self.tree.takes(pair) else None].append(n)
        scores: dict[int, list[float]] = {}
        for labels, rows in passes.items():
            chosen = [pairs[n] for n in rows]
            is_tree = self.tree is not None and labels is not None
            found = self.tree.score(chosen) if is_tree and self.tree else _plainly(self._resident, chosen)
            scores |= dict(zip(rows, found.tolist(), strict=True))
        return [scores[n] for n in range(len(pairs))]

    def _sentinels(self, task: BoundTask) -> list[Pair]:
        """Return some prompts to learn the task's constant tokens from, and check the labels on them.

        Raises:
            Misconfigured: the labels cannot be told apart, or the template alone is longer than the window.
        """
        texts = [self._prompts.text(row) for row in sentinel_rows(task.template)]
        pairs = self._labels.pairs_in_full(texts)
        if self._labels.pairs(texts) != pairs:
            self._labels.do_without_short_cut()
        name = task.template.name
        for pair in pairs:
            fault = fault_of_labels(pair.labels, self._names)
            if fault is not None:
                raise Misconfigured(f"template {name!r} cannot be scored by this model: {fault}: change the words")
            _check_window(name, len(pair.context) + max(map(len, pair.labels)), self._resident.window)
        return pairs


def _check_window(name: str, n_tokens: int, window: int) -> None:
    if n_tokens > window:
        raise Misconfigured(
            f"template {name!r} makes {n_tokens} tokens of a short claim, more than the model's window of {window}:"
            " shorten it or use another model"
        )


def _plainly(resident: Resident, pairs: Sequence[Pair]) -> torch.Tensor:
    """Score by the definition; alone what is so long that the model treats it otherwise than shorter sequences."""
    if all(len(pair.context) + max(map(len, pair.labels)) <= resident.local_window for pair in pairs):
        return score_plainly(resident, pairs)
    return torch.cat([score_plainly(resident, [pair]) for pair in pairs])


@torch.inference_mode()
def _try_tree(resident: Resident, sentinels: Sequence[Pair]) -> Tree | None:
    """Return the one-pass scorer if it agrees with the definition on this model: by trying, not by a list of models."""
    if not sentinels:
        _fall_back("the template's columns cannot be guessed")
        return None
    contexts = [pair.context for pair in sentinels]
    prefix = contexts[0][: max(0, min(common_length(contexts), min(map(len, contexts)) - 1))]
    for is_shared in (True, False) if prefix and resident.device.type == "cpu" else (False,):
        try:
            return guarded(partial(_checked_tree, resident, prefix, sentinels, is_shared=is_shared))
        except OutOfMemory:
            raise
        except EngineError as error:
            reason = first_line(error)
    _fall_back(reason)
    return None


def _checked_tree(resident: Resident, prefix: Ids, sentinels: Sequence[Pair], *, is_shared: bool) -> Tree:
    tree = Tree(resident, prefix, is_shared=is_shared)
    rows = [pair for pair in sentinels if tree.takes(pair) and pair.labels == sentinels[0].labels]
    if not rows:
        raise EngineError("no sentinel claim begins with the constant prefix and fits the model's local window")
    lengths = [len(pair.context) for pair in rows]
    last = len(rows[0].labels) - 1
    chosen = [(lengths.index(min(lengths)), last), (lengths.index(max(lengths)), last // 2)]
    found = tree.score(rows)[[n for n, _ in chosen], [label for _, label in chosen]]
    expected = [score_sequences(resident, [(rows[n].context, rows[n].labels[label])]) for n, label in chosen]
    wrong = float((found - torch.cat(expected)).abs().max())
    if not wrong <= resident.tolerance:
        raise EngineError(f"its scores differ by {wrong:.2g} nat from those of one sequence at a time")
    return tree


def _fall_back(reason: str) -> None:
    log.warning("labels are scored one sequence at a time, which is slower: in one pass, %s", reason)
