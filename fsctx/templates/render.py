"""Prompts from templates. What comes from the input is data: neither Jinja2 nor chat markup in it has any effect."""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

from jinja2 import Template as Compiled
from jinja2 import TemplateError

from fsctx.errors import InputError
from fsctx.templates.model import Message, Prompt, Template
from fsctx.templates.sandbox import CLAIM, compiled, variables

_BLANK_LINE = "\n\n"


class Renderer:
    """Renders one template; compiled once. Safe to use from several threads.

    `markers` are the strings that the model's tokenizer takes for control tokens (`<|im_end|>`, `</s>`):
    where one stands in a claim or a column, a space after its first character makes it plain text.
    """

    def __init__(self, template: Template, *, markers: Collection[str] = ()) -> None:
        self._template = template
        self._markers = _any_of(markers)
        self._system = None if template.system is None else compiled(template.system)
        self._ask = compiled(template.text or template.user or "")
        self._used = _used(template)
        self._examples = self._render_examples()

    def prompt(self, claim: str, columns: Mapping[str, Any]) -> Prompt:
        """Return the prompt for a claim. Columns that the template does not use are ignored.

        Raises:
            InputError: the template cannot be rendered for this row.
        """
        if self._template.messages is not None:
            return Prompt(messages=self._own_messages(columns.get(self._template.messages)))
        values = {name: self._inert(value) for name, value in columns.items() if name in self._used}
        values[CLAIM] = self._inert(claim)
        ask = self._render(self._ask, values)
        if self._template.text is not None:
            return Prompt(text=_BLANK_LINE.join([*(text for text, _ in self._examples), ask]))
        system = () if self._system is None else (Message(role="system", content=self._render(self._system, values)),)
        return Prompt(messages=(*system, *self._turns(), Message(role="user", content=ask)))

    def _own_messages(self, chat: Any) -> tuple[Message, ...]:
        """Return the messages that a row brings."""
        try:
            given = json.loads(chat) if isinstance(chat, str) else chat
            found = tuple(self._own_message(one["role"], one["content"]) for one in given)
        except (ValueError, TypeError, KeyError):
            found = ()
        if not found:
            column = self._template.messages
            raise InputError(f"column {column!r} holds no chat for this row: it must be a JSON list of messages")
        return found

    def _own_message(self, role: Any, content: Any) -> Message:
        if not isinstance(role, str) or not isinstance(content, str):
            raise TypeError("a role or a content is no text")
        return Message(role=role, content=self._inert(content))

    def _turns(self) -> tuple[Message, ...]:
        return tuple(
            message
            for text, words in self._examples
            for message in (Message(role="user", content=text), Message(role="assistant", content=words))
        )

    def _render_examples(self) -> tuple[tuple[str, str], ...]:
        """Return text and answer of each example; in raw text the answer stands at the text's end."""
        words = {label.name: label.words for label in self._template.labels}
        asked = [
            (self._render(self._ask, {CLAIM: example.claim}), words[example.label])
            for example in self._template.examples
        ]
        return tuple((text if self._template.text is None else text + answer, answer) for text, answer in asked)

    def _render(self, ask: Compiled, values: Mapping[str, Any]) -> str:
        try:
            return ask.render(values)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise InputError(f"template {self._template.name!r} cannot be rendered for this row: {error}") from None

    def _inert(self, value: Any) -> Any:
        if self._markers is None or not isinstance(value, str):
            return value
        while self._markers.search(value):  # breaking one may uncover another that overlapped it
            value = self._markers.sub(lambda found: f"{found[0][0]} {found[0][1:]}", value)
        return value


def render(template: Template, claim: str, columns: Mapping[str, Any]) -> Prompt:
    """Return one prompt; for many, keep a `Renderer`."""
    return Renderer(template).prompt(claim, columns)


def _used(template: Template) -> frozenset[str]:
    texts = (template.system, template.user, template.text)
    return frozenset(name for text in texts if text is not None for name in variables(text))


def _any_of(markers: Collection[str]) -> re.Pattern[str] | None:
    """Return a pattern for the markers; those with spaces or of one character cannot be broken by a space."""
    breakable = sorted((m for m in markers if len(m) > 1 and not re.search(r"\s", m)), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, breakable))) if breakable else None
