"""What the shards hold: ids as given, labels as text, row groups as planned."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planning import claims_of, make_plan, manifest_of, read_claims, shards_of

from fsctx.coordinator.plan.shards import ShardWriter
from fsctx.errors import InputError
from fsctx.protocol import names


def csv_of(path: Path, ids: list[str]) -> Path:
    path.write_text("id,claim\n" + "".join(f"{i},c\n" for i in ids))
    return path


@pytest.mark.parametrize(
    ("ids", "stored"),
    [
        (["1", "2", "-3"], [1, 2, -3]),
        (["007", "8"], ["007", "8"]),
        (["8", "007"], ["8", "007"]),
        (["1", "", "3"], [1, None, 3]),
        (["a", "", "3"], ["a", None, "3"]),
        (["1.0"], ["1.0"]),
        (["+1"], ["+1"]),
        ([" 1"], [" 1"]),
        (["-0"], ["-0"]),
        (["99999999999999999999"], ["99999999999999999999"]),
    ],
)
def test_ids_of_csv_are_numbers_only_where_nothing_is_lost(tmp_path: Path, ids: list[str], stored: list[Any]) -> None:
    assert read_claims(csv_of(tmp_path / "x.csv", ids)).column("id").to_pylist() == stored


@pytest.mark.parametrize(
    ("ids", "stored"),
    [
        ([1, 2], [1, 2]),
        (["1", "2"], ["1", "2"]),
        ([1, "2"], ["1", "2"]),
        ([1, None], [1, None]),
        (["é\n", "x"], ["é\n", "x"]),
        ([1.5, True], ["1.5", "true"]),
        ([2**63], [str(2**63)]),
    ],
)
def test_ids_of_json_keep_their_type(tmp_path: Path, ids: list[Any], stored: list[Any]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("".join(json.dumps({"id": i, "claim": "c"}) + "\n" for i in ids))
    assert read_claims(path).column("id").to_pylist() == stored


@pytest.mark.parametrize(
    ("ids", "stored"),
    [
        (pa.array([1, 2], pa.int32()), [1, 2]),
        (pa.array(["1", "2"]), ["1", "2"]),
        (pa.array([1, 2**64 - 1], pa.uint64()), ["1", str(2**64 - 1)]),
        (pa.array(["b", "b"]).dictionary_encode(), ["b", "b"]),
    ],
)
def test_ids_of_parquet_keep_their_type(tmp_path: Path, ids: pa.Array, stored: list[Any]) -> None:
    pq.write_table(pa.table({"id": ids, "claim": ["c", "c"]}), tmp_path / "x.parquet")
    assert read_claims(tmp_path / "x.parquet").column("id").to_pylist() == stored


def test_a_late_id_that_is_no_number_turns_all_of_them_into_text(tmp_path: Path) -> None:
    n = 400_000
    table = read_claims(csv_of(tmp_path / "x.csv", [*map(str, range(n)), "x1"]), unit_rows=1000)
    assert table.column("id").to_pylist() == [*map(str, range(n)), "x1"]


def test_ids_are_text_where_one_of_several_files_says_so(tmp_path: Path) -> None:
    first, second = csv_of(tmp_path / "a.csv", ["1"]), csv_of(tmp_path / "b.csv", ["b2"])
    make_plan(first, second, run=tmp_path / "run")
    assert claims_of(tmp_path / "run").column("id").to_pylist() == ["1", "b2"]


def test_without_ids_and_labels_the_manifest_says_so_and_no_column_is_written_for_them(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a\nb\n")
    table = read_claims(tmp_path / "x.txt")
    assert table.column_names == ["claim"]
    manifest = manifest_of(tmp_path / "planned-run")
    assert not manifest.has_ids
    assert not manifest.has_labels


def test_null_and_empty_claims_stay_rows(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"claim": ""}\n{"claim": null}\n{"other": 1}\n{"claim": "a"}\n')
    assert read_claims(tmp_path / "x.jsonl").column("claim").to_pylist() == ["", None, None, "a"]


def test_files_of_different_formats_make_one_run_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("label,claim\nTRUE,one\n")
    (tmp_path / "a.jsonl").write_text('{"claim": "two", "label": false}\n')
    make_plan(tmp_path / "b.csv", tmp_path / "a.jsonl", run=tmp_path / "run")
    table = claims_of(tmp_path / "run")
    assert table.column("claim").to_pylist() == ["one", "two"]
    assert table.column("label").to_pylist() == ["TRUE", "false"]


def test_files_with_other_columns_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("claim,x\na,1\n")
    (tmp_path / "b.csv").write_text("claim,y\na,1\n")
    with pytest.raises(InputError, match=r"b\.csv has other columns than .*a\.csv \(it lacks x and adds y\)"):
        make_plan(tmp_path / "a.csv", tmp_path / "b.csv", run=tmp_path / "run")


def test_only_what_templates_use_is_stored_on_request(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("claim,topic,junk\na,t,j\n")
    template = tmp_path / "t.toml"
    template.write_text('name = "t"\nuser = "{{ topic }}: {{ claim }}"\nlabels = ["yes", "no"]\n')
    options: dict[str, Any] = {"templates": (str(template),)}
    assert "input_junk" in read_claims(tmp_path / "x.csv", **options).column_names
    make_plan(tmp_path / "x.csv", run=tmp_path / "lean", is_lean=True, **options)
    assert claims_of(tmp_path / "lean").column_names == ["claim", "input_topic"]
    assert manifest_of(tmp_path / "lean").columns == ("topic",)


def test_shards_end_where_the_geometry_says(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("".join(f"claim {i}\n" for i in range(2_000)))
    make_plan(tmp_path / "x.txt", run=tmp_path / "run", unit_rows=3)
    assert len(shards_of(tmp_path / "run")) == 3
    assert claims_of(tmp_path / "run").column("claim").to_pylist() == [f"claim {i}" for i in range(2_000)]


@settings(max_examples=25)
@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=5),
    unit_rows=st.integers(3, 70),
    slices_per_shard=st.integers(1, 5),
)
def test_however_rows_arrive_row_groups_are_full_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], unit_rows: int, slices_per_shard: int
) -> None:
    root = tmp_path_factory.mktemp("shards")
    (root / names.UNITS).mkdir()
    schema = pa.schema([("id", pa.int64()), ("claim", pa.string())])
    n = 0
    with ShardWriter(root, schema, run="run", unit_rows=unit_rows, slices_per_shard=slices_per_shard) as writer:
        for size in sizes:
            ids = pa.array(range(n, n + size), pa.int64())
            writer.add(pa.record_batch([ids, ids.cast(pa.string())], schema=schema))
            n += size
        writer.finish()
    paths = sorted((root / names.UNITS).iterdir())
    metadata = [pq.read_metadata(path) for path in paths]
    groups = [m.row_group(i).num_rows for m in metadata for i in range(m.num_row_groups)]
    assert sum(groups) == n
    assert set(groups[:-1]) <= {unit_rows}
    assert all(m.num_row_groups == slices_per_shard for m in metadata[:-1])
    assert [i for path in paths for i in pq.read_table(path).column("id").to_pylist()] == list(range(n))
    assert writer.n_bytes == sum(path.stat().st_size for path in paths)
