"""The texts for HTCondor, Slurm and Grid Engine, and what is told before, during and after."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from fabricate import FabricatedRun, fabricate, finish_all
from fake_batch import QUEUED, RUNNING, FakeAccess, FakeCommands

from fsctx.cli.submit import submit as command
from fsctx.coordinator import status_text
from fsctx.coordinator.pilots import look_at_pilots, remove_waiting
from fsctx.coordinator.progress import to_json
from fsctx.coordinator.status import read_status
from fsctx.coordinator.submit.base import BatchSystem, PilotRequest
from fsctx.coordinator.submit.commands import Refused, call
from fsctx.coordinator.submit.dag import DagRequest, render_dag
from fsctx.coordinator.submit.errors import Unreachable
from fsctx.coordinator.submit.fake import FakeBatch
from fsctx.coordinator.submit.gridengine import GridEngine
from fsctx.coordinator.submit.htcondor.access import Machines, machines_of, parse_version
from fsctx.coordinator.submit.htcondor.system import HTCondor, open_htcondor
from fsctx.coordinator.submit.htcondor.words import notes
from fsctx.coordinator.submit.keep import find_shortage
from fsctx.coordinator.submit.record import read_submission
from fsctx.coordinator.submit.slurm import Slurm
from fsctx.coordinator.submit.submit import left_out, rendered, submit
from fsctx.coordinator.submit.texts import Templates, condor_quote
from fsctx.errors import InputError
from fsctx.protocol import names, orders
from fsctx.protocol.manifest import Context, ModelFile
from fsctx.protocol.needs import Needs, needs_of

REQUEST = PilotRequest(
    name="s-1",
    run=Path("/shared/my run"),
    n=40,
    since_order=3,
    python="/shared/venv/bin/python",
    cores=8,
    agent_options=("--save-every", "20", "it's"),
    needs=Needs(gpu_memory_mb=9000, memory_mb=4000, disk_mb=8000),
    excluded=("n3.pool.test",),
)
PLAIN = dataclasses.replace(REQUEST, run=Path("/shared/run"))


def options(text: str) -> dict[str, str]:
    """Return the commands of a submit file."""
    lines = text.replace("\\\n", " ").splitlines()
    pairs = (line.split(" = ", 1) for line in lines if " = " in line and not line.startswith("#"))
    return {key.strip(): " ".join(value.split()) for key, value in pairs}


def condor(access: FakeAccess | None = None) -> HTCondor:
    access = access or FakeAccess()
    return HTCondor(access, access.how, Templates())


def test_the_htcondor_text_says_what_a_pilot_needs_and_when_it_starts_again() -> None:
    found = options(condor().render(REQUEST, {}))
    logs = "/shared/my run/logs/s-1"
    assert found == {
        "universe": "vanilla",
        "batch_name": "s-1",
        "My.FsctxSubmission": '"s-1"',
        "executable": "/shared/venv/bin/python",
        "arguments": "\"-P -m fsctx agent '/shared/my run' --submission s-1 --since-order 3 --save-every 20 'it''s'\"",
        "transfer_executable": "False",
        "environment": '"OMP_WAIT_POLICY=PASSIVE"',
        "request_cpus": "1",
        "request_memory": "4000M",
        "request_disk": "8000M",
        "request_gpus": "1",
        "gpus_minimum_memory": "9000",
        "should_transfer_files": "NO",
        "job_machine_attrs": "Machine",
        "job_machine_attrs_history_length": "3",
        "requirements": 'TARGET.Machine =!= "n3.pool.test" '
        "&& ((ExitCode =!= 75 && !(NumHolds > 0)) || TARGET.Machine =!= MachineAttrMachine0)",
        "max_retries": "3",
        "success_exit_code": "0",
        "retry_until": "ExitCode =?= 2 || ExitCode =?= 4 || ExitCode =?= 78",
        "job_max_vacate_time": "30",
        "periodic_release": "member(HoldReasonCode, {6, 7, 12, 13, 14, 46, 47}) && NumHolds < 4 "
        "&& time() - EnteredCurrentStatus > 60",
        "notification": "never",
        "log": f"{logs}/events",
        "output": f"{logs}/$(Process).log",
        "error": f"{logs}/$(Process).log",
        "max_idle": "20",
    }


def test_a_pilot_without_gpus_asks_for_none() -> None:
    found = options(condor().render(dataclasses.replace(REQUEST, on_gpu=False), {"gpu_capability": "8.0"}))
    assert not [key for key in found if "gpu" in key]


def test_what_an_old_htcondor_does_not_know_is_left_out_and_said() -> None:
    text = condor(FakeAccess(version=(9, 0, 1))).render(REQUEST, {"gpu_capability": "8.0", "common_input": "/a"})
    assert not {"gpus_minimum_memory", "gpus_minimum_capability", "transfer_common_input"} & options(text).keys()
    assert left_out(text) == [
        "gpus_minimum_memory = 9000, which HTCondor knows from 10.0 on",
        "gpus_minimum_capability = 8.0, which HTCondor knows from 10.0 on",
        "transfer_common_input, which HTCondor knows from 25.14 on",
    ]
    newest = condor(FakeAccess(version=(25, 14, 0))).render(REQUEST, {"gpu_capability": "8.0", "common_input": "/a"})
    assert left_out(newest) == []
    assert options(newest)["transfer_common_input"] == "/a"


def test_where_files_are_transferred_too_a_pilot_starts_only_where_the_run_is_visible() -> None:
    newest = condor(FakeAccess(version=(25, 14, 0)))
    found = options(newest.render(REQUEST, {"common_input": "/a"}))
    assert found["should_transfer_files"] == "YES"
    assert found["requirements"].startswith('TARGET.FileSystemDomain == "pool" && ')
    told = options(newest.render(REQUEST, {"common_input": "/a", "shared_where": "HasShared"}))["requirements"]
    assert told.startswith("(HasShared) && ")
    assert "FileSystemDomain" not in told


def test_a_configuration_of_htcondor_that_is_not_there_is_told_before_any_library_complains(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CONDOR_CONFIG", "/nonexistent/condor_config")
    with pytest.raises(Unreachable, match="CONDOR_CONFIG is /nonexistent/condor_config, which is not there"):
        open_htcondor(Templates()).objections(REQUEST, {})
    assert capfd.readouterr().err == ""


def test_a_shell_before_the_agent_becomes_the_agent() -> None:
    found = options(condor().render(REQUEST, {"setup": "module load cuda"}))
    assert found["executable"] == "/bin/sh"
    assert "; exec /shared/venv/bin/python -P -m fsctx agent" in found["arguments"]


def test_htcondors_own_log_is_not_on_a_network_filesystem_where_the_site_forbids_that() -> None:
    access = FakeAccess()
    access.settings["LOG_ON_NFS_IS_ERROR"] = "True"
    nowhere = dataclasses.replace(REQUEST, run=Path("/proc/no-local-disk"))
    assert options(condor(access).render(nowhere, {}))["log"] == "/tmp/fsctx-s-1.events"


@pytest.mark.parametrize(
    ("words", "quoted"),
    [
        (["a", "b c"], "\"a 'b c'\""),
        (['say "hi"', "it's"], "\"'say \"\"hi\"\"' 'it''s'\""),
        (["$(HOME)", ""], "\"$(DOLLAR)(HOME) ''\""),
    ],
)
def test_words_are_quoted_as_condor_submit_reads_them(words: list[str], quoted: str) -> None:
    assert condor_quote(words) == quoted


@pytest.mark.parametrize(
    ("settings", "what"),
    [({"environment": "A='b"}, "check its form and quotes"), ({"gpu_memory_mb": "20G"}, "must be a number of MiB")],
)
def test_a_setting_that_makes_no_sense_is_refused(settings: dict[str, str], what: str) -> None:
    with pytest.raises(InputError, match=what):
        condor().objections(REQUEST, settings) or condor().render(REQUEST, settings)


def test_too_many_pilots_at_once_are_refused() -> None:
    with pytest.raises(InputError, match="at most 4,000 pilots"):
        rendered(condor(), dataclasses.replace(REQUEST, n=4001), {})


def test_slurm_gets_an_array_that_comes_back_and_is_warned() -> None:
    text = Slurm(Templates()).render(PLAIN, {"partition": "gpu", "time": "2:00:00", "at_once": "10"})
    asked = [line.removeprefix("#SBATCH ") for line in text.splitlines() if line.startswith("#SBATCH")]
    assert asked == [
        "--job-name=s-1",
        "--array=0-39%10",
        "--partition=gpu",
        "--time=2:00:00",
        "--gres=gpu:1",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=1",
        "--mem=4000M",
        "--exclude=n3.pool.test",
        "--requeue",
        "--signal=B:TERM@60",
        "--export=NIL",
        "--open-mode=append",
        "--output=/shared/run/logs/s-1/%a.log",
    ]
    assert "\nexec /shared/venv/bin/python -P -m fsctx agent /shared/run \\\n" in text


def test_a_per_cent_sign_in_the_runs_path_is_no_pattern_of_slurms() -> None:
    text = Slurm(Templates()).render(dataclasses.replace(PLAIN, run=Path("/shared/50%j")), {})
    assert "#SBATCH --output=/shared/50%%j/logs/s-1/%a.log\n" in text
    assert " agent /shared/50%j " in text


def test_grid_engine_gets_an_array_that_comes_back_and_is_warned() -> None:
    text = GridEngine(Templates()).render(PLAIN, {"queue": "gpu.q", "h_rt": "7200", "at_once": "10"})
    asked = [line.removeprefix("#$ ") for line in text.splitlines() if line.startswith("#$")]
    assert asked == [
        "-N s-1",
        "-S /bin/sh",
        "-t 1-40",
        "-tc 10",
        "-r y",
        "-notify",
        "-q gpu.q",
        "-l gpu=1",
        "-l h_rt=7200",
        "-l h=!(n3.pool.test)",
        "-j y",
        "-o /shared/run/logs/s-1/$TASK_ID.log",
    ]
    assert text.endswith("--since-order 3 --walltime 7200 --save-every 20 'it'\"'\"'s'\n")
    for name in ("a run", "it's", "a:b", "a,b", "$USER"):
        with pytest.raises(InputError, match="no spaces, quotes, colons, commas or \\$ in paths"):
            GridEngine(Templates()).render(dataclasses.replace(PLAIN, run=Path("/shared") / name), {})


def test_a_sites_own_template_goes_before_the_one_of_fsctx(tmp_path: Path) -> None:
    (tmp_path / "slurm.sh.j2").write_text("{{ n }} of {{ mine }}\n")
    assert Slurm(Templates(folder=tmp_path)).render(PLAIN, {"mine": "ours"}) == "40 of ours\n"
    with pytest.raises(InputError, match=r"slurm\.sh\.j2: 'mine' is undefined: pass it with --set"):
        Slurm(Templates(folder=tmp_path)).render(PLAIN, {})
    with pytest.raises(InputError, match=r"--template-dir .* is no folder"):
        Slurm(Templates(folder=tmp_path / "none")).render(PLAIN, {})


def test_a_model_too_large_for_the_pool_is_an_objection() -> None:
    large = dataclasses.replace(REQUEST, needs=Needs(gpu_memory_mb=80_000))
    assert ["no GPU of this pool has the 80,000 MiB" in line for line in condor().objections(large, {})] == [True]
    assert condor().objections(large, {"gpus": "0"}) == []
    assert condor().objections(REQUEST, {}) == []


def test_a_filesystem_that_no_machine_shares_is_an_objection() -> None:
    access = FakeAccess()
    access.settings["FILESYSTEM_DOMAIN"] = "my-laptop"
    found = condor(access).objections(REQUEST, {})
    assert ["my-laptop (they are in: pool)" in line for line in found] == [True]
    assert condor(access).objections(REQUEST, {"shared_where": "HasMyFilesystem"}) == []


def test_what_grid_engine_has_no_queue_for_is_an_objection() -> None:
    def qsub(command: Sequence[str], text: str) -> str:
        assert (list(command), text.count("#$ -l gpu=1")) == (["qsub", "-w", "v"], 1)
        raise Refused("qsub: verification: no suitable queues")

    said = GridEngine(Templates(), call=qsub).objections(PLAIN, {})
    assert said == ["Grid Engine would not run these pilots (qsub: verification: no suitable queues)"]
    assert GridEngine(Templates(), call=FakeCommands()).objections(PLAIN, {}) == ()


@pytest.mark.parametrize(("time", "walltime_s"), [("90", 90), ("1:0:1", 3601)])
def test_a_grid_engine_pilot_knows_its_time(time: str, walltime_s: int) -> None:
    assert f" --walltime {walltime_s} " in GridEngine(Templates()).render(PLAIN, {"h_rt": time})


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(InputError, match="'2:00' is neither seconds nor H:M:S"):
        GridEngine(Templates()).render(PLAIN, {"h_rt": "2:00"})


def test_the_last_words_of_qsub_are_not_that_it_exits() -> None:
    command = ["sh", "-c", "echo 'Unable to run job: unknown resource \"tpu\"' >&2; echo Exiting. >&2; exit 1"]
    with pytest.raises(Refused, match=r'^sh: Unable to run job: unknown resource "tpu"$'):
        call(command)


def test_gpus_of_different_kinds_are_found_in_their_slots_ad() -> None:
    ads = [
        {"Machine": "a", "FileSystemDomain": "x", "GPUs_GlobalMemoryMb": 40_000},
        {"Machine": "b", "FileSystemDomain": "x", "GPUs_GPU_1": {"GlobalMemoryMb": 24_000}, "GPUs_GPU_2": {"Id": "2"}},
        {"Machine": "b", "FileSystemDomain": "y"},
    ]
    assert machines_of(ads) == Machines(n=2, domains=frozenset({"x", "y"}), largest_gpu_mb=40_000)


def test_versions_are_read_from_what_condor_says() -> None:
    assert parse_version("$CondorVersion: 23.9.6 2026-07-12 PackageID: 23.9.6+dfsg-2 $") == (23, 9, 6)


def test_pilots_on_hold_are_told_once_for_each_reason_with_advice() -> None:
    held = {"ClusterId": 7, "JobStatus": 5, "HoldReason": "Error: memory", "HoldReasonCode": 34}
    missing = held | {"HoldReasonCode": 6, "HoldReason": "no such file", "HoldReasonSubCode": 2}
    assert notes([held, missing, held], None) == (
        "2 on hold: Error: memory (34/0); it used more memory than it asked for: stop it, and submit with a larger "
        "--set memory_mb",
        "1 on hold: no such file (6/2); the interpreter is not on that machine, or not executable: use one on the "
        "shared filesystem",
    )


def context(size_bytes: int, kind: str) -> Context:
    files = (ModelFile(path="m", size_bytes=size_bytes, chunks=()),)
    return Context(digest="d", kind=kind, name="m", origin="/m", files=files, chunk_bytes=1)  # type: ignore[arg-type]


def test_a_device_needs_the_weights_and_room() -> None:
    needs = needs_of([context(8 << 30, "hf"), context(2 << 30, "hf")], on_gpu=True)
    assert 9_000 < needs.gpu_memory_mb < 12_000
    assert needs.disk_mb > 10 * 1024
    on_cpu = needs_of([context(8 << 30, "hf")], on_gpu=False)
    assert (on_cpu.gpu_memory_mb, on_cpu.memory_mb > 16 * 1024) == (0, True)
    assert needs_of([context(1 << 30, "gguf")], on_gpu=True).memory_mb > 6_000  # it is unpacked there
    assert needs_of([context(0, "fake")], on_gpu=True).gpu_memory_mb == 0


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    """Five units."""
    return fabricate(tmp_path / "run", n_rows=10, unit_rows=2)


def submitted(run: FabricatedRun, system: BatchSystem, n: int, name: str = "s-1") -> None:
    request = dataclasses.replace(PLAIN, run=run.root, n=n, name=name, excluded=())
    submit(run.store, system, request, {}, created="2026-01-01")


def test_a_refused_submission_leaves_no_record_but_an_unclear_one_does(run: FabricatedRun) -> None:
    access = FakeAccess()
    access.queue.refusal = "no"
    with pytest.raises(InputError):
        submitted(run, condor(access), 3)
    assert run.store.list(names.SUBMISSIONS) == []
    access.queue.is_reachable = False
    with pytest.raises(Unreachable):
        submitted(run, condor(access), 3)
    assert read_submission(run.store, "s-1") is not None


def test_where_no_access_point_answers_a_dry_run_says_for_which_htcondor_it_is() -> None:
    assert HTCondor(None, "there is no condor_q", Templates()).reached.startswith("no access point, so for the newest")


def test_the_record_tells_how_the_system_was_reached(run: FabricatedRun) -> None:
    submitted(run, condor(), 3)
    record = read_submission(run.store, "s-1")
    assert record is not None
    assert (record.reached, record.versions) == ("the fake access point", {"htcondor": "23.9.6"})
    assert [(pilot.id, pilot.count) for pilot in record.pilots] == [("11", 3)]


def test_status_joins_what_the_batch_system_says(run: FabricatedRun) -> None:
    system = Slurm(Templates(), call=(commands := FakeCommands(reason="BeginTime")))
    submitted(run, system, 3)
    found = dataclasses.replace(read_status(run.store), pilots=look_at_pilots(run.store, lambda _: system))
    lines = status_text.summary(found, root="RUN")
    assert lines[-2:] == [
        "pilots s-1 (job 11): 3 queued",
        "       3 waiting: BeginTime (requeued, and Slurm lets two minutes pass)",
    ]
    assert json.loads(json.dumps(to_json(found)))["pilots"][0]["seen"]["queued"] == 3
    commands.queue.jobs.clear()
    assert look_at_pilots(run.store, lambda _: system).submissions == ()


def test_status_does_without_a_batch_system_that_does_not_answer(run: FabricatedRun) -> None:
    system = condor(access := FakeAccess())
    submitted(run, system, 3)
    access.queue.is_reachable = False
    found = look_at_pilots(run.store, lambda _: system)
    assert (found.submissions, found.unasked) == ((), ("htcondor cannot be asked from here: HTCondor does not answer",))
    assert remove_waiting(run.store, lambda _: system) == (0, found.unasked)


def test_stop_takes_pilots_out_that_wait(run: FabricatedRun) -> None:
    system = condor(access := FakeAccess())
    submitted(run, system, 3)
    access.queue.move("11", QUEUED, RUNNING)
    assert remove_waiting(run.store, lambda _: system) == (2, ())
    assert list(access.queue.jobs["11"].values()) == [RUNNING]


def test_pilots_are_topped_up_to_the_number_kept_and_to_the_units_left(run: FabricatedRun) -> None:
    system = FakeBatch()
    assert find_shortage(run.store, system, 3).n == 3
    submitted(run, system, 2)
    assert find_shortage(run.store, system, 3).n == 1
    assert find_shortage(run.store, system, 2).why_none == "2 pilot(s) are there"
    assert find_shortage(run.store, system, 50).n == 3  # of five units


def test_nothing_is_added_to_a_run_that_is_over_or_stopped(run: FabricatedRun) -> None:
    orders.give_order(run.store, "stop")
    assert find_shortage(run.store, FakeBatch(), 3).is_over
    finish_all(run)
    assert find_shortage(run.store, FakeBatch(), 3).why_none == "the run is done"


def test_pilots_are_not_topped_up_to_an_unknown_number(run: FabricatedRun) -> None:
    system = FakeBatch()
    submitted(run, system, 2)
    system.is_reachable = False
    with pytest.raises(Unreachable):
        find_shortage(run.store, system, 3)


def test_a_dag_plans_keeps_pilots_and_collects() -> None:
    request = DagRequest(
        name="r",
        folder=Path("/dag"),
        called_in=Path("/home/me"),
        python="/p",
        plan=("plan", "my claims.csv"),
        pilots=("submit", "/r"),
        collect=("collect", "/r"),
        environment={"PATH": "/bin"},
    )
    files = render_dag(request, Templates())
    assert list(files) == ["r.dag", "plan.sub", "pilots.sub", "collect.sub"]
    commands = [line for line in files["r.dag"].splitlines() if not line.startswith("#")]
    assert commands == [
        "JOB PLAN plan.sub DIR /dag",
        "RETRY PLAN 2",
        "JOB PILOTS pilots.sub DIR /dag",
        "RETRY PILOTS 5",
        "PARENT PLAN CHILD PILOTS",
        "FINAL COLLECT collect.sub DIR /dag",
    ]
    plan = options(files["plan.sub"])
    assert plan["arguments"] == "\"-P -m fsctx plan 'my claims.csv'\""
    assert (plan["initialdir"], plan["output"]) == ("/home/me", "/dag/plan.log")
    alone = render_dag(dataclasses.replace(request, plan=()), Templates())
    assert "plan.sub" not in alone
    assert "PLAN" not in alone["r.dag"]
    with pytest.raises(InputError, match="DAGMan takes no spaces"):
        render_dag(dataclasses.replace(request, folder=Path("/my dag")), Templates())


def test_a_command_that_is_missing_or_fails_is_told_in_one_line() -> None:
    with pytest.raises(Unreachable, match="there is no no-such-sbatch on this host"):
        call(["no-such-sbatch"])
    with pytest.raises(Refused, match=r"^sh: invalid partition; really$"):
        call(["sh", "-c", "echo hello; echo 'sbatch: error: invalid partition' >&2; echo 'error: really' >&2; exit 1"])


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["--batch", "slurm"], "pass either -n"),
        (["--batch", "slurm", "-n", "1", "--keep", "2"], "pass either -n"),
        (["--batch", "slurm", "-n", "1", "--every", "9"], "--every goes with --keep"),
        (["--batch", "local", "--keep", "2"], "local pilots are started with -n"),
        (["--batch", "slurm", "--keep", "2", "--dag", "d"], "--dag goes with --batch htcondor"),
        (["--batch", "htcondor", "--keep", "2", "--plan", "x"], "--plan goes with --dag"),
        (["--batch", "htcondor", "--keep", "2", "--dag", "d", "--plan", "x", "--env", "e"], "--env goes with a run"),
        (["--batch", "pbs", "-n", "2"], "--batch pbs is unknown"),
        (["--batch", "slurm", "-n", "2", "--env", "mine"], "has no such environment, it has: none"),
    ],
)
def test_options_that_do_not_go_together_are_refused(run: FabricatedRun, words: list[str], what: str) -> None:
    done = CliRunner().invoke(command, [str(run.root), *words])
    assert isinstance(done.exception, InputError)
    assert what in str(done.exception)
    assert run.store.list(names.SUBMISSIONS) == []


def test_a_dag_is_not_written_over_another(run: FabricatedRun, tmp_path: Path) -> None:
    words = [str(run.root), "--batch", "htcondor", "--keep", "2", "--dag", str(tmp_path / "dag")]
    done = CliRunner().invoke(command, words)
    assert done.output == f"condor_submit_dag {tmp_path}/dag/run.dag\n"
    assert isinstance(CliRunner().invoke(command, words).exception, InputError)
