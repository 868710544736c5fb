"""Writing held to a choice: nothing but the words of one of the labels can come out."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import LogitsProcessor, StoppingCriteria

from fsctx.agent.engines.hf.text import Ids, PromptTokens, fault_of_labels
from fsctx.errors import Misconfigured
from fsctx.templates.model import Template


class Choices:
    """Sequences of tokens of which one is to be written. None begins another."""

    def __init__(self, sequences: Sequence[Ids]) -> None:
        self.sequences = tuple(sequences)
        self._next: dict[Ids, list[int]] = {}
        for ids in sequences:
            for at, token in enumerate(ids):
                self._next.setdefault(ids[:at], []).append(token)

    def allowed(self, written: Ids) -> list[int]:
        """Return the tokens that may follow; none where a choice is made."""
        return self._next.get(written, [])

    def chosen(self, written: Sequence[int]) -> int | None:
        """Return which of the sequences what was written begins with; None if it is none yet."""
        return next((n for n, ids in enumerate(self.sequences) if tuple(written[: len(ids)]) == ids), None)


class Held(LogitsProcessor):
    """Leaves each row the tokens that may follow what it has written."""

    def __init__(self, choices: Choices, n_prompt: int) -> None:
        self._choices = choices
        self._n_prompt = n_prompt

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Return logits (B, V), minus infinity for all other tokens."""
        rows: list[int] = []
        tokens: list[int] = []
        for row, written in enumerate(input_ids[:, self._n_prompt :].tolist()):
            allowed = self._choices.allowed(tuple(written)) or [0]  # of a row that has ended, whatever comes is cut off
            rows += [row] * len(allowed)
            tokens += allowed
        at = torch.tensor([rows, tokens], device=scores.device)  # all rows in one copy to the device
        held = torch.full_like(scores, -torch.inf)
        held[at[0], at[1]] = scores[at[0], at[1]]
        return held


class Chosen(StoppingCriteria):
    """Ends a row whose choice is made."""

    def __init__(self, choices: Choices, n_prompt: int) -> None:
        self._choices = choices
        self._n_prompt = n_prompt

    def __call__(self, input_ids: torch.Tensor, scores: Any, **_: Any) -> torch.Tensor:
        """Return which rows end (B)."""
        ends = [self._choices.chosen(written) is not None for written in input_ids[:, self._n_prompt :].tolist()]
        return torch.tensor(ends, device=input_ids.device)


def choices_of(prompts: PromptTokens, template: Template, text: str | None) -> Choices:
    """Return the labels' words as tokens, made behind a prompt's text where its own tokens stay as they are.

    Raises:
        Misconfigured: they can't be told apart, or are longer than what may be written.
    """
    words = [label.words for label in template.labels]
    sequences = prompts.ids(words, is_whole=False)
    if text is not None:
        (context,) = prompts.ids([text])
        behind = prompts.ids([text + part for part in words])
        if all(ids[: len(context)] == context for ids in behind):
            sequences = [ids[len(context) :] for ids in behind]
    fault = fault_of_labels(sequences, template.label_names)
    if fault is not None:
        raise Misconfigured(f"template {template.name!r}, choice: {fault}: change the words")
    longest, most = max(map(len, sequences)), template.generation.max_new_tokens
    if longest > most:
        raise Misconfigured(
            f"template {template.name!r}: a label has {longest} tokens, max_new_tokens is {most}: raise it"
        )
    return Choices(sequences)
