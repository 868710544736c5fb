"""Pilots that bring their software environment along: which one, and what the batch systems are told."""

import dataclasses
import os
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from environments import BASE, make_archive, register
from fabricate import FabricatedRun, fabricate
from fake_batch import FakeAccess, FakeCommands

from fsctx.cli.submit import submit as command
from fsctx.coordinator.submit.base import BatchSystem, PilotRequest
from fsctx.coordinator.submit.bootstrap import bootstrap_file
from fsctx.coordinator.submit.gridengine import GridEngine
from fsctx.coordinator.submit.htcondor.system import HTCondor
from fsctx.coordinator.submit.local import Local
from fsctx.coordinator.submit.slurm import Slurm
from fsctx.coordinator.submit.texts import Templates
from fsctx.errors import InputError
from fsctx.protocol.manifest import Context
from fsctx.protocol.needs import needs_of

DIGEST = "d" * 64
REQUEST = PilotRequest(
    name="s-1",
    run=Path("/shared/my-run"),
    n=2,
    since_order=3,
    python="/usr/bin/python3.11",
    cores=8,
    agent_options=("--no-peers",),
    environment=DIGEST,
)
ARGUMENTS = f"/shared/my-run --env {DIGEST}"
AFTER = "--submission s-1 --since-order 3 --no-peers"


@pytest.fixture
def run(tmp_path: Path) -> FabricatedRun:
    return fabricate(tmp_path / "run", n_rows=10)


def add(run: FabricatedRun, archive: Path, name: str = "tiny") -> Context:
    archive.parent.mkdir(exist_ok=True)
    return register(run.root, make_archive(archive, fsctx=name))


def dry_run(run: FabricatedRun, *words: str) -> Result:
    return CliRunner().invoke(command, [str(run.root), "--batch", "local", "-n", "1", "--dry-run", *words])


@pytest.mark.parametrize(
    "system", [Local(), Slurm(Templates(), call=FakeCommands()), GridEngine(Templates(), call=FakeCommands())]
)
def test_a_script_starts_the_bootstrap_in_place_of_itself(system: BatchSystem) -> None:
    last = system.render(REQUEST, {}).replace(" \\\n   ", "").strip().splitlines()[-1]
    assert last.startswith("exec ")
    expected = f"/usr/bin/python3.11 -I {shlex.quote(str(bootstrap_file()))} {ARGUMENTS} {AFTER}"
    assert last.endswith(expected)


def test_htcondor_executes_the_bootstraps_interpreter() -> None:
    access = FakeAccess()
    lines = HTCondor(access, access.how, Templates()).render(REQUEST, {}).splitlines()
    assert "executable = /usr/bin/python3.11" in lines
    assert f'arguments = "-I {bootstrap_file()} {ARGUMENTS} {AFTER}"' in lines


def test_the_only_environment_of_a_run_is_used_and_its_interpreter_with_it(run: FabricatedRun, tmp_path: Path) -> None:
    digest = add(run, tmp_path / "env.tar.gz").digest
    text = dry_run(run).output
    assert f"{shlex.quote(BASE)} -I " in text or f"{os.path.basename(BASE)} -I " in text
    assert f"--env {digest} --submission" in text.replace(" \\\n   ", "")


def test_an_environment_can_be_done_without(run: FabricatedRun, tmp_path: Path) -> None:
    add(run, tmp_path / "env.tar.gz")
    text = dry_run(run, "--env", "none").output
    assert "-P -m fsctx agent" in text
    assert "--env" not in text


def test_of_several_environments_one_is_to_be_named(run: FabricatedRun, tmp_path: Path) -> None:
    first, second = (add(run, tmp_path / name / "env.tar.gz", name) for name in ("1.0", "2.0"))
    refused = dry_run(run).exception
    assert isinstance(refused, InputError)
    assert all(one.digest[:12] in str(refused) for one in (first, second))
    for asked in (second.digest, second.digest[:8]):
        assert second.digest in dry_run(run, "--env", asked).output
    assert isinstance(dry_run(run, "--env", second.name).exception, InputError)


def test_an_archive_that_is_gone_or_another_one_is_refused_before_anything_starts(
    run: FabricatedRun, tmp_path: Path
) -> None:
    archive = tmp_path / "env.tar.gz"
    add(run, archive)
    archive.write_bytes(b"another")
    assert "had" in str(dry_run(run).exception)
    archive.unlink()
    assert "No such file" in str(dry_run(run).exception)


def test_the_disk_must_hold_the_environment_too(run: FabricatedRun, tmp_path: Path) -> None:
    environment = add(run, tmp_path / "env.tar.gz")
    assert environment.environment is not None
    large = dataclasses.replace(environment.environment, unpacked_bytes=5 << 30)
    large_one = dataclasses.replace(environment, environment=large)
    assert needs_of([], on_gpu=False, environment=large_one).disk_mb - needs_of([], on_gpu=False).disk_mb == 5 << 10
