"""Pilots on a real Slurm cluster of invented GPUs: exactly one row a claim, whatever the cluster does to them."""

from collections.abc import Iterator

import pytest
from clusters import beds
from clusters.beds import Bed, Run, wait_until

from fsctx.protocol.agents import AgentState
from fsctx.protocol.hosts import HostFailure, record_host_failure

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
    asked = {"partition": "low", "time": "10:00", "at_once": "2", "cpus": "2", "gres": "gpu:a100:1", "notice_s": "30"}
    text = run.dry_run({**asked, "account": "a", "qos": "q", "extra": "--comment=fsctx"})
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
    run.submit("-n", "1", "--set", "time=1:00", "--set", "notice_s=0", engine=SLOW)
    run.submit("-n", "1", "--set", "time=2:00", "--set", "notice_s=60", engine=SLOW)  # Slurm gives up to 30 s more
    wait_until(lambda: len(run.events("left")) == 2, what=lambda: run.fsctx("status"))
    run.wait_left()
    limits = {record.agent: record.job.left_s for record in run.records() if record.job is not None}
    reasons = {event["reason"]: limits[event["agent"]] or 1e9 for event in run.events("left")}
    assert reasons.pop("SIGTERM was received") <= 120
    assert [("walltime" in reason, left_s <= 60) for reason, left_s in reasons.items()] == [(True, True)]
    assert all(session.ledger.rows_done > 0 for session in run.sessions())


def test_pilots_preempted_by_a_higher_partition_save_and_come_back(cluster: Bed) -> None:
    run = cluster.make_run("preempted", rows=1600, unit_rows=80)
    run.submit("-n", "4", "--set", "partition=low", engine=SLOW)
    wait_until(lambda: len([s for s in run.working() if s.progress > 10]) == 4, what=lambda: run.fsctx("status"))
    high = ("--partition=high", "--nodes=2", "--exclusive", "--time=1", "--output=/dev/null", "--wrap=sleep 3")
    cluster.user("sbatch", *high)
    wait_until(lambda: queue(run) == ["PENDING"] * 4, what=lambda: f"{queue(run)} {run.fsctx('status')}")
    assert len([s for s in run.sessions() if s.state == AgentState.LEFT]) == 4
    assert run.events("saved")
    for k in range(4):  # Slurm lets two minutes pass
        cluster.call("root", "scontrol", "update", f"jobid={run.jobs()[0]}_{k}", "starttime=now", code=None)
    run.wait_done()
    assert_each_once(run, 1600)
    run.wait_left()  # how much an agent computed it notes after the last of it is there
    assert run.n_computed() == 1600  # what was saved was not computed again


@pytest.mark.parametrize(
    ("setting", "said"),
    [("partition=nix", "invalid partition"), ("gres=gpu:a100:9", "configuration is not available")],
)
def test_pilots_that_could_never_run_are_refused_in_a_line(cluster: Bed, setting: str, said: str) -> None:
    run = cluster.make_run(f"refused-{setting.partition('=')[0]}", rows=2, unit_rows=2)
    printed = run.submit("-n", "2", "--set", setting, engine="fake", code=2)
    assert (said in printed, "nothing was queued" in printed, printed.count("\n")) == (True, True, 1), printed
    assert run.jobs() == []


def test_stop_takes_out_the_pilots_that_wait_or_are_on_hold(cluster: Bed) -> None:
    run = cluster.make_run("stopped", rows=4000, unit_rows=4)
    run.submit("-n", "6", engine=SLOW)
    wait_until(lambda: len(run.working()) == 4, what=lambda: run.fsctx("status"))  # so many GPUs there are
    cluster.user("scontrol", "hold", f"{run.jobs()[0]}_5")
    seen = run.status()["pilots"][0]["seen"]
    assert (seen["running"], seen["queued"], seen["held"]) == (4, 1, 1)
    assert f"you hold them: scontrol release {run.jobs()[0]}" in run.fsctx("status")
    assert "2 pilot(s) that waited were taken out" in run.fsctx("stop")
    wait_until(lambda: not queue(run), what=lambda: str(queue(run)))
    assert {session.state for session in run.sessions()} == {AgentState.LEFT}


def test_hosts_that_failed_under_another_batch_system_are_not_named_to_slurm(cluster: Bed) -> None:
    run = cluster.make_run("elsewhere", rows=20, unit_rows=4)
    for system, host in (("htcondor", "n1.pool.test"), ("slurm", "s1")):
        for agent in ("a", "b"):
            record_host_failure(run.store, HostFailure(host=host, system=system, reason="no GPU", agent=agent, time=""))
    said = run.submit("-n", "1", engine="fake")
    assert "not on s1: agents of this run could not work there" in said
    run.wait_done()
    assert [record.job.machine for record in run.records() if record.job is not None] == ["s2"]
