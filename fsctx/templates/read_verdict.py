"""Reading the verdict from generated text."""

import re
from collections.abc import Iterator

from fsctx.templates.model import Label, Template
from fsctx.templates.words import spaced

_NO_SPACES_FROM = "\u0e00"
"""From Thai on, most scripts write words without spaces, or with particles joined to them."""

_NEGATION = re.compile(r"(\bnot|n['\u2019]t|\bnever|\bneither|\bnor)( be)? $")
"""A label right behind one of these is denied: "the claim is not supported" says no label."""


def read_verdict(text: str, template: Template) -> str | None:
    """Return the label that a generated text names; None where it names none.

    With a pattern, its matches are tried in order: the group `verdict`, else the first group, else the whole
    match. Of several labels in a text the first counts, and of two that begin together the longer.
    """
    for part in _parts(text, template.generation.pattern):
        label = _exactly(part, template.labels) or _first_within(part, template.labels)
        if label is not None:
            return label
    return None


def _parts(text: str, pattern: str | None) -> Iterator[str]:
    if pattern is None:
        yield text
        return
    for match in re.finditer(pattern, text):
        groups = match.groupdict()
        part = groups["verdict"] if "verdict" in groups else match[1] if match.re.groups else match[0]
        yield part or ""


def _exactly(text: str, labels: tuple[Label, ...]) -> str | None:
    said = spaced(text)
    return next((label.name for label in labels if said in (spaced(label.name), spaced(label.words))), None)


def _first_within(text: str, labels: tuple[Label, ...]) -> str | None:
    said = spaced(text)
    found = [
        (match.start(), -len(match[0]), label.name)
        for label in labels
        for words in {spaced(label.name), spaced(label.words)}
        for match in re.finditer(_word(words), said)
        if not _NEGATION.search(said[: match.start()])
    ]
    return min(found)[2] if found else None


def _word(words: str) -> str:
    """Return a pattern for words that stand for themselves, not within a longer word."""
    before = r"(?<!\w)" if words[0] < _NO_SPACES_FROM else ""
    after = r"(?!\w)" if words[-1] < _NO_SPACES_FROM else ""
    return before + re.escape(words) + after
