"""Submitting local pilots: the text, the processes, the record."""

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner
from fabricate import FabricatedRun, fabricate

from fsctx.cli.submit import submit as command
from fsctx.coordinator.submit.base import PilotRequest
from fsctx.coordinator.submit.errors import PilotsFailed
from fsctx.coordinator.submit.local import Local
from fsctx.coordinator.submit.record import read_submission
from fsctx.coordinator.submit.submit import batch_system, rendered, submit
from fsctx.coordinator.submit.texts import render
from fsctx.errors import InputError
from fsctx.protocol import names, orders


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "a run", n_rows=10)


@pytest.fixture
def echoing_python(tmp_path: Path) -> Path:
    """Stands for the interpreter: says how it was called and ends."""
    script = tmp_path / "echoing python"
    script.write_text(
        '#!/bin/sh\nprintf "%s|" "$@"\necho\necho threads $OMP_NUM_THREADS $OMP_WAIT_POLICY\n'
        "cat\nps -o sid= -p $$ | tr -d ' '\necho $$\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def request(run: FabricatedRun, *, python: str = "/usr/bin/python3", n: int = 2, cores: int = 8) -> PilotRequest:
    return PilotRequest(
        name="local-1",
        run=run.root,
        n=n,
        since_order=3,
        python=python,
        cores=cores,
        agent_options=("--engine", "fake:load_s=1", "it's"),
    )


def test_the_text_is_a_pure_function_of_the_request(run: FabricatedRun) -> None:
    assert Local().render(request(run), {}) == (
        "#!/bin/sh\n"
        "# fsctx local pilot of submission local-1\n"
        "# Threads that wait for each other must not burn the cores of other pilots.\n"
        "export OMP_NUM_THREADS=4\n"
        "export OMP_WAIT_POLICY=PASSIVE\n"
        "# Inside of a batch job, too: this pilot is to outlive the process that starts it.\n"
        "export FSCTX_DETACHED=1\n"
        "# exec: SIGTERM must reach the agent itself.\n"
        f"exec nice -n 0 /usr/bin/python3 -P -m fsctx agent '{run.root}' \\\n"
        "    --submission local-1 --since-order 3 --engine fake:load_s=1 'it'\"'\"'s'\n"
    )


def test_settings_fill_what_the_template_declares(run: FabricatedRun) -> None:
    text = Local().render(request(run), {"threads": "7", "nice": "19", "setup": "module load cuda"})
    assert "OMP_NUM_THREADS=7\n" in text
    assert "exec nice -n 19 " in text
    assert "\nmodule load cuda\n" in text


def test_an_unknown_setting_is_refused_with_the_known_ones(run: FabricatedRun) -> None:
    with pytest.raises(InputError, match=r"--set gpus: .* has no such setting; it has: nice, setup, threads$"):
        Local().render(request(run), {"gpus": "1"})


def test_what_fsctx_gives_cannot_be_set(run: FabricatedRun) -> None:
    with pytest.raises(InputError, match="--set python"):
        Local().render(request(run), {"python": "evil"})


def test_a_setting_that_a_template_needs_is_asked_for() -> None:
    with pytest.raises(InputError, match=r"'queue' is undefined: pass it with --set"):
        render("{{ queue }}", {}, {}, where="mine.j2")


def test_bad_jinja_in_a_submit_template_is_told_with_its_line() -> None:
    with pytest.raises(InputError, match=r"^mine\.j2:2: "):
        render("x\n{{ queue", {}, {}, where="mine.j2")


@pytest.mark.parametrize(("cores", "n", "threads"), [(8, 3, 2), (2, 4, 1), (1, 1, 1)])
def test_the_cores_are_split(run: FabricatedRun, cores: int, n: int, threads: int) -> None:
    text = Local().render(request(run, n=n, cores=cores), {})
    assert f"OMP_NUM_THREADS={threads}\n" in text


@pytest.mark.parametrize("n", [0, -1])
def test_no_pilots_at_all_are_refused(run: FabricatedRun, n: int) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        rendered(Local(), request(run, n=n), {})


def test_pilots_run_detached_and_are_recorded(run: FabricatedRun, echoing_python: Path) -> None:
    done = submit(run.store, Local(), request(run, python=str(echoing_python)), {}, created="2026-01-01")
    for pilot in done.pilots:
        assert os.waitstatus_to_exitcode(os.waitpid(int(pilot.id), 0)[1]) == 0
    assert read_submission(run.store, "local-1") == done
    assert [pilot.log for pilot in done.pilots] == [names.log("local-1-0"), names.log("local-1-1")]
    for pilot in done.pilots:
        said = (run.root / str(pilot.log)).read_text().splitlines()
        arguments = f"-P|-m|fsctx|agent|{run.root}|--submission|local-1|--since-order|3|--engine|fake:load_s=1|it's|"
        assert said == [arguments, "threads 4 PASSIVE", pilot.id, pilot.id]


def test_pilots_that_did_start_are_recorded_when_another_did_not(run: FabricatedRun, echoing_python: Path) -> None:
    run.store.make_folder(names.log("local-1-1"))  # the second log cannot be opened
    with pytest.raises(PilotsFailed, match="pilot 2 of 2 did not start"):
        submit(run.store, Local(), request(run, python=str(echoing_python)), {}, created="2026-01-01")
    record = read_submission(run.store, "local-1")
    assert record is not None
    assert (record.wanted, len(record.pilots)) == (2, 1)
    os.waitpid(int(record.pilots[0].id), 0)


def test_an_unknown_batch_system_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="--batch pbs is unknown: pass one of htcondor, slurm, gridengine, local"):
        batch_system("pbs")


def test_a_dry_run_prints_the_text_and_changes_nothing(run: FabricatedRun) -> None:
    orders.give_order(run.store, "stop")
    before = sorted(run.root.rglob("*"))
    done = CliRunner().invoke(command, [str(run.root), "--batch", "local", "-n", "1", "--dry-run", "--", "--no-peers"])
    assert done.exit_code == 0
    assert done.output.startswith("#!/bin/sh\n")
    assert done.output.endswith(" --since-order 1 --no-peers\n")
    assert sorted(run.root.rglob("*")) == before


def test_options_that_an_agent_would_refuse_are_refused_before_anything_starts(run: FabricatedRun) -> None:
    done = CliRunner().invoke(command, [str(run.root), "--batch", "local", "-n", "1", "--", "--engien", "fake"])
    assert done.exit_code == 2
    assert "No such option '--engien'" in done.output
    assert run.store.list(names.SUBMISSIONS) == []


@pytest.mark.parametrize("extra", [["-n", "3"], ["-n", "2", "--", "--no-peers"]])
def test_doctors_are_two_and_no_agents(run: FabricatedRun, extra: list[str]) -> None:
    done = CliRunner().invoke(command, [str(run.root), "--batch", "local", "--doctor", *extra])
    assert isinstance(done.exception, InputError)
    assert "pass -n 2" in str(done.exception)
    assert run.store.list(names.SUBMISSIONS) == []


@pytest.mark.parametrize("extra", [["--set", "nice"], ["--set", "gpus=1"]])
def test_bad_settings_start_nothing(run: FabricatedRun, extra: list[str]) -> None:
    done = CliRunner().invoke(command, [str(run.root), "--batch", "local", "-n", "1", *extra])
    assert isinstance(done.exception, InputError)
    assert run.store.list(names.SUBMISSIONS) == []
