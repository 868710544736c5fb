"""Cutting batches, and what failures cost."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fsctx.agent.batching import Budget, batches, infer_all
from fsctx.agent.engines.base import Encoded, Row
from fsctx.errors import EngineError, OutOfMemory, Unfit
from fsctx.protocol.verdicts import Status, Verdict


class Scripted:
    """A bound model that fails as it is told, and remembers what it was asked."""

    def __init__(
        self, *, fits: int = 1 << 30, bad: frozenset[int] = frozenset(), error: Exception | None = None
    ) -> None:
        self.asked: list[list[int]] = []
        self._fits = fits
        self._bad = bad
        self._error = error or EngineError("this row\nis bad")

    def encode(self, rows: Sequence[Row]) -> list[Encoded]:
        raise NotImplementedError

    def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
        rows = [row.row for row in batch]
        self.asked.append(rows)
        if len(rows) * max(row.n_tokens for row in batch) > self._fits:
            raise OutOfMemory("does not fit")
        if self._bad & set(rows):
            raise self._error
        return [Verdict(row=row, verdict="A") for row in rows]


def encoded(lengths: Sequence[int]) -> list[Encoded]:
    return [Encoded(row=n, n_tokens=length) for n, length in enumerate(lengths)]


def run(bound: Scripted, rows: list[Encoded], budget: Budget) -> dict[int, Verdict]:
    found = [v for part in infer_all(bound, rows, budget=budget, should_stop=lambda: False) for v in part]
    assert len({v.row for v in found}) == len(found)
    return {verdict.row: verdict for verdict in found}


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 200))
def test_batches_hold_every_row_once_and_stay_within_the_budget(lengths: list[int], tokens: int) -> None:
    cut = list(batches(encoded(lengths), tokens))
    assert sorted(row.row for batch in cut for row in batch) == list(range(len(lengths)))
    for batch in cut:
        assert len(batch) == 1 or len(batch) * max(row.n_tokens for row in batch) <= tokens


def test_batches_come_longest_first() -> None:
    assert [[row.n_tokens for row in batch] for batch in batches(encoded([1, 5, 3, 4]), 9)] == [[5], [4, 3], [1]]


def test_refused_rows_come_out_first_and_never_reach_the_engine() -> None:
    refusal = Verdict(row=1, status=Status.TOO_LONG)
    rows = [Encoded(row=0, n_tokens=1), Encoded(row=1, n_tokens=9, refused=refusal)]
    bound = Scripted()
    parts = list(infer_all(bound, rows, budget=Budget(100), should_stop=lambda: False))
    assert parts[0] == [refusal]
    assert bound.asked == [[0]]


@given(st.lists(st.integers(1, 20), min_size=1, max_size=30), st.integers(20, 100))
def test_out_of_memory_loses_no_row(lengths: list[int], fits: int) -> None:
    found = run(Scripted(fits=fits), encoded(lengths), Budget(10_000))
    assert all(found[n].status == Status.OK for n in range(len(lengths)))


def test_out_of_memory_lowers_the_budget_for_good() -> None:
    bound, budget = Scripted(fits=30), Budget(100)
    run(bound, encoded([5] * 20), budget)
    n_asked = len(bound.asked)
    run(bound, encoded([5] * 20), budget)
    assert budget.tokens == 25
    assert sum(map(len, bound.asked[n_asked:])) == 20


def test_a_single_row_that_does_not_fit_ends_with_an_error() -> None:
    found = run(Scripted(fits=5), encoded([1, 9, 1]), Budget(100))
    assert [found[n].status for n in range(3)] == [Status.OK, Status.ERROR, Status.OK]
    assert found[1].error == "does not fit"


@given(st.sets(st.integers(0, 19)))
def test_a_failing_batch_is_halved_down_to_its_bad_rows(bad: set[int]) -> None:
    found = run(Scripted(bad=frozenset(bad)), encoded([1] * 20), Budget(100))
    assert {n for n in found if found[n].status == Status.ERROR} == bad
    assert all(found[n].error == "this row" for n in bad)
    assert len(found) == 20


def test_an_exception_that_no_engine_should_raise_is_named_on_the_row() -> None:
    found = run(Scripted(bad=frozenset({0}), error=KeyError("x")), encoded([1]), Budget(10))
    assert found[0].error == "KeyError: 'x'"


def test_an_exception_does_not_lower_the_budget() -> None:
    budget = Budget(100)
    run(Scripted(bad=frozenset({3})), encoded([1] * 8), budget)
    assert budget.tokens == 100


def test_a_lost_device_is_not_the_rows_fault() -> None:
    bound = Scripted(bad=frozenset({0}), error=Unfit("gone"))
    with pytest.raises(Unfit):
        run(bound, encoded([1, 1]), Budget(100))


def test_an_engine_that_answers_for_other_rows_is_not_believed() -> None:
    class Mixing(Scripted):
        def infer(self, batch: Sequence[Encoded]) -> list[Verdict]:
            return [Verdict(row=7, verdict="A") for _ in batch]

    assert run(Mixing(), encoded([1]), Budget(100))[0].status == Status.ERROR


def test_stopping_is_asked_before_each_batch() -> None:
    answers = iter([False, False, True])
    bound = Scripted()
    list(infer_all(bound, encoded([1] * 5), budget=Budget(1), should_stop=lambda: next(answers)))
    assert len(bound.asked) == 2


def test_nothing_to_do_asks_nothing() -> None:
    bound = Scripted()
    assert list(infer_all(bound, [], budget=Budget(1), should_stop=lambda: False)) in ([], [[]])
    assert bound.asked == []
