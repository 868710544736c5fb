"""A shard says whose it is: one of another run, or another one of the same run, is noticed in its place."""

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from planning import make_plan, manifest_of, shards_of

from fsctx.agent.slices import Slices
from fsctx.coordinator.collect.collect import Request, collect
from fsctx.errors import Damaged
from fsctx.protocol import names
from fsctx.store import PosixStore


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs of the same shape: several shards, each of the same number of row groups."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.txt").write_text("".join(f"claim {row} of {name}\n" for row in range(600)))
        make_plan(tmp_path / f"{name}.txt", run=tmp_path / name, unit_rows=1)
    return tmp_path / "one", tmp_path / "two"


def read_by_an_agent(run: Path) -> None:
    manifest = manifest_of(run)
    with contextlib.closing(Slices(PosixStore(run), run=manifest.run)) as slices:
        for number in (0, manifest.geometry.n_slices - 1):
            slices.read_together([manifest.geometry.place(number)], ())
            slices.read(manifest.geometry.place(number), ())


def read_by_collect(run: Path) -> None:
    collect(PosixStore(run), Request(is_partial=True))


@pytest.mark.parametrize("read", [read_by_an_agent, read_by_collect])
def test_a_shard_of_another_run_or_another_number_is_damage_and_named(
    runs: tuple[Path, Path], read: Callable[[Path], None]
) -> None:
    own, other = runs
    first, *_, last = shards_of(own)
    assert first != last
    read(own)
    for place, taken, said in (
        (last, other / names.UNITS / last.name, rf"shard \d+ of run {manifest_of(other).run}, not \d+ of "),
        (first, last, r"shard \d+ of run \S+, not 0 of "),
    ):
        whole = place.read_bytes()
        place.write_bytes(taken.read_bytes())
        for _ in range(2):  # also when it is asked for again
            with pytest.raises(Damaged, match=rf"{place.name} is {said}.*: restore it"):
                read(own)
        place.write_bytes(whole)
        read(own)


@pytest.mark.parametrize("read", [read_by_an_agent, read_by_collect])
def test_shards_that_say_nothing_are_read_as_ever(runs: tuple[Path, Path], read: Callable[[Path], None]) -> None:
    for shard in shards_of(runs[0]):
        whole = pq.ParquetFile(shard)
        with pq.ParquetWriter(f"{shard}.new", whole.schema_arrow.remove_metadata()) as writer:
            for group in range(whole.num_row_groups):
                writer.write_table(whole.read_row_group(group).replace_schema_metadata())
        os.replace(f"{shard}.new", shard)
    read(runs[0])
