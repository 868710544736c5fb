"""Which columns are the id, the claim and the label."""

import pyarrow as pa
import pytest

from fsctx.coordinator.plan.columns import Asked, choose_columns, looks_like_header
from fsctx.errors import InputError


def columns(*names: str) -> dict[str, pa.DataType]:
    return dict.fromkeys(names, pa.string())


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        (("id", "claim", "label"), ("id", "claim", "label")),
        (("Statement", "Gold Label", "n"), (None, "Statement", "Gold Label")),
        (("text", "claim", "rating"), (None, "claim", "rating")),
        (("question", "verdict", "uid"), ("uid", "question", "verdict")),
        (("hypothesis",), (None, "hypothesis", None)),
    ],
)
def test_common_names_are_recognised_the_most_telling_first(
    names: tuple[str, ...], chosen: tuple[str | None, str, str | None]
) -> None:
    layout = choose_columns(columns(*names), Asked(), where="x")
    assert (layout.id, layout.claim, layout.label) == chosen


def test_all_other_columns_are_extras_in_order() -> None:
    layout = choose_columns(columns("z", "claim", "a", "label"), Asked(), where="x")
    assert list(layout.extras) == ["z", "a"]


def test_what_was_asked_for_wins_and_frees_the_common_name() -> None:
    layout = choose_columns(columns("id", "claim", "label"), Asked(claim="label", label="claim"), where="x")
    assert (layout.claim, layout.label, list(layout.extras)) == ("label", "claim", [])


def test_no_claim_column_says_what_was_found_and_what_to_pass() -> None:
    with pytest.raises(InputError, match=r"x\.csv has no column .* \(found: a, b\): pass --claim-column"):
        choose_columns(columns("a", "b"), Asked(), where="x.csv")


@pytest.mark.parametrize("asked", [Asked(claim="q"), Asked(claim="claim", id="q"), Asked(claim="claim", label="q")])
def test_a_column_that_is_not_there_says_what_was_found(asked: Asked) -> None:
    with pytest.raises(InputError, match=r"no column 'q' \(found: claim, b\): pass --(claim|id|label)-column"):
        choose_columns(columns("claim", "b"), asked, where="x")


def test_nested_columns_are_neither_claims_nor_labels() -> None:
    kinds = {"claim": pa.string(), "label": pa.list_(pa.string()), "rating": pa.int64()}
    layout = choose_columns(kinds, Asked(), where="x")
    assert layout.label == "rating"
    assert layout.extras == {"label": pa.string()}
    with pytest.raises(InputError, match="not text"):
        choose_columns({"claim": pa.list_(pa.string())}, Asked(), where="x")


@pytest.mark.parametrize("cells", [["id", "claim"], ["Claim"], ["Aussage", "Urteil"], ["claim", ""]])
def test_short_distinct_words_are_a_header(cells: list[str]) -> None:
    assert looks_like_header(cells)


@pytest.mark.parametrize(
    "cells",
    [
        ["2635.json", "false", "Says the Annies List political group supports abortions"],
        ["1", "Paris"],
        ["a", "a"],
        ["claim " * 20, "label"],
    ],
)
def test_sentences_numbers_and_repetitions_are_data(cells: list[str]) -> None:
    assert not looks_like_header(cells)
