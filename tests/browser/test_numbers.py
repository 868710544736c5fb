"""The numbers that a browser shows are those of the published files, computed another way."""

import re

import numpy as np
import pytest
import recomputed
from browsing import CHROMIUM, browse
from click.testing import CliRunner
from fabricate import GOLD, LABELS, fabricate, finish_unit
from html_tables import Tables

from fsctx.cli.report import report

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium"),
]

N_ROWS = 600

SKILL = {"good": 0.7, "as-good": 0.6, "poor": 0.5}
"""How often a template finds the right label by more than chance."""

UNLABELLED = ("disputed", None)


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A run of three templates that err each in its own way, and its page's document as the browser has it."""
    folder = tmp_path_factory.mktemp("numbers")
    gold = (*GOLD, *GOLD, *UNLABELLED)
    run = fabricate(folder / "run", n_rows=N_ROWS, unit_rows=150, templates=tuple(SKILL), gold=gold)
    chance = np.random.default_rng(11)
    for unit in range(run.geometry.n_units):
        skill = SKILL[run.manifest.tasks[run.geometry.place(unit).task].template]
        meant = (GOLD.index(label) if label in GOLD else 0 for label in gold * (N_ROWS // len(gold)))
        finish_unit(run, unit, changed={row: judge(label, skill, chance) for row, label in enumerate(meant)})
    done = CliRunner().invoke(report, [str(run.root), "-o", str(folder / "page.html")], catch_exceptions=False)
    assert done.exit_code == 0
    document, console = browse(folder / "page.html")
    assert console == []
    return run.root, document


def judge(meant: int, skill: float, chance: np.random.Generator) -> dict[str, object]:
    """Return what a row is given: one in fifty is an error, one in twenty has no scores."""
    if chance.random() < 0.02:
        return {"verdict": None, "status": "error", "error": "the device is gone"}
    scores = chance.normal(-3, 1, len(LABELS))
    scores[meant if chance.random() < skill else chance.integers(len(LABELS))] += chance.uniform(0, 4)
    has_scores = chance.random() >= 0.05
    named = {
        f"score_{label}": float(score) if has_scores else None for label, score in zip(LABELS, scores, strict=True)
    }
    return {"verdict": LABELS[scores.argmax()], **named}


def numbers(*cells: str) -> list[float]:
    """Return the numbers in cells; shares stand there in per cent."""
    return [float(number) for number in re.findall(r"-?\d+(?:\.\d+)?", " ".join(cells).replace(",", ""))]


def as_shown(*values: float, digits: int) -> object:
    """Stand for values that were rounded to be shown."""
    return pytest.approx(list(map(float, values)), abs=0.51 * 10**-digits)


def resampled(interval: np.ndarray, *, digits: int) -> object:
    """Stand for what another bootstrap may find: its ends scatter by hundredths of the width (90 % would be 8 off)."""
    return pytest.approx(interval.tolist(), abs=0.07 * float(np.ptp(interval)) + 0.5 * 10**-digits)


def test_accuracy_f1_and_calibration_of_each_task(shown):
    run, document = shown
    tasks = {task.name: task for task in recomputed.judged(run)}
    ranking = Tables(document).bodies["ranking"]
    assert {line[1] for line in ranking} == tasks.keys()
    accuracies = [recomputed.accuracy(tasks[line[1]]) for line in ranking]
    assert accuracies == sorted(accuracies, reverse=True)
    for line, accuracy in zip(ranking, accuracies, strict=True):
        task = tasks[line[1]]
        of_f1 = recomputed.f1_intervals(task)[0]
        assert numbers(line[3], line[4]) == as_shown(100 * accuracy, *100 * recomputed.wilson(task), digits=1)
        assert numbers(line[5]) == as_shown(recomputed.label_rates(task)[2].mean(), digits=3)
        assert numbers(line[6]) == resampled(of_f1, digits=3)
        assert numbers(line[7]) == as_shown(recomputed.calibration(task)[1], digits=3)
        assert numbers(*line[8:11]) == [len(task.rows), task.n_published, task.n_errors]


def test_precision_recall_and_f1_of_each_label(shown):
    run, document = shown
    lines = {tuple(line[:2]): line[2:] for line in Tables(document).bodies["labels"]}
    for task in recomputed.judged(run):
        rates, of_f1 = recomputed.label_rates(task), recomputed.f1_intervals(task)[1:]
        for label, (*own, support), interval in zip(task.labels, rates.T, of_f1, strict=True):
            line = lines.pop((task.name, label))
            assert numbers(*line[:3]) == as_shown(*own, digits=3)
            assert numbers(line[3]) == resampled(interval, digits=3)
            assert numbers(line[4]) == [support]
    assert not lines


def test_confusion_of_each_task(shown):
    run, document = shown
    bodies = Tables(document).bodies
    for position, task in enumerate(recomputed.judged(run)):
        lines = bodies[f"confusion-{position}"]
        assert [line[0] for line in lines] == task.labels
        expected = recomputed.confusion(task)
        assert [numbers(*line[1:]) for line in lines] == expected[:, : len(lines[0]) - 1].tolist()
        assert not expected[:, len(lines[0]) - 1 :].any()


def test_reliability_curve_of_each_task(shown):
    run, document = shown
    bodies = Tables(document).bodies
    for position, task in enumerate(recomputed.judged(run)):
        bins, _ = recomputed.calibration(task)
        lines = [numbers(*line) for line in bodies[f"bins-{position}"]]
        assert [line[0] for line in lines] == as_shown(*100 * bins.low, digits=1)
        assert [line[2] for line in lines] == as_shown(*100 * bins.confidence, digits=1)
        assert [line[3] for line in lines] == as_shown(*100 * bins.accuracy, digits=1)
        assert [line[4] for line in lines] == bins.rows.tolist()


def test_differences_between_tasks(shown):
    run, document = shown
    tasks = {task.name: task for task in recomputed.judged(run)}
    lines = Tables(document).bodies["comparisons"]
    pairs = [recomputed.paired(tasks[line[0]], tasks[line[1]]) for line in lines]
    assert len({frozenset(line[:2]) for line in lines}) == len(tasks) * (len(tasks) - 1) // 2
    for line, pair, p in zip(lines, pairs, recomputed.holm([pair.p for pair in pairs]), strict=True):
        assert numbers(line[2]) == as_shown(100 * pair.difference, digits=1)
        assert numbers(line[3]) == resampled(100 * pair.interval, digits=1)
        assert numbers(*line[4:7]) == [pair.only_a, pair.only_b, pair.rows]
        assert (p < 0.001) if line[7] == "< 0.001" else numbers(line[7]) == as_shown(p, digits=3)
        assert line[8] == ("real" if p < 0.05 else "may be chance")


def test_a_page_that_shows_another_number_would_be_noticed(shown):
    run, document = shown
    accuracy = re.search(r'<td class="n"><b>(\d\d)\.', document)[1]
    changed = document.replace(f"<b>{accuracy}.", f"<b>{int(accuracy) - 1}.", 1)
    with pytest.raises(AssertionError):
        test_accuracy_f1_and_calibration_of_each_task((run, changed))
