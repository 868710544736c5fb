import dataclasses
import shutil
from pathlib import Path

import pytest
from fabricate import (
    FabricatedRun,
    Undurable,
    fabricate,
    fail_unit,
    finish_all,
    finish_unit,
    lease_unit,
    verdict_table,
)

from fsctx.coordinator.collect.collect import Request, collect
from fsctx.coordinator.collect.proof import prove
from fsctx.coordinator.status import read_status
from fsctx.errors import Damaged
from fsctx.protocol import buckets, names
from fsctx.protocol.compaction import compact
from fsctx.protocol.published import read_unit
from fsctx.store import PosixStore


@pytest.fixture(scope="module")
def nearly_done(tmp_path_factory: pytest.TempPathFactory) -> FabricatedRun:
    """Two buckets, in which units 3 and 258 are left to do."""
    run = fabricate(tmp_path_factory.mktemp("runs") / "run", n_rows=260, unit_rows=1, slices_per_shard=256)
    finish_all(run, but=[3, 258])
    return run


@pytest.fixture
def run(nearly_done: FabricatedRun, tmp_path: Path) -> FabricatedRun:
    root = shutil.copytree(nearly_done.root, tmp_path / "run", symlinks=True)
    return dataclasses.replace(nearly_done, store=PosixStore(root, system=Undurable()))


def finish_rest(run: FabricatedRun) -> None:
    for unit in (3, 258):
        finish_unit(run, unit)


def compacted(run: FabricatedRun, bucket: int) -> bool:
    return compact(run.store, run.manifest, [run.labels] * len(run.manifest.tasks), bucket)


def files(run: FabricatedRun) -> list[str]:
    return sorted(str(path.relative_to(run.root)) for path in run.root.rglob("*") if not path.is_dir())


def test_a_finished_bucket_becomes_one_file_and_says_the_same(run: FabricatedRun) -> None:
    finish_rest(run)
    before = [read_unit(run.store, run.manifest, unit, labels=run.labels) for unit in range(run.geometry.n_units)]
    for bucket in range(run.geometry.n_buckets):
        assert compacted(run, bucket)
    after = [read_unit(run.store, run.manifest, unit, labels=run.labels) for unit in range(run.geometry.n_units)]
    assert [table.to_pylist() for table in after if table] == [table.to_pylist() for table in before if table]
    assert len(after) == 260
    assert not [name for name in files(run) if name.startswith(("leases", "partial"))]
    assert [name for name in files(run) if name.startswith("results")] == [
        names.compacted(bucket) for bucket in range(2)
    ]


def test_readers_count_compacted_buckets(run: FabricatedRun) -> None:
    finish_unit(run, 3)
    compacted(run, 0)
    assert buckets.look(run.store, run.geometry, 0).is_compacted
    assert buckets.compacted(run.store) == {0}
    status = read_status(run.store)
    assert (status.units.done, status.rows.done) == (259, 259)
    assert prove(run.store, run.geometry).missing_rows == 1


def test_a_bucket_with_a_unit_to_do_or_a_failed_one_is_left_alone(run: FabricatedRun) -> None:
    fail_unit(run, 258)
    before = files(run)
    assert not compacted(run, 0)
    assert not compacted(run, 1)
    assert files(run) == before


def test_a_damaged_result_is_told_and_nothing_is_removed(run: FabricatedRun) -> None:
    finish_unit(run, 258)
    finish_unit(run, 3, rows=[4])
    before = files(run)
    with pytest.raises(Damaged, match="unit 3"):
        compacted(run, 0)
    assert files(run) == before


def test_compacting_again_cleans_up_after_a_crash(run: FabricatedRun) -> None:
    finish_rest(run)
    compacted(run, 0)
    run.store.make_folder(names.bucket_folder(names.LEASES, 0))
    lease_unit(run, 5)
    assert compacted(run, 0)
    assert not run.store.has_folder(names.bucket_folder(names.LEASES, 0))


def test_a_sweep_over_different_templates_is_compacted_too(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=40, unit_rows=4, templates=("a", "b"))
    finish_all(run)
    other = ("SUPPORTED", "REFUTED", "NOT ENOUGH INFO")
    assert compact(run.store, run.manifest, [other, other], 0)
    table = read_unit(run.store, run.manifest, 15, labels=other)
    assert table is not None
    assert table.to_pylist() == verdict_table(run, range(20, 24)).to_pylist()


def test_collect_reads_compacted_buckets(run: FabricatedRun, tmp_path: Path) -> None:
    finish_rest(run)
    whole = collect(run.store, Request(output=tmp_path / "whole.csv"))
    compacted(run, 1)
    mixed = collect(run.store, Request(output=tmp_path / "mixed.csv"))
    assert whole.rows == mixed.rows == 260
    assert (tmp_path / "whole.csv").read_bytes() == (tmp_path / "mixed.csv").read_bytes()


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all"])
def test_a_damaged_compacted_file_is_named(run: FabricatedRun, content: bytes) -> None:
    finish_rest(run)
    compacted(run, 0)
    (run.root / names.compacted(0)).write_bytes(content)
    with pytest.raises(Damaged, match=r"results/000000\.parquet"):
        read_unit(run.store, run.manifest, 7, labels=run.labels)
