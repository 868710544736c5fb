"""How sure verdicts are, and which tasks differ: each number against another way to compute it."""

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from fabricate import LABELS, fabricate, finish_all, finish_unit, gold_of, verdict_of
from scipy.stats import binomtest, bootstrap, chi2_contingency
from sklearn.metrics import f1_score, precision_recall_fscore_support

from fsctx.coordinator.collect import problems
from fsctx.coordinator.collect.collect import Request, collect
from fsctx.coordinator.collect.comparing import MAX_TASKS, holm, mcnemar
from fsctx.coordinator.collect.problems import MAX_REASONS, OTHER, Problems
from fsctx.coordinator.collect.resampling import intervals, label_rates
from fsctx.coordinator.collect.standing import first_by_f1, most_frequent


def all_right(run, rows):
    return {row: {"verdict": gold_of(run, row)} for row in rows}


def test_rates_are_those_of_scikit_learn():
    generator = np.random.default_rng(1)
    gold, verdict = generator.integers(0, 3, 500), generator.integers(0, 4, 500)  # 3: none
    counts = np.zeros((3, 4), np.int64)
    np.add.at(counts, (gold, verdict), 1)
    expected = precision_recall_fscore_support(gold, verdict, labels=[0, 1, 2], zero_division=0)
    assert label_rates(counts) == pytest.approx(np.stack(expected[:3]))


def test_a_label_that_nobody_has_and_nobody_says_has_rates_of_0():
    assert label_rates(np.array([[3, 0, 0], [0, 0, 0]])).tolist() == [[1, 0], [1, 0], [1, 0]]


def test_intervals_are_those_of_resampling_the_rows():
    generator = np.random.default_rng(2)
    gold = generator.integers(0, 3, 200)
    verdict = np.where(generator.random(200) < 0.6, gold, generator.integers(0, 3, 200))
    counts = np.zeros((3, 4), np.int64)
    np.add.at(counts, (gold, verdict), 1)
    (mine,) = intervals(counts, lambda drawn: label_rates(drawn)[2].mean(axis=1, keepdims=True))
    theirs = bootstrap(
        (gold, verdict),
        lambda g, v: f1_score(g, v, average="macro"),
        paired=True,
        vectorized=False,
        n_resamples=400,
        method="percentile",
        rng=3,
    ).confidence_interval
    assert mine == pytest.approx((theirs.low, theirs.high), abs=0.02)


def test_the_same_verdicts_have_the_same_intervals(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=50)
    finish_all(run)
    one, other = (collect(run.store, Request()).tasks[0] for _ in range(2))
    assert one.macro_f1_ci95 == other.macro_f1_ci95
    assert one.macro_f1_ci95[0] < one.macro_f1 < one.macro_f1_ci95[1]
    assert all(label.f1_ci95[0] <= label.f1 <= label.f1_ci95[1] for label in one.labels)


def test_calibration_is_that_of_the_rows_scores(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=30, unit_rows=7)
    finish_all(run)
    found = collect(run.store, Request()).tasks[0].calibration
    rows = []
    for row in range(30):
        said = LABELS.index(verdict_of(run, row))
        scores = [-0.25 if i == said else -1.5 - i for i in range(3)]
        rows.append((math.exp(scores[said]) / sum(map(math.exp, scores)), verdict_of(run, row) == gold_of(run, row)))
    ece = 0.0
    for tenth in range(10):
        own = [(sure, right) for sure, right in rows if int(sure * 10) == tenth]
        ece += abs(sum(sure for sure, _ in own) - sum(right for _, right in own)) / 30
    assert found.ece == pytest.approx(ece, abs=1e-6)
    assert found.rows == sum(tenth.rows for tenth in found.bins) == 30
    assert found.accuracy == sum(right for _, right in rows) / 30
    assert found.confidence == pytest.approx(sum(sure for sure, _ in rows) / 30, abs=1e-6)


def test_rows_without_verdict_or_scores_have_no_confidence(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4)
    generated = {f"score_{label}": None for label in LABELS}
    finish_unit(run, 0, changed={0: {"verdict": None, "status": "error"}, 1: generated, 2: {"score_REFUTED": math.nan}})
    assert collect(run.store, Request()).tasks[0].calibration.rows == 1


def test_generated_verdicts_have_no_calibration(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=2, unit_rows=4)
    finish_unit(run, 0, changed={row: {f"score_{label}": None for label in LABELS} for row in range(2)})
    assert collect(run.store, Request()).tasks[0].calibration is None


def test_mcnemar_is_the_binomial_test_of_the_rows_on_which_two_differ():
    pairs = [(0, 0), (1, 0), (5, 5), (3, 17), (60, 25), (5000, 5300)]
    only_a, only_b = np.array(pairs).T
    expected = [1.0, *(binomtest(a, a + b).pvalue for a, b in pairs[1:])]
    assert mcnemar(only_a, only_b) == pytest.approx(expected, abs=1e-9)


def test_holm_corrects_as_in_the_textbook():
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])).tolist() == pytest.approx([0.03, 0.06, 0.06, 0.02])  # R: p.adjust
    assert holm(np.array([0.5, 0.9])).tolist() == [1.0, 1.0]
    assert holm(np.array([])).tolist() == []


def test_tasks_are_compared_on_the_rows_that_both_judged(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=40, unit_rows=8, models=("a", "b"))
    n = run.geometry.n_slices
    for unit in range(n):
        finish_unit(run, unit)  # wrong at every fourth row
    for unit in range(n - 1):  # the last slice of b is missing
        finish_unit(run, n + unit, changed=all_right(run, range(40)))
    summary = collect(run.store, Request(is_partial=True))
    (pair,) = summary.comparisons
    assert summary.ranking == (1, 0)
    assert (pair.a, pair.b, pair.rows, pair.only_a, pair.only_b) == (1, 0, 32, 8, 0)
    assert pair.difference == 0.25
    assert pair.p == pair.p_holm == pytest.approx(binomtest(8, 8).pvalue)
    assert pair.is_real
    assert 0 < pair.ci95[0] < 0.25 < pair.ci95[1]


def test_tasks_that_do_not_differ_are_not_said_to(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=40, unit_rows=8, models=("a", "b", "c"))
    finish_all(run)
    summary = collect(run.store, Request())
    assert summary.ranking == (0, 1, 2)
    assert [(pair.a, pair.b, pair.p, pair.is_real) for pair in summary.comparisons] == [
        (0, 1, 1.0, False),
        (0, 2, 1.0, False),
        (1, 2, 1.0, False),
    ]


def test_of_too_many_tasks_no_two_are_compared(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=1, templates=[f"t{n}" for n in range(MAX_TASKS + 1)])
    finish_all(run)
    summary = collect(run.store, Request())
    assert len(summary.ranking) == MAX_TASKS + 1
    assert summary.comparisons == ()


def test_devices_that_answer_differently_are_noticed(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=60, unit_rows=30, models=("a", "b"))
    says_one_thing = {row: {"verdict": LABELS[0]} for row in range(60)}
    finish_unit(run, 0)
    finish_unit(run, 1, device="TITAN X", changed=says_one_thing)
    finish_unit(run, 2)
    finish_unit(run, 3)
    (found,) = collect(run.store, Request()).agreements
    assert (found.model, found.differs) == ("a", True)
    counts = [[kind.verdicts[label] for label in LABELS] for kind in found.kinds]
    assert counts[1] == [30, 0, 0]
    assert found.p_holm == found.p == pytest.approx(chi2_contingency(counts, correction=False).pvalue)
    assert [kind.accuracy for kind in found.kinds] == pytest.approx([22 / 30, 1 / 3])


def test_devices_that_answer_alike_agree(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=24, unit_rows=12)
    finish_unit(run, 0)
    finish_unit(run, 1, device="TITAN X")
    (found,) = collect(run.store, Request()).agreements
    assert (found.p, found.differs) == (1.0, False)


def test_rows_without_a_verdict_are_listed_by_reason_with_their_ids(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=12, unit_rows=4, ids=[f"id-{row}" for row in range(12)])
    failed = {"verdict": None, "status": "error", "error": "the device\nis gone"}
    long = {"verdict": None, "status": "too_long", "error": "999 tokens"}
    for unit in range(3):
        finish_unit(run, unit, changed=dict.fromkeys(range(2, 11), failed) | {11: long})
    first, second = collect(run.store, Request()).problems
    assert (first.status, first.reason, first.rows) == ("error", "the device is gone", 9)
    assert first.ids == tuple(f"id-{row}" for row in range(2, 7))
    assert (second.status, second.reason, second.rows, second.ids) == ("too_long", "999 tokens", 1, ("id-11",))


def test_reasons_without_end_are_counted_together():
    n = MAX_REASONS + 10
    found = Problems()
    found.add("a", "t", pa.table({"status": ["error"] * n, "error": [f"no. {i}" for i in range(n)], "id": range(n)}))
    kept = found.result()
    assert sum(problem.rows for problem in kept) == n
    assert (kept[0].reason, kept[0].rows, len(kept[0].ids)) == (OTHER, 10, problems.N_EXAMPLES)


def test_a_run_in_which_nothing_was_done_has_statistics_of_nothing(tmp_path):
    run = fabricate(tmp_path / "run", models=("a", "b"))
    summary = collect(run.store, Request(is_partial=True))
    assert (summary.rows, summary.missing, summary.ranking, summary.comparisons) == (0, 20, (), ())
    assert (summary.agreements, summary.problems, summary.makers) == ((), (), ())
    assert all(task.calibration is None and task.macro_f1_ci95 is None for task in summary.tasks)


def test_a_run_with_only_errors_has_an_accuracy_of_0(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4)
    finish_unit(run, 0, changed={row: {"verdict": None, "status": "error", "error": "broken"} for row in range(4)})
    (task,) = collect(run.store, Request()).tasks
    assert (task.accuracy, task.macro_f1, task.macro_f1_ci95) == (0.0, 0.0, (0.0, 0.0))


def test_where_labels_are_skewed_it_is_said_who_would_be_first_by_macro_f1_and_what_is_no_achievement(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=40, unit_rows=40, models=("lazy", "keen"), gold=["SUPPORTS"] * 9 + ["NEI"])
    finish_unit(run, 0, changed={row: {"verdict": "SUPPORTED"} for row in range(40)})
    finish_unit(
        run, 1, changed={row: {"verdict": "NOT ENOUGH INFO" if row % 5 == 4 else "SUPPORTED"} for row in range(40)}
    )
    summary = collect(run.store, Request())
    assert [summary.tasks[position].model for position in summary.ranking] == ["lazy", "keen"]
    assert first_by_f1(summary) is summary.tasks[1]
    assert most_frequent(summary.tasks[0]) == ("SUPPORTED", 0.9)
    alone = replace(summary, ranking=(1,))
    assert first_by_f1(alone) is None
    assert first_by_f1(replace(alone, ranking=())) is None
