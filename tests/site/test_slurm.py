"""Pilots on a real Slurm cluster of invented GPUs: exactly one row a claim, whatever the cluster does to them."""

from collections.abc import Iterator

import pytest
from clusters import beds
from clusters.beds import Bed, Run, wait_until

from fsctx.protocol.agents import AgentState

pytestmark = pytest.mark.slurm

SLOW = "fake:rows_per_s=10,batch_tokens=4"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Bed]:
    with beds.slurm(nodes="s1:4:8192:2xa100 s2:4:8192:1xh200,1xl4") as bed:
        yield bed


def assert_each_once(run: Run, n_rows: int) -> None:
    proof = run.collect()
    assert (proof["rows"], proof["ok"], proof["missing"], proof["duplicates"]) == (n_rows, n_rows, 0, 0)


def queue(run: Run) -> list[str]:
    """Return the states of a run's jobs in the queue."""
    listed = run.bed.user("squeue", "--noheader", "--array", "--format=%F %T").splitlines()
    return [line.split()[1] for line in listed if line.split()[0] in run.jobs()]


def wait_for_progress(run: Run) -> None:
    wait_until(lambda: any(session.progress > 20 for session in run.working()), what=lambda: run.fsctx("status"))


def wait_adopted(run: Run) -> None:
    """Wait until the rows that were saved last are adopted by a later agent, all of them."""
    wait_until(lambda: run.events("saved"), what=lambda: run.fsctx("status"))
    n_saved = run.events("saved")[-1]["rows"]
    wait_until(lambda: [e for e in run.events("leased") if e["adopted"]], what=lambda: run.fsctx("status"))
    assert next(e["adopted"] for e in run.events("leased") if e["adopted"]) == n_saved


def end(run: Run) -> None:
    run.fsctx("stop")
    wait_until(lambda: not queue(run), what=lambda: str(queue(run)))


def test_an_array_of_pilots_gives_each_claim_one_row(cluster: Bed) -> None:
    run = cluster.make_run("array", rows=240, unit_rows=4)
    run.submit("-n", "6", "--set", "at_once=3", engine="fake:rows_per_s=5,load_s=1")
    wait_until(lambda: run.working(), what=lambda: run.fsctx("status"))
    assert run.status()["pilots"][0]["seen"]["running"] <= 3
    run.wait_done()
    assert_each_once(run, 240)
    jobs = [record.job for record in run.records()]
    assert all(job is not None and job.system == "slurm" and job.gpus and len(job.gpus) == 1 for job in jobs)


def test_sbatch_knows_every_option(cluster: Bed) -> None:
    run = cluster.make_run("options", rows=2, unit_rows=2)
    text = run.dry_run({"partition": "low", "time": "10:00", "at_once": "2", "cpus": "2", "gres": "gpu:a100:1"})
    assert "to start at" in cluster.user("sbatch", "--test-only", text)


def test_a_requeued_pilot_saves_and_comes_back(cluster: Bed) -> None:
    run = cluster.make_run("requeued", rows=400, unit_rows=200)
    run.submit("-n", "1", engine=SLOW)
    wait_for_progress(run)
    job = run.jobs()[0]
    cluster.user("scontrol", "requeue", f"{job}_0")
    wait_until(lambda: queue(run) == ["PENDING"], what=lambda: str(queue(run)))
    cluster.call("root", "scontrol", "update", f"jobid={job}_0", "starttime=now")
    wait_adopted(run)
    end(run)


def test_a_cancelled_pilot_saves_and_another_goes_on(cluster: Bed) -> None:
    run = cluster.make_run("cancelled", rows=400, unit_rows=200)
    run.submit("-n", "1", engine=SLOW)
    wait_for_progress(run)
    cluster.user("scancel", run.jobs()[0])
    wait_until(lambda: [s for s in run.sessions() if s.state == AgentState.LEFT], what=lambda: run.fsctx("status"))
    run.submit("-n", "1", engine=SLOW)
    wait_adopted(run)
    end(run)


def test_an_agent_stops_leasing_before_its_time_limit(cluster: Bed) -> None:
    run = cluster.make_run("limited", rows=4000, unit_rows=10)
    run.submit("-n", "1", "--set", "time=1:00", "--set", "notice_s=30", engine="fake:rows_per_s=10,batch_tokens=4")
    wait_until(lambda: [s for s in run.sessions() if s.state == AgentState.LEFT], what=lambda: run.fsctx("status"))
    record = run.records()[0]
    assert record.job is not None
    assert record.job.left_s is not None
    assert record.job.left_s <= 60
    left = [session for session in run.sessions() if session.state == AgentState.LEFT]
    assert len(left) == 1
    assert left[0].ledger.rows_done > 0


def test_pilots_preempted_by_a_higher_partition_save_and_come_back(cluster: Bed) -> None:
    run = cluster.make_run("preempted", rows=1200, unit_rows=60)
    run.submit("-n", "4", "--set", "partition=low", engine=SLOW)
    wait_until(lambda: len([s for s in run.working() if s.progress > 10]) == 4, what=lambda: run.fsctx("status"))
    high = ("--partition=high", "--nodes=2", "--exclusive", "--time=1", "--output=/dev/null", "--wrap=sleep 3")
    cluster.user("sbatch", *high)
    wait_until(lambda: queue(run) == ["PENDING"] * 4, what=lambda: f"{queue(run)} {run.fsctx('status')}")
    assert len([s for s in run.sessions() if s.state == AgentState.LEFT]) == 4
    n_saved = sum(event["rows"] for event in run.events("saved"))
    assert n_saved
    for k in range(4):  # Slurm lets two minutes pass
        cluster.call("root", "scontrol", "update", f"jobid={run.jobs()[0]}_{k}", "starttime=now", code=None)
    run.wait_done()
    assert_each_once(run, 1200)
    assert sum(event["adopted"] for event in run.events("leased")) == n_saved
