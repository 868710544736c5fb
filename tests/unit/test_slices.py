"""Reading claims, and writing verdicts: what is shared between units changes nothing in them."""

import contextlib
import io
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from fabricate import FabricatedRun, fabricate

from fsctx.agent.engines.base import Row
from fsctx.agent.slices import Slices
from fsctx.errors import Damaged
from fsctx.protocol import names
from fsctx.protocol.verdicts import Origin, Status, Verdict, from_parquet, to_parquet, to_table
from fsctx.store import PosixStore
from fsctx.store.counting import CountingSystem, Meter
from fsctx.store.system import System

LABELS = ("yes", "no")


def _origin(agent: str) -> Origin:
    return Origin(generation=1, agent=agent, host="h", device="d", engine="e")


def test_units_read_one_after_the_other_share_an_open_of_their_shard(tmp_path: Path) -> None:
    run, meter = fabricate(tmp_path / "run", n_rows=16, unit_rows=4, slices_per_shard=2), Meter()
    store = PosixStore(run.root, system=CountingSystem(System(), meter))
    with contextlib.closing(Slices(store, run=run.manifest.run)) as slices:
        rows = [row.row for unit in range(4) for row in slices.read(run.geometry.place(unit), ())]
    assert rows == list(range(16))
    assert meter.by_kind() == {"open": 2}


def _each(run: FabricatedRun, slices: Slices, units: Iterable[int], *, together: bool) -> dict[int, list[Row]]:
    with contextlib.closing(slices):
        places = [run.geometry.place(unit) for unit in units]
        if together:
            slices.read_together(places, ["source"])
        return {place.unit: slices.read(place, ["source"]) for place in places}


def test_units_read_together_are_read_as_each_alone(tmp_path: Path) -> None:
    sources = [f"source {row}" for row in range(23)]
    run = fabricate(tmp_path / "run", n_rows=23, unit_rows=4, slices_per_shard=2, columns={"source": sources})
    units = [4, 5, 0, 3, 1]  # the last is short, and shards come in turns
    together = _each(run, Slices(run.store, run=run.manifest.run), units, together=True)
    assert together == _each(run, Slices(run.store, run=run.manifest.run), units, together=False)
    assert [row.row for row in together[5]] == [20, 21, 22]
    assert together[3][0].columns == {"source": "source 12"}


def test_a_damaged_slice_keeps_no_other_that_is_read_together_with_it(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=16, unit_rows=4, slices_per_shard=4)
    moved = replace(run.geometry.place(2), n_rows=3)  # as if plan had cut the claims elsewhere
    places = [run.geometry.place(0), replace(run.geometry.place(1), n_rows=5), moved]
    with contextlib.closing(Slices(run.store, run=run.manifest.run)) as slices:
        slices.read_together(places, [])
        assert [row.row for row in slices.read(places[0], [])] == [0, 1, 2, 3]
        with pytest.raises(Damaged, match="row group 1 has 4 rows, not 5"):
            slices.read(places[1], [])
        with pytest.raises(Damaged, match="row group 2 has 4 rows, not 3"):
            slices.read(moved, [])


def test_a_shard_that_was_restored_is_read_again_at_the_next_visit(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=4, unit_rows=4)
    shard, slices = run.root / names.shard(0), Slices(run.store, run=run.manifest.run)
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(Damaged, match="restore it"), contextlib.closing(slices):
        slices.read(run.geometry.place(0), ())
    shard.write_bytes(whole)
    with contextlib.closing(slices):
        assert len(slices.read(run.geometry.place(0), ())) == 4


@pytest.mark.parametrize("n", [1, 3, 300])
def test_verdicts_come_back_as_they_were_where_columns_hold_one_value_and_where_they_hold_several(n: int) -> None:
    alike = [Verdict(row=i, verdict="yes", scores=(-0.5, -1.0), input_tokens=7) for i in range(n)]
    mixed = [
        Verdict(row=n, text="maybe", output_tokens=2),
        Verdict(row=n + 1, status=Status.ERROR, error="it failed"),
    ]
    for verdicts, agent in ((alike, "a"), ([*alike, *mixed], "a"), (alike, "b")):
        content = to_parquet(to_table(verdicts, LABELS, _origin(agent)), run="r", unit=3)
        read = from_parquet(io.BytesIO(content), run="r", unit=3, labels=LABELS, where="here").to_pylist()
        assert [row["row"] for row in read] == [v.row for v in verdicts]
        assert [row["status"] for row in read] == [v.status for v in verdicts]
        assert [(row["text"], row["error"], row["output_tokens"]) for row in read] == [
            (v.text, v.error, v.output_tokens) for v in verdicts
        ]
        assert [(row["score_yes"], row["score_no"]) for row in read] == [v.scores or (None, None) for v in verdicts]
        assert {row["agent"] for row in read} == {agent}
