"""What must be true of a template before any claim is rendered with it."""

import itertools
import re
from collections.abc import Collection, Iterator

from fsctx.errors import InputError
from fsctx.templates.model import Label, Template
from fsctx.templates.sandbox import CLAIM, JinjaError, compiled, variables
from fsctx.templates.source import Source, nearest


def used_columns(template: Template) -> set[str]:
    """Return the input's columns that a template uses, `claim` left out."""
    of_chats = [] if template.messages is None else [template.messages]
    return {name for _, text in _texts(template) for name in variables(text)}.union(of_chats) - {CLAIM}


def check_renders(template: Template, columns: Collection[str], *, source: str = "", where: str = "") -> None:
    """Check that an input with these columns (besides `claim`) has all that a template uses.

    `source` is the template's TOML text and `where` what to call it: with them the message gives the file's line.

    Raises:
        InputError: the template uses a variable that is neither `claim` nor a column.
    """
    text = Source(text=source, where=where or f"template {template.name!r}")
    if template.messages is not None and template.messages not in columns:
        raise InputError(
            f"{text.at('messages')}: the input has no column {template.messages!r} with chats; "
            f"it has: {', '.join(sorted({CLAIM, *columns}))}"
        )
    for key, jinja in _texts(template):
        for name, line in variables(jinja).items():
            if name != CLAIM and name not in columns:
                known = sorted({CLAIM, *columns})
                at = text.at(key, line=line)
                raise InputError(
                    f"{at}: {key} uses {name!r}, which the input does not have{nearest(name, known)}; "
                    f"it has: {', '.join(known)}"
                )


def check(template: Template, source: Source) -> None:
    """Check all that can be checked without an input.

    Raises:
        InputError: says where and what.
    """
    _check_parts(template, source)
    for key, text in _texts(template):
        _check_jinja(key, text, source)
    _check_labels(template, source)
    _check_examples(template, source)
    _check_generation(template, source)


def _check_parts(template: Template, source: Source) -> None:
    if template.messages is not None:
        if template.user is not None or template.text is not None or template.system is not None or template.examples:
            raise InputError(
                f"{source.at('messages')}: messages are whole chats: leave user, system, text, examples out"
            )
        return
    if (template.user is None) == (template.text is None):
        seen = "neither" if template.user is None else "both"
        raise InputError(
            f"{source.where}: has {seen} of user and text: give user (for a chat) or text (raw), one of them"
        )
    if template.text is not None and template.system is not None:
        raise InputError(f"{source.at('system')}: system goes with user: put its words into text")
    key = "user" if template.text is None else "text"
    if not (template.user or template.text or "").strip():
        raise InputError(f"{source.at(key)}: {key} is empty: write a prompt with {{{{ claim }}}} in it")


def _check_jinja(key: str, text: str, source: Source) -> None:
    try:
        compiled(text)
    except JinjaError as error:
        raise InputError(f"{source.at(key, line=error.line)}: {key}: {error}") from None
    if key != "system" and not variables(text):
        raise InputError(
            f"{source.at(key)}: {key} uses no variable, all prompts would be equal: put {{{{ claim }}}} in it"
        )


def _check_labels(template: Template, source: Source) -> None:
    at = source.at("labels")
    if len(template.labels) == 1:
        raise InputError(f"{at}: one label: a verdict needs at least two, and free text none (labels = [])")
    for label in template.labels:
        if not label.name.strip() or not label.words.strip():
            raise InputError(
                f"{source.at(label.name)}: label {label.name!r} has no words: say what the model answers for it"
            )
        if template.text is None and label.words != label.words.strip():
            raise InputError(
                f"{source.at(label.name)}: the words of label {label.name!r} begin or end with a space: "
                "in a chat they begin the answer, so leave it out"
            )
    for one, other in itertools.permutations(template.labels, 2):
        _check_apart(one, other, source)


def _check_apart(one: Label, other: Label, source: Source) -> None:
    """Refuse two labels that no scoring could tell apart.

    The likelihood of "SUPPORTS WEAKLY" is at most that of "SUPPORTS", which it begins with: it could never win.
    """
    at = source.at(other.name)
    if _plain(one.name) == _plain(other.name):
        raise InputError(
            f"{at}: labels {one.name!r} and {other.name!r} are the same but for case or spaces: rename one"
        )
    if _plain(one.words) == _plain(other.words):
        raise InputError(
            f"{at}: labels {one.name!r} and {other.name!r} have the same words {other.words!r}: change one"
        )
    if re.match(rf"{re.escape(_plain(one.words))}(?!\w)", _plain(other.words)):
        raise InputError(
            f"{at}: the words of label {other.name!r} begin with those of {one.name!r}, "
            f"so {other.name!r} could never win: let their words begin differently"
        )


def _check_examples(template: Template, source: Source) -> None:
    names = template.label_names
    for number, example in enumerate(template.examples, 1):
        if example.label not in names:
            raise InputError(
                f"{source.at('examples')}: example {number} has the unknown label {example.label!r}"
                f"{nearest(example.label, names)}; labels: {', '.join(names)}"
            )
    extra = variables(template.user or template.text or "").keys() - {CLAIM}
    if template.examples and extra:
        raise InputError(
            f"{source.where}: examples have a claim only, but the prompt also uses {', '.join(sorted(extra))}: "
            "write such examples into the prompt itself"
        )


def _check_generation(template: Template, source: Source) -> None:
    pattern = template.generation.pattern
    if pattern is None:
        return
    try:
        re.compile(pattern)
    except re.error as error:
        raise InputError(
            f"{source.at('pattern')}: generation.pattern {pattern!r} is not a regular expression: {error}"
        ) from None


def _texts(template: Template) -> Iterator[tuple[str, str]]:
    """Yield the Jinja2 texts of a template with their keys."""
    for key, text in (("system", template.system), ("user", template.user), ("text", template.text)):
        if text is not None:
            yield key, text


def _plain(words: str) -> str:
    return " ".join(words.casefold().split())
