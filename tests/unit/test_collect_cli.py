"""`fsctx collect` as people and scripts see it."""

import json
import re
import subprocess
import sys

import msgspec
import pytest
from click.testing import CliRunner
from fabricate import LABELS, add_agent, fabricate, fail_unit, finish_all, finish_unit

from fsctx.cli.collect import collect
from fsctx.errors import InputError, NotComplete
from fsctx.protocol.agents import Ledger


def call(*arguments):
    result = CliRunner().invoke(collect, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def run(tmp_path):
    """A finished run of two tasks."""
    made = fabricate(tmp_path / "run", models=("a", "b"))
    finish_all(made)
    return made


def test_json_is_one_document_of_the_promised_shape(run, tmp_path):
    result = call(run.root, "-o", tmp_path / "out.csv", "--json")
    document = json.loads(result.stdout)
    promised = ("rows", "ok", "errors", "missing", "duplicates")
    assert [document[key] for key in promised] == [20, 20, 0, 0, 0]
    assert {"too_long", "failures", "run", "output"} <= set(document)
    task = document["tasks"][0]
    assert {"model", "template", "accuracy", "macro_f1", "n_labelled", "confusion", "ci95"} <= set(task)
    low, high = task["ci95"]
    assert low < task["accuracy"] < high
    assert set(task["confusion"]) == set(LABELS)
    assert result.stderr == ""


def test_without_an_output_the_statistics_are_shown_and_nothing_is_written(run, tmp_path):
    result = call(run.root)
    assert "No rows were written" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_text_has_a_line_per_task_and_a_confusion_matrix(run, tmp_path):
    said = call(run.root, "-o", tmp_path / "out.parquet").stdout
    assert re.search(r"^a +fever +70\.0% +39\.7% to 89\.2% +0\.\d{3} +10 +10 +0 +0 *$", said, re.MULTILINE)
    assert "b, fever: rows by gold label (down) and verdict (across)" in said
    assert "20 rows, each once: 20 ok, 0 errors (0 too long); 0 missing, 0 duplicates." in said
    assert f"Written to {tmp_path / 'out.parquet'}" in said
    assert "Best by accuracy: a, fever; 0 of 1 others are worse for real, 1 may be as good" in said
    assert "\x1b" not in said


def test_why_rows_are_not_ok_is_told_with_their_first_ids(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=20, unit_rows=10)
    wrong = {row: {"verdict": None, "status": "error", "error": f"reason {row % 7}"} for row in range(9)}
    finish_unit(run, 0, changed={**wrong, 9: {"verdict": None, "status": "too_long", "error": "so long"}})
    said = call(run.root, "--partial").stdout
    assert "Error: 2 rows of tiny, fever: reason 0 (first: 0, 7)" in said
    assert "Not ok for 3 more reasons; --json lists them." in said


def test_a_run_that_is_not_complete_is_exit_3_and_partial_takes_what_is_there(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_unit(run, 0)
    fail_unit(run, 1, reason="poison [red]row[/red]")
    with pytest.raises(NotComplete) as error:
        call(run.root, "--json")
    assert error.value.exit_code == 3
    said = call(run.root, "--partial").stdout
    assert "Failed: unit 1, 4 rows: poison [red]row[/red]" in said
    assert "4 rows, each once: 4 ok, 0 errors (0 too long); 6 missing" in said
    document = json.loads(call(run.root, "--partial", "--json").stdout)
    assert document["failures"] == [{"unit": 1, "reason": "poison [red]row[/red]", "rows": 4}]


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    with pytest.raises(InputError, match="is not a run"):
        call(tmp_path)
    with pytest.raises(InputError, match="is not a run"):
        call(tmp_path / "absent")


@pytest.mark.parametrize("name", ["out.pdf", "absent/out.html"])
def test_a_report_that_cannot_be_written_is_refused_before_any_work(tmp_path, name):
    run = fabricate(tmp_path / "run")
    with pytest.raises(InputError):
        call(run.root, "--report", tmp_path / name)


def test_the_report_is_one_page_that_needs_nothing_else_and_escapes_what_it_shows(tmp_path):
    run = fabricate(
        tmp_path / "run", models=("<b>bold</b>",), labels=("<i>yes</i>", "no & never"), gold=("SUPPORTS", "REFUTES")
    )
    finish_all(run, but=[2])
    fail_unit(run, 2, reason="<script>alert(1)</script>")
    add_agent(run, "agent-1", ledger=Ledger(rows_done=8, loads=1, load_s=4.2, infer_s=200))
    add_agent(run, "idler", host="host-9")
    call(run.root, "--partial", "--report", tmp_path / "r.html", "--json")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "&lt;b&gt;bold&lt;/b&gt;" in page
    assert "&lt;i&gt;yes&lt;/i&gt;" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("<script") == 1
    assert not re.search(r"<b>bold|<i>yes|https?://|src=|@import|url\(", page)
    for shown in ("<svg", "host-9", "4.2 s", "3 min", "0" * 64, "plan-digest", "missing"):
        assert shown in page


def test_without_gold_labels_the_verdicts_are_counted(tmp_path):
    run = fabricate(tmp_path / "run", gold=None)
    finish_all(run)
    assert "tiny, fever: SUPPORTED 4, REFUTED 3, NOT ENOUGH INFO 3" in call(run.root).stdout


def test_a_report_without_gold_labels_shows_the_verdicts(tmp_path):
    run = fabricate(tmp_path / "run", gold=None)
    finish_all(run)
    call(run.root, "--report", tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "no gold labels" in page
    assert "Confusion" not in page


def test_the_statistics_survive_a_round_trip_through_json(run):
    document = call(run.root, "--json").stdout
    assert json.loads(document) == msgspec.json.decode(document.encode())


def test_help_imports_nothing_heavy():
    code = (
        "import sys, fsctx.cli.collect as c; c.collect(['--help'], standalone_mode=False);"
        "heavy = {'pyarrow', 'numpy', 'duckdb', 'sklearn', 'scipy', 'torch', 'rich', 'jinja2'} & set(sys.modules);"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
