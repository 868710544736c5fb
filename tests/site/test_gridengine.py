"""Pilots on a real Grid Engine of one node: exactly one row a claim, whatever is done to them."""

from collections.abc import Iterator

import pytest
from clusters import beds
from clusters.beds import Bed, Run, wait_until

from fsctx.protocol.agents import AgentState

pytestmark = pytest.mark.gridengine

SLOW = "fake:rows_per_s=10,batch_tokens=4"


@pytest.fixture(scope="module")
def cell() -> Iterator[Bed]:
    with beds.gridengine() as bed:
        yield bed


def assert_each_once(run: Run, n_rows: int) -> None:
    proof = run.collect()
    assert (proof["rows"], proof["ok"], proof["missing"], proof["duplicates"]) == (n_rows, n_rows, 0, 0)


def wait_for_progress(run: Run) -> None:
    wait_until(lambda: any(session.progress > 20 for session in run.working()), what=lambda: run.fsctx("status"))


def test_an_array_of_pilots_gives_each_claim_one_row(cell: Bed) -> None:
    run = cell.make_run("array", rows=200, unit_rows=4)
    run.submit("-n", "3", engine="fake:rows_per_s=5,load_s=1")
    wait_until(lambda: len(run.working()) == 2, what=lambda: run.fsctx("status"))  # the node has two GPUs
    seen = run.status()["pilots"][0]["seen"]
    assert (seen["running"], seen["queued"]) == (2, 1)
    run.wait_done()
    assert_each_once(run, 200)
    jobs = [record.job for record in run.records() if record.job is not None]
    assert {job.id for job in jobs} >= {f"{run.jobs()[0]}.1", f"{run.jobs()[0]}.2"}
    assert {(job.system, job.machine, job.slot) for job in jobs} == {("gridengine", "g1.test", "all.q")}


def test_qsub_knows_every_option(cell: Bed) -> None:
    run = cell.make_run("options", rows=2, unit_rows=2)
    settings = {"queue": "all.q", "h_rt": "600", "at_once": "2", "memory_resource": "h_vmem", "extra": "-l h=!(a|b)"}
    printed = cell.user("qsub", "-verify", run.dry_run(settings))
    found = dict(line.split(":", 1) for line in printed.splitlines() if ":" in line)
    assert {key: found[key].strip() for key in ("notify", "restart", "merge")} == {
        "notify": "TRUE",
        "restart": "y",
        "merge": "y",
    }
    for resource in ("gpu=1", "h_rt=600", "h_vmem=", "h=!(a|b)"):
        assert resource in found["hard resource_list"]


def test_a_deleted_pilot_is_warned_saves_and_another_goes_on(cell: Bed) -> None:
    run = cell.make_run("deleted", rows=400, unit_rows=200)
    run.submit("-n", "1", engine=SLOW)
    wait_for_progress(run)
    cell.user("qdel", run.jobs()[0])
    wait_until(lambda: run.events("left"), what=lambda: run.fsctx("status"))
    assert run.events("left")[0]["reason"] == "SIGUSR2 was received"
    n_saved = run.events("saved")[-1]["rows"]
    run.submit("-n", "1", engine=SLOW)
    wait_until(lambda: [e for e in run.events("leased") if e["adopted"]], what=lambda: run.fsctx("status"))
    assert next(e["adopted"] for e in run.events("leased") if e["adopted"]) == n_saved
    run.fsctx("stop")
    wait_until(lambda: not cell.user("qstat"), what=lambda: cell.user("qstat"))


def test_an_agent_stops_leasing_before_its_time_limit(cell: Bed) -> None:
    run = cell.make_run("limited", rows=4000, unit_rows=10)
    run.submit("-n", "1", "--set", "h_rt=0:0:30", engine=SLOW)
    wait_until(lambda: run.events("left"), what=lambda: run.fsctx("status"))
    run.wait_left()
    assert run.sessions()[0].ledger.rows_done > 0
    assert "walltime" in run.events("left")[0]["reason"]


@pytest.mark.parametrize(
    ("setting", "said"), [("gpus=5", "no suitable queues"), ("queue=nix.q", 'unknown queue "nix.q"')]
)
def test_pilots_that_could_never_run_are_refused_in_a_line(cell: Bed, setting: str, said: str) -> None:
    run = cell.make_run(f"refused-{setting.partition('=')[0]}", rows=2, unit_rows=2)
    printed = run.submit("-n", "2", "--set", setting, engine="fake", code=2)
    assert (said in printed, "nothing was queued" in printed, printed.count("\n")) == (True, True, 1)
    assert cell.user("qstat") == ""


def test_stop_takes_out_the_pilots_that_wait_or_are_on_hold(cell: Bed) -> None:
    run = cell.make_run("stopped", rows=4000, unit_rows=4)
    run.submit("-n", "5", engine=SLOW)
    wait_until(lambda: len(run.working()) == 2, what=lambda: run.fsctx("status"))
    job = run.jobs()[0]
    cell.user("qhold", f"{job}.5")
    seen = run.status()["pilots"][0]["seen"]
    assert (seen["running"], seen["queued"], seen["held"]) == (2, 2, 1)
    assert f"1 on hold: qrls {job}" in run.fsctx("status")
    assert "3 pilot(s) that waited were taken out" in run.fsctx("stop")
    wait_until(lambda: not cell.user("qstat"), what=lambda: cell.user("qstat"))
    assert {session.state for session in run.sessions()} == {AgentState.LEFT}
