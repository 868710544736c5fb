"""Which agent compacts which bucket: one of those that finished it, else one that leaves."""

import dataclasses
from pathlib import Path
from random import Random

import pytest
from fabricate import FabricatedRun, fabricate, finish_all

from fsctx.agent.compactor import SWEPT, Compactor
from fsctx.agent.events import EventLog
from fsctx.protocol import buckets, compaction, names

N_BUCKETS = SWEPT + 1


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    run = fabricate(tmp_path / "run", n_rows=256 * SWEPT + 4, unit_rows=1, slices_per_shard=256)
    finish_all(run)
    return run


def compactor(run: FabricatedRun, agent: str) -> Compactor:
    return Compactor(
        store=run.store,
        manifest=dataclasses.replace(run.manifest, compacts=True),
        labels=[run.labels],
        events=EventLog(run.store, agent, clock=lambda: 0.0, utc=lambda: ""),
        agent=agent,
        chance=Random(1),
    )


def move_on(agent: Compactor, bucket: int) -> None:
    agent.published(256 * bucket)
    agent.published(256 * (bucket + 1))


def test_of_two_agents_that_move_on_from_a_bucket_only_the_first_merges_it(run: FabricatedRun) -> None:
    assert run.store.create(names.merger(0), b"the first, which is at it")
    move_on(compactor(run, "second"), 0)
    assert not buckets.compacted(run.store)
    move_on(compactor(run, "second"), 1)
    assert buckets.compacted(run.store) == {1}


def test_an_agent_that_rests_merges_its_last_bucket_once(run: FabricatedRun) -> None:
    agent = compactor(run, "first")
    agent.published(256)
    agent.rest()
    assert buckets.compacted(run.store) == {1}
    agent.store = None  # type: ignore[assignment]
    agent.rest()


def test_agents_that_leave_merge_what_killed_ones_left_behind_a_few_each(run: FabricatedRun) -> None:
    assert run.store.create(names.merger(0), b"killed while it merged")
    compactor(run, "third").finish()
    assert len(buckets.compacted(run.store)) == SWEPT
    compactor(run, "fourth").finish()
    assert len(buckets.compacted(run.store)) == N_BUCKETS


def test_a_bucket_whose_merger_was_killed_while_it_removed_files_is_cleaned_up_by_one_that_leaves(
    run: FabricatedRun,
) -> None:
    for bucket in range(1, N_BUCKETS):
        compaction.compact(run.store, run.manifest, [run.labels], bucket)
    merged = run.store.read(names.compacted(1))
    run.store.replace(names.compacted(0), merged)
    run.store.remove_folder(names.bucket_folder(names.RESULTS, 0))
    assert compaction.uncompacted(run.store) == [0]
    compactor(run, "third").finish()
    assert compaction.uncompacted(run.store) == []
