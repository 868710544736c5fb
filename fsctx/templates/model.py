"""What a prompt template is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a chat: `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A rendered prompt: either messages, for the model's chat template, or raw text."""

    messages: tuple[Message, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """A label as it stands in the verdicts, and the words that the model is scored on.

    In a chat the words follow the start of the assistant's turn; after raw text they follow the text,
    so they begin with a space there where the language wants one.
    """

    name: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A few-shot example: a claim and its label's name."""

    claim: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """How text is generated, and how a verdict is read from it."""

    max_new_tokens: int = 16
    temperature: float = 0.0
    """0 is greedy."""
    stop: tuple[str, ...] = ()
    choice: bool = False
    """Whether nothing but the words of a label can be written, by engines that can be held to that."""
    pattern: str | None = None
    """Regular expression; its group `verdict` (else its first group, else the match) names a label or
    its words, in any case. None: the first label whose words or name stand in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A prompt template: either `user` (and `system`) or `text`, in Jinja2, with `claim` and the input's columns."""

    name: str
    labels: tuple[Label, ...]
    system: str | None = None
    user: str | None = None
    text: str | None = None
    examples: tuple[Example, ...] = ()
    generation: Generation = Generation()

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels as they stand in the verdicts, in order."""
        return tuple(label.name for label in self.labels)
