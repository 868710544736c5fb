"""The exactly-once proof: what it accepts, what it refuses, and that its counts are right."""

import os
import tempfile
from pathlib import Path

import pytest
from fabricate import fabricate, fail_unit, finish_all, finish_unit, lease_unit, lose_race
from hypothesis import given, settings
from hypothesis import strategies as st

from fsctx.coordinator.collect.collect import Request, Summary, collect
from fsctx.coordinator.collect.proof import prove
from fsctx.errors import Damaged, InputError, NotComplete
from fsctx.protocol import names


def partial(run) -> Summary:
    return collect(run.store, Request(is_partial=True))


def test_a_finished_run_is_proved_whole(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=10, unit_rows=4, models=("a", "b"))
    finish_all(run)
    proof = prove(run.store, run.geometry)
    assert (proof.rows, proof.missing_rows, proof.failures) == (20, 0, ())
    assert collect(run.store, Request()).rows == 20


def test_a_run_in_which_nothing_was_done_is_not_complete(tmp_path):
    run = fabricate(tmp_path / "run")
    with pytest.raises(NotComplete, match=r"10 of 10 verdicts are missing.*nothing was written.*fsctx status"):
        collect(run.store, Request())


def test_missing_and_failed_verdicts_are_counted_and_nothing_is_written(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=10, unit_rows=4)
    finish_unit(run, 0)
    fail_unit(run, 2, reason="the engine died")
    with pytest.raises(NotComplete) as error:
        collect(run.store, Request(output=tmp_path / "out.parquet"))
    said = str(error.value)
    assert "6 of 10 verdicts are missing, 2 of them in failed units (first: unit 2, the engine died)" in said
    assert "\n" not in said
    assert os.listdir(tmp_path) == ["run"]


def test_where_only_failed_units_are_left_the_message_names_retry(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run, but=[1])
    fail_unit(run, 1)
    with pytest.raises(NotComplete, match=r"all of them in failed units.*fsctx retry"):
        collect(run.store, Request())


def test_failed_units_are_listed_with_reason_and_rows(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run, but=[2])
    fail_unit(run, 2, reason="poison")
    summary = partial(run)
    assert [(f.unit, f.reason, f.rows) for f in summary.failures] == [(2, "poison", 2)]
    assert (summary.rows, summary.missing, summary.failed) == (8, 2, 2)


def test_a_result_outweighs_a_failure_record(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    fail_unit(run, 1, generation=1)
    summary = collect(run.store, Request())
    assert (summary.rows, summary.failures) == (10, ())


def test_a_loser_s_file_does_not_count(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    lose_race(run, 0, generation=1)
    summary = collect(run.store, Request())
    assert (summary.rows, summary.duplicates, summary.superseded_units) == (10, 0, 1)


def test_a_result_that_is_written_but_not_published_is_missing(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run, but=[0])
    lose_race(run, 0, generation=0)
    assert partial(run).missing == 4


def test_the_published_generation_counts(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4)
    lease_unit(run, 0)
    finish_unit(run, 0, generation=3)
    assert prove(run.store, run.geometry).generations.tolist() == [3]


def test_verdicts_in_any_order_within_a_unit_are_accepted(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4)
    finish_unit(run, 0, rows=[2, 0, 3, 1])
    assert collect(run.store, Request()).rows == 4


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([0, 1, 3], r"1 missing \(first: row 2\)"),
        ([], r"4 missing \(first: row 0\)"),
        ([0, 1, 2, 2], r"1 missing \(first: row 3\), 1 more than once \(first: row 2\)"),
        ([0, 1, 2, 3, 3], r"1 more than once \(first: row 3\)"),
        ([0, 1, 2, 3, 4], r"1 of other units \(first: row 4\)"),
    ],
)
def test_a_unit_without_exactly_its_rows_is_damaged(tmp_path, rows, said):
    run = fabricate(tmp_path / "run")
    finish_all(run, but=[0])
    finish_unit(run, 0, rows=rows)
    with pytest.raises(Damaged, match=rf"results/000000/00000000\.0\.parquet should hold rows 0 to 3.*{said}"):
        collect(run.store, Request(output=tmp_path / "out.parquet"))
    assert os.listdir(tmp_path) == ["run"]


@pytest.mark.parametrize("target", ["00000001.0.parquet", "../000000/00000000.0.parquet", "/etc/passwd", "x"])
def test_a_symlink_to_anything_but_a_result_of_its_unit_is_damage(tmp_path, target):
    run = fabricate(tmp_path / "run")
    finish_all(run, but=[0])
    os.symlink(target, run.root / names.published(0, 0))
    with pytest.raises(Damaged, match="results/000000/00000000 points to"):
        partial(run)


def test_a_symlink_to_a_file_that_is_gone_is_damage(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    os.unlink(run.root / "results/000000/00000001.0.parquet")
    with pytest.raises(Damaged, match=r"00000001\.0\.parquet is published but not there"):
        partial(run)


def test_a_name_of_a_unit_that_the_bucket_does_not_have_is_damage(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    os.symlink("00000007.0.parquet", run.root / names.published(0, 7))
    with pytest.raises(Damaged, match=r"results/000000/00000007 is of no unit of its bucket \(units 0 to 2\)"):
        partial(run)


def test_a_torn_result_is_damage_and_named(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    path = run.root / "results/000000/00000002.0.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    said = r"results/000000/00000002\.0\.parquet is not readable Parquet.*: restore the file, or remove results/"
    with pytest.raises(Damaged, match=said):
        collect(run.store, Request())


def test_a_result_of_another_unit_under_this_one_s_name_is_damage(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=8, unit_rows=4)
    finish_all(run)
    other = (run.root / "results/000000/00000001.0.parquet").read_bytes()
    (run.root / "results/000000/00000000.0.parquet").write_bytes(other)
    with pytest.raises(Damaged, match=r"00000000\.0\.parquet says it is of"):
        collect(run.store, Request())


def test_a_torn_shard_is_damage_and_named(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    shard = run.root / names.shard(1)
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(Damaged, match=r"units/shard-00001\.parquet is not readable Parquet"):
        collect(run.store, Request(output=tmp_path / "out.csv"))
    assert os.listdir(tmp_path) == ["run"]


def test_a_shard_of_another_length_is_damage_and_named(tmp_path):
    run = fabricate(tmp_path / "run", n_rows=8, unit_rows=4, slices_per_shard=1)
    short = fabricate(tmp_path / "short", n_rows=3, unit_rows=4, slices_per_shard=1)
    finish_all(run)
    os.replace(short.root / names.shard(0), run.root / names.shard(1))
    with pytest.raises(Damaged, match=r"units/shard-00001\.parquet has 3 rows in row group 0, not 4"):
        collect(run.store, Request())


def test_a_missing_shard_is_damage_and_named(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    os.unlink(run.root / names.shard(0))
    with pytest.raises(Damaged, match=r"units/shard-00000\.parquet is not there"):
        collect(run.store, Request())


def test_a_missing_template_is_damage_and_named(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    os.unlink(run.root / names.template("fever"))
    with pytest.raises(Damaged, match=r"templates/fever\.toml is not there"):
        collect(run.store, Request())


def test_a_run_of_a_newer_schema_is_refused(tmp_path):
    run = fabricate(tmp_path / "run")
    path = run.root / names.MANIFEST
    path.write_bytes(path.read_bytes().replace(b'"schema": 1', b'"schema": 99'))
    with pytest.raises(InputError, match="schema 99"):
        collect(run.store, Request())


def test_a_unit_that_vanishes_after_the_listing_is_missing_from_a_partial_collection(tmp_path, monkeypatch):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    vanishing = _Vanishing(run.store, names.published(0, 1))
    summary = collect(vanishing, Request(is_partial=True))
    assert (summary.rows, summary.missing) == (6, 4)


def test_a_unit_that_vanishes_after_the_listing_stops_a_whole_collection(tmp_path):
    run = fabricate(tmp_path / "run")
    finish_all(run)
    with pytest.raises(NotComplete, match="4 of 10 verdicts are missing"):
        collect(_Vanishing(run.store, names.published(0, 1)), Request(output=tmp_path / "out.jsonl"))
    assert os.listdir(tmp_path) == ["run"]


class _Vanishing:
    """A store in which one published name is gone from the second look on."""

    def __init__(self, store, name):
        self._store, self._name, self._looks = store, name, 0

    def __getattr__(self, method):
        return getattr(self._store, method)

    def target(self, name):
        self._looks += name == self._name
        return None if name == self._name and self._looks > 1 else self._store.target(name)


@settings(max_examples=25)
@given(data=st.data())
def test_the_counts_are_right_for_any_geometry_and_any_set_of_finished_units(data):
    n_rows = data.draw(st.integers(1, 40), label="rows")
    unit_rows = data.draw(st.integers(1, 12), label="rows a unit")
    models = data.draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c")]), label="models")
    per_shard = data.draw(st.integers(1, 5), label="slices a shard")
    with tempfile.TemporaryDirectory() as folder:
        run = fabricate(
            Path(folder) / "r", n_rows=n_rows, unit_rows=unit_rows, slices_per_shard=per_shard, models=models
        )
        units = list(range(run.geometry.n_units))
        finished = data.draw(st.sets(st.sampled_from(units)), label="finished")
        failed = data.draw(st.sets(st.sampled_from(units)), label="failed")
        for unit in finished:
            finish_unit(run, unit, generation=unit % 3)
        for unit in failed:
            fail_unit(run, unit, generation=7)
        rows = {unit: run.geometry.place(unit).n_rows for unit in units}
        proof, summary = prove(run.store, run.geometry), partial(run)
        done = sum(rows[unit] for unit in finished)
        assert proof.missing_rows == n_rows * len(models) - done
        assert proof.failed_rows == sum(rows[unit] for unit in failed - finished)
        assert (summary.rows, summary.missing) == (done, n_rows * len(models) - done)
