"""Rows to prompts to tokens, and label words to tokens."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateError

from fsctx.agent.engines.base import Row
from fsctx.agent.engines.hf.errors import first_line
from fsctx.errors import Misconfigured
from fsctx.templates.model import Message, Prompt, Template
from fsctx.templates.render import Renderer

Ids = tuple[int, ...]

_MAX_TAILS = 64


class PromptTokens:
    """Makes the tokens of one template's prompts. Thread-safe.

    A chat goes through the model's chat template, which brings its own special tokens; raw text
    gets those that the tokenizer puts in front of every text.
    """

    def __init__(self, tokenizer: Any, template: Template, *, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._renderer = Renderer(template, markers=control_tokens(tokenizer))
        self._is_chat = template.text is None
        self._front = () if self._is_chat else _front(tokenizer)
        self._joins_system = False
        if self._is_chat and not tokenizer.chat_template:
            raise Misconfigured(
                f"template {template.name!r} is a chat and the model has no chat template:"
                " plan with a template of raw `text` (such as the built-in `fever-raw`)"
            )
        if self._is_chat:
            self._joins_system = _must_join_system(tokenizer, template)

    def text(self, row: Row) -> str:
        """Return a row's prompt as the model sees it.

        Raises:
            InputError: the template cannot be rendered for this row.
            Misconfigured: the model's chat template refuses what was rendered.
        """
        prompt = self._renderer.prompt(row.claim, row.columns)
        if prompt.text is not None:
            return prompt.text
        try:
            return _chat(self._tokenizer, prompt, joins_system=self._joins_system)
        except TemplateError as error:
            raise Misconfigured(
                f"the model's chat template refuses the template's chat ({first_line(error)}): use one of raw text"
            ) from None

    def ids(self, texts: Sequence[str], *, is_whole: bool = True) -> list[Ids]:
        """Return the tokens of each text; of a part of one, without the special tokens in front.

        Raises:
            Misconfigured: one that the model has no embedding of, on which a GPU would stop for good.
        """
        if not texts:
            return []
        found = self._tokenizer(list(texts), add_special_tokens=False, verbose=False)["input_ids"]
        highest = max((max(ids, default=0) for ids in found), default=0)
        if highest >= self._vocabulary:
            token = self._tokenizer.convert_ids_to_tokens(highest)
            raise Misconfigured(
                f"the tokenizer makes {token!r}, token {highest}, and the model has {self._vocabulary}: "
                "put the tokenizer's files that belong to the model into its folder"
            )
        fronts = [self._front_of(text) if is_whole else () for text in texts]
        return [(*front, *ids) for front, ids in zip(fronts, found, strict=True)]

    def _front_of(self, text: str) -> Ids:
        bos = self._tokenizer.bos_token
        return () if bos and text.startswith(bos) else self._front


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """A prompt's tokens, and those of each label behind it."""

    context: Ids
    labels: tuple[Ids, ...]


class LabelTokens:
    """Makes the tokens of prompts with the labels' words behind them, as lm-evaluation-harness splits them.

    A label's tokens are those of prompt + words beyond the tokens of the prompt, whose trailing white space is
    counted to the words. Where a control token stands in the prompt, what comes before it cannot change
    the tokens after it, so that the labels' tokens are made once for each text after the last one.
    """

    def __init__(self, prompts: PromptTokens, words: Sequence[str], controls: Sequence[str]) -> None:
        self._prompts = prompts
        self._words = tuple(words)
        self._control = (
            re.compile("|".join(map(re.escape, sorted(controls, key=len, reverse=True)))) if controls else None
        )
        self._known: dict[str, tuple[Ids, ...]] = {}

    def pairs(self, texts: Sequence[str]) -> list[Pair]:
        """Return the tokens for each prompt."""
        contexts = self._prompts.ids([text.rstrip() for text in texts])
        return [
            Pair(context=context, labels=self._labels(text, len(context)))
            for text, context in zip(texts, contexts, strict=True)
        ]

    def pairs_in_full(self, texts: Sequence[str]) -> list[Pair]:
        """Do the same without the short cut."""
        contexts = self._prompts.ids([text.rstrip() for text in texts])
        return [
            Pair(context=context, labels=self._behind(text, len(context)))
            for text, context in zip(texts, contexts, strict=True)
        ]

    def do_without_short_cut(self) -> None:
        """Make every prompt's labels in full from now on."""
        self._control = None

    def _labels(self, text: str, n_context: int) -> tuple[Ids, ...]:
        tail = self._tail(text)
        if tail is None:
            return self._behind(text, n_context)
        labels = self._known.get(tail)
        if labels is None:
            labels = self._behind(text, n_context)
            if len(self._known) < _MAX_TAILS:
                self._known[tail] = labels
        return labels

    def _behind(self, text: str, n_context: int) -> tuple[Ids, ...]:
        return tuple(ids[n_context:] for ids in self._prompts.ids([text + words for words in self._words]))

    def _tail(self, text: str) -> str | None:
        """Return the text after the last control token; None if there is no control token."""
        end = None
        for match in self._control.finditer(text) if self._control else ():
            end = match.end()
        return None if end is None else text[end:]


def control_tokens(tokenizer: Any) -> tuple[str, ...]:
    """Return the strings that the tokenizer cuts out of a text before it does anything else."""
    return tuple(
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if token.special and not (token.normalized or token.lstrip or token.rstrip or token.single_word)
    )


def fault_of_labels(labels: Sequence[Ids], names: Sequence[str]) -> str | None:
    """Say why labels with these tokens cannot be told apart; None if they can."""
    for i, (ids, name) in enumerate(zip(labels, names, strict=True)):
        if not ids:
            return f"the words of label {name!r} have no tokens"
        for other, other_name in zip(labels[i + 1 :], names[i + 1 :], strict=True):
            shorter = min(len(ids), len(other))
            if ids[:shorter] == other[:shorter]:
                return f"the tokens of labels {name!r} and {other_name!r} are equal, or one's begin the other's"
    return None


def _chat(tokenizer: Any, prompt: Prompt, *, joins_system: bool) -> str:
    messages = _joined(prompt.messages) if joins_system else prompt.messages
    plain = [{"role": message.role, "content": message.content} for message in messages]
    text: str = tokenizer.apply_chat_template(plain, tokenize=False, add_generation_prompt=True, enable_thinking=False)
    return text


def _joined(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Put the system message in front of the first user message."""
    if len(messages) < 2 or messages[0].role != "system":
        return messages
    system, first, *rest = messages
    return (Message(role=first.role, content=f"{system.content}\n\n{first.content}"), *rest)


def _must_join_system(tokenizer: Any, template: Template) -> bool:
    """Tell whether the chat template refuses system messages, as Gemma's does.

    Raises:
        Misconfigured: it refuses the chat altogether.
    """
    roles = ("system", "user") if template.system or template.messages else ("user",)
    prompt = Prompt(messages=tuple(Message(role=role, content=role) for role in roles))
    for joins_system in (False, True):
        try:
            _chat(tokenizer, prompt, joins_system=joins_system)
        except TemplateError as error:
            reason = first_line(error)
        else:
            return joins_system
    raise Misconfigured(f"the model's chat template refuses template {template.name!r} ({reason}): use one of raw text")


def _front(tokenizer: Any) -> Ids:
    """Return the special tokens that the tokenizer puts in front of a text."""
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    whole = tokenizer("a")["input_ids"]
    n_front = next((n for n in range(len(whole)) if whole[n : n + len(plain)] == plain), 0)
    return tuple(whole[:n_front])
