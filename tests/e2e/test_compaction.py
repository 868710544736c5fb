"""Agents compact the buckets that they finish, while others work and one is killed."""

import signal
from pathlib import Path

from e2e.running import events, finish, n_published, running, start_agent, wait_until
from fabricate import fabricate

from fsctx.coordinator.collect.collect import Request, collect
from fsctx.protocol import buckets, leases, names
from fsctx.protocol.names import LeaseId


def test_a_finished_run_of_many_units_leaves_a_file_per_bucket(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=1200, unit_rows=2, slices_per_shard=256)
    manifest = run.root / names.MANIFEST
    manifest.write_text(manifest.read_text().replace('"compacts": false', '"compacts": true'))
    with running(run.root, "--engine", "fake:rows_per_s=300") as victim:
        wait_until(lambda: len(events(run, "published")) > 10 or victim.poll() is not None)
        victim.send_signal(signal.SIGKILL)
    ended = finish(start_agent(run.root, "--engine", "fake"), start_agent(run.root, "--engine", "fake"))
    assert [code for code, _ in ended] == [0, 0]
    summary = collect(run.store, Request())
    assert (summary.rows, summary.missing) == (1200, 0)
    [(code, said)] = finish(start_agent(run.root, "--engine", "fake"))
    assert code == 0
    assert "every unit is done" in said
    assert len(buckets.compacted(run.store)) == 3  # whoever leaves merges what a killed agent left behind


def test_an_agent_that_waits_for_others_has_merged_its_last_bucket(tmp_path: Path) -> None:
    run = fabricate(tmp_path / "run", n_rows=600, unit_rows=2, slices_per_shard=256)
    manifest = run.root / names.MANIFEST
    patient = manifest.read_text().replace('"ttl_s": 15.0', '"ttl_s": 600.0')
    manifest.write_text(patient.replace('"compacts": false', '"compacts": true'))
    assert leases.take(run.store, LeaseId(0, 0), "somebody-else")  # whose unit is waited for, in the first bucket
    with running(run.root, "--engine", "fake") as waits:
        wait_until(lambda: (buckets.compacted(run.store), n_published(run)) == ({1}, 255) or waits.poll() is not None)
        assert waits.poll() is None
