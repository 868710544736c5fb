"""One run served by pilots of two real batch systems and by an agent of a workstation, all at the same time."""

import dataclasses

import pytest
from clusters import beds
from clusters.beds import wait_until

pytestmark = [pytest.mark.condor, pytest.mark.slurm]


def test_one_run_is_served_by_htcondor_slurm_and_a_workstation_at_once() -> None:
    with (
        beds.condor(nodes="n1:2:4096:2xA100", name="pool-of-two", port=19918) as pool,
        beds.slurm(nodes="s1:2:4096:2xa100", name="cluster-of-two", port=27017) as cluster,
    ):
        run = pool.make_run("together", rows=1800, unit_rows=10)
        engine = "fake:rows_per_s=10,batch_tokens=4"
        run.submit("-n", "2", engine=engine)
        dataclasses.replace(run, bed=cluster).submit("-n", "2", engine=engine)
        run.fsctx("submit", "--batch", "local", "-n", "1", "--", "--engine", engine, "--device", "cpu")
        wait_until(lambda: len(run.working()) == 5, what=lambda: run.fsctx("status"))
        run.wait_done()
        proof = run.collect()
        assert (proof["rows"], proof["ok"], proof["missing"], proof["duplicates"]) == (1800, 1800, 0, 0)
        run.wait_left()  # what a session says of the last unit may come after the run is done
        systems = {record.agent: record.job.system if record.job else None for record in run.records()}
        rows = {session.agent: session.ledger.rows_done for session in run.sessions()}
        assert sorted(map(str, systems.values())) == ["None", "htcondor", "htcondor", "slurm", "slurm"]
        assert sum(rows.values()) == 1800
        assert all(rows[agent] > 0 for agent in systems)
