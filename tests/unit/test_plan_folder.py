"""The run folder: whole or as it was before, whatever happens."""

import errno
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from planning import claims_of, make_plan, manifest_of, offline, quiet

from fsctx.coordinator.plan import PlanRequest, plan, pulse
from fsctx.coordinator.plan.workspace import Marker, TakenOver, occupied
from fsctx.coordinator.ttl import default_ttl
from fsctx.errors import Damaged, InputError, NoSpace
from fsctx.protocol import codec, names
from fsctx.protocol.processes import Process, this_process
from fsctx.store import PosixStore
from fsctx.store.mounts import Mount

PLAN_SCRIPT = """
import sys
from fsctx.cli import main
sys.argv = ["fsctx", "plan", *sys.argv[1:]]
main()
"""


KILLED_SCRIPT = """
import os, signal, sys
from pathlib import Path
from fsctx.coordinator.plan import PlanRequest, plan, pulse

def progress(step, done, total):
    if step == sys.argv[3] and (step != "writing claims" or done > 100_000):
        os.kill(os.getpid(), signal.SIGKILL)

plan(PlanRequest(inputs=(sys.argv[1],), run=Path(sys.argv[2]), models=("fake",), unit_rows=500), progress=progress)
"""
NOBODY_SCRIPT = (
    """
import os, sys, tempfile
from fsctx.cli.plan import plan
with tempfile.TemporaryDirectory() as folder:  # imports all that a user without rights could not read
    plan([sys.argv[1], "--run", folder + "/run", "--model", "fake", "--json"], standalone_mode=False)
os.setuid(65534)
"""
    + PLAN_SCRIPT
)


@pytest.fixture
def claims(tmp_path: Path) -> Path:
    path = tmp_path / "claims.jsonl"
    path.write_text("".join(json.dumps({"id": i, "claim": f"claim {i}", "label": "TRUE"}) + "\n" for i in range(500)))
    return path


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def dead_process() -> Process:
    """Name a process of this host that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return replace(this_process(), pid=child.pid, started_ticks=1)


def leave_debris(run: Path, process: Process) -> None:
    """Leave what a plan leaves that was killed in the middle."""
    (run / names.UNITS).mkdir(parents=True)
    (run / names.UNITS / "shard-00000.parquet.tmp-0123").write_bytes(b"half")
    (run / names.UNITS / "shard-00777.parquet").write_bytes(b"of another plan")
    (run / "run.json.tmp-0123").write_bytes(b"{")
    (run / names.PLANNING).write_bytes(codec.encode(Marker(process=process, token="t")))


def interrupted(step_of_failure: str, failure: BaseException) -> "type[object]":
    """Return progress that fails at a step."""

    def progress(step: str, done: int, total: int | None) -> None:
        if step == step_of_failure:
            raise failure

    return progress  # type: ignore[return-value]


def test_all_folders_of_the_protocol_are_made(tmp_path: Path, claims: Path) -> None:
    make_plan(claims, run=tmp_path / "run", unit_rows=1)
    made = tree(tmp_path / "run")
    assert {"agents", "control", "logs", "submissions", "contexts", "templates", "units"} <= made
    for kind in names.BUCKETED:
        assert {f"{kind}/000000", f"{kind}/000001"} <= made
    assert names.PLANNING not in made


def test_the_same_plan_again_changes_nothing_and_says_so(tmp_path: Path, claims: Path) -> None:
    first = make_plan(claims, run=tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    moved = claims.rename(tmp_path / "other-name.jsonl")
    again = make_plan(moved, run=tmp_path / "run")
    assert (first.is_new, again.is_new) == (True, False)
    assert (again.run, again.units, again.claims_bytes) == (first.run, first.units, first.claims_bytes)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")} == before


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"unit_rows": 7}, "--unit-rows differ"),
        ({"method": "generate"}, "the method differ"),
        ({"label_column": "claim", "claim_column": "label"}, "its options differ"),
        ({"ttl_s": 99.0}, "--ttl differ"),
    ],
)
def test_a_finished_run_of_another_plan_is_refused_and_untouched(
    tmp_path: Path, claims: Path, change: dict[str, object], named: str
) -> None:
    make_plan(claims, run=tmp_path / "run")
    before = tree(tmp_path / "run")
    with pytest.raises(InputError, match="is the run of another plan") as caught:
        make_plan(claims, run=tmp_path / "run", **change)
    assert named in str(caught.value)
    assert tree(tmp_path / "run") == before


def test_other_claims_are_another_plan(tmp_path: Path, claims: Path) -> None:
    make_plan(claims, run=tmp_path / "run")
    claims.write_text('{"claim": "another"}\n')
    with pytest.raises(InputError, match="the inputs differ"):
        make_plan(claims, run=tmp_path / "run")


def test_a_folder_with_other_files_is_refused_and_untouched(tmp_path: Path, claims: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "thesis.tex").write_text("dear")
    with pytest.raises(InputError, match=r"is not empty and is no run \(it holds thesis\.tex\)"):
        make_plan(claims, run=run)
    assert tree(run) == {"thesis.tex"}


def test_a_file_in_the_place_of_the_run_is_refused(tmp_path: Path, claims: Path) -> None:
    (tmp_path / "run").write_text("a file")
    with pytest.raises(InputError, match="is a file"):
        make_plan(claims, run=tmp_path / "run")


def test_an_empty_folder_is_used_and_folders_above_are_made(tmp_path: Path, claims: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert make_plan(claims, run=tmp_path / "empty").is_new
    assert make_plan(claims, run=tmp_path / "a" / "b" / "run").is_new


def test_a_run_of_a_newer_version_is_refused(tmp_path: Path, claims: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / names.MANIFEST).write_text('{"schema": 99}')
    with pytest.raises(InputError, match="schema 99"):
        make_plan(claims, run=run)


def test_a_manifest_that_is_none_is_damage(tmp_path: Path, claims: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / names.MANIFEST).write_text("{")
    with pytest.raises(Damaged, match=r"run\.json"):
        make_plan(claims, run=run)


@pytest.mark.parametrize("step", ["writing claims", "making folders"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), InputError("no"), NoSpace("full"), RuntimeError("bug")])
def test_a_failure_leaves_nothing_behind(tmp_path: Path, claims: Path, step: str, failure: BaseException) -> None:
    before = tree(tmp_path)
    request = PlanRequest(inputs=(str(claims),), run=tmp_path / "a" / "run", models=("fake",))
    with pytest.raises(type(failure)):
        plan(request, progress=interrupted(step, failure), fetch=offline)  # type: ignore[arg-type]
    assert tree(tmp_path) == before


def test_a_failure_leaves_an_empty_folder_that_was_there(tmp_path: Path, claims: Path) -> None:
    (tmp_path / "run").mkdir()
    request = PlanRequest(inputs=(str(claims),), run=tmp_path / "run", models=("fake",))
    with pytest.raises(KeyboardInterrupt):
        plan(request, progress=interrupted("writing claims", KeyboardInterrupt()), fetch=offline)  # type: ignore[arg-type]
    assert tree(tmp_path) == {"run", "claims.jsonl"}


def test_bad_input_makes_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        make_plan(tmp_path / "nowhere.csv", run=tmp_path / "run")
    assert tree(tmp_path) == set()


def test_what_a_killed_plan_left_is_removed_and_the_plan_completed(tmp_path: Path, claims: Path) -> None:
    run = tmp_path / "run"
    leave_debris(run, dead_process())
    assert make_plan(claims, run=run).is_new
    assert claims_of(run).num_rows == 500
    assert not [name for name in tree(run) if "tmp" in name or "777" in name]


def test_a_marker_that_its_writer_could_not_finish_is_debris(tmp_path: Path, claims: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / names.PLANNING).write_bytes(b"")
    assert make_plan(claims, run=run).is_new


def test_a_plan_of_before_the_last_boot_is_debris(tmp_path: Path, claims: Path) -> None:
    leave_debris(tmp_path / "run", replace(this_process(), boot_id="another-boot/pid:[1]"))
    assert make_plan(claims, run=tmp_path / "run").is_new


def test_a_plan_that_is_alive_is_left_alone(tmp_path: Path, claims: Path) -> None:
    leave_debris(tmp_path / "run", this_process())
    before = tree(tmp_path)
    with pytest.raises(InputError, match="is being planned by process"):
        make_plan(claims, run=tmp_path / "run")
    assert tree(tmp_path) == before


CONTAINER = f"{this_process().boot_id.split('/')[0]}/pid:[of a container]"
ELSEWHERE = [replace(this_process(), host="elsewhere"), replace(this_process(), boot_id=CONTAINER)]


@pytest.mark.parametrize("process", ELSEWHERE)
def test_a_plan_of_another_host_that_beats_is_left_alone(
    tmp_path: Path, claims: Path, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_debris(tmp_path / "run", process)
    monkeypatch.setattr(pulse, "BEAT_S", 0.001)
    with pulse.beating(PosixStore(tmp_path / "run"), "t"):
        with pytest.raises(InputError, match="is being planned by process"):
            make_plan(claims, run=tmp_path / "run")
        assert (tmp_path / "run" / names.PLANNING).exists()


@pytest.mark.parametrize("process", ELSEWHERE)
def test_a_plan_of_another_host_without_a_pulse_is_debris(
    tmp_path: Path, claims: Path, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_debris(tmp_path / "run", process)
    (tmp_path / "run" / names.pulse("t")).write_bytes(b"7\n")
    monkeypatch.setattr(pulse, "SILENCE_S", 0.0)
    assert make_plan(claims, run=tmp_path / "run").is_new
    assert names.pulse("t") not in tree(tmp_path / "run")


def test_a_pulse_is_watched_for_the_whole_silence(tmp_path: Path) -> None:
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    assert pulse.is_silent(PosixStore(tmp_path), "t", progress=quiet, clock=lambda: now_s, sleep=sleep)
    assert now_s >= pulse.SILENCE_S


def test_a_plan_that_was_taken_over_names_no_shard(tmp_path: Path, claims: Path) -> None:
    run = tmp_path / "run"
    other = codec.encode(Marker(process=this_process(), token="other"))

    def take_over(step: str, done: int, total: int | None) -> None:
        if step == "writing claims":
            (run / names.PLANNING).write_bytes(other)

    request = PlanRequest(inputs=(str(claims),), run=run, models=("fake",))
    with pytest.raises(TakenOver):
        plan(request, progress=take_over, fetch=offline)
    assert not [name for name in tree(run) if name.endswith(".parquet")]


def test_a_plan_that_was_taken_over_adds_nothing_and_removes_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def be_taken_over() -> None:
        with occupied(run) as workspace:
            workspace.clear_shards()
            (run / names.UNITS / "shard-00000.parquet").write_bytes(b"of the other one")
            (run / names.PLANNING).write_bytes(codec.encode(Marker(process=this_process(), token="other")))
            workspace.finish(b"{}")

    with pytest.raises(TakenOver, match="another plan took"):
        be_taken_over()
    assert tree(run) == {"planning.json", "units", "units/shard-00000.parquet"}


def test_an_interruption_after_the_run_is_whole_does_not_take_it_away(tmp_path: Path, claims: Path) -> None:
    run = tmp_path / "run"

    def be_interrupted() -> None:
        with occupied(run) as workspace:
            workspace.clear_shards()
            workspace.finish(b"{}")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert tree(run) == {"run.json", "units"}


def test_an_input_that_changes_meanwhile_is_refused(tmp_path: Path, claims: Path) -> None:
    def progress(step: str, done: int, total: int | None) -> None:
        if step == "writing claims":
            claims.write_text('{"id": 1, "claim": "x", "label": "TRUE"}\n')

    request = PlanRequest(inputs=(str(claims),), run=tmp_path / "run", models=("fake",))
    with pytest.raises(InputError, match="changed while it was read"):
        plan(request, progress=progress, fetch=offline)
    assert not (tmp_path / "run").exists()


def test_a_full_disk_leaves_nothing_and_the_same_command_completes_later(small_disk: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("".join(f"{os.urandom(40).hex()}\n" for _ in range(60_000)))
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(6 << 20))
    with pytest.raises(NoSpace, match="free some space"):
        make_plan(path, run=small_disk / "run")
    assert tree(small_disk) == {"ballast"}
    ballast.unlink()
    make_plan(path, run=small_disk / "run")
    assert claims_of(small_disk / "run").num_rows == 60_000


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """Give a folder that every user can reach (pytest's own cannot be)."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def run_script(script: str, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *args], capture_output=True, text=True, check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_without_permission_there_is_one_clear_line(open_folder: Path) -> None:
    (open_folder / "x.txt").write_text("a\n")
    (open_folder / "secret.txt").write_text("a\n")
    os.chmod(open_folder / "secret.txt", 0o600)
    for file, said in (("x.txt", "choose a folder for --run"), ("secret.txt", "permission denied")):
        command = [str(open_folder / file), "--run", str(open_folder / "run"), "--model", "fake"]
        ended = run_script(NOBODY_SCRIPT, *command)
        assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
        assert said in ended.stderr
    assert tree(open_folder) == {"x.txt", "secret.txt"}


@pytest.mark.parametrize("step", ["writing claims", "making folders"])
def test_a_plan_killed_in_the_middle_is_completed_by_the_same_command(tmp_path: Path, step: str) -> None:
    path, run = tmp_path / "x.txt", tmp_path / "run"
    path.write_text("".join(f"claim {i}\n" for i in range(200_000)))
    ended = run_script(KILLED_SCRIPT, str(path), str(run), step)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert (run / names.PLANNING).exists()
    assert not (run / names.MANIFEST).exists()
    assert make_plan(path, run=run, unit_rows=500).is_new
    assert claims_of(run).column("claim").to_pylist() == [f"claim {i}" for i in range(200_000)]


def test_the_time_to_live_follows_the_filesystem() -> None:
    mounted = [Mount(folder="/", kind="ext4"), Mount(folder="/shared", kind="nfs4"), Mount(folder="/x", kind="fuse.z")]
    assert default_ttl(Path("/home/run"), mounted) == (15.0, "local ext4")
    assert default_ttl(Path("/shared/run"), mounted) == (60.0, "shared nfs4")
    assert default_ttl(Path("/x/run"), mounted) == (60.0, "shared fuse.z")
    assert default_ttl(Path("/shared-not/run"), mounted)[0] == 15.0
    assert default_ttl(Path("/run"), [])[0] == 60.0


def test_a_time_to_live_that_was_asked_for_is_kept_and_doubted(tmp_path: Path, claims: Path) -> None:
    report = make_plan(claims, run=tmp_path / "run", ttl_s=2.0)
    assert manifest_of(tmp_path / "run").ttl_s == 2.0
    assert any("--ttl 2 is less than" in note for note in report.notes)


def test_other_refusals_of_the_system_are_told_apart(tmp_path: Path) -> None:
    from fsctx.coordinator.plan.faults import disk_faults
    from fsctx.errors import StoreError

    for number, kind in ((errno.EDQUOT, NoSpace), (errno.EROFS, InputError), (errno.EIO, StoreError)):
        with pytest.raises(kind, match="where: "), disk_faults("where"):
            raise OSError(number, os.strerror(number))
