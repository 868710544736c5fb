"""Verdicts by generation: the model writes, the template's pattern reads."""

import hashlib
import logging
from collections.abc import Sequence

import torch

from fsctx.agent.engines.base import BoundTask, Encoded, Row
from fsctx.agent.engines.hf.choice import Choices, choices_of
from fsctx.agent.engines.hf.encode import encode_rows, refuse, sentinel_rows
from fsctx.agent.engines.hf.errors import first_line, guarded
from fsctx.agent.engines.hf.resident import Resident
from fsctx.agent.engines.hf.text import Ids, PromptTokens
from fsctx.agent.engines.hf.write import Asked, Writer, checked_writer
from fsctx.agent.engines.scored import NOT_NUMBERS, without_numbers
from fsctx.agent.engines.written import until_stop, verdict_of
from fsctx.errors import EngineError, Misconfigured, OutOfMemory
from fsctx.protocol.verdicts import Status, Verdict
from fsctx.templates.model import Template

log = logging.getLogger(__name__)


class GenerateBound:
    """See `Bound`."""

    def __init__(self, resident: Resident, task: BoundTask) -> None:
        self._resident = resident
        self._template = task.template
        self._prompts = PromptTokens(resident.tokenizer, task.template, vocabulary=resident.vocabulary)
        self._choices = self._choices_of(task.template)
        self._plain = Writer(resident, task.template.generation, choices=self._choices)
        self._writer = self._plain
        self._writer = self._with_prefix(self._sentinels(task))

    @property
    def prefix(self) -> Ids:
        """The constant tokens that are computed once; none where this model or template has none."""
        return self._writer.prefix

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        """See `Bound.encode`."""
        return encode_rows(rows, self._encode)

    @torch.inference_mode()
    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        """See `Bound.infer`."""
        asked: list[Asked] = [row.payload for row in batch]
        written = guarded(lambda: self._write(asked))
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
        n_read = len(ids) - (len(self.prefix) if self._writer.takes(asked) else 0)
        return Encoded(row=row.row, n_tokens=n_read + n_new, payload=asked)

    def _choices_of(self, template: Template) -> Choices | None:
        if not template.generation.choice:
            return None
        rows = sentinel_rows(template)
        return choices_of(self._prompts, template, self._prompts.text(rows[0]) if rows else None)

    def _write(self, asked: Sequence[Asked]) -> list[list[int] | None]:
        """Write from the prefix what begins with it, from the start the rest."""
        written: dict[int, list[int] | None] = {}
        takes = [self._writer.takes(row) for row in asked]
        for writer, is_taken in ((self._writer, True), (self._plain, False)):
            rows = [n for n, taken in enumerate(takes) if taken == is_taken]
            if rows:
                written |= dict(zip(rows, writer.write([asked[n] for n in rows]), strict=True))
        if not any(ids is not None for ids in written.values()):
            raise EngineError(NOT_NUMBERS)
        return [written[n] for n in range(len(asked))]

    def _verdict(self, row: Encoded, ids: list[int] | None) -> Verdict:
        if ids is None:
            return without_numbers(row, len(row.payload.ids))
        text = until_stop(self._resident.tokenizer.decode(ids, skip_special_tokens=True), self._template)
        chosen = self._choices.chosen(ids) if self._choices else None
        return verdict_of(
            row.row,
            text,
            self._template,
            label=None if chosen is None else self._template.label_names[chosen],
            input_tokens=len(row.payload.ids),
            output_tokens=len(ids),
        )

    def _sentinels(self, task: BoundTask) -> list[Asked]:
        """Return some prompts to learn the task's constant tokens from.

        Raises:
            Misconfigured: the template alone is longer than the window.
        """
        encoded = self.encode(sentinel_rows(task.template))
        for row in encoded:
            if row.refused is not None and row.refused.status == Status.TOO_LONG:
                raise Misconfigured(f"template {task.template.name!r}: even of a short claim, {row.refused.error}")
        return [row.payload for row in encoded if row.refused is None]

    @torch.inference_mode()
    def _with_prefix(self, sentinels: Sequence[Asked]) -> Writer:
        """Return a writer that reads the constant prefix once, where it agrees with the plain one on this model."""
        if self._template.messages is not None:
            return self._plain  # chats of the rows' own have no prefix in common that is known beforehand
        limit = self._resident.tolerance
        try:
            if not sentinels:
                raise EngineError("the template's columns cannot be guessed")
            return guarded(lambda: checked_writer(self._plain, sentinels, tolerance=limit))
        except OutOfMemory:
            raise
        except EngineError as error:
            log.warning("every prompt is read from its start, which is slower: from a prefix, %s", first_line(error))
            return self._plain


def seed_of(claim: str, template: str) -> int:
    """Return a seed that depends on the claim and the template alone, not on batch, agent or run."""
    return int.from_bytes(hashlib.sha256(f"{template}\0{claim}".encode()).digest()[:8]) >> 1
