"""Gold labels matched with a template's labels, and verdicts read from generated text."""

import pytest

from fsctx.errors import InputError
from fsctx.templates.gold import match_gold
from fsctx.templates.load import load_template, parse_template
from fsctx.templates.model import Template
from fsctx.templates.read_verdict import read_verdict

FEVER, LIAR, TRUE_FALSE = load_template("fever"), load_template("liar"), load_template("true-false")


def with_pattern(pattern: str) -> Template:
    text = f'user = "{{{{ claim }}}}"\n[labels]\nYES = "yes"\nNO = "no"\n[generation]\npattern = \'{pattern}\'\n'
    return parse_template(text, where="t.toml")


@pytest.mark.parametrize(
    ("gold", "label"),
    [
        ("SUPPORTED", "SUPPORTED"),
        ("supports", "SUPPORTED"),
        ("true", "SUPPORTED"),
        ("Entailment", "SUPPORTED"),
        ("REFUTES", "REFUTED"),
        ("CONTRADICT", "REFUTED"),
        ("False", "REFUTED"),
        ("NOT ENOUGH INFO", "NOT ENOUGH INFO"),
        ("NOT_ENOUGH_INFO", "NOT ENOUGH INFO"),
        ("not-enough info ", "NOT ENOUGH INFO"),
        ("NotEnoughInfo", "NOT ENOUGH INFO"),
        ("NEI", "NOT ENOUGH INFO"),
        ("neutral", "NOT ENOUGH INFO"),
    ],
)
def test_the_usual_spellings_and_synonyms_are_matched(gold: str, label: str) -> None:
    assert match_gold([gold], FEVER, {}).mapping == {gold: label}


def test_numbers_and_unknown_words_are_left_unmapped() -> None:
    assert match_gold(["1", "half-true", "SUPPORTS"], FEVER, {}).unmapped == ("1", "half-true")


def test_blank_gold_labels_are_no_labels() -> None:
    match = match_gold(["", "  "], FEVER, {})
    assert (match.mapping, match.unmapped) == ({}, ())


def test_grades_are_matched_as_grades_and_coarse_synonyms_are_not_guessed() -> None:
    match = match_gold(["true", "pants-fire", "Pants on Fire", "mostly-false", "SUPPORTS"], LIAR, {})
    assert match.mapping == {
        "true": "true",
        "pants-fire": "pants-fire",
        "Pants on Fire": "pants-fire",
        "mostly-false": "barely-true",
    }
    assert match.unmapped == ("SUPPORTS",)


def test_two_labels_have_no_place_for_a_third_meaning() -> None:
    match = match_gold(["SUPPORTS", "REFUTES", "NEI"], TRUE_FALSE, {})
    assert match.mapping == {"SUPPORTS": "TRUE", "REFUTES": "FALSE"}
    assert match.unmapped == ("NEI",)


def test_a_synonym_of_two_labels_is_not_guessed() -> None:
    template = parse_template('labels = ["supported", "entailed"]\nuser = "{{ claim }}"\n', where="t.toml")
    match = match_gold(["TRUE", "Supported"], template, {})
    assert match.mapping == {"Supported": "supported"}
    assert match.unmapped == ("TRUE",)


def test_an_explicit_mapping_wins_and_spells_as_it_likes() -> None:
    match = match_gold(["true", "1"], FEVER, {"TRUE": "refuted", "1": "not_enough_info"})
    assert match.mapping == {"true": "REFUTED", "1": "NOT ENOUGH INFO"}


def test_an_explicit_mapping_of_something_that_is_not_there_is_told() -> None:
    assert match_gold(["SUPPORTS"], FEVER, {"2": "REFUTED"}).unused == ("2",)


def test_an_explicit_mapping_to_an_unknown_label_is_refused_with_the_labels() -> None:
    with pytest.raises(InputError, match=r"--map 1=SUPPORTD: .*did you mean 'SUPPORTED'.*REFUTED, NOT ENOUGH INFO"):
        match_gold(["1"], FEVER, {"1": "SUPPORTD"})


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("SUPPORTED", "SUPPORTED"),
        (" **supported**.\n", "SUPPORTED"),
        ("Verdict: NOT_ENOUGH_INFO", "NOT ENOUGH INFO"),
        ("Refuted, although supported by some.", "REFUTED"),
        ("The claim is not supported.", None),
        ("It isn't supported but refuted.", "REFUTED"),
        ("unsupported", None),
        ("", None),
        ("I cannot say.", None),
    ],
)
def test_the_first_label_in_a_text_is_its_verdict(text: str, verdict: str | None) -> None:
    assert read_verdict(text, FEVER) == verdict


def test_the_longer_of_two_labels_that_begin_together_is_read() -> None:
    assert read_verdict("I say mostly true", LIAR) == "mostly-true"
    assert read_verdict("pants on fire!", LIAR) == "pants-fire"


def test_labels_in_scripts_without_spaces_are_found_within_text() -> None:
    text = 'user = "{{ claim }}"\n[labels]\nYES = "支持"\nNO = "反驳"\n'
    assert read_verdict("答案是支持的", parse_template(text, where="t.toml")) == "YES"


@pytest.mark.parametrize(
    ("pattern", "text", "verdict"),
    [
        (r"Answer:\s*(\w+)", "yes? no. Answer: NO", "NO"),
        (r"(?P<verdict>yes|no)$", "no, yes", "YES"),
        (r"Answer: (\w+)", "Answer: maybe. Answer: yes", "YES"),
        (r"Answer: .*", "no. Answer: it is yes", "YES"),
        (r"Answer: (\w+)", "yes", None),
        (r"Answer(: yes)?(no)?", "Answer", None),
    ],
)
def test_a_pattern_says_where_the_verdict_stands(pattern: str, text: str, verdict: str | None) -> None:
    assert read_verdict(text, with_pattern(pattern)) == verdict
