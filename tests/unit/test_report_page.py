"""The page: its numbers are those of the JSON, and it stands whatever the run holds."""

import json
import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest
from click.testing import CliRunner
from fabricate import LABELS, add_agent, fabricate, fail_unit, finish_all, finish_unit, gold_of
from histories import event, tell
from html_tables import Tables

from fsctx.cli.collect import collect
from fsctx.cli.report import report
from fsctx.errors import InputError
from fsctx.protocol import names
from fsctx.protocol.agents import AgentState, Ledger

N_AGENTS, N_TASKS = 200, 10


def call(command, *arguments):
    result = CliRunner().invoke(command, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def page_of(run, tmp_path):
    """The page of a run as it is, and its statistics."""
    said = call(report, run.root, "-o", tmp_path / "page.html", "--json")
    return (tmp_path / "page.html").read_text(encoding="utf-8"), json.loads(said)


@pytest.fixture
def run(tmp_path):
    """A finished run of three tasks, one of which has every verdict right."""
    made = fabricate(tmp_path / "run", n_rows=60, unit_rows=20, models=("a",), templates=("x", "y", "z"))
    n = made.geometry.n_slices
    for unit in range(made.geometry.n_units):
        right = {row: {"verdict": gold_of(made, row)} for row in range(60)}
        finish_unit(made, unit, changed=right if unit // n == 1 else None, device="TITAN X" if unit == 0 else "A10")
    add_agent(made, "agent-1", ledger=Ledger(rows_done=180, loads=2, load_s=4.2, infer_s=200, bytes_peer=3_000_000))
    return made


def test_the_numbers_are_those_of_the_json(run, tmp_path):
    page, document = page_of(run, tmp_path)
    assert document == json.loads(call(collect, run.root, "--json"))
    bodies = Tables(page).bodies
    for line, position in zip(bodies["ranking"], document["ranking"], strict=True):
        task = document["tasks"][position]
        low, high = task["macro_f1_ci95"]
        assert line[1] == task["model"] + task["template"]
        assert line[3] == f"{task['accuracy']:.1%}"
        assert line[4] == "{:.1%} to {:.1%}".format(*task["ci95"])
        assert line[5:8] == [f"{task['macro_f1']:.3f}", f"{low:.3f} to {high:.3f}", f"{task['calibration']['ece']:.3f}"]
        assert line[8:11] == [str(task["n_labelled"]), str(task["rows"]), str(task["errors"])]
    for line, pair in zip(bodies["comparisons"], document["comparisons"], strict=True):
        assert line[2] == f"{100 * pair['difference']:.1f}"
        assert line[4:7] == [str(pair["only_a"]), str(pair["only_b"]), str(pair["rows"])]
        assert line[8] == ("real" if pair["is_real"] else "may be chance")
    labels = [label for position in document["ranking"] for label in document["tasks"][position]["labels"]]
    assert [line[2:5] for line in bodies["labels"]] == [
        [f"{label[key]:.3f}" for key in ("precision", "recall", "f1")] for label in labels
    ]
    kinds = [kind for agreement in document["agreements"] for kind in agreement["kinds"]]
    assert [[line[1], line[3]] for line in bodies["agreements"]] == [[k["device"], str(k["rows"])] for k in kinds]


def test_the_ranking_says_which_differences_are_real(run, tmp_path):
    page, _ = page_of(run, tmp_path)
    against_the_best = [line[-1] for line in Tables(page).bodies["ranking"]]
    assert against_the_best[0] == "best by accuracy"
    assert all(said.startswith("worse than the best (-25.0 points") for said in against_the_best[1:])


def test_goodput_is_what_agents_counted(run, tmp_path):
    page, _ = page_of(run, tmp_path)
    lines = dict(Tables(page).bodies["goodput"])
    assert lines["verdicts per load"] == "90.0"
    assert (lines["time: load"], lines["time: infer"]) == ("4.2 s", "3 min 20 s")
    assert lines["model bytes from: peer"] == "3.0 MB"


def test_agents_have_their_seconds_and_their_end(run, tmp_path):
    add_agent(run, "killed", state=AgentState.RUNNING)
    busy = [event(0, "started"), event(9.5, "loaded", seconds=4.0), event(10.0, "leased", unit=0, rows=20)]
    tell(run, "killed", [*busy, event(40.0, "inferred", seconds=30.0, rows=15)])
    tell(run, "agent-1", [event(0, "started", began_s=1.0), event(99.0, "leased", unit=0, generation=1, rows=20)])
    page, _ = page_of(run, tmp_path)
    bodies = Tables(page).bodies
    killed, other = bodies["agents"]
    assert killed[0].startswith("killed")
    assert killed[2:8] == ["–", "–", "4.0 s", "30.0 s", "6.0 s", "1 min 0 s"]
    assert killed[-1] == "ended without a word"
    assert other[-2:] == ["180", "running"]
    assert bodies["evictions"] == [["killed", "40.0 s", "without a word", "1", "20", "0", "1"]]


@pytest.mark.parametrize("how", ["nothing done", "no gold labels", "only errors", "given up"])
def test_a_page_stands_whatever_the_run_holds(tmp_path, how):
    run = fabricate(tmp_path / "run", models=("a", "b"), gold=None if how == "no gold labels" else ("SUPPORTS",))
    broken = {row: {"verdict": None, "status": "error", "error": "no <i>luck</i>"} for row in range(10)}
    match how:
        case "no gold labels":
            finish_all(run)
        case "only errors":
            for unit in range(run.geometry.n_units):
                finish_unit(run, unit, changed=broken)
        case "given up":
            fail_unit(run, 1, reason="poison")
    page, document = page_of(run, tmp_path)
    bodies = Tables(page).bodies
    assert len(bodies["ranking"]) == 2
    assert ("no <i>luck</i>" in str(bodies.get("problems"))) == (how == "only errors")
    assert (bodies.get("failures") == [["1", "4", "poison"]]) == (how == "given up")
    assert document["rows"] + document["missing"] == 20


def test_one_row_and_many_templates(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=1, templates=[f"t{n}" for n in range(150)])
    finish_all(run)
    page, document = page_of(run, tmp_path)
    assert len(document["tasks"]) == 150
    assert len(Tables(page).bodies["ranking"]) == 100
    assert "50 more tasks: see --json" in page
    assert "Tasks were not compared" in page


def test_markup_anywhere_is_shown_as_it_is(tmp_path):
    evil = '"><script>alert(1)</script><img src=x onerror=alert(2)>'
    run = fabricate(tmp_path / "run", models=(evil,), labels=(f"yes{evil}", f"no{evil}", "none"), ids=[evil] * 10)
    failed = {"verdict": None, "status": "error", "error": evil}
    for unit in range(3):
        finish_unit(run, unit, changed=dict.fromkeys(range(8, 10), failed), device=f"{evil}{unit}", host=evil)
    add_agent(run, "agent-1", host=evil, device=evil, why=evil)
    tell(run, "agent-1", [event(0, "started"), event(1, "leased", unit=0, rows=4), event(2, "left", reason=evil)])
    page, _ = page_of(run, tmp_path)
    assert page.count("<script") == 1
    assert "<img" not in page
    assert Tables(page).bodies["problems"][0][2] == evil


def test_the_page_of_a_large_fleet_is_small(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=20, unit_rows=20, models=[f"model-{n}" for n in range(N_TASKS)])
    finish_all(run)
    for number in range(N_AGENTS):
        agent = f"agent-{number:03}"
        add_agent(run, agent)
        visits = [event(3.0 * k + 2 + number % 2, "inferred", seconds=2.0, rows=9) for k in range(130)]
        tell(run, agent, [event(0, "started"), *visits])
    page, _ = page_of(run, tmp_path)
    assert len(Tables(page).bodies["agents"]) == N_AGENTS
    assert len(page.encode()) < 5_000_000


def test_tables_and_figures_can_be_read_out(run, tmp_path):
    tell(run, "agent-1", [event(0, "started"), event(9, "inferred", seconds=3, rows=1)])
    page, _ = page_of(run, tmp_path)
    for table in re.findall(r"<table.*?</table>", page, re.DOTALL):
        assert 'scope="' in table
    assert page.count("<caption>") >= 5
    for figure in re.findall(r"<svg[^>]*>", page):
        assert 'aria-hidden="true"' in figure or 'aria-label="' in figure
    assert page.count("<figure") == page.count("<figcaption>")
    headings = [int(level) for level in re.findall(r"<h(\d)", page)]
    assert all(b - a <= 1 for a, b in pairwise(headings))


def test_the_page_is_written_alike_in_any_locale(tmp_path):
    run = fabricate(tmp_path / "run", models=("modèle",), labels=("да", "нет", "weiß nicht"))
    finish_all(run)
    environ = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "fsctx", "report", str(run.root), "-o", str(tmp_path / "page.html"), "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "weiß nicht" in (tmp_path / "page.html").read_bytes().decode()


@pytest.mark.parametrize("name", ["page.pdf", "absent/page.html", "."])
def test_a_page_that_cannot_be_written_is_refused_before_any_work(run, tmp_path, name):
    with pytest.raises(InputError, match="pass"):
        call(report, run.root, "-o", tmp_path / name)


def test_what_is_no_run_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(InputError, match="is not a run"):
        call(report, tmp_path, "-o", tmp_path / "page.html")
    assert list(tmp_path.iterdir()) == []


def test_what_is_said_counts_verdicts(run, tmp_path):
    said = call(report, run.root, "-o", tmp_path / "page.html")
    assert said == f"Written to {tmp_path / 'page.html'}: 180 verdicts, 0 missing\n"


def test_an_agent_whose_events_are_damaged_costs_no_page(run, tmp_path):
    run.store.append(names.events("agent-1"), b"\x00\xff{\n")
    page, _ = page_of(run, tmp_path)
    assert LABELS[0] in page


def test_of_many_labels_what_was_mixed_up_most_is_listed_and_the_page_stays_small(tmp_path):
    labels = [f"a label of some length {n}" for n in range(150)]
    run = fabricate(
        tmp_path / "run",
        n_rows=450,
        unit_rows=450,
        models=[f"m{n}" for n in range(N_TASKS)],
        labels=labels,
        gold=labels,
    )
    mistaken = {row: {"verdict": labels[row % 7]} for row in range(450)}
    for unit in range(N_TASKS):
        finish_unit(run, unit, changed=mistaken if unit == 3 else {row: {"verdict": labels[0]} for row in range(450)})
    page, document = page_of(run, tmp_path)
    assert len(page.encode()) < 5_000_000
    lines = Tables(page).bodies["confused-3"]
    assert len(lines) == 30
    for gold, verdict, rows in lines:
        assert document["tasks"][3]["confusion"][gold][verdict] == int(rows)
    said = call(collect, run.root)
    assert f"m3, fever: how each of {len(labels)} labels fares: --json or --report" in said
    assert max(map(len, said.splitlines())) < 200
