"""Statistics of tasks: who is counted, and that the numbers are those of textbook definitions."""

import pytest
from fabricate import LABELS, fabricate, finish_all, finish_unit, gold_of, verdict_of

from fsctx.coordinator.collect.collect import Request, collect
from fsctx.coordinator.collect.metrics import NONE, wilson


def metrics_of(run):
    return collect(run.store, Request()).tasks


def test_accuracy_and_confusion_are_counted_over_all_labelled_rows(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=30, unit_rows=7)
    finish_all(run)
    (task,) = metrics_of(run)
    pairs = [(gold_of(run, row), verdict_of(run, row)) for row in range(30)]
    assert task.n_labelled == 30
    assert task.accuracy == sum(gold == verdict for gold, verdict in pairs) / 30
    for gold in LABELS:
        for verdict in LABELS:
            assert task.confusion[gold][verdict] == pairs.count((gold, verdict))


def test_rows_without_a_verdict_count_as_wrong(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4)
    finish_unit(run, 0, changed={3: {"verdict": None, "status": "too_long"}, 2: {"verdict": None, "status": "error"}})
    summary = collect(run.store, Request())
    (task,) = summary.tasks
    assert task.accuracy == 0.25  # row 0 is wrong by design
    assert (task.confusion["SUPPORTED"][NONE], task.confusion["NOT ENOUGH INFO"][NONE]) == (1, 1)
    assert (summary.ok, summary.errors, summary.too_long) == (2, 2, 1)


def test_rows_whose_gold_label_is_unknown_to_the_template_are_not_labelled(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=8, gold=["SUPPORTS", "disputed", None, "REFUTES"])
    finish_all(run)
    (task,) = metrics_of(run)
    assert (task.rows, task.n_labelled) == (8, 4)


def test_without_labelled_rows_what_needs_them_is_none(tmp_path):
    run = fabricate(tmp_path / "run", gold=None)
    finish_all(run)
    (task,) = metrics_of(run)
    assert (task.accuracy, task.macro_f1, task.ci95, task.n_labelled, task.labels) == (None, None, None, 0, ())
    assert sum(task.verdicts.values()) == 10


def test_precision_recall_and_f1_are_those_of_the_counts(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4, gold=["SUPPORTS", "SUPPORTS", "REFUTES", "REFUTES"])
    verdicts = ["SUPPORTED", "REFUTED", "REFUTED", None]
    finish_unit(run, 0, changed={row: {"verdict": verdict} for row, verdict in enumerate(verdicts)})
    (task,) = metrics_of(run)
    seen = {label.label: (label.precision, label.recall, label.support) for label in task.labels}
    assert seen == {"SUPPORTED": (1.0, 0.5, 2), "REFUTED": (0.5, 0.5, 2), "NOT ENOUGH INFO": (0.0, 0.0, 0)}
    assert task.macro_f1 == pytest.approx((2 / 3 + 1 / 2 + 0) / 3)


def test_tasks_are_counted_apart_and_stand_in_the_run_s_order(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4, models=("b", "a"))
    finish_unit(run, 0)
    finish_unit(run, 1, changed={row: {"verdict": gold_of(run, row)} for row in range(4)})
    assert [(task.model, task.accuracy) for task in metrics_of(run)] == [("b", 0.75), ("a", 1.0)]


def test_makers_are_counted_by_agent(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=10, unit_rows=4)
    finish_unit(run, 0, agent="x", host="h1")
    finish_unit(run, 1, agent="y", host="h2")
    finish_unit(run, 2, agent="x", host="h1")
    makers = collect(run.store, Request()).makers
    assert [(m.agent, m.host, m.rows) for m in makers] == [("x", "h1", 6), ("y", "h2", 4)]
    assert sum(m.input_tokens for m in makers) == sum(30 + row % 7 for row in range(10))


def test_the_interval_is_wilson_s():
    assert wilson(5, 10) == pytest.approx((0.2365931, 0.7634069), abs=1e-6)  # R: binom::binom.wilson(5, 10)
    assert wilson(0, 1)[0] == 0.0
    assert wilson(1, 1)[1] == 1.0
