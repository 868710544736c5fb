"""`fsctx plan` as its users see it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from planning import make_plan, manifest_of

from fsctx.cli.plan import plan
from fsctx.errors import InputError

DATA = Path(__file__).parents[3] / "shared" / "data"


def call(*args: str | Path) -> Result:
    return CliRunner().invoke(plan, [str(arg) for arg in args])


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    path = tmp_path / "claims.csv"
    labels = ["SUPPORTS", "refuted", "not_enough_info", "Half True", "", "Half True"]
    path.write_text("id,claim,label\n" + "".join(f"{i},claim {i},{label}\n" for i, label in enumerate(labels)))
    return path


def test_a_plan_tells_rows_units_labels_and_what_comes_next(tmp_path: Path, claims: Path) -> None:
    result = call(claims, "--run", tmp_path / "run", "--model", "fake")
    assert result.exit_code == 0, result.output
    assert "rows      6 (id from column id, claim from column claim, label from column label)" in result.output
    assert "units     1 of 6 rows" in result.output
    assert "at most 12 operations" in result.output
    assert "refuted → REFUTED: 1 rows" in result.output
    assert "not mapped, so 2 rows count as unlabelled (--map GOLD=LABEL): Half True (2)" in result.output
    assert "without a label: 1 rows" in result.output
    assert f"Next: fsctx submit {tmp_path}/run" in result.output


def test_the_same_plan_again_says_so(tmp_path: Path, claims: Path) -> None:
    call(claims, "--run", tmp_path / "run", "--model", "fake")
    again = call(claims, "--run", tmp_path / "run", "--model", "fake")
    assert again.exit_code == 0
    assert "is this very plan already; nothing was changed" in again.output


def test_json_is_one_document(tmp_path: Path, claims: Path) -> None:
    result = call(claims, "--run", tmp_path / "run", "--model", "fake", "--json")
    report = json.loads(result.output)
    assert (report["rows"], report["units"], report["is_new"], report["n_without_label"]) == (6, 1, True, 1)
    assert {label["label"]: label["meaning"]["fever"] for label in report["labels"]} == {
        "SUPPORTS": "SUPPORTED",
        "refuted": "REFUTED",
        "not_enough_info": "NOT ENOUGH INFO",
        "Half True": None,
    }


def test_what_was_mapped_is_in_the_manifest(tmp_path: Path, claims: Path) -> None:
    result = call(claims, "--run", tmp_path / "run", "--model", "fake", "--map", "Half True=NOT ENOUGH INFO")
    assert result.exit_code == 0, result.output
    assert manifest_of(tmp_path / "run").gold["fever"]["Half True"] == "NOT ENOUGH INFO"


def refusal(*args: str | Path) -> str:
    result = call(*args)
    assert isinstance(result.exception, InputError), result.output
    assert result.exception.exit_code == 2
    assert "\n" not in str(result.exception)
    return str(result.exception)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--map", "Half True"], "write it as GOLD=LABEL"),
        (["--map", "a=SUPPORTED", "--map", "a=REFUTED"], "mapped to SUPPORTED already"),
        (["--map", "Half True=MAYBE"], "has no label 'MAYBE'"),
        (["--app", "x:y"], "application x cannot be read"),
        (["--unit-rows", "0"], "at least one row"),
        (["--unit-rows", "9" * 30], "1,000,000,000 rows at most"),
        (["--model", ""], "has an empty name"),
        (["--ttl", "-1"], "above 0"),
        (["--ttl", "inf"], "above 0, and no more than 1,000,000,000"),
        (["--ttl", "nan"], "above 0"),
        (["--claim-column", "q"], "no column 'q' (found: id, claim, label)"),
        (["--template", "nowhere.toml"], "nowhere.toml"),
        (["--model", "./nowhere"], "does not exist"),
    ],
)
def test_what_cannot_be_used_is_one_clear_line_and_leaves_nothing(
    tmp_path: Path, claims: Path, options: list[str], said: str
) -> None:
    assert said in refusal(claims, "--run", tmp_path / "run", "--model", "fake", *options)
    assert not (tmp_path / "run").exists()


def test_labels_with_control_characters_stay_in_their_line(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(json.dumps({"claim": "a", "label": "one\ntwo\x1b[2J"}) + "\n")
    result = call(tmp_path / "x.jsonl", "--run", tmp_path / "run", "--model", "fake")
    assert r"one\ntwo\x1b[2J (1)" in result.stdout


def test_an_unreadable_template_leaves_nothing(tmp_path: Path, claims: Path) -> None:
    (tmp_path / "t.toml").write_text("name = [")
    assert "t.toml" in refusal(claims, "--run", tmp_path / "run", "--model", "fake", "--template", tmp_path / "t.toml")
    assert not (tmp_path / "run").exists()


def test_a_template_that_uses_a_column_which_is_not_there_is_refused(tmp_path: Path, claims: Path) -> None:
    (tmp_path / "t.toml").write_text('name = "t"\nuser = "{{ claim }}\\n{{ topic }}"\nlabels = ["yes", "no"]\n')
    said = refusal(claims, "--run", tmp_path / "run", "--model", "fake", "--template", tmp_path / "t.toml")
    assert "topic" in said


def test_two_templates_of_one_name_are_refused(tmp_path: Path, claims: Path) -> None:
    for name, labels in (("a", '["yes", "no"]'), ("b", '["ja", "nein"]')):
        (tmp_path / f"{name}.toml").write_text(f'name = "t"\nuser = "{{{{ claim }}}}"\nlabels = {labels}\n')
    with pytest.raises(InputError, match="two templates are named 't'"):
        make_plan(claims, run=tmp_path / "run", templates=(str(tmp_path / "a.toml"), str(tmp_path / "b.toml")))


def test_line_ends_within_quotes_are_noted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text('claim\n"a\nb"\nc\n')
    report = make_plan(tmp_path / "x.csv", run=tmp_path / "run")
    assert any("4 lines gave 2 rows" in note and "--quoting off" in note for note in report.notes)


def test_a_guessed_header_is_noted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("Aussage,Urteil\nRom ist alt,wahr\n")
    report = make_plan(tmp_path / "x.csv", run=tmp_path / "run", claim_column="Aussage")
    assert any("pass --no-header" in note for note in report.notes)


def test_a_column_of_thousands_of_labels_is_doubted(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("claim,label\n" + "".join(f"c,l{i}\n" for i in range(1_500)))
    report = make_plan(tmp_path / "x.csv", run=tmp_path / "run")
    assert any("more than 1,000 different values" in note for note in report.notes)


needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the real claims are not here")


@needs_data
def test_fever_is_planned_whole(tmp_path: Path) -> None:
    report = make_plan(DATA / "fever_paper_dev.jsonl", run=tmp_path / "run")
    assert report.rows == 9_999
    assert {label.label: (label.n_rows, label.meaning["fever"]) for label in report.labels} == {
        "SUPPORTS": (3_333, "SUPPORTED"),
        "REFUTES": (3_333, "REFUTED"),
        "NOT ENOUGH INFO": (3_333, "NOT ENOUGH INFO"),
    }
    assert set(manifest_of(tmp_path / "run").columns) == {"verifiable", "evidence"}


@needs_data
def test_claims_without_labels_are_planned(tmp_path: Path) -> None:
    report = make_plan(DATA / "scifact_claims_train.jsonl", run=tmp_path / "run")
    assert (report.rows, report.columns["label"], report.n_without_label) == (809, None, 809)


@needs_data
def test_liar_keeps_all_its_rows(tmp_path: Path) -> None:
    options: dict[str, Any] = {"claim_column": "column_3", "label_column": "column_2", "id_column": "column_1"}
    assert make_plan(DATA / "liar_train.tsv", run=tmp_path / "run", **options).rows == 10_269


def test_templates_that_take_labels_alike_are_told_together(tmp_path: Path, claims: Path) -> None:
    for name, labels in (("a", '["SUPPORTED", "REFUTED"]'), ("b", '["SUPPORTED", "REFUTED"]'), ("c", '["yes", "no"]')):
        (tmp_path / f"{name}.toml").write_text(f'name = "{name}"\nuser = "{{{{ claim }}}}"\nlabels = {labels}\n')
    named = [word for name in "abc" for word in ("--template", tmp_path / f"{name}.toml")]
    said = call(claims, "--run", tmp_path / "run", "--model", "fake", *named).output
    told = said.partition("  labels\n")[2].partition("  note")[0]
    assert {line.split(":")[0].strip() for line in told.splitlines() if ":" in line} - {"without a label"} == {
        "a and 1 more",
        "c",
    }
