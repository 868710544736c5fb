"""What is collected: columns, order, joining, and the three formats."""

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fabricate import GOLD, LABELS, fabricate, finish_all, finish_unit, gold_of, verdict_of

from fsctx.coordinator.collect import rows as rows_module
from fsctx.coordinator.collect.collect import Request, collect
from fsctx.errors import InputError
from fsctx.protocol import names

COLUMNS = [
    *("id", "claim", "label", "model", "template", "verdict"),
    *("score_SUPPORTED", "score_REFUTED", "score_NOT ENOUGH INFO"),
    *("text", "status", "error", "input_tokens", "output_tokens", "unit", "generation"),
    *("agent", "host", "device", "engine"),
]


def collected(run, tmp_path: Path, **request) -> pa.Table:
    output = tmp_path / "out.parquet"
    collect(run.store, Request(output=output, **request))
    return pq.read_table(output)


def test_columns_are_those_of_the_design_in_its_order(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    table = collected(run, tmp_path)
    assert table.column_names == COLUMNS
    assert table.schema.field("id").type == pa.int64()
    assert table.schema.field("score_REFUTED").type == pa.float32()


def test_rows_are_in_input_order_then_by_task(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=10, unit_rows=3, models=("b", "a"), templates=("x", "y"))
    finish_all(run)
    seen = collected(run, tmp_path).select(["id", "model", "template"]).to_pylist()
    expected = [(row, model, template) for row in range(10) for model in "ba" for template in "xy"]
    assert [(r["id"], r["model"], r["template"]) for r in seen] == expected


def test_each_verdict_stands_beside_its_own_claim(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=23, unit_rows=5, models=("a", "b"))
    for unit in range(run.geometry.n_units):
        place = run.geometry.place(unit)
        finish_unit(run, unit, rows=list(reversed(range(place.first_row, place.first_row + place.n_rows))))
    for row in collected(run, tmp_path).to_pylist():
        number = row["id"]
        assert row["claim"] == f"Claim {number}."
        assert row["label"] == gold_of(run, number)
        assert row["verdict"] == verdict_of(run, number)
        assert row["unit"] == run.geometry.unit_of(task="ab".index(row["model"]), slice_number=number // 5)


def test_windows_do_not_show_in_what_is_collected(tmp_path, monkeypatch):
    run = fabricate(tmp_path / "run", n_rows=50, unit_rows=3, models=("a", "b"))
    finish_all(run, but=[4, 20])
    whole = collected(run, tmp_path, is_partial=True)
    monkeypatch.setattr(rows_module, "WINDOW_ROWS", 7)
    assert collected(run, tmp_path, is_partial=True).equals(whole)


def test_a_partial_collection_of_a_sweep_has_the_rows_of_the_finished_units_in_order(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=6, unit_rows=2, models=("a", "b"))
    finish_all(run, but=[0, 4])
    seen = collected(run, tmp_path, is_partial=True).select(["id", "model"]).to_pylist()
    expected = [(0, "b"), (1, "b"), (2, "a"), (3, "a"), (4, "a"), (4, "b"), (5, "a"), (5, "b")]
    assert [(row["id"], row["model"]) for row in seen] == expected


def test_a_partial_collection_of_nothing_is_an_empty_file_with_all_columns(tmp_path):
    run = fabricate(tmp_path / "run")
    table = collected(run, tmp_path, is_partial=True)
    assert (table.num_rows, table.column_names) == (0, COLUMNS)


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([2**63 - 1, 5, 5, -1]),
        pa.array(["007", "7", "x", None]),
        pa.array([0.5, 1.5, None, 2.0]),
        pa.array(["a", "b", "c", "d"], pa.large_string()),
    ],
)
def test_ids_are_kept_as_given(tmp_path, ids):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=2, ids=ids)
    finish_all(run)
    assert collected(run, tmp_path)["id"].combine_chunks().equals(ids)


def test_gold_labels_that_were_not_mapped_keep_the_original(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=5, gold=["SUPPORTS", "disputed", None])
    finish_all(run)
    assert collected(run, tmp_path)["label"].to_pylist() == ["SUPPORTED", "disputed", None, "SUPPORTED", "disputed"]


def test_without_gold_labels_the_column_is_null(tmp_path):
    run = fabricate(tmp_path / "run", gold=None)
    finish_all(run)
    assert collected(run, tmp_path)["label"].null_count == 10


def test_empty_and_null_claims_are_rows_like_others(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=3, claims=["", None, "x"])
    failed = {"verdict": None, "status": "error", "error": "the claim is empty"}
    finish_unit(run, 0, changed={0: failed, 1: failed})
    table = collected(run, tmp_path)
    assert table["claim"].to_pylist() == ["", None, "x"]
    assert table["status"].to_pylist() == ["error", "error", "ok"]


def test_a_label_that_a_task_does_not_have_is_null_in_its_rows(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4, templates=("one", "two"), labels=("yes", "no"))
    finish_unit(run, 0)
    other = fabricate(tmp_path / "other", n_rows=4, unit_rows=4, templates=("one", "two"), labels=("no", "maybe"))
    run.store.replace(names.template("two"), other.store.read(names.template("two")).replace(b'"one"', b'"two"'))
    object.__setattr__(other.manifest, "run", run.manifest.run)
    finish_unit(other, 1)
    for name in ("00000001", "00000001.0.parquet"):
        (other.root / "results/000000" / name).rename(run.root / "results/000000" / name)
    table = collected(run, tmp_path)
    assert [name for name in table.column_names if name.startswith("score_")] == [
        "score_yes",
        "score_no",
        "score_maybe",
    ]
    assert [value is None for value in table["score_maybe"].to_pylist()] == [True, False] * 4
    assert [value is None for value in table["score_yes"].to_pylist()] == [False, True] * 4


def test_the_metadata_hold_the_manifest_byte_for_byte(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    metadata = pq.read_schema(tmp_path / "out.parquet").metadata if collected(run, tmp_path) else {}
    assert metadata[b"fsctx.manifest"] == (run.root / names.MANIFEST).read_bytes()


def test_the_input_s_other_columns_come_last_on_request(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=2, columns={"page": [1, 2], "tokens": ["a", "b"]})
    finish_all(run)
    assert collected(run, tmp_path).column_names == COLUMNS
    table = collected(run, tmp_path, keep_columns=True)
    assert table.column_names == [*COLUMNS, "input_page", "input_tokens_"]  # input_tokens counts the prompt's
    assert table["input_tokens_"].to_pylist() == ["a", "b"]


def test_asking_for_columns_that_the_run_does_not_hold_is_refused(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    with pytest.raises(InputError, match="--keep-columns"):
        collect(run.store, Request(keep_columns=True))


AWKWARD = ['"quoted", and\nbroken\r\n', "漢字 العربية 🙂 \u2028 \x00 \\", "=1+1;\t'", ""]


def awkward_run(tmp_path):
    run = fabricate(
        tmp_path / "run",
        n_rows=4,
        unit_rows=4,
        ids=pa.array([2**63 - 1, -(2**63), 0, 9007199254740993]),
        claims=AWKWARD,
        labels=("it's", 'so "so"', "<b>"),
        columns={"Page": [1, None, 3, 4], "page": ["a", "b", None, ""]},
    )
    odd = {"score_it's": float("-inf"), 'score_so "so"': float("nan"), "text": AWKWARD[1]}
    finish_unit(run, 0, changed={1: odd})
    return run


def test_json_lines_lose_nothing(tmp_path):
    output = tmp_path / "out.jsonl"
    collect(awkward_run(tmp_path).store, Request(output=output, keep_columns=True))
    lines = output.read_bytes().decode().split("\n")
    assert lines.pop() == ""
    records = [json.loads(line, parse_constant=pytest.fail) for line in lines]
    assert [r["id"] for r in records] == [2**63 - 1, -(2**63), 0, 9007199254740993]
    assert [r["claim"] for r in records] == AWKWARD
    assert "漢字" in lines[1]
    assert (records[1]["score_it's"], records[1]['score_so "so"']) == (None, None)
    assert records[0]["score_<b>"] == pytest.approx(-3.5)
    assert [(r["input_Page"], r["input_page"]) for r in records] == [(1, "a"), (None, "b"), (3, None), (4, "")]
    assert list(records[0])[:2] == ["id", "claim"]


def test_csv_loses_no_text(tmp_path):
    output = tmp_path / "out.csv"
    run = awkward_run(tmp_path)
    collect(run.store, Request(output=output))
    with open(output, newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    assert [r["claim"] for r in records] == AWKWARD
    assert [r["id"] for r in records] == [str(i) for i in (2**63 - 1, -(2**63), 0, 9007199254740993)]


def test_the_three_formats_say_the_same(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=30, unit_rows=7, models=("a", "b"))
    finish_all(run)
    for ending in ("parquet", "jsonl", "csv"):
        collect(run.store, Request(output=tmp_path / f"out.{ending}"))
    table = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == table
    with open(tmp_path / "out.csv", newline="") as file:
        assert [(r["claim"], r["verdict"], r["unit"]) for r in csv.DictReader(file)] == [
            (r["claim"], r["verdict"], str(r["unit"])) for r in table
        ]


def test_gold_and_labels_of_the_fabricated_runs_belong_together():
    assert len(GOLD) == len(LABELS)
