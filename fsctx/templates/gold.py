"""Matching gold labels, as a data set spells them, with a template's labels."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fsctx.errors import InputError
from fsctx.templates.model import Template
from fsctx.templates.source import nearest
from fsctx.templates.words import squeezed

_SUPPORTED = "supports supported support supporting true entailment entails entailed entail correct verified"
_REFUTED = """
    refutes refuted refute refuting false contradiction contradicts contradicted contradict contradictory
    incorrect debunked"""
_UNKNOWN = """
    notenoughinfo notenoughinformation notenoughevidence nei neutral unverifiable notverifiable unverified
    insufficient insufficientinfo insufficientinformation insufficientevidence unknown noinfo"""
_COARSE = (_SUPPORTED, _REFUTED, _UNKNOWN)
"""Groups of spellings with one meaning."""

_BARELY = "barelytrue mostlyfalse"
_PANTS = "pantsfire pantsonfire pantsonfire! liarliarpantsonfire"
_GRADED = f"{_BARELY} {_PANTS} mostlytrue halftrue partlytrue partlyfalse"
"""With one of these among its labels, a template's `true` is a grade, and SUPPORTED may mean several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldMatch:
    """Gold label as given → label of the template, and the gold labels that match none."""

    mapping: dict[str, str]
    unmapped: tuple[str, ...]
    unused: tuple[str, ...] = ()
    """Gold labels of the explicit mapping that the input does not have."""


def match_gold(gold_values: Iterable[str], template: Template, explicit: Mapping[str, str]) -> GoldMatch:
    """Match gold labels with a template's labels; `explicit` (gold → label) wins over everything.

    Else a gold label matches the label whose name or words it equals but for case, spaces, underscores and
    hyphens, or a synonym of it where exactly one label has that meaning. Blank gold labels are no labels.

    Raises:
        InputError: `explicit` names a label that the template does not have.
    """
    targets = {squeezed(gold): _label(label, gold, template) for gold, label in explicit.items()}
    known = targets | {key: label for key, label in _by_meaning(template).items() if key not in targets}
    seen = sorted({gold for gold in gold_values if gold.strip()})
    mapping = {gold: known[squeezed(gold)] for gold in seen if squeezed(gold) in known}
    present = {squeezed(gold) for gold in seen}
    return GoldMatch(
        mapping=mapping,
        unmapped=tuple(gold for gold in seen if gold not in mapping),
        unused=tuple(gold for gold in explicit if squeezed(gold) not in present),
    )


def _label(asked: str, gold: str, template: Template) -> str:
    by_spelling = _by_spelling(template)
    if squeezed(asked) not in by_spelling:
        names = template.label_names
        raise InputError(
            f"--map {gold}={asked}: template {template.name!r} has no label {asked!r}{nearest(asked, names)}; "
            f"its labels: {', '.join(names)}"
        )
    return by_spelling[squeezed(asked)]


def _by_spelling(template: Template) -> dict[str, str]:
    """Return spelling → label; names go before words."""
    by_words = {squeezed(label.words): label.name for label in template.labels}
    return by_words | {squeezed(label.name): label.name for label in template.labels}


def _by_meaning(template: Template) -> dict[str, str]:
    """Return spelling → label, synonyms included where one label alone has their meaning."""
    spellings = _by_spelling(template)
    is_graded = any(key in _GRADED.split() for key in spellings)
    groups = (_BARELY, _PANTS) if is_graded else _COARSE
    meanings: dict[str, str] = {}
    for group in groups:
        meant = {label for key, label in spellings.items() if key in group.split()}
        if len(meant) == 1:
            meanings |= dict.fromkeys(group.split(), meant.pop())
    return meanings | spellings
