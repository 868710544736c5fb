"""Pilots on a real HTCondor pool of invented GPUs: exactly one row a claim, whatever the pool does to them."""

import dataclasses
import sys
import time
from collections.abc import Iterator

import pytest
from clusters import beds
from clusters.beds import Bed, Run, wait_until

from fsctx.protocol.agents import AgentState
from fsctx.store import PosixStore

pytestmark = pytest.mark.condor

ENGINE = "fake:rows_per_s=10,load_s=1"
NODES = "n1:4:8192:3xA100 n2:4:8192:3xL4 n3:4:8192:2xH200"


@pytest.fixture(scope="module")
def pool() -> Iterator[Bed]:
    with beds.condor(nodes=NODES) as bed:
        yield bed


def assert_each_once(run: Run, n_rows: int) -> None:
    proof = run.collect()
    assert (proof["rows"], proof["ok"], proof["missing"], proof["duplicates"]) == (n_rows, n_rows, 0, 0)


def queue(run: Run, *attributes: str) -> list[list[str]]:
    """Return attributes of a run's jobs in the queue."""
    where = " || ".join(f"ClusterId == {job}" for job in run.jobs())
    return [line.split() for line in run.bed.user("condor_q", "-constraint", where, "-af", *attributes).splitlines()]


def test_six_pilots_with_a_small_model_on_gpus_of_three_models_give_each_claim_one_row(pool: Bed) -> None:
    from tiny_models import make_model  # torch, which the others do without

    model = make_model(pool.shared / "tiny")
    for file in model.iterdir():
        file.chmod(0o644)
    run = pool.make_run("six", rows=2400, unit_rows=20, model=str(model))
    said = run.submit("-n", "6", "--set", "gpus=1", engine="hf", agent=("--device", "cpu"))  # there is no device
    assert "by the Python bindings" in said
    wait_until(lambda: len(run.records()) == 6, what=lambda: run.fsctx("status"))
    run.wait_done()
    assert_each_once(run, 2400)
    jobs = {record.job.id: record.job for record in run.records() if record.job is not None}
    assert sorted(jobs) == [f"{run.jobs()[0]}.{k}" for k in range(6)]
    assert all(job.gpus is not None and len(job.gpus) == 1 for job in jobs.values())
    assert len({(job.machine, job.gpus) for job in jobs.values()}) == 6


def test_condor_submit_knows_every_option(pool: Bed) -> None:
    run = pool.make_run("options", rows=2, unit_rows=2)
    settings = {
        "gpu_memory_mb": "20000",
        "gpu_capability": "8.0",
        "gpu_where": "DriverVersion >= 12.0",
        "rank": "GPUs_ComputeUnits",
        "where": "TARGET.Cpus >= 1",
        "walltime_s": "3600",
        "lease_s": "600",
        "accounting_group": "g",
        "accounting_user": "me",
        "setup": "module load cuda",
    }
    for further in ({}, {"shared_where": "HasShared"}, {"container": "/image.sif"}):
        printed = pool.user("condor_submit", "-dry-run", "-", run.dry_run(settings | further))
        found = {line.partition("=")[0] for line in printed.splitlines()}
        assert {"RequireGPUs", "JobMaxVacateTime", "AllowedExecuteDuration", "AcctGroup", "JobLeaseDuration"} <= found
        assert "WARNING" not in printed


def test_a_vacated_pilot_saves_and_its_rows_are_adopted(pool: Bed) -> None:
    run = pool.make_run("vacated", rows=400, unit_rows=200)
    run.submit("-n", "1", engine="fake:rows_per_s=10,batch_tokens=4")
    wait_until(lambda: any(session.progress > 20 for session in run.working()), what=lambda: run.fsctx("status"))
    pool.user("condor_vacate_job", run.jobs()[0])
    wait_until(lambda: run.events("saved"), what=lambda: run.fsctx("status"))
    n_saved = run.events("saved")[-1]["rows"]
    wait_until(lambda: [e for e in run.events("leased") if e["adopted"]], what=lambda: run.fsctx("status"))
    assert [e["adopted"] for e in run.events("leased") if e["adopted"]] == [n_saved]
    assert any(session.state == AgentState.LEFT for session in run.sessions())
    run.fsctx("stop")


def test_an_agent_stops_leasing_before_its_time_limit(pool: Bed) -> None:
    run = pool.make_run("limited", rows=4000, unit_rows=10)
    run.submit("-n", "1", "--set", "walltime_s=40", engine="fake:rows_per_s=10,batch_tokens=4")
    wait_until(lambda: run.events("left"), what=lambda: run.fsctx("status"))
    run.wait_left()
    assert "walltime" in run.events("left")[0]["reason"]
    assert run.sessions()[0].ledger.rows_done > 0
    wait_until(lambda: not queue(run, "ProcId"), what=lambda: run.fsctx("status"))  # else it would be put on hold


def events_of(run: Run, kind: str, *, but: str) -> list[dict[str, object]]:
    """Return the events of a kind of all agents but one."""
    return [event for event in run.events(kind) if event["agent"] != but]


@pytest.mark.parametrize("loss", ["vacate-fast", "crash", "freeze"])
def test_a_pilot_lost_without_warning_costs_the_rows_since_its_last_save(pool: Bed, loss: str) -> None:
    run = pool.make_run(loss, rows=400, unit_rows=200, ttl_s=6)
    engine = "fake:rows_per_s=10,batch_tokens=4"
    run.submit(
        "-n", "1", "--set", 'where=TARGET.Machine =?= "n1.pool.test"', engine=engine, agent=("--save-every", "2")
    )
    wait_until(lambda: len(run.events("saved")) >= 2, what=lambda: run.fsctx("status"))
    victim = run.records()[0].agent
    saved = run.events("saved")[-1]
    match loss:
        case "vacate-fast":
            pool.user("condor_vacate_job", "-fast", run.jobs()[0])
        case "crash":
            pool.call("crash", "n1")
        case "freeze":
            pool.call("freeze", "n1")
    run.submit("-n", "1", "--set", 'where=TARGET.Machine =?= "n2.pool.test"', engine="fake:rows_per_s=200")
    wait_until(lambda: any(e["unit"] == saved["unit"] for e in events_of(run, "leased", but=victim)))
    taken = next(e for e in events_of(run, "leased", but=victim) if e["unit"] == saved["unit"])
    assert taken["adopted"] >= saved["rows"]
    run.wait_done()
    if loss == "freeze":
        pool.call("thaw", "n1")
    assert_each_once(run, 400)
    for job in run.jobs():  # the access point holds a lost job to run until its lease ends, for 40 minutes
        pool.user("condor_rm", job, code=None)
        pool.user("condor_rm", "-forcex", job, code=None)


def test_a_node_that_cannot_work_wastes_few_starts_and_is_left_out_afterwards(pool: Bed) -> None:
    run = pool.make_run("unfit", rows=1200, unit_rows=4)
    python, here = sys.executable, '[ "$(hostname -s)" != n3 ] || exec'
    unfit = f"{here} {python} -P -m fsctx agent {run.folder} --engine fake:unfit=1 --failure-delay 20"
    run.submit("-n", "6", "--set", f"setup={unfit}", "--set", 'rank=TARGET.Machine == "n3.pool.test"', engine=ENGINE)
    run.wait_done()
    assert_each_once(run, 1200)
    hosts = [record.process.host for record in run.records()]
    assert 1 <= hosts.count("n3") <= 3
    assert 'TARGET.Machine =!= "n3.pool.test"' in run.submit("-n", "1", "--dry-run", engine=ENGINE)


def test_a_model_too_large_for_every_gpu_is_told_before_anything_is_queued(pool: Bed) -> None:
    run = pool.make_run("large", rows=10, unit_rows=10)
    asked = ("-n", "2", "--set", "gpu_memory_mb=500000")
    said = run.submit(*asked, engine="fake", code=2)
    assert "500,000 MiB" in said
    assert "the largest has 143,771 MiB" in said
    assert run.jobs() == []
    run.submit(*asked, "--force", engine="fake")
    assert "no GPU of this pool has the 500,000 MiB" in run.fsctx("status")
    assert queue(run, "JobStatus") == [["1"], ["1"]]
    assert "2 pilot(s) that waited were taken out" in run.fsctx("stop")


@pytest.mark.parametrize(
    ("surroundings", "what"),
    [
        ("_CONDOR_COLLECTOR_HOST=127.0.0.1:1", "HTCondor does not answer"),
        ("CONDOR_CONFIG=/nonexistent", "CONDOR_CONFIG is /nonexistent, which is not there"),
        ("_CONDOR_FILESYSTEM_DOMAIN=elsewhere.test", "in this host's FileSystemDomain elsewhere.test"),
    ],
    ids=["no-answer", "no-configuration", "not-mounted"],
)
def test_a_host_that_cannot_submit_here_is_told_so_in_a_line(pool: Bed, surroundings: str, what: str) -> None:
    bed = dataclasses.replace(pool, within=(*pool.within, surroundings))
    run = pool.make_run(surroundings.partition("=")[0], rows=2, unit_rows=2)
    said = dataclasses.replace(run, bed=bed).submit("-n", "2", engine="fake", code=2)
    assert (what in said, said.count("\n"), run.jobs()) == (True, 1, []), said


def test_the_command_line_tools_do_what_the_bindings_do(pool: Bed) -> None:
    hidden = pool.shared / "without-bindings"
    hidden.mkdir()
    (hidden / "htcondor2.py").write_text("raise ImportError\n")
    bed = dataclasses.replace(pool, within=(*pool.within, f"PYTHONPATH={hidden}:{beds.CHECKOUT}"))
    run = bed.make_run("by-tools", rows=8000, unit_rows=10)
    said = run.submit("-n", "10", engine="fake:rows_per_s=10")
    assert "through condor_submit 2" in said
    assert "the Python package htcondor is not installed" in said
    wait_until(lambda: len(run.working()) == 8, what=lambda: run.fsctx("status"))  # so many GPUs there are
    waiting = next(number for number, state in queue(run, "ProcId", "JobStatus") if state == "1")
    pool.user("condor_hold", f"{run.jobs()[0]}.{waiting}")
    seen = run.status()["pilots"][0]["seen"]
    assert (seen["running"], seen["queued"], seen["held"]) == (8, 1, 1)
    assert f"let them go on: condor_release {run.jobs()[0]}" in run.fsctx("status")
    assert "2 pilot(s) that waited were taken out of the queue" in run.fsctx("stop")
    wait_until(lambda: not queue(run, "ProcId"), what=lambda: str(queue(run, "ProcId", "JobStatus")))


def test_a_dag_plans_keeps_pilots_there_and_collects(pool: Bed) -> None:
    claims, run = pool.shared / "dag.jsonl", Run(bed=pool, store=PosixStore(pool.shared / "dag-run"))
    claims.write_text("".join(f'{{"id": {n}, "claim": "Claim {n}."}}\n' for n in range(100)))
    asked = ("--keep", "2", "--every", "1", "--dag", str(pool.shared / "dag"))
    plan = ("--plan", f"{claims} --model fake --unit-rows 10")
    told = run.submit(*asked, *plan, engine="fake:rows_per_s=20", agent=("--max-units", "2"))
    pool.user(*told.split())
    wait_until((pool.shared / "dag/verdicts.parquet").exists, what=lambda: pool.user("condor_q", "-nobatch"))
    assert_each_once(run, 100)
    assert len(run.jobs()) > 1  # pilots left before the work was done, and others were added
    wait_until(lambda: not pool.user("condor_q", "-af", "ClusterId"), what=lambda: pool.user("condor_q", "-nobatch"))


def test_a_user_who_may_only_look_is_told_so_in_a_line(pool: Bed) -> None:
    run = pool.make_run("denied", rows=2, unit_rows=2)
    tokens = pool.shared / "tokens"
    make = 'mkdir -m 700 "$0" && umask 077 && condor_token_create -identity pilot@pool.test -authz READ > "$0/read"'
    pool.call("root", "sh", "-c", f'{make} && chown -R pilot: "$0"', str(tokens))
    words = ("-m", "fsctx", "submit", run.folder, "--batch", "htcondor", "-n", "2", "--", "--engine", "fake")
    said = pool.user("env", f"_CONDOR_SEC_TOKEN_DIRECTORY={tokens}", sys.executable, *words, code=2)
    assert ("DENIED" in said, "nothing was queued" in said, said.count("\n")) == (True, True, 1)
    as_root = pool.call(
        "root", "env", *pool.within[:-1], sys.executable, *words, code=2
    )  # known by the system, no token
    assert ('owner to "root" is not permitted' in as_root, as_root.count("\n")) == (True, 1)
    assert run.jobs() == []


def test_a_run_completes_while_another_users_jobs_evict_its_pilots() -> None:
    nodes = "n1:2:4096:2xA100 n2:2:4096:2xL4"
    with beds.condor(nodes=nodes, name="rival", port=19818) as pool:
        run = pool.make_run("evicted", rows=480, unit_rows=10, ttl_s=6)
        run.submit("-n", "4", engine="fake:rows_per_s=4,batch_tokens=4", agent=("--save-every", "2"))
        wait_until(lambda: len(run.working()) == 4, what=lambda: run.fsctx("status"))
        rival = pool.shared / "rival.sub"
        rival.write_text(
            "executable = /bin/sleep\narguments = 3\ntransfer_executable = False\nrequest_gpus = 1\n"
            "request_memory = 100M\nMy.PoolVip = True\nqueue 1\n"
        )
        while run.status()["state"] != "done":
            pool.rival("condor_submit", "-terse", str(rival))
            time.sleep(4)
        assert_each_once(run, 480)
        wait_until(lambda: not queue(run, "ProcId"), what=lambda: str(queue(run, "ProcId", "JobStatus")))
        starts = [line.split()[0] for line in pool.user("condor_history", "-af", "NumJobStarts").splitlines()]
        assert max(map(int, starts)) > 1  # somebody was evicted and started again
        goodput = run.status()["goodput"]  # what a killed agent did since its last beat is in no ledger
        assert (goodput["rows"] > 0, goodput["loads"] >= 4) == (True, True)


def test_late_materialization_keeps_the_queue_short(pool: Bed) -> None:
    run = pool.make_run("many", rows=2000, unit_rows=2)
    run.submit("-n", "500", "--set", "max_idle=5", engine="fake:rows_per_s=1")
    idle: list[int] = []
    wait_until(lambda: len(run.working()) >= 4, what=lambda: run.fsctx("status"))
    for _ in range(5):
        idle.append(queue(run, "JobStatus").count(["1"]))
        time.sleep(beds.POLL_S)
    assert max(idle) <= 5
    pilots = run.status()["pilots"][0]["seen"]
    assert pilots["queued"] + pilots["running"] + pilots["gone"] == 500
    assert pilots["queued"] > 400
    assert "taken out of the queue" in run.fsctx("stop")
    wait_until(lambda: not queue(run, "JobStatus"), what=lambda: str(queue(run, "ProcId", "JobStatus")))
    assert run.status()["pilots"] == []
